//! [`State`]: the tables of the server's NFSv4 state, and helpers that several operations need.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use foldhash::quality::FixedState;
use parking_lot::{Mutex, MutexGuard};

use super::tables::callback::SentCallbacks;
use super::tables::client::{Client, nanos};
use super::tables::client_table::ClientTable;
use super::tables::connections::Connections;
use super::tables::copies::Offloads;
use super::tables::copy_notify::CopyNotifies;
use super::tables::delegation::shared::{DelegationCounts, SharedDelegations};
use super::tables::file_key::FileKey;
use super::tables::gauges::{self, Counts, Gauges};
use super::tables::host_calls::HostCalls;
use super::tables::ids::Ids;
use super::tables::nlm_hosts::NlmHosts;
use super::tables::persist::Persistence;
use super::tables::principal::Principal;
use super::tables::recovery::{Records, Recovery};
use super::tables::session_table::SessionTable;
use super::tables::shard::{EntryKind, Shard};
use super::tables::slot_memory::SlotMemory;
use super::tables::stateid::{EntryId, SHARDS};
use super::tables::v40_owners::ClosedStateids;
use super::tables::v40_path::V40Connections;
use super::tables::wire::{Stateid, Status};
use crate::work_signal::WorkSignal;
use crate::{Now, Settings, Throttle};

/// The NFSv4 state of a server, shared by all cores.
#[derive(Debug)]
pub struct State {
    pub(super) settings: Settings,
    pub(super) ids: Ids,
    pub(super) lease: Duration,
    pub(super) max_clients: usize,
    pub(super) clients: Mutex<ClientTable>,
    pub(super) sessions: SessionTable,
    pub(super) connections: Connections,
    pub(super) delegations: SharedDelegations,
    /// Callbacks that wait for a reply.
    pub(super) sent_callbacks: SentCallbacks,
    /// Background copies.
    pub(super) offloads: Offloads,
    /// Permissions for other servers to read files here.
    pub(super) copy_notifies: CopyNotifies,
    /// The time of the last [`Self::expire`] in nanoseconds, for code without access to the time.
    pub(super) latest_time: AtomicU64,
    pub(super) shards: [Mutex<Shard>; SHARDS],
    pub(super) recovery: Arc<Recovery>,
    pub(super) gauges: Gauges,
    pub(super) slot_memory: Arc<SlotMemory>,
    /// Persistent sessions; `None` if the server has none.
    pub(super) persistence: Option<Persistence>,
    /// Bounds the log lines of removed clients.
    pub(super) removal_log_throttle: Throttle,
    /// The client of callers without a client record (NFSv3).
    pub(super) anonymous: Arc<Client>,
    /// The stateid that each version 4.0 owner closed last.
    pub(super) closed: ClosedStateids,
    /// Connections to clients of version 4.0.
    pub(super) v40_connections: V40Connections,
    pub(super) nlm_hosts: NlmHosts,
    /// Calls to NLM hosts and their status monitors.
    pub(super) host_calls: HostCalls,
    /// Notified when the driver has work to do.
    pub(super) work_signal: Arc<WorkSignal>,
    pub(super) hasher: FixedState,
}

impl State {
    /// Creates the state of a server that starts at `now`, from the previous server's records. If clients may reclaim, a grace
    /// period of at least one lease begins.
    #[must_use]
    pub fn new(settings: &Settings, records: Records, now: Duration) -> Self {
        let persistence = records.log.as_ref();
        let persistence = persistence.map(|log| {
            let now = Now { monotonic: now, wall: records.read_at };
            Persistence::new(Arc::clone(log), &records.entries, settings.max_persistent_slots, now)
        });
        let ids = Ids::new(settings, &records.entries, records.log.as_deref());
        let recovery = Arc::new(Recovery::new(records, settings.lease, now));
        let seed = ids.table_seed();
        let shard = |number: usize| {
            Mutex::new(Shard::new(number, seed, ids.generations(number), Arc::clone(&recovery)))
        };
        let work_signal = Arc::<WorkSignal>::default();
        let slot_memory = Arc::new(SlotMemory::new(settings.slot_cache_bytes));
        let of_anonymous = Arc::clone(&slot_memory);
        let anonymous = Client::new(0, Bytes::new(), [0; 8], Principal::Anonymous, of_anonymous, now);
        let shards = std::array::from_fn(shard);
        Self {
            ids,
            lease: settings.lease,
            max_clients: settings.max_clients,
            clients: Mutex::default(),
            sessions: SessionTable::default(),
            connections: Connections::default(),
            delegations: SharedDelegations::new(settings.max_delegations, Arc::clone(&work_signal)),
            sent_callbacks: SentCallbacks::default(),
            offloads: Offloads::default(),
            copy_notifies: CopyNotifies::default(),
            latest_time: AtomicU64::new(nanos(now)),
            shards,
            recovery,
            gauges: Gauges::new(settings.max_state),
            slot_memory,
            persistence,
            removal_log_throttle: Throttle::new(crate::LOG_LINES_A_SECOND),
            anonymous: Arc::new(anonymous),
            closed: ClosedStateids::default(),
            v40_connections: V40Connections::default(),
            nlm_hosts: NlmHosts::default(),
            host_calls: HostCalls::default(),
            work_signal,
            hasher: FixedState::with_seed(seed),
            settings: settings.clone(),
        }
    }

