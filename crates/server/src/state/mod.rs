//! What NFSv4 clients hold: client records, sessions with their slots, opens, byte-range locks (RFC 8881 §2.10, §8, §9).
//!
//! Criteria first. An operation reaches the state from any core, so everything here is `Send + Sync` and synchronous; no
//! lock is held longer than a few map operations, and none while anything waits. Nothing reads a clock or draws random
//! numbers: `now` is an argument (monotonic, as in [`Now`](crate::Now)), identifiers come from counters and the secret in
//! [`Settings`]. Everything is bounded: records by `max_clients`, opens, locks and ranges by `max_state`, cached replies by
//! `slot_cache_bytes`.
//!
//! **How a compound uses it.**
//! 1. SEQUENCE first: [`State::sequence`] gives [`Sequenced::New`] with a [`Running`] guard, or [`Sequenced::Replay`].
//!    Errors leave the slot as it was. EXCHANGE_ID, CREATE_SESSION, BIND_CONN_TO_SESSION, DESTROY_SESSION and
//!    DESTROY_CLIENTID may come without it.
//! 2. Operations take the client from [`Running::client`] and call [`State::open`], [`State::lock`],
//!    [`State::check_io`], …; every error is the operation's status. None of these waits; a
//!    [`Backend`](vfs::Backend) is awaited between them, never inside.
//! 3. [`Running::finish`] with the encoded reply. A guard that is dropped without it (the future was dropped) leaves a
//!    slot that answers retransmissions with RETRY_UNCACHED_REP: what ran partly must not run again.
//! 4. [`State::expire`] from time to time (a second is a good period), [`State::connection_closed`] when one closes.
//!
//! **OPEN in order**: [`State::admit_open`] (grace, room; before anything is created) → backend: lookup or create, open (gives
//! the [`Pin`](vfs::Pin)) → [`State::open`] (share reservations) → truncation, if any, by the backend; where that fails,
//! [`State::withdraw_open`].
//!
//! **Layout.** Client records and sessions are rare things in maps of their own. All opens and locks of a file, with the
//! stateids that name them, live in one of [`SHARDS`] shards chosen by the file; the stateid says which, so that a READ takes
//! one short lock. A client's part of each shard is listed there, so that it leaves in time proportional to what it holds.
//! The rejected alternative, a lock a file and a table of stateids beside it, takes three locks a READ.
//!
//! **Version 4.0** has the same records, opens and locks. SETCLIENTID is another decision table beside EXCHANGE_ID's
//! ([`State::set_client_id`]); in the place of slots its owners have seqids with their last replies, beside the client
//! ([`State::open_turn`], [`State::end_turn`]). Whose a stateid is, [`State::holder`] tells; from there on all is as above.
//!
//! **Delegations** are a third kind of shard entry (their legal transitions stand in
//! [`delegation`]); recalls leave by [`callback`] over the slots of [`backchannel`].
//!
//! **Over a restart** clients reclaim what they held: [`recovery`] writes down what the next server must know for that. Answers
//! wait until it is stable ([`State::unsettled`]); the state goes on.
//!
//! Order of locks: client table, then client, then shard, then records of clients, then gauges; for callbacks: client table, a client's calls, a session's
//! connections, its back channel, an outbox. A slot's lock comes last.

pub mod backchannel;
pub mod callback;
pub mod delegation;

mod administer;
mod audit;
mod binding;
mod client;
pub(crate) mod connection_owner;
mod contention;
mod directory;
mod exchange;
mod file;
mod gauges;
mod host;
mod inquiry;
mod io;
mod lease;
mod local_change;
mod lock;
mod lock_queue;
mod notices;
mod offload;
mod open;
mod owner;
mod path;
mod persist;
mod phase;
mod promise;
mod protect;
mod range;
mod recovery;
mod revoke;
mod sequence;
mod session;
mod setclientid;
mod shard;
mod share;
mod slot;
mod slot_memory;
mod snapshot;
pub(crate) mod state_log;
mod stateid;
mod table;
mod times;
mod transitions;
mod tree;
mod waiter;
mod window;
mod wire;
mod work_signal;

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use foldhash::quality::FixedState;
use parking_lot::{Mutex, MutexGuard};
use siphasher::sip::SipHasher24;

