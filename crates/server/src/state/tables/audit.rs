//! Sums that audits compare with counters.

use std::collections::HashMap;

use super::wire::ClientId;

/// The state in the shards, of one client or of all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum {
    /// Entries in effect.
    pub(crate) state: u64,
    /// Weights of all entries, and ranges.
    pub(crate) charged: u64,
    pub(crate) opens: u64,
    /// Opens that deny something.
    pub(crate) denying: u64,
    pub(crate) ranges: u64,
    pub(crate) delegations: u64,
    pub(crate) write_delegations: u64,
    pub(crate) directory_delegations: u64,
    /// Delegations whose objects are watched.
    pub(crate) watched_delegations: u64,
    /// Entries that are revoked and not acknowledged.
    pub(crate) revoked: u64,
    pub(crate) lost_delegations: u64,
    /// Waits for locks.
    pub(crate) lock_waiters: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, other: &Self) {
        self.state += other.state;
        self.charged += other.charged;
        self.opens += other.opens;
        self.denying += other.denying;
        self.ranges += other.ranges;
        self.delegations += other.delegations;
        self.write_delegations += other.write_delegations;
        self.directory_delegations += other.directory_delegations;
        self.watched_delegations += other.watched_delegations;
        self.revoked += other.revoked;
        self.lost_delegations += other.lost_delegations;
        self.lock_waiters += other.lock_waiters;
    }
}

/// By client.
pub(crate) type Sums = HashMap<ClientId, Sum>;

/// Returns an error with both values if they differ.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: T, expected: T) -> Result<(), String> {
    if is == expected { Ok(()) } else { Err(format!("{what}: {is:?}, where the tables have {expected:?}")) }
}
