//! Space, holes, and copies between files of one server.

use protocol::nfs4::types::Status;

use super::OpenFile;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::{Content, CopyReply, Ranges, Stability};

/// Space and holes. They need version 4.2: others fail with EOPNOTSUPP.
impl OpenFile {
    /// Reserves space for a range; the file grows if the range ends behind it.
    ///
    /// # Errors
    /// As fallocate(2) without flags: ENOSPC, EFBIG, EOPNOTSUPP; EINVAL for an empty range.
    pub async fn allocate(&self, offset: u64, length: u64) -> Result<(), OpError> {
        check(offset, length)?;
        let (client, handle) = (self.inode().client(), self.inode().handle());
        client.allocate(self.caller(), handle, self.state(), offset, length).await.map(|_| ())
    }

    /// Makes a hole of a range; the size stays.
    ///
    /// # Errors
    /// As fallocate(2) with `FALLOC_FL_PUNCH_HOLE`.
    pub async fn punch_hole(&self, offset: u64, length: u64) -> Result<(), OpError> {
        check(offset, length)?;
        let (client, handle) = (self.inode().client(), self.inode().handle());
        client.deallocate(self.caller(), handle, self.state(), offset, length).await.map(|_| ())
    }

    /// Returns the first offset from `offset` on with data, or in a hole. Every file ends with a hole.
    ///
    /// # Errors
    /// As lseek(2) with `SEEK_DATA` and `SEEK_HOLE`: ENXIO behind the last data or the end of the file.
    pub async fn seek(&self, offset: u64, content: Content) -> Result<u64, OpError> {
        let (client, handle) = (self.inode().client(), self.inode().handle());
        let found = client.seek(self.caller(), handle, self.state(), offset, content).await?;
        found.ok_or(OpError::Invalid(Errno::ENXIO, "nothing of this kind follows"))
    }
}

/// Copies between files of one server. They need version 4.2: others fail with EOPNOTSUPP.
impl OpenFile {
    /// Copies at most `count` bytes of `source` from `source_offset` on to `offset` of this file, at the server. Returns how many:
    /// fewer than requested are not an error, 0 means that the source ends there. The data are stable after [`Self::sync`]. If the
    /// future is dropped, some of them may have been copied.
    ///
    /// # Errors
    /// As copy_file_range(2): EXDEV if the files are of different servers or the server cannot copy between their file systems,
    /// EINVAL if the ranges overlap in one file.
    pub async fn copy_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        count: u64,
    ) -> Result<u64, OpError> {
        self.same_server(source)?;
        // Zero bytes mean all bytes that follow.
        if count == 0 {
            return Ok(0);
        }
        let reply = match self.copy_once(source, source_offset, offset, count).await {
            // RFC 7862 §15.2.3: a range that ends behind the source fails. copy_file_range(2) shortens it.
            Err(OpError::Status(Status::INVAL)) => {
                let size = source.attributes().await?.size;
                let left = size.saturating_sub(source_offset);
                if left == 0 {
                    return Ok(0);
                }
                if left >= count {
                    return Err(OpError::Status(Status::INVAL));
                }
                self.copy_once(source, source_offset, offset, left).await?
            }
            outcome => outcome?,
        };
        if reply.stability == Stability::Unstable && reply.count > 0 {
            self.note_unstable(reply.verifier)?;
        }
        Ok(reply.count)
    }

    async fn copy_once(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        count: u64,
    ) -> Result<CopyReply, OpError> {
        let from = (source.inode().handle(), source.state());
        let to = (self.inode().handle(), self.state());
        let ranges = Ranges { source_offset, destination_offset: offset, count };
        self.inode().client().copy(self.caller(), from, to, ranges).await
    }

    /// Lets a range of this file share the blocks of `source` (reflink); a count of 0 means all bytes that follow.
    ///
    /// # Errors
    /// As ioctl_ficlonerange(2): EOPNOTSUPP or EXDEV if the file system cannot, EINVAL if the range does not begin and end with a
    /// block.
    pub async fn clone_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        count: u64,
    ) -> Result<(), OpError> {
        self.same_server(source)?;
        let from = (source.inode().handle(), source.state());
        let to = (self.inode().handle(), self.state());
        let ranges = Ranges { source_offset, destination_offset: offset, count };
        self.inode().client().clone_range(self.caller(), from, to, ranges).await.map(|_| ())
    }

    fn same_server(&self, source: &Self) -> Result<(), OpError> {
        if self.inode().client().is_same(source.inode().client()) {
            return Ok(());
        }
        Err(OpError::Invalid(Errno::EXDEV, "the files are of different servers"))
    }
}

/// Checks a range as fallocate(2) does.
fn check(offset: u64, length: u64) -> Result<(), OpError> {
    if length == 0 {
        return Err(OpError::Invalid(Errno::EINVAL, "an empty range"));
    }
    match offset.checked_add(length) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(OpError::Invalid(Errno::EFBIG, "a range behind the largest offset")),
    }
}