    /// Returns the signal for the driver, which is notified when a connection, a copy or a local change is queued for the driver.
    #[must_use]
    pub fn work_signal(&self) -> &WorkSignal {
        &self.work_signal
    }

    /// Returns the numbers of state objects, for metrics.
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

    /// Returns the counters of delegation events.
    #[must_use]
    pub fn delegation_counts(&self) -> &DelegationCounts {
        &self.delegations.counts
    }

    /// Returns whether a grace period runs.
    #[must_use]
    pub fn in_grace(&self, now: Duration) -> bool {
        self.recovery.in_grace(now)
    }

    /// Logs whether a grace period runs, and for whom.
    pub(crate) fn log_grace(&self, now: Duration) {
        self.recovery.log_start(now);
    }

    /// Returns the change to the log that must be stable before any reply, or before a reply to `client`; `None` if all are.
    #[must_use]
    pub fn pending_change(&self, client: Option<&Client>) -> Option<u64> {
        self.recovery.pending_change(client)
    }

    /// Waits until a change is stable. `thread` has the permitted uses of the calling thread.
    pub fn wait_durable(&self, change: u64, thread: vfs::Thread) -> vfs::Op<'_, ()> {
        self.recovery.wait_durable(change, thread)
    }

    /// Returns the time of the last [`Self::expire`].
    pub(super) fn latest_time(&self) -> Duration {
        Duration::from_nanos(self.latest_time.load(Relaxed))
    }

    pub(super) fn shard_of(&self, file: FileKey) -> usize {
        // Not the low bits, which select a bucket in the shard's map.
        (self.hasher.hash_one(file) >> 32) as usize % SHARDS
    }

    /// Locks the shard of the entry that a stateid names, in the order of checks of RFC 8881 §8.2.4.
    pub(super) fn find_entry(
        &self,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
        is_kind: impl FnOnce(&EntryKind) -> bool,
    ) -> Result<(MutexGuard<'_, Shard>, u32), Status> {
        let is_sessionless = client.v40().is_some();
        let entry_id =
            EntryId::parse(stateid, self.ids.boot()).map_err(|error| error.status(is_sessionless))?;
        let shard = self.shards[entry_id.shard].lock();
        let slots = self.settings.max_slots;
        let found = shard.find_present(entry_id, client, Some(file), stateid.seqid, slots, is_kind);
        match found {
            Ok(index) => Ok((shard, index)),
            Err(error) => Err(error.status(is_sessionless)),
        }
    }

    /// Makes room for opens, locks or ranges that weigh `more`, by removing expired clients if necessary.
    ///
    /// # Errors
    /// DELAY: v4.1 has no RESOURCE, and others may release state. A client that has used up its share must release state itself:
    /// it cannot shut out others by using several names ([`host`](super::tables::host)).
    pub(super) fn make_room(&self, now: Duration, client: &Client, more: usize) -> Result<(), Status> {
        if !self.gauges.has_share(client, more) {
            return Err(Status::DELAY);
        }
        if self.gauges.has_room(more) {
            return Ok(());
        }
        self.remove_expired_for(now, client.host());
        if self.gauges.has_room_for(client, more) { Ok(()) } else { Err(Status::DELAY) }
    }
}
