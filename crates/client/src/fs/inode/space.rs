//! Space, holes, and copies between files of one server. Written-behind data are sent before the server finds holes or
//! copies; cached data of a range that it changes are dropped.

use std::ops::Range;

use protocol::nfs4::types::Status;

use super::OpenFile;
use crate::attributes::Changed;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::{Content, CopyReply, Ranges, Stability};

/// Number of attempts to copy data that a server loses by a restart before they are stable.
const COPIES_MAX: u32 = 8;

/// Space and holes. They need version 4.2: others fail with EOPNOTSUPP.
impl OpenFile {
    /// Reserves space for a range; the file grows if the range ends beyond it.
    ///
    /// # Errors
    /// As fallocate(2) without flags: ENOSPC, EFBIG, EOPNOTSUPP; EINVAL for an empty range.
    pub async fn allocate(&self, offset: u64, length: u64) -> Result<(), OpError> {
        check(offset, length)?;
        let inode = self.inode();
        inode.sync_data().await;
        let change = inode.start_change();
        let allocated = inode.client().allocate(self.caller(), inode.handle(), self.state(), offset, length);
        // The content of the range does not change.
        change.end_changed(allocated.await)?;
        inode.client().note_modified(&inode.handle());
        Ok(())
    }

    /// Turns a range into a hole; the size does not change.
    ///
    /// # Errors
    /// As fallocate(2) with `FALLOC_FL_PUNCH_HOLE`.
    pub async fn punch_hole(&self, offset: u64, length: u64) -> Result<(), OpError> {
        check(offset, length)?;
        let inode = self.inode();
        inode.sync_data().await;
        let change = inode.start_change();
        let emptied = inode.client().deallocate(self.caller(), inode.handle(), self.state(), offset, length);
        inode.client().note_modified(&inode.handle());
        let ended = change.end_changed(emptied.await);
        inode.drop_clean_data(offset..offset + length);
        ended
    }

    /// Returns the first offset from `offset` on with data, or in a hole. Every file ends with a hole.
    ///
    /// # Errors
    /// As lseek(2) with `SEEK_DATA` and `SEEK_HOLE`: ENXIO after the last data or the end of the file.
    pub async fn seek(&self, offset: u64, content: Content) -> Result<u64, OpError> {
        let (client, handle) = (self.inode().client(), self.inode().handle());
        self.inode().send_data().await;
        let found = client.seek(self.caller(), handle, self.state(), offset, content).await?;
        found.ok_or(OpError::Invalid(Errno::ENXIO, "nothing of this kind follows"))
    }
}

/// Copies between files of one server. They need version 4.2: others fail with EOPNOTSUPP.
impl OpenFile {
    /// Copies at most `count` bytes of `source` from `source_offset` on to `offset` of this file, at the server. Returns their number:
    /// fewer than requested are not an error, 0 means that the source ends there. The data are stable then. If the future is dropped,
    /// some of them may have been copied.
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
            // RFC 7862 §15.2.3: a range that ends beyond the source fails. copy_file_range(2) shortens it.
            Err(OpError::Status(Status::INVAL)) => {
                let size = source.inode().refresh(source.caller()).await?.size;
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
        Ok(reply.count)
    }

    /// Copies, and commits the data. They are copied again if the server has restarted meanwhile: this client does not have them.
    async fn copy_once(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        count: u64,
    ) -> Result<CopyReply, OpError> {
        source.inode().sync_data().await;
        let inode = self.inode();
        inode.sync_data().await;
        let from = (source.inode().handle(), source.state());
        let to = (inode.handle(), self.state());
        let ranges = Ranges { source_offset, destination_offset: offset, count };
        for _ in 0..COPIES_MAX {
            let change = inode.start_change();
            let copied = inode.client().copy(self.caller(), from, to, ranges).await;
            inode.client().note_modified(&inode.handle());
            inode.drop_clean_data(range_of(offset, count));
            let reply = match copied {
                Ok(reply) => reply,
                Err(error) => {
                    change.end_failed(&error);
                    return Err(error);
                }
            };
            if reply.stability > Stability::Unstable || reply.count == 0 {
                change.end(Some(reply.file));
                return Ok(reply);
            }
            let committed = inode.client().commit(self.caller(), inode.handle(), 0, 0).await?;
            let after = committed.file.after.or(reply.file.after);
            change.end(Some(Changed { after, ..reply.file }));
            if committed.verifier == reply.verifier {
                return Ok(reply);
            }
        }
        Err(OpError::Invalid(Errno::EIO, "the server restarted after each copy and has lost the data"))
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
        source.inode().sync_data().await;
        let inode = self.inode();
        inode.sync_data().await;
        let from = (source.inode().handle(), source.state());
        let to = (inode.handle(), self.state());
        let ranges = Ranges { source_offset, destination_offset: offset, count };
        let change = inode.start_change();
        let cloned = inode.client().clone_range(self.caller(), from, to, ranges);
        inode.client().note_modified(&inode.handle());
        let ended = change.end_changed(cloned.await);
        inode.drop_clean_data(range_of(offset, count));
        ended
    }

    fn same_server(&self, source: &Self) -> Result<(), OpError> {
        if self.inode().client().is_same(source.inode().client()) {
            return Ok(());
        }
        Err(OpError::Invalid(Errno::EXDEV, "the files are of different servers"))
    }
}

/// Returns the range of the destination of a copy; a count of 0 means all bytes that follow.
fn range_of(offset: u64, count: u64) -> Range<u64> {
    offset..if count == 0 { u64::MAX } else { offset.saturating_add(count) }
}

/// Checks a range as fallocate(2) does.
fn check(offset: u64, length: u64) -> Result<(), OpError> {
    if length == 0 {
        return Err(OpError::Invalid(Errno::EINVAL, "an empty range"));
    }
    match offset.checked_add(length) {
        Some(end) if i64::try_from(end).is_ok() => Ok(()),
        _ => Err(OpError::Invalid(Errno::EFBIG, "a range beyond the largest offset")),
    }
}
