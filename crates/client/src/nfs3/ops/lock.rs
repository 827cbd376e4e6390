//! Locks of version 3. They belong to a protocol of their own (NLM), which this client does not have.

use super::super::Nfs3;
use crate::errno::Errno;
use crate::error::OpError;
use crate::locks::{LocalLocks, LockOwner};
use crate::url::LocalLock;

impl Nfs3 {
    /// Returns the locks that are kept on this machine.
    ///
    /// # Errors
    /// ENOLCK if those of this kind are not.
    pub(crate) fn local_locks(&self, owner: LockOwner) -> Result<&LocalLocks, OpError> {
        let is_local = match (self.config.local_lock, owner) {
            (LocalLock::All, _)
            | (LocalLock::Posix, LockOwner::Process(_))
            | (LocalLock::Flock, LockOwner::File(_)) => true,
            (LocalLock::None | LocalLock::Posix | LocalLock::Flock, _) => false,
        };
        let why = "version 3 locks by NLM, which this client does not have: use version 4, or `local_lock=`";
        if is_local { Ok(&self.local_locks) } else { Err(OpError::Invalid(Errno::ENOLCK, why)) }
    }
}