pub use administer::Evicted;
pub use callback::Outbox;
use client::nanos;
pub use client::{Client, Principal};
pub use contention::{Changing, Looked};
pub use delegation::{Against, DelegationCounts, DelegationKind, FileRecall, NotDelegated, Wish};
pub use directory::{Entries, EntryChange};
pub use gauges::Counts;
pub use inquiry::{Held, Inquiry};
pub use io::{IoKind, IoPermit};
pub use local_change::{Bell, LocalChange, Lookout};
pub use lock::{LockError, LockRequest, LockTest, Locker};
pub use lock_queue::LockNotice;
pub(crate) use offload::{Copied, CopyTask, Origin, Span};
pub use offload::{Offload, OffloadCounts};
pub use open::{OpenGrant, OpenRequest};
pub use owner::{Effect, SavedReply, Sender, Sequenced0, Turn};
pub use path::ConnectRequest;
pub(crate) use promise::Promise;
pub use protect::{Credential, StateProtect};
pub use range::LockRange;
#[cfg(test)]
pub(crate) use recovery::tests::Disk;
pub use recovery::{Reclaimers, Records};
pub(crate) use sequence::hash_request;
pub use sequence::{Replay, Running, Sequenced};
pub use session::{CreateSession, MAX_OPERATIONS};
pub use setclientid::{Callback, SetClientId, SetClientIdError};
pub use shard::FileKey;
pub use slot::SlotUse;
pub use snapshot::{
    CallbackPath, ClientSnapshot, GraceSnapshot, PersistenceSnapshot, RecordsSnapshot, SessionSnapshot,
    Standing,
};
pub use stateid::SHARDS;
pub use table::{ExchangeId, ExchangedId, Swept};
pub use times::{HeldTimes, Times, timestamp};
pub use waiter::Waiter;
pub(crate) use wire::stable_how;
pub use work_signal::WorkSignal;

use binding::Connections;
use callback::Watched;
use delegation::Delegations;
use gauges::Gauges;
use offload::Offloads;
use persist::Persistence;
use promise::Promises;
use recovery::Recovery;
use sequence::SessionTable;
use shard::{Kind, Shard};
use slot_memory::SlotMemory;
use stateid::{Generations, Place};
use table::{ClientTable, Family};
use wire::{ClientId, SessionId, Stateid, Status, Verifier};

use crate::state::state_log::key;
use crate::{Now, Settings, Throttle};

/// Client IDs in a row that are tried for one that no client has.
const IDS_TRIED: usize = 1024;
/// Where the mark of the instance is in a client ID of version 4.0; a keyed tag is below it.
const CLIENT_ID_TAG_BITS: u32 = 48;

/// All NFSv4 state of a server; one for all cores. See the module.
#[derive(Debug)]
pub struct State {
    settings: Settings,
    /// Tells this instance's client IDs and stateids from those of the instances before.
    boot: u16,
    lease: Duration,
    max_clients: usize,
    clients: Mutex<ClientTable>,
    sessions: SessionTable,
    connections: Connections,
    delegations: Delegations,
    /// Callbacks under way.
    watched: Watched,
    /// Copies in the background.
    offloads: Offloads,
    /// What other servers may read for clients.
    promises: Promises,
    /// The time as [`Self::expire`] heard it last, in nanoseconds: for what happens while nobody tells the time.
    tick: AtomicU64,
    shards: [Mutex<Shard>; SHARDS],
    recovery: Arc<Recovery>,
    gauges: Gauges,
    slot_memory: Arc<SlotMemory>,
    /// What outlives the server of sessions, where anything does.
    persistence: Option<Persistence>,
    /// For log lines of clients that leave.
    departures: Throttle,
    /// Of whoever has no client record (NFSv3).
    nobody: Arc<Client>,
    /// What each owner of version 4.0 closed last.
    closed: owner::Closed,
    /// Connections to clients of version 4.0.
    paths: path::Paths,
    /// Notified when the driver has something to do.
    work_signal: Arc<WorkSignal>,
    hasher: FixedState,
    /// How many client IDs have been tried.
    client_ids: AtomicU64,
    session_ids: AtomicU64,
}

impl State {
    /// The state of a server that starts at `now`, with what the server before wrote down: where it tells of clients that may
    /// hold state, a grace period runs, of one lease time at least.
    #[must_use]
    pub fn new(settings: &Settings, records: Records, now: Duration) -> Self {
        let persistence = records.log.as_ref();
        let persistence = persistence.map(|log| {
            let now = Now { monotonic: now, wall: records.read_at };
            Persistence::new(Arc::clone(log), &records.entries, settings.max_persistent_slots, now)
        });
        let boot = mark(settings, &records);
        let recovery = Arc::new(Recovery::new(records, settings.lease, now));
        let shard = |number: usize| {
            let mut hasher = hasher_for(settings, Purpose::Generation);
            hasher.write_u64(number as u64);
            let (seed, generations) = (keyed(settings, u64::MAX), Generations::new(hasher));
            Mutex::new(Shard::new(number, seed, generations, Arc::clone(&recovery)))
        };
        let seed = keyed(settings, u64::MAX);
        let work_signal = Arc::<WorkSignal>::default();
        let slot_memory = Arc::new(SlotMemory::new(settings.slot_cache_bytes));
        let of_nobody = Arc::clone(&slot_memory);
        let nobody = Client::new(0, Bytes::new(), [0; 8], Principal::Anonymous, of_nobody, now);
        Self {
            boot,
            lease: settings.lease,
            max_clients: settings.max_clients,
            clients: Mutex::default(),
            sessions: SessionTable::default(),
            connections: Connections::default(),
            delegations: Delegations::new(settings.max_delegations, Arc::clone(&work_signal)),
            watched: Watched::default(),
            offloads: Offloads::default(),
            promises: Promises::default(),
            tick: AtomicU64::new(nanos(now)),
            shards: std::array::from_fn(shard),
            recovery,
            gauges: Gauges::new(settings.max_state),
            slot_memory,
            persistence,
            departures: Throttle::new(crate::LOG_LINES_A_SECOND),
            nobody: Arc::new(nobody),
            closed: owner::Closed::default(),
            paths: path::Paths::default(),
            work_signal,
            hasher: FixedState::with_seed(seed),
            client_ids: AtomicU64::new(0),
            session_ids: AtomicU64::new(0),
            settings: settings.clone(),
        }
    }

