//! Counts of what there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use super::client::Client;
use super::delegation::kind::DelegationKind;
use super::host;
use super::notices::{Account, Unconfirmed};

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Client records, confirmed or not.
    pub clients: u64,
    /// Sessions.
    pub sessions: u64,
    /// Those of them that outlive the server.
    pub persistent_sessions: u64,
    /// Sessions of servers before, kept for what is sent again.
    pub dead_sessions: u64,
    /// Slots granted to them.
    pub slots: u64,
    /// Slots whose requests are in progress.
    pub slots_in_use: u64,
    /// Requests, since the start, that took the last slot that their client may use: any more at that time waited there.
    pub slots_full: u64,
    /// Requests, since the start, that were put off (DELAY) for want of memory for slots.
    pub slots_deferred: u64,
    /// Opens.
    pub opens: u64,
    /// Byte ranges locked.
    pub locks: u64,
    /// Denied LOCKs whose clients wait for the lock.
    pub locks_waiting: u64,
    /// Waiters, since the start, that were told that their lock may be had (CB_NOTIFY_LOCK).
    pub locks_notified: u64,
    /// Delegations.
    pub delegations: u64,
    /// Copies in the background, and those of them that are over and whose clients have not heard so.
    pub copies: u64,
    /// Revoked opens and locks whose loss the client has not acknowledged.
    pub revoked: u64,
    /// Bytes charged for slots and the replies that they keep.
    pub slot_cache_bytes: u64,
}

/// One client has this part of what all may have at most, so that none shuts out the others.
const SHARE_PART: usize = 4;
/// Opens and locks that one client may have however small that part is.
const SHARE_MIN: usize = 1024;
/// Bytes of an owner that weigh as much as an entry without them.
const OWNER_BYTES: usize = 256;

/// What an open or a lock stateid counts for: an owner of 1024 bytes is as much to keep as four more of them.
pub(crate) fn weight(owner: &[u8]) -> usize {
    1 + owner.len() / OWNER_BYTES
}

/// The counts of opens and locks as they change, and the bound on their sum.
#[derive(Debug)]
pub(crate) struct Gauges {
    /// Weights of the shards' entries, and locked ranges: what `max_state` bounds.
    state: AtomicUsize,
    max_state: usize,
    /// What one client may have of it.
    share: u32,
    pub(crate) opens: AtomicU64,
    pub(crate) locks: AtomicU64,
    /// Who waits for a lock, and callbacks that told somebody of one.
    pub(crate) lock_waiters: AtomicU64,
    pub(crate) lock_notices: AtomicU64,
    pub(crate) revoked: AtomicU64,
    /// Delegations of any kind, those for writing, and those of directories: while there are none, nobody looks for a conflict. Read and changed in
    /// one order with [`ActiveChanges`](super::delegation::active_changes::ActiveChanges), so that a grant and a change never miss each other.
    pub(crate) delegations: AtomicU64,
    pub(crate) write_delegations: AtomicU64,
    pub(crate) directory_delegations: AtomicU64,
    /// Delegations granted so far.
    pub(crate) grants: AtomicU64,
    /// Delegations whose objects are watched: while there are none, everybody is told what objects say themselves.
    pub(crate) lookouts: AtomicU64,
    /// What holders of directories have not confirmed to know.
    pub(crate) notices: Arc<Unconfirmed>,
    /// Opens that deny something: while there are none, I/O without an open needs no look at the file.
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
            lookouts: AtomicU64::new(0),
            notices: Arc::default(),
            denying: AtomicU64::new(0),
        }
    }

    /// Whether `more` fits, over all clients.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.state.load(Relaxed) + more <= self.max_state
    }

    /// The same for a client, whose address may have some more where it has little.
    pub(crate) fn has_room_for(&self, client: &Client, more: usize) -> bool {
        let held = client.host().charged.load(Relaxed) as usize;
        host::has_room(self.max_state, self.state.load(Relaxed), held, more)
    }

    /// All that is charged.
    #[cfg(test)]
    pub(crate) fn total(&self) -> usize {
        self.state.load(Relaxed)
    }

    /// Whether `more` fits into what one client may have.
    pub(crate) fn has_share(&self, client: &Client, more: usize) -> bool {
        let charged = client.holdings.charged.load(Relaxed) as usize;
        charged + more <= self.share as usize
    }

    /// An entry of this weight came, or went (negative), or that many ranges.
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

    /// Where memory for what a client is to be told is counted.
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

    /// Locked ranges of a client came or went.
    pub(crate) fn locks_changed(&self, client: &Client, before: usize, after: usize) {
        // No file has 2^31 ranges: `max_state` bounds them all.
        let by = (after as i64 - before as i64) as i32;
        self.charge(client, by);
        self.locks.fetch_add(i64::from(by).cast_unsigned(), Relaxed);
        client.holdings.locks.fetch_add(by.cast_unsigned(), Relaxed);
    }
}

/// One more or less of something counted, or mostly neither.
pub(crate) fn adjust(counter: &AtomicU64, by: i64) {
    if by != 0 {
        counter.fetch_add(by.cast_unsigned(), Relaxed);
    }
}

/// What a counter says.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}
