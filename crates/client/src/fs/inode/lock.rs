//! Locks of open file descriptions.

use std::collections::BTreeSet;

use super::{Inode, OpenFile};
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::locks::{LockConflict, LockKind, LockOwner, LockRange, Locked};

/// The first number of the owners of [`OpenFile::flock`]. Programs that number owners themselves use lower numbers.
pub const FLOCK_NUMBERS: u64 = 1 << 63;

/// Byte-range locks, as in fcntl(2). All locks are advisory.
///
/// Locks of one owner never conflict, even through different opens. A further lock replaces the owner's locks in the range.
/// The client reclaims locks when the server restarts; if it cannot, operations on the file fail with [`LockLost`](OpError::LockLost)
/// (EIO) until the range is unlocked or the file is closed.
impl OpenFile {
    /// Locks a range, and waits until it is free. If the future is dropped, nothing is locked.
    ///
    /// # Errors
    /// As fcntl(2) with `F_SETLKW`: EBADF if the file is not open for reading (shared) or writing (exclusive), EDEADLK if the
    /// server finds a deadlock, ENOLCK if there are too many locks, or if the server has no lock manager (version 3).
    pub async fn lock(&self, owner: LockOwner, range: LockRange, kind: LockKind) -> Result<(), OpError> {
        self.check_mode(kind)?;
        self.lock_range(owner, range, kind, true).await
    }

    /// Locks a range if it is free.
    ///
    /// # Errors
    /// As [`Self::lock`], and EAGAIN if another owner has a lock that conflicts.
    pub async fn try_lock(&self, owner: LockOwner, range: LockRange, kind: LockKind) -> Result<(), OpError> {
        self.check_mode(kind)?;
        self.lock_range(owner, range, kind, false).await
    }

    /// Servers of version 3 do not know the mode of the open file.
    fn check_mode(&self, kind: LockKind) -> Result<(), OpError> {
        let mode = self.flags().mode;
        let is_open_for = if kind == LockKind::Shared { mode.read } else { mode.write };
        let why = "the file is not open for this kind of lock";
        if is_open_for { Ok(()) } else { Err(OpError::Invalid(Errno::EBADF, why)) }
    }

    async fn lock_range(
        &self,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
        wait: bool,
    ) -> Result<(), OpError> {
        // Data written without the lock are sent to the server before the wait for its holders.
        self.inode().sync_for_others().await;
        // Noted first: the reply to a lock may be lost.
        self.lock_owners.lock().insert(owner);
        let (client, handle) = (self.inode().client(), self.inode().handle());
        let started = self.inode().mount().start();
        // Cached data may be outdated. The attributes under the lock show whether they are.
        match client.lock(self.caller(), handle, self.state(), owner, range, kind, wait).await? {
            Locked::AtServer(Some(attributes)) => {
                self.inode().forget_if_changing(&attributes);
                self.inode().learn(started, attributes);
            }
            Locked::AtServer(None) => self.inode().forget_content(),
            // Cached data are valid if they were read under the delegation.
            Locked::Delegated if self.inode().has_delegated_attributes() => {}
            Locked::Delegated => self.inode().expire(),
            Locked::Here => {}
        }
        Ok(())
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
    ) -> Result<Option<LockConflict>, OpError> {
        let (client, handle) = (self.inode().client(), self.inode().handle());
        client.test_lock(self.caller(), handle, owner, range, kind).await
    }

    /// Unlocks a range; it need not contain locks.
    ///
    /// # Errors
    /// As fcntl(2) with `F_UNLCK`.
    pub async fn unlock(&self, owner: LockOwner, range: LockRange) -> Result<(), OpError> {
        // The next owner of the lock reads data that were written under this one.
        self.inode().sync_for_others().await;
        self.inode().client().unlock(self.caller(), self.inode().handle(), owner, range).await
    }

    /// Releases all locks that were taken through this file.
    pub(super) async fn unlock_all(&self) {
        let owners = std::mem::take(&mut *self.lock_owners.lock());
        self.inode().unlock_all(self.caller(), owners).await;
    }
}

impl Inode {
    /// Releases all locks of these owners.
    pub(super) async fn unlock_all(&self, caller: &Caller, owners: BTreeSet<LockOwner>) {
        if !owners.is_empty() {
            self.sync_for_others().await;
        }
        for owner in owners {
            // The server releases remaining locks when the file is closed.
            let _ = self.client().unlock(caller, self.handle(), owner, LockRange::WHOLE).await;
        }
    }
}

/// Locks of the whole file, as in flock(2): each open file is an owner of its own. As in Linux's client they are byte-range
/// locks at the server, so that they conflict with those of fcntl(2) there.
impl OpenFile {
    /// Locks the file, and waits until it is free. A lock of the other kind is replaced, but not atomically.
    ///
    /// # Errors
    /// As flock(2). An exclusive lock needs a file that is open for writing (EBADF) in version 4, as in Linux's client.
    pub async fn flock(&self, kind: LockKind) -> Result<(), OpError> {
        self.lock_range(self.flock_owner(), LockRange::WHOLE, kind, true).await
    }

    /// Locks the file if it is free.
    ///
    /// # Errors
    /// As [`Self::flock`], and EWOULDBLOCK (EAGAIN) if another owner has a conflicting lock.
    pub async fn try_flock(&self, kind: LockKind) -> Result<(), OpError> {
        self.lock_range(self.flock_owner(), LockRange::WHOLE, kind, false).await
    }

    /// Unlocks the file.
    ///
    /// # Errors
    /// As flock(2) with `LOCK_UN`.
    pub async fn funlock(&self) -> Result<(), OpError> {
        self.unlock(self.flock_owner(), LockRange::WHOLE).await
    }

    fn flock_owner(&self) -> LockOwner {
        LockOwner::File(FLOCK_NUMBERS | self.number)
    }
}
