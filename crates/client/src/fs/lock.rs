//! Locks of open files by path. Owners and errors are those of [`OpenFile`](super::inode::OpenFile).

use super::File;
use crate::error::Error;
use crate::locks::{LockConflict, LockKind, LockOwner, LockRange};

/// Byte-range locks, as fcntl(2) has them, and locks of the whole file, as flock(2) has them.
impl File {
    /// Locks a range, and waits until it is free. If the future is dropped, nothing is locked.
    ///
    /// # Errors
    /// As fcntl(2) with `F_SETLKW`: EBADF, EDEADLK, ENOLCK.
    pub async fn lock(&self, owner: LockOwner, range: LockRange, kind: LockKind) -> Result<(), Error> {
        self.file.lock(owner, range, kind).await.map_err(|cause| self.failed("lock", cause))
    }

    /// Locks a range if it is free.
    ///
    /// # Errors
    /// As [`Self::lock`], and EAGAIN if another owner has a lock that conflicts.
    pub async fn try_lock(&self, owner: LockOwner, range: LockRange, kind: LockKind) -> Result<(), Error> {
        self.file.try_lock(owner, range, kind).await.map_err(|cause| self.failed("lock", cause))
    }

    /// Returns a lock that a lock of this owner would conflict with; `None` if it would be granted.
    ///
    /// # Errors
    /// As fcntl(2) with `F_GETLK`.
    pub async fn test_lock(
        &self,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<Option<LockConflict>, Error> {
        let tested = self.file.test_lock(owner, range, kind).await;
        tested.map_err(|cause| self.failed("test lock of", cause))
    }

    /// Unlocks a range, which need not be locked.
    ///
    /// # Errors
    /// As fcntl(2) with `F_UNLCK`.
    pub async fn unlock(&self, owner: LockOwner, range: LockRange) -> Result<(), Error> {
        self.file.unlock(owner, range).await.map_err(|cause| self.failed("unlock", cause))
    }

    /// Locks the file for this open file, and waits until it is free.
    ///
    /// # Errors
    /// As flock(2). An exclusive lock needs a file that is open for writing (EBADF), as in Linux's client.
    pub async fn flock(&self, kind: LockKind) -> Result<(), Error> {
        self.file.flock(kind).await.map_err(|cause| self.failed("lock", cause))
    }

    /// Locks the file for this open file if it is free.
    ///
    /// # Errors
    /// As [`Self::flock`], and EWOULDBLOCK (EAGAIN).
    pub async fn try_flock(&self, kind: LockKind) -> Result<(), Error> {
        self.file.try_flock(kind).await.map_err(|cause| self.failed("lock", cause))
    }

    /// Releases the lock of [`Self::flock`].
    ///
    /// # Errors
    /// As flock(2) with `LOCK_UN`.
    pub async fn funlock(&self) -> Result<(), Error> {
        self.file.funlock().await.map_err(|cause| self.failed("unlock", cause))
    }
}
