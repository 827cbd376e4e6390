//! Byte-range locks, and the calls of other hosts that belong to them.

use bytes::Bytes;

use super::{Client, Protocol};
use crate::config::Caller;
use crate::error::OpError;
use crate::locks::{LockConflict, LockKind, LockOwner, LockRange, Locked};
use crate::results::{FileHandle, OpenState};

/// Byte-range locks.
impl Client {
    /// Locks a range of an open file, and waits for it if `wait`. Returns what is known about cached data of the file.
    ///
    /// An owner's locks are those of fcntl(2): a further lock of the owner replaces its locks in the range. They are
    /// reclaimed when the server restarts. If they cannot be, operations on the open file fail with [`OpError::LockLost`] until
    /// the owner unlocks the range or closes the file. Closing the file unlocks all that owners have locked through it.
    ///
    /// If the caller drops the future, the range is unlocked again as soon as the server's reply has arrived.
    ///
    /// # Errors
    /// Status DENIED (EAGAIN) if another owner has it and the caller does not wait; OPENMODE if the file is open for
    /// something else; EDEADLK if the server finds a deadlock; ENOLCK in version 3 if the server has no lock manager, or no room.
    #[allow(clippy::too_many_arguments, reason = "they are those of fcntl(2)")]
    pub async fn lock(
        &self,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
        wait: bool,
    ) -> Result<Locked, OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.lock(caller, handle, owner, range, kind, wait).await,
            Protocol::Nfs4(nfs4) => nfs4.lock(caller, handle, state, owner, range, kind, wait).await,
        }
    }

    /// Returns a lock that a lock of this owner would conflict with (fcntl(2), `F_GETLK`).
    ///
    /// # Errors
    /// ENOLCK as for [`Self::lock`].
    pub async fn test_lock(
        &self,
        caller: &Caller,
        handle: FileHandle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<Option<LockConflict>, OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.test_lock(caller, handle, owner, range, kind).await,
            Protocol::Nfs4(nfs4) => nfs4.test_lock(caller, handle, owner, range, kind).await,
        }
    }

    /// Unlocks a range; it need not contain locks. This happens even if the caller drops the future.
    ///
    /// # Errors
    /// ENOLCK as for [`Self::lock`].
    pub async fn unlock(
        &self,
        caller: &Caller,
        handle: FileHandle,
        owner: LockOwner,
        range: LockRange,
    ) -> Result<(), OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.unlock(caller, handle, owner, range).await,
            Protocol::Nfs4(nfs4) => nfs4.unlock(caller, handle, owner, range).await,
        }
    }

    /// Returns whether one of these owners has lost a lock of a file of version 3. In version 4 the open file knows.
    pub(crate) fn has_lost_lock(&self, handle: FileHandle, owners: &[LockOwner]) -> bool {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.nlm().has_lost(handle, owners),
            Protocol::Nfs4(_) => false,
        }
    }

    /// Answers a call that the server's lock manager or status monitor makes to this machine (GRANTED, SM_NOTIFY), as a
    /// record without its mark; `None` if it has no answer. Pass calls from the server's addresses only.
    #[must_use]
    pub fn answer_host_call(&self, record: Bytes) -> Option<Bytes> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.nlm().answer(record),
            Protocol::Nfs4(_) => None,
        }
    }

    /// Frees all locks that a client of this machine has at the server and that it did not unlock before it ended, in versions 2 and 3.
    /// `host_name` is that of its [`Config`]. In version 4 its lease ends.
    ///
    /// # Errors
    /// ENOLCK if the server has no lock manager; that it cannot be reached.
    pub async fn free_locks_of(&self, host_name: &[u8]) -> Result<(), OpError> {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.nlm().free_all(host_name).await,
            Protocol::Nfs4(_) => Ok(()),
        }
    }

    /// Waits until calls for [`Self::answer_host_call`] are useful, with the first lock of version 3. Nothing relies on them: without
    /// them waiters ask every 10 s, and restarts of the server are noticed by its connections.
    pub async fn host_calls_wanted(&self) {
        match &self.inner.protocol {
            Protocol::Nfs3(nfs3) => nfs3.nlm().calls_wanted().await,
            Protocol::Nfs4(_) => std::future::pending().await,
        }
    }
}
