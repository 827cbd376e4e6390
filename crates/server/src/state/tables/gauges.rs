//! Counters of state, and the bound on opens and locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use super::client::Client;
use super::delegation::kind::DelegationKind;
use super::host;
use super::notices::{Account, Unconfirmed};

/// Numbers of state objects, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Client records, confirmed or not.
    pub clients: u64,
    /// Sessions.
    pub sessions: u64,
    /// The number of these that are persistent.
    pub persistent_sessions: u64,
    /// Persistent sessions of earlier servers, which only repeat replies.
    pub dead_sessions: u64,
    /// Slots granted to all sessions.
    pub slots: u64,
    /// Slots whose requests are in progress.
    pub slots_in_use: u64,
    /// Requests since the start that used the last slot their client may use: further requests had to wait.
    pub slots_full: u64,
    /// Requests since the start that were answered with DELAY because memory for slots was short.
    pub slots_deferred: u64,
    /// Opens.
    pub opens: u64,
    /// Byte ranges locked.
    pub locks: u64,
    /// Denied LOCKs that wait for their lock.
    pub locks_waiting: u64,
    /// CB_NOTIFY_LOCK callbacks since the start.
    pub locks_notified: u64,
    /// Delegations.
    pub delegations: u64,
    /// Background copies, including finished ones whose clients have not asked for the result.
    pub copies: u64,
    /// Revoked opens and locks whose loss the client has not acknowledged.
    pub revoked: u64,
    /// Bytes charged for slots and their cached replies.
    pub slot_cache_bytes: u64,
}

/// One client may hold one part in this many of `max_state`, so that it cannot shut out others.
const SHARE_PART: usize = 4;
/// Lower bound of a client's share: opens and locks.
const SHARE_MIN: usize = 1024;
/// Bytes of an owner string that weigh as much as one entry.
const OWNER_BYTES: usize = 256;

/// Returns the weight of an open or a lock stateid. An owner of 1024 bytes adds 4.
pub(crate) fn weight(owner: &[u8]) -> usize {
    1 + owner.len() / OWNER_BYTES
}

/// Counters of opens, locks and delegations, and the bound on opens and locks.
#[derive(Debug)]
pub(crate) struct Gauges {
    /// Weights of all entries, plus locked ranges. Bounded by `max_state`.
    state: AtomicUsize,
    max_state: usize,
    /// The bound for one client.
    share: u32,
    pub(crate) opens: AtomicU64,
    pub(crate) locks: AtomicU64,
    /// Waiting LOCK requests, and CB_NOTIFY_LOCK callbacks sent.
    pub(crate) lock_waiters: AtomicU64,
    pub(crate) lock_notices: AtomicU64,
    pub(crate) revoked: AtomicU64,
    /// Delegations of any kind, write delegations, and directory delegations. While a counter is zero, operations skip the
    /// search for conflicts. Read and changed in one order with
    /// [`ActiveChanges`](super::delegation::active_changes::ActiveChanges), so that a grant and a change never miss each other.
    pub(crate) delegations: AtomicU64,
    pub(crate) write_delegations: AtomicU64,
    pub(crate) directory_delegations: AtomicU64,
    /// Delegations granted so far.
    pub(crate) grants: AtomicU64,
    /// Delegations whose objects are watched. While there are none, attributes need no correction.
    pub(crate) watched_delegations: AtomicU64,
    /// Directory changes that holders have not confirmed.
    pub(crate) notices: Arc<Unconfirmed>,
    /// Opens with a share deny mode. While there are none, I/O without an open skips the share check.
    pub(crate) denying: AtomicU64,
}

impl Gauges {
    pub(crate) fn new(max_state: usize) -> Self {
        Self {
            state: AtomicUsize::new(0),
            max_state,
            share: u32::try_from((max_state / SHARE_PART).max(SHARE_MIN)).unwrap_or(u32::MAX),
            opens: AtomicU64::new(0),
            locks: AtomicU64::new(0),
            lock_waiters: AtomicU64::new(0),
            lock_notices: AtomicU64::new(0),
            revoked: AtomicU64::new(0),
            delegations: AtomicU64::new(0),
            write_delegations: AtomicU64::new(0),
            directory_delegations: AtomicU64::new(0),
            grants: AtomicU64::new(0),
            watched_delegations: AtomicU64::new(0),
            notices: Arc::default(),
            denying: AtomicU64::new(0),
        }
    }

