//! Locks: at the server by NLM, or on this machine.

use super::super::Nfs3;
use super::super::nlm::Nlm;
use crate::config::Caller;
use crate::error::OpError;
use crate::locks::{LocalLocks, LockConflict, LockKind, LockOwner, LockRange, Locked};
use crate::results::FileHandle;
use crate::url::LocalLock;

impl Nfs3 {
    /// Returns the locks that are kept on this machine, if those of this kind are.
    fn local_locks(&self, owner: LockOwner) -> Option<&LocalLocks> {
        let is_local = match (self.config.local_lock, owner) {
            (LocalLock::All, _)
            | (LocalLock::Posix, LockOwner::Process(_))
            | (LocalLock::Flock, LockOwner::File(_)) => true,
            (LocalLock::None | LocalLock::Posix | LocalLock::Flock, _) => false,
        };
        is_local.then_some(&self.local_locks)
    }

    /// Returns the locks at the server.
    pub(crate) fn nlm(&self) -> &std::sync::Arc<Nlm> {
        &self.nlm
    }

    /// Locks a range.
    ///
    /// # Errors
    /// DENIED if another owner has it and the caller does not `wait`; ENOLCK.
    pub(crate) async fn lock(
        &self,
        caller: &Caller,
        handle: FileHandle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
        wait: bool,
    ) -> Result<Locked, OpError> {
        match self.local_locks(owner) {
            Some(local) => local.lock(handle, owner, range, kind, wait).await.map(|()| Locked::Here),
            None => {
                self.nlm.lock(caller, handle, owner, range, kind, wait).await.map(|()| Locked::AtServer(None))
            }
        }
    }

    /// Returns a lock that a lock of this owner conflicts with.
    pub(crate) async fn test_lock(
        &self,
        caller: &Caller,
        handle: FileHandle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Result<Option<LockConflict>, OpError> {
        match self.local_locks(owner) {
            Some(local) => Ok(local.test(&handle, owner, range, kind)),
            None => self.nlm.test_lock(caller, handle, owner, range, kind).await,
        }
    }

    /// Unlocks a range, which need not be locked.
    pub(crate) async fn unlock(
        &self,
        caller: &Caller,
        handle: FileHandle,
        owner: LockOwner,
        range: LockRange,
    ) -> Result<(), OpError> {
        match self.local_locks(owner) {
            Some(local) => {
                local.unlock(&handle, owner, range);
                Ok(())
            }
            None => self.nlm.unlock(caller, handle, owner, range).await,
        }
    }
}
