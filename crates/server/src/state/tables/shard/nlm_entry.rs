//! The state of an NLM host's entry.

use std::sync::Arc;

use vfs::Pin;

use super::super::locks::{LockOwner, OwnerName};

/// The locks of an NLM host's owner in a file. Its index is the number of its lock set.
#[derive(Debug)]
pub(crate) struct NlmLock {
    pub(crate) name: OwnerName,
    /// The owner's number in the file.
    pub(crate) owner: LockOwner,
    /// Keeps the file while it is locked.
    #[expect(dead_code, reason = "held, not read")]
    pub(super) pin: Arc<dyn Pin>,
}

/// A share reservation of an NLM host.
#[derive(Debug)]
pub(crate) struct NlmShare {
    /// The owner's bytes.
    pub(crate) owner: Arc<[u8]>,
    /// Access and deny, as in [`Modes::bits`](super::share::Modes::bits); access may be empty.
    pub(crate) bits: (u8, u8),
    /// Keeps the file while it is reserved.
    #[expect(dead_code, reason = "held, not read")]
    pub(super) pin: Arc<dyn Pin>,
}

impl NlmShare {
    /// Returns whether it excludes an open, a share reservation or I/O of these bits.
    pub(crate) fn excludes(&self, (access, deny): (u8, u8)) -> bool {
        access & self.bits.1 != 0 || deny & self.bits.0 != 0
    }
}