    /// Returns whether `more` fits, over all clients.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.state.load(Relaxed) + more <= self.max_state
    }

    /// Returns whether `more` fits for this client. If its address holds little, it may exceed the limit.
    pub(crate) fn has_room_for(&self, client: &Client, more: usize) -> bool {
        let held = client.host().charged.load(Relaxed) as usize;
        host::has_room(self.max_state, self.state.load(Relaxed), held, more)
    }

    /// Returns the total charge.
    #[cfg(test)]
    pub(crate) fn total(&self) -> usize {
        self.state.load(Relaxed)
    }

    /// Returns whether `more` fits into this client's share.
    pub(crate) fn has_share(&self, client: &Client, more: usize) -> bool {
        let charged = client.holdings.charged.load(Relaxed) as usize;
        charged + more <= self.share as usize
    }

    /// Charges an added entry of this weight or this many ranges; a negative value for removed ones.
    pub(crate) fn charge(&self, client: &Client, by: i32) {
        self.state.fetch_add((by as isize).cast_unsigned(), Relaxed);
        client.holdings.charged.fetch_add(by.cast_unsigned(), Relaxed);
        client.host().charged.fetch_add(by.cast_unsigned(), Relaxed);
    }

    pub(crate) fn delegation_came(&self, client: &Client, kind: DelegationKind) {
        self.delegations.fetch_add(1, SeqCst);
        self.write_delegations.fetch_add(u64::from(kind.is_write()), SeqCst);
        self.directory_delegations.fetch_add(u64::from(kind.is_directory()), SeqCst);
        client.holdings.delegations.fetch_add(1, Relaxed);
        client.host().delegations.fetch_add(1, Relaxed);
        client.holdings.last_grant.fetch_max(self.grants.fetch_add(1, SeqCst) + 1, SeqCst);
    }

    pub(crate) fn delegation_left(&self, client: &Client, kind: DelegationKind) {
        self.delegations.fetch_sub(1, SeqCst);
        self.write_delegations.fetch_sub(u64::from(kind.is_write()), SeqCst);
        self.directory_delegations.fetch_sub(u64::from(kind.is_directory()), SeqCst);
        client.holdings.delegations.fetch_sub(1, Relaxed);
        client.host().delegations.fetch_sub(1, Relaxed);
    }

    /// Returns the counters of the memory for a client's notifications.
    pub(crate) fn notices_of<'a>(&'a self, client: &'a Client) -> Account<'a> {
        Account { all: &self.notices, own: &client.holdings.notices }
    }

    pub(crate) fn open_came(&self, client: &Client) {
        adjust(&self.opens, 1);
        client.holdings.opens.fetch_add(1, Relaxed);
    }

    pub(crate) fn open_left(&self, client: &Client) {
        adjust(&self.opens, -1);
        client.holdings.opens.fetch_sub(1, Relaxed);
    }

    /// Notes a change of a client's number of locked ranges.
    pub(crate) fn locks_changed(&self, client: &Client, before: usize, after: usize) {
        // No file has 2^31 ranges: `max_state` bounds them all.
        let by = (after as i64 - before as i64) as i32;
        self.charge(client, by);
        self.locks.fetch_add(i64::from(by).cast_unsigned(), Relaxed);
        client.holdings.locks.fetch_add(by.cast_unsigned(), Relaxed);
    }
}

/// Adds `by`, which is mostly zero, to a counter.
pub(crate) fn adjust(counter: &AtomicU64, by: i64) {
    if by != 0 {
        counter.fetch_add(by.cast_unsigned(), Relaxed);
    }
}

/// Returns a counter's value.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}