    /// Returns what is notified when a connection, a copy or a local change is queued for the driver.
    #[must_use]
    pub fn work_signal(&self) -> &WorkSignal {
        &self.work_signal
    }

    /// How much there is, for metrics.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let (sessions, slots, slots_in_use) = self.sessions.count();
        let persistence = self.persistence.as_ref();
        let (persistent_sessions, dead_sessions) = persistence.map(Persistence::count).unwrap_or_default();
        Counts {
            clients: self.clients.lock().len() as u64,
            sessions,
            persistent_sessions,
            dead_sessions,
            slots,
            slots_in_use,
            slots_full: self.slot_memory.full(),
            slots_deferred: self.slot_memory.deferred(),
            opens: gauges::read(&self.gauges.opens),
            locks: gauges::read(&self.gauges.locks),
            locks_waiting: gauges::read(&self.gauges.lock_waiters),
            locks_notified: gauges::read(&self.gauges.lock_notices),
            delegations: gauges::read(&self.gauges.delegations),
            copies: self.count_offloads(),
            revoked: gauges::read(&self.gauges.revoked),
            slot_cache_bytes: self.slot_memory.used() as u64,
        }
    }

    /// What has happened to delegations.
    #[must_use]
    pub fn delegation_counts(&self) -> &DelegationCounts {
        &self.delegations.counts
    }

    /// Whether a grace period runs.
    #[must_use]
    pub fn in_grace(&self, now: Duration) -> bool {
        self.recovery.in_grace(now)
    }

    /// Logs whether a grace period runs, and for whom.
    pub(crate) fn log_grace(&self, now: Duration) {
        self.recovery.log_start(now);
    }

    /// The change to the log that has to be stable before anything is answered, or anything to `client`; `None` where all is.
    #[must_use]
    pub fn unsettled(&self, client: Option<&Client>) -> Option<u64> {
        self.recovery.unsettled(client)
    }

    /// Ready when a change is stable; `thread` is what the calling thread may be used for.
    pub fn settled(&self, change: u64, thread: vfs::Thread) -> vfs::Op<'_, ()> {
        self.recovery.settled(change, thread)
    }

    /// The time, as exactly as [`Self::expire`] is called.
    fn tick(&self) -> Duration {
        Duration::from_nanos(self.tick.load(Relaxed))
    }

    /// A client ID that nobody guesses and no client has; `None` where [`IDS_TRIED`] in a row are taken, and the next call goes on.
    ///
    /// In version 4.0 an ID is all that names a client in RENEW, OPEN and RELEASE_LOCKOWNER; in later ones CREATE_SESSION takes
    /// it from any principal, unless the client's state is protected (RFC 8881 §18.36.4). Those of version 4.0 begin with the
    /// instance's mark, because there an ID that was forgotten is answered differently from one of another instance.
    fn next_client_id(&self, table: &ClientTable, family: Family) -> Option<ClientId> {
        let next = || {
            let tag = keyed_for(&self.settings, Purpose::ClientId, self.client_ids.fetch_add(1, Relaxed));
            match family {
                Family::Sessionless => {
                    u64::from(self.boot) << CLIENT_ID_TAG_BITS | tag >> (u64::BITS - CLIENT_ID_TAG_BITS)
                }
                Family::WithSessions => tag,
            }
        };
        let is_free = |id: &ClientId| *id != 0 && table.record(*id).is_none();
        std::iter::repeat_with(next).take(IDS_TRIED).find(is_free)
    }

    /// Whether a client ID of version 4.0 has the mark of this instance.
    fn has_given(&self, id: ClientId) -> bool {
        id >> CLIENT_ID_TAG_BITS == u64::from(self.boot)
    }

    /// The client ID in DENIED: the holder's own for the holder alone, for others a number that stands for it.
    ///
    /// RFC 8881 §18.10.3 has the actual one for clients with sessions, and §18.36.4 lets any principal make a session for a confirmed
    /// client ID: whoever has the ID can then act as that client. So nobody learns another client's ID. No client is known
    /// that looks at it.
    fn id_told_to(&self, asks: &Client, holder: &Client) -> ClientId {
        if asks.id() == holder.id() {
            return holder.id();
        }
        keyed_for(&self.settings, Purpose::IdTold, holder.id())
    }

    /// Eight bytes that nobody guesses and that do not come again.
    fn next_verifier(&self) -> Verifier {
        keyed(&self.settings, self.session_ids.fetch_add(1, Relaxed)).to_be_bytes()
    }

    /// The client, for whoever reads a capture, and eight bytes that nobody guesses.
    fn next_session_id(&self, client: ClientId) -> SessionId {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&client.to_be_bytes());
        let number = self.session_ids.fetch_add(1, Relaxed);
        id[8..].copy_from_slice(&keyed(&self.settings, number).to_be_bytes());
        id
    }

    fn shard_of(&self, file: FileKey) -> usize {
        // Not the low bits, which choose a place in the shard's map.
        (self.hasher.hash_one(file) >> 32) as usize % SHARDS
    }

    /// Locks the shard of the entry that a stateid names, in the order of checks of RFC 8881 §8.2.4.
    fn find_entry(
        &self,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
        is_kind: impl FnOnce(&Kind) -> bool,
    ) -> Result<(MutexGuard<'_, Shard>, u32), Status> {
        let is_sessionless = client.sessionless().is_some();
        let place = Place::parse(stateid, self.boot).map_err(|flaw| flaw.status(is_sessionless))?;
        let shard = self.shards[place.shard].lock();
        let slots = self.settings.max_slots;
        let found = shard.find_present(place, client, Some(file), stateid.seqid, slots, is_kind);
        match found {
            Ok(index) => Ok((shard, index)),
            Err(flaw) => Err(flaw.status(is_sessionless)),
        }
    }

    /// Room for opens, locks or ranges that weigh `more`; where there is none, expired clients go.
    ///
    /// # Errors
    /// DELAY: v4.1 has no RESOURCE, and what others hold may go. A client that holds its share waits for itself: whoever
    /// opens without end must not shut the others out, by whichever names ([`host`]).
    fn make_room(&self, now: Duration, client: &Client, more: usize) -> Result<(), Status> {
        if !self.gauges.has_share(client, more) {
            return Err(Status::DELAY);
        }
        if self.gauges.has_room(more) {
            return Ok(());
        }
        self.press_for(now, client.host());
        if self.gauges.has_room_for(client, more) { Ok(()) } else { Err(Status::DELAY) }
    }
}

