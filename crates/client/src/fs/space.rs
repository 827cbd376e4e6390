//! Space, holes, and copies between open files by path. They need version 4.2; in other versions they fail with EOPNOTSUPP.

use super::File;
use crate::error::Error;
use crate::results::Content;

impl File {
    /// Reserves space for a range; the file grows if the range ends after it.
    ///
    /// # Errors
    /// As fallocate(2) without flags.
    pub async fn allocate(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.file.allocate(offset, length).await.map_err(|cause| self.failed("allocate", cause))
    }

    /// Turns a range into a hole; the size does not change.
    ///
    /// # Errors
    /// As fallocate(2) with `FALLOC_FL_PUNCH_HOLE`.
    pub async fn punch_hole(&self, offset: u64, length: u64) -> Result<(), Error> {
        self.file.punch_hole(offset, length).await.map_err(|cause| self.failed("punch a hole in", cause))
    }

    /// Returns the first offset at or after `offset` with data, or in a hole. Every file ends with a hole.
    ///
    /// # Errors
    /// As lseek(2) with `SEEK_DATA` and `SEEK_HOLE`: ENXIO after the last data or the end of the file.
    pub async fn seek(&self, offset: u64, content: Content) -> Result<u64, Error> {
        self.file.seek(offset, content).await.map_err(|cause| self.failed("seek", cause))
    }

    /// Copies at most `count` bytes of `source` at `source_offset` to `offset` of this file, at the server. Returns their number;
    /// 0 means that the source ends there. The data are stable after [`Self::sync`].
    ///
    /// # Errors
    /// As copy_file_range(2).
    pub async fn copy_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        count: u64,
    ) -> Result<u64, Error> {
        let copied = self.file.copy_from(&source.file, source_offset, offset, count).await;
        copied.map_err(|cause| self.failed("copy to", cause))
    }

    /// Lets a range of this file share the blocks of `source` (reflink); a count of 0 means all bytes that follow.
    ///
    /// # Errors
    /// As ioctl_ficlonerange(2).
    pub async fn clone_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        count: u64,
    ) -> Result<(), Error> {
        let cloned = self.file.clone_from(&source.file, source_offset, offset, count).await;
        cloned.map_err(|cause| self.failed("clone to", cause))
    }
}
