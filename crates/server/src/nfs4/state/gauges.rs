//! Counts of what there is.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Client records, confirmed or not.
    pub clients: u64,
    /// Sessions.
    pub sessions: u64,
    /// Slots granted to them.
    pub slots: u64,
    /// Opens.
    pub opens: u64,
    /// Byte ranges locked.
    pub locks: u64,
    /// Delegations.
    pub delegations: u64,
    /// Revoked opens and locks whose loss the client has not acknowledged.
    pub revoked: u64,
    /// Bytes charged for slots and the replies that they keep.
    pub slot_cache_bytes: u64,
}

/// The counts of opens and locks as they change, and the bound on their sum.
#[derive(Debug)]
pub(super) struct Gauges {
    /// Entries of the shards and locked ranges: what `max_state` bounds.
    state: AtomicUsize,
    max_state: usize,
    pub(super) opens: AtomicU64,
    pub(super) locks: AtomicU64,
    pub(super) revoked: AtomicU64,
    /// Opens that deny something: while there are none, I/O without an open needs no look at the file.
    pub(super) denying: AtomicU64,
}

impl Gauges {
    pub(super) fn new(max_state: usize) -> Self {
        Self {
            state: AtomicUsize::new(0),
            max_state,
            opens: AtomicU64::new(0),
            locks: AtomicU64::new(0),
            revoked: AtomicU64::new(0),
            denying: AtomicU64::new(0),
        }
    }

    /// Whether `more` entries fit.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.state.load(Relaxed) + more <= self.max_state
    }

    /// An entry came (1) or went (-1).
    pub(super) fn state_changed(&self, by: isize) {
        self.state.fetch_add(by.cast_unsigned(), Relaxed);
    }

    /// Locked ranges came or went.
    pub(super) fn locks_changed(&self, by: isize) {
        self.state_changed(by);
        self.locks.fetch_add((by as i64).cast_unsigned(), Relaxed);
    }
}

/// One more or less of something counted.
pub(super) fn adjust(counter: &AtomicU64, by: i64) {
    counter.fetch_add(by.cast_unsigned(), Relaxed);
}

/// What a counter says.
pub(super) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}