/// The mark of this instance: two bytes, never zeros or ones as in special stateids. Where the mark of the instance before is on
/// record it is another one, so that no client that may reclaim takes a restart for the loss of its lease.
fn mark(settings: &Settings, records: &Records) -> u16 {
    const MARKS: u64 = 0xfffe;
    let number = keyed_for(settings, Purpose::Mark, 0) % MARKS;
    let is_mark = |(key, _): &&(Bytes, Bytes)| **key == [key::MARK];
    let before = records.entries.iter().find(is_mark);
    let before = before.and_then(|(_, value)| xdr::from_bytes::<u32>(value.clone()).ok());
    let mark = |number: u64| (number % MARKS + 1) as u16;
    let own = if before == Some(mark(number).into()) { mark(number + 1) } else { mark(number) };
    if let Some(log) = &records.log {
        // Changes become stable in order: this one before the record of any client of this instance.
        log.set(&[key::MARK], Some(&xdr::to_bytes(&u32::from(own))));
    }
    own
}

/// What numbers that follow from the server's secret are for.
#[derive(Debug, Clone, Copy)]
enum Purpose {
    Mark,
    ClientId,
    Generation,
    IdTold,
}

/// A hasher keyed with the server's secret, for numbers of one purpose of one instance.
fn hasher_for(settings: &Settings, purpose: Purpose) -> SipHasher24 {
    let mut hasher = SipHasher24::new_with_key(&settings.secret);
    hasher.write_u64(settings.instance);
    hasher.write_u64(purpose as u64);
    hasher
}

/// As [`keyed`], of a purpose's own numbers.
fn keyed_for(settings: &Settings, purpose: Purpose, number: u64) -> u64 {
    let mut hasher = hasher_for(settings, purpose);
    hasher.write_u64(number);
    hasher.finish()
}

/// A number that follows from the server's secret.
fn keyed(settings: &Settings, number: u64) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&settings.secret);
    hasher.write_u64(settings.instance);
    hasher.write_u64(number);
    hasher.finish()
}
