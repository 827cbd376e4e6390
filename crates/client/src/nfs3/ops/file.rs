//! READ, WRITE, COMMIT (RFC 1813 §3.3.6, §3.3.7, §3.3.21).

use bytes::Bytes;
use protocol::nfs3::{CommitArgs, ReadArgs, StableHow};
use protocol::nfs4::types::MAX_IO;

use super::super::Nfs3;
use super::super::calls::{GatheredWrite, to_wire};
use super::super::convert::{changed, post_op};
use crate::attributes::Before;
use crate::config::{Caller, Version};
use crate::errno::Errno;
use crate::error::OpError;
use crate::record::{first_bytes, length};
use crate::results::{CommitReply, FileHandle, OpenState, ReadReply, Stability, WriteReply};

impl Nfs3 {
    /// Reads at most `count` bytes.
    pub(crate) async fn read(
        &self,
        caller: &Caller,
        handle: FileHandle,
        _state: &OpenState,
        offset: u64,
        count: u32,
    ) -> Result<ReadReply, OpError> {
        let count = count.min(self.config.transfer_max());
        let ok = self.call(caller, &ReadArgs { file: to_wire(&handle)?, offset, count }).await?;
        let data = ok.data.into_bytes();
        if data.len() != ok.count as usize {
            return Err(OpError::BadReply("a READ whose count differs from the length of its data"));
        }
        if data.len() > count as usize {
            return Err(OpError::BadReply("more data than requested"));
        }
        if data.is_empty() && !ok.eof && count > 0 {
            return Err(OpError::BadReply("a READ without data before the end of the file"));
        }
        Ok(ReadReply { data, eof: ok.eof, attributes: post_op(&ok.file_attributes)? })
    }

    /// Writes the parts one after the other, at most as much as fits one WRITE; the server may write less.
    pub(crate) async fn write_parts(
        &self,
        caller: &Caller,
        handle: FileHandle,
        _state: &OpenState,
        offset: u64,
        data: &[Bytes],
        stability: Stability,
    ) -> Result<WriteReply, OpError> {
        let whole = length(data);
        if whole > MAX_IO {
            return Err(OpError::Invalid(Errno::EINVAL, "more data than one WRITE can carry"));
        }
        let length = whole.min(self.config.transfer_max() as usize);
        let data = if length < whole { &first_bytes(data, length)[..] } else { data };
        let stable = match stability {
            Stability::Unstable => StableHow::Unstable,
            Stability::DataSync => StableHow::DataSync,
            Stability::FileSync => StableHow::FileSync,
        };
        let arguments = GatheredWrite { file: to_wire(&handle)?, offset, stable, data };
        let ok = self.call(caller, &arguments).await?;
        if ok.count as usize > length || (ok.count == 0 && length > 0) || ok.committed < stable {
            return Err(OpError::BadReply(
                "a WRITE of more or less than was sent, or less stable than requested",
            ));
        }
        let stability = match ok.committed {
            StableHow::Unstable => Stability::Unstable,
            StableHow::DataSync => Stability::DataSync,
            StableHow::FileSync => Stability::FileSync,
        };
        let mut file = changed(&ok.file_wcc)?;
        if self.version == Version::V2 {
            file.before = Some(Before::Assumed);
        }
        Ok(WriteReply { count: ok.count, stability, verifier: ok.verf, file })
    }

    /// Makes written data stable; a count of 0 means all from the offset on.
    pub(crate) async fn commit(
        &self,
        caller: &Caller,
        handle: FileHandle,
        offset: u64,
        count: u32,
    ) -> Result<CommitReply, OpError> {
        let ok = self.call(caller, &CommitArgs { file: to_wire(&handle)?, offset, count }).await?;
        Ok(CommitReply { verifier: ok.verf, file: changed(&ok.file_wcc)? })
    }
}
