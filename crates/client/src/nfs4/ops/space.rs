//! ALLOCATE, DEALLOCATE, SEEK (RFC 7862 §15.1, §15.4, §15.11).

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::space::{AllocateArgs, DataContent, DeallocateArgs, SeekArgs};
use protocol::nfs4::types::{Stateid, Status};

use super::super::Nfs4;
use super::super::getattr::{get_attributes, get_change, take_attributes, take_change};
use super::super::wire::{put, take};
use crate::attributes::{Before, Changed};
use crate::config::Caller;
use crate::error::OpError;
use crate::results::{Content, FileHandle, OpenState};

impl Nfs4 {
    /// Reserves space for a range of a file, which grows if the range ends after it.
    pub(crate) async fn allocate(
        &self,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
        offset: u64,
        length: u64,
    ) -> Result<Changed, OpError> {
        self.needs_4_2("preallocation")?;
        let allocate = |stateid| Op::Allocate(AllocateArgs { stateid, offset, length });
        self.change_space(caller, handle, state, allocate).await
    }

    /// Turns a range of a file into a hole; the size does not change.
    pub(crate) async fn deallocate(
        &self,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
        offset: u64,
        length: u64,
    ) -> Result<Changed, OpError> {
        self.needs_4_2("holes")?;
        let deallocate = |stateid| Op::Deallocate(DeallocateArgs { stateid, offset, length });
        self.change_space(caller, handle, state, deallocate).await
    }

    async fn change_space(
        &self,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
        op: impl Fn(Stateid) -> Op,
    ) -> Result<Changed, OpError> {
        self.with_stateid(state, async |stateid| {
            let ops = [put(handle), get_change(), op(stateid), get_attributes()];
            let mut results = self.change(caller, &ops).await?;
            results.skip()?;
            let before = take_change(&mut results)?.map(Before::Change);
            results.skip()?;
            Ok(Changed { before, after: take_attributes(&mut results).ok(), ..Changed::default() })
        })
        .await
    }

    /// Returns the first offset at or after `offset` with this content.
    pub(crate) async fn seek(
        &self,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
        offset: u64,
        content: Content,
    ) -> Result<Option<u64>, OpError> {
        self.needs_4_2("SEEK")?;
        let what = match content {
            Content::Data => DataContent::DATA,
            Content::Hole => DataContent::HOLE,
        };
        let found = self
            .with_stateid(state, async |stateid| {
                let seek = Op::Seek(SeekArgs { stateid, offset, what });
                let mut results = self.read_only(caller, &[put(handle), seek]).await?;
                results.skip()?;
                take!(results, Seek)
            })
            .await;
        match found {
            // After the last data there is only the hole at the end of every file.
            Ok(found) if found.eof && content == Content::Data => Ok(None),
            Ok(found) if found.offset < offset => Err(OpError::BadReply("a SEEK to an earlier offset")),
            Ok(found) => Ok(Some(found.offset)),
            Err(OpError::Status(Status::NXIO)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
