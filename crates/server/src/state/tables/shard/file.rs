//! A file that a client has open or delegated.

use super::super::locks::{LockOwners, LockedRanges};
use super::entry_list::EntryList;
use super::share::Opens;

/// The opens, delegations and locks of a file.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) opens: Opens,
    /// Entries of its delegations.
    pub(crate) delegations: EntryList,
    pub(crate) ranges: LockedRanges,
    pub(crate) lock_owners: LockOwners,
}

impl File {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            opens: Opens::default(),
            delegations: EntryList::new(),
            ranges: LockedRanges::new(seed),
            lock_owners: LockOwners::new(seed),
        }
    }

    /// Returns whether nothing of the file is open or delegated.
    pub(crate) fn is_unused(&self) -> bool {
        self.opens.is_empty() && self.delegations.is_empty()
    }
}
