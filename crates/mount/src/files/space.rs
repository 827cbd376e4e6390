//! Space, holes and copies at the server. Only version 4.2 has them; otherwise the kernel uses its fallbacks.

use client::error::OpError;
use client::results::Content;
use fuse::{Copied, CopyFileRange, Errno, Fallocate, Lseek};

use super::{Files, errno};

/// Modes of fallocate(2): allocate and grow, and make a hole (`FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE`).
const ALLOCATE: u32 = 0;
const PUNCH_HOLE: u32 = 3;
/// `SEEK_DATA` and `SEEK_HOLE` of lseek(2).
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

impl Files {
    pub(crate) async fn fallocate(&self, _: fuse::Caller, request: Fallocate) -> Result<(), Errno> {
        let file = self.open_files.get(request.handle)?;
        let done = match request.mode {
            ALLOCATE => file.allocate(request.offset, request.length).await,
            PUNCH_HOLE => file.punch_hole(request.offset, request.length).await,
            _ => return Err(Errno::OPNOTSUPP),
        };
        done.map_err(|error| errno(&error))
    }

    pub(crate) async fn lseek(&self, _: fuse::Caller, request: Lseek) -> Result<u64, Errno> {
        let file = self.open_files.get(request.handle)?;
        let content = match request.whence {
            SEEK_DATA => Content::Data,
            SEEK_HOLE => Content::Hole,
            _ => return Err(Errno::INVAL),
        };
        file.seek(request.offset, content).await.map_err(|error| without(&error))
    }

    pub(crate) async fn copy_file_range(
        &self,
        _: fuse::Caller,
        request: CopyFileRange,
    ) -> Result<Copied, Errno> {
        if request.flags != 0 {
            return Err(Errno::INVAL);
        }
        let (source, target) =
            (self.open_files.get(request.handle)?, self.open_files.get(request.target_handle)?);
        if source.inode() == target.inode() {
            // RFC 7862 §15.2.3: the server refuses it. The kernel copies by reading and writing.
            return Err(Errno::OPNOTSUPP);
        }
        let copied = target.copy_from(&source, request.offset, request.target_offset, request.length).await;
        copied.map(Copied).map_err(|error| without(&error))
    }
}

/// Returns the error number; for a missing operation, the one that makes the kernel use its fallback.
fn without(error: &OpError) -> Errno {
    match errno(error) {
        Errno::OPNOTSUPP => Errno::NOSYS,
        other => other,
    }
}
