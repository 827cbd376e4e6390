//! A file that a client has open or delegated, or that an NLM host has locked.

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
    /// Entries of the share reservations of NLM hosts.
    pub(crate) nlm_shares: EntryList,
    /// The number of NLM owners with locks.
    pub(crate) nlm_locks: u32,
}

impl File {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            opens: Opens::default(),
            delegations: EntryList::new(),
            ranges: LockedRanges::new(seed),
            lock_owners: LockOwners::new(seed),
            nlm_shares: EntryList::new(),
            nlm_locks: 0,
        }
    }

    /// Returns whether nothing of the file is open or delegated, or held by an NLM host.
    pub(crate) fn is_unused(&self) -> bool {
        self.opens.is_empty() && self.delegations.is_empty() && !self.is_held_by_nlm()
    }

    /// Returns whether an NLM host has a lock or a share reservation.
    pub(crate) fn is_held_by_nlm(&self) -> bool {
        self.nlm_locks > 0 || !self.nlm_shares.is_empty()
    }
}
