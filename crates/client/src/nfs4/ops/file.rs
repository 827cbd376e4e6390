//! READ, WRITE, COMMIT (RFC 8881 §18.22, §18.32, §18.3).

use bytes::Bytes;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::commit::CommitArgs;
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{MAX_IO, StableHow};
use xdr::Opaque;

use super::super::Nfs4;
use super::super::getattr::{get_attributes, get_change, take_attributes, take_change};
use super::super::wire::{put, take};
use crate::attributes::{Before, Changed};
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::record::length;
use crate::results::{CommitReply, FileHandle, OpenState, ReadReply, Stability, WriteReply};

impl Nfs4 {
    /// Reads at most `count` bytes.
    pub(crate) async fn read(
        &self,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
        offset: u64,
        count: u32,
    ) -> Result<ReadReply, OpError> {
        // Data are stored only if the file is still the one that was asked for.
        let wants_attributes = self.config.caches.blocks.is_some();
        let (reply, attributes) = self
            .with_stateid(state, |stateid| async move {
                let read = Op::Read(ReadArgs { stateid, offset, count });
                let ops = [put(handle), read, get_attributes()];
                let sent = if wants_attributes { &ops[..] } else { &ops[..2] };
                let mut results = self.read_only(caller, sent).await?;
                results.skip()?;
                let reply = take!(results, Read)?;
                Ok((reply, wants_attributes.then(|| take_attributes(&mut results).ok()).flatten()))
            })
            .await?;
        let data = reply.data.into_bytes();
        if data.len() > count as usize {
            return Err(OpError::BadReply("more data than requested"));
        }
        if data.is_empty() && !reply.eof && count > 0 {
            return Err(OpError::BadReply("a READ without data before the end of the file"));
        }
        Ok(ReadReply { data, eof: reply.eof, attributes })
    }

    /// Writes the parts one after the other, at most as much as fits one WRITE; the server may write less.
    pub(crate) async fn write_parts(
        &self,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
        offset: u64,
        data: &[Bytes],
        stability: Stability,
    ) -> Result<WriteReply, OpError> {
        let length = length(data);
        if length > MAX_IO {
            return Err(OpError::Invalid(Errno::EINVAL, "more data than fit into one WRITE"));
        }
        let stable = match stability {
            Stability::Unstable => StableHow::Unstable,
            Stability::DataSync => StableHow::DataSync,
            Stability::FileSync => StableHow::FileSync,
        };
        let (reply, before, attributes) = self
            .with_guarded_stateid(state, |stateid| {
                let write = Op::Write(WriteArgs { stateid, offset, stable, data: Opaque::default() });
                async move {
                    self.may_write(&handle).await?;
                    let ops = [put(handle), get_change(), write, get_attributes()];
                    let mut results = self.write_gathered(caller, &ops, data).await?;
                    results.skip()?;
                    let before = take_change(&mut results)?;
                    Ok((take!(results, Write)?, before, take_attributes(&mut results).ok()))
                }
            })
            .await?;
        if reply.count as usize > length || (reply.count == 0 && length > 0) || reply.committed < stable {
            return Err(OpError::BadReply(
                "a WRITE of more or less than was sent, or less stable than requested",
            ));
        }
        let stability = match reply.committed {
            StableHow::Unstable => Stability::Unstable,
            StableHow::DataSync => Stability::DataSync,
            StableHow::FileSync => Stability::FileSync,
        };
        // WRITE has no `change_info`: the change attribute is read in the same compound, though not atomically.
        let file = Changed { before: before.map(Before::Change), after: attributes, ..Changed::default() };
        Ok(WriteReply { count: reply.count, stability, verifier: reply.verifier, file })
    }

    /// Makes written data stable; a count of 0 means all data after the offset.
    pub(crate) async fn commit(
        &self,
        caller: &Caller,
        handle: FileHandle,
        offset: u64,
        count: u32,
    ) -> Result<CommitReply, OpError> {
        let commit = Op::Commit(CommitArgs { offset, count });
        let mut results = self.change(caller, &[put(handle), commit, get_attributes()]).await?;
        results.skip()?;
        let committed = take!(results, Commit)?;
        let file = Changed { after: take_attributes(&mut results).ok(), ..Changed::default() };
        Ok(CommitReply { verifier: committed.verifier, file })
    }
}
