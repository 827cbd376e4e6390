//! Client records and their leases (RFC 8881 §8.3, §18.35.4).

use core::net::SocketAddr;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release, Ordering::SeqCst,
};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::types::OpNum;

use super::callback::CallbackQueue;
use super::delegation::backoff::Backoff;
use super::host::Host;
use super::notices::Unconfirmed;
use super::principal::{Credential, Principal};
use super::protect::StateProtect;
use super::slot_memory::SlotMemory;
use super::v40_client::{CallbackClient, V40Client};
use super::wire::{ClientId, SequenceStatus, Status, Verifier};
use crate::client_log::UsedExports;

/// Owner strings of version 4.0 and of later versions are separate name spaces: the same string names different clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ClientKind {
    /// Version 4.0: SETCLIENTID.
    V40,
    /// Version 4.1 and later: EXCHANGE_ID.
    V41,
}

impl ClientKind {
    pub(crate) fn of(client: &Client) -> Self {
        if client.v40().is_some() { Self::V40 } else { Self::V41 }
    }
}

/// Counters of a client's state, read without a lock.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    /// Opens, lock stateids, delegations.
    pub(crate) state: AtomicU32,
    /// The weight of these, of state that is revoked and not yet freed, and of locked ranges.
    pub(crate) charged: AtomicU32,
    /// Opens in effect.
    pub(crate) opens: AtomicU32,
    /// Byte ranges locked.
    pub(crate) locks: AtomicU32,
    /// Locks that it waits for.
    pub(crate) lock_waiters: AtomicU32,
    /// State revoked after the lease expired, because of a conflict; not yet freed by FREE_STATEID.
    pub(crate) revoked: AtomicU32,
    /// State revoked by the administrator, not yet freed.
    pub(crate) admin_revoked: AtomicU32,
    /// Delegations revoked because they were not returned in time, not yet freed.
    pub(crate) unreturned: AtomicU32,
    /// Delegations among all revoked state, not yet freed.
    pub(crate) lost_delegations: AtomicU32,
    /// Delegations.
    pub(crate) delegations: AtomicU32,
    /// Which of all [grants](super::gauges::Gauges::grants) was its last.
    pub(crate) last_grant: AtomicU64,
    /// Notifications that it has not confirmed.
    pub(crate) notices: Arc<Unconfirmed>,
    /// Copies in the background.
    pub(crate) copies: AtomicU32,
    /// Connections that are back channels of any session.
    pub(crate) back_connections: AtomicU32,
}

/// A client record. Sessions and state have references to it.
#[derive(Debug)]
pub struct Client {
    id: ClientId,
    owner: Bytes,
    verifier: Verifier,
    principal: Principal,
    protect: StateProtect,
    /// The address from which it created its record.
    host: Arc<Host>,
    /// Monotonic nanoseconds of the last renewal.
    renewed: AtomicU64,
    /// COMPOUNDs in progress on its sessions.
    active: AtomicU32,
    /// A COMPOUND ended at an unknown time; the next sweep renews the lease.
    ended_untimed: AtomicBool,
    /// Why the record was removed. A removed client gets no more state.
    gone: OnceLock<&'static str>,
    /// The confirmation was logged.
    is_logged: AtomicBool,
    /// Exports whose first use was logged.
    pub(crate) used_exports: UsedExports,
    /// It has or had a back channel: only then CB_PATH_DOWN applies.
    wants_callbacks: AtomicBool,
    /// It may reclaim state from before the restart, and has not sent RECLAIM_COMPLETE.
    reclaiming: AtomicBool,
    reclaim_complete: AtomicBool,
    /// One more than the log change that wrote its recovery record; zero without a record.
    noted: AtomicU64,
    /// Monotonic nanoseconds of the sweep that first found it without state; zero if it has state.
    empty_since: AtomicU64,
    pub(crate) holdings: Holdings,
    /// Callbacks that wait, and its sessions.
    pub(crate) calls: Mutex<CallbackQueue>,
    /// A callback or probe was answered, and its path may still work.
    reachable: AtomicBool,
    /// When CB_RECALL_ANY was sent last, in seconds.
    pub(crate) asked_to_return: AtomicU64,
    /// It recently refused a CB_NOTIFY, so it gets none for a while.
    refuses_notices: Backoff,
    /// Memory of its sessions' slots.
    pub(crate) slot_memory: Arc<SlotMemory>,
    /// State of a client of version 4.0.
    v40: Option<Box<V40Client>>,
    /// Address and minor version of its last identification.
    seen: Mutex<Option<(SocketAddr, u32)>>,
}

impl Client {
    pub(crate) fn new(
        id: ClientId,
        owner: Bytes,
        verifier: Verifier,
        principal: Principal,
        slot_memory: Arc<SlotMemory>,
        now: Duration,
    ) -> Self {
        let client = Self {
            id,
            owner,
            verifier,
            principal,
            protect: StateProtect::None,
            host: Arc::default(),
            renewed: AtomicU64::new(0),
            active: AtomicU32::new(0),
            ended_untimed: AtomicBool::new(false),
            gone: OnceLock::new(),
            is_logged: AtomicBool::new(false),
            used_exports: UsedExports::default(),
            wants_callbacks: AtomicBool::new(false),
            reclaiming: AtomicBool::new(false),
            reclaim_complete: AtomicBool::new(false),
            noted: AtomicU64::new(0),
            empty_since: AtomicU64::new(0),
            holdings: Holdings::default(),
            calls: Mutex::default(),
            reachable: AtomicBool::new(false),
            asked_to_return: AtomicU64::new(0),
            refuses_notices: Backoff::default(),
            slot_memory,
            v40: None,
            seen: Mutex::default(),
        };
        client.renew(now);
        client
    }

    /// Sets the state protection.
    pub(crate) fn with_protection(self, protect: StateProtect) -> Self {
        Self { protect, ..self }
    }

    /// Counts it among the clients of an address.
    pub(crate) fn at(self, host: Arc<Host>) -> Self {
        Self { host, ..self }
    }

    /// Returns the totals of its address.
    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Turns it into a client of version 4.0.
    pub(crate) fn into_v40(self, callback: CallbackClient) -> Self {
        Self { v40: Some(Box::new(V40Client::new(callback))), ..self }
    }

    /// Returns the state that a client of version 4.0 has instead of sessions; `None` for later versions.
    pub(crate) fn v40(&self) -> Option<&V40Client> {
        self.v40.as_deref()
    }

    /// Returns the `clientid4`.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Returns the number of its last grant among all [grants](crate::state::State::grants); 0 without one.
    #[must_use]
    pub fn last_grant(&self) -> u64 {
        self.holdings.last_grant.load(SeqCst)
    }

    /// Returns the `co_ownerid`.
    #[must_use]
    pub fn owner(&self) -> &Bytes {
        &self.owner
    }

    /// Returns the `co_verifier`.
    pub(crate) fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// Returns the principal that created the record.
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Returns the protection of its state.
    pub(crate) fn protect(&self) -> StateProtect {
        self.protect
    }

    /// §8.3: "successful execution of a SEQUENCE operation … will result in the lease being implicitly renewed".
    pub(crate) fn renew(&self, now: Duration) {
        // Cores may report times out of order; the lease never moves back. Two concurrent renewals may leave the earlier time.
        let now = nanos(now);
        if self.renewed.load(Relaxed) < now {
            self.renewed.store(now, Relaxed);
        }
    }

    /// Notes that a COMPOUND begins.
    pub(crate) fn begin(&self, now: Duration) {
        self.active.fetch_add(1, Relaxed);
        self.renew(now);
    }

    /// Ends a COMPOUND; `now` if the time is known. §8.3: once the response "has been sent, the server MUST set the
    /// lease to expire no sooner than the sum of current time and the value of the lease_time attribute". If the time
    /// is unknown, the next check of the lease uses its own, which is later: a sweep's, or that of a conflicting request.
    pub(crate) fn end(&self, now: Option<Duration>) {
        match now {
            Some(now) => self.renew(now),
            None => self.ended_untimed.store(true, Release),
        }
        self.active.fetch_sub(1, Release);
    }

    /// §8.3: a lease can expire "when it has been at least the lease interval … since the last lease-renewing SEQUENCE …
    /// and there are no active COMPOUND operations on any such sessions".
    pub(crate) fn is_expired(&self, now: Duration, lease: Duration) -> bool {
        self.idle(now) >= lease
    }

    /// Returns the time since the last renewal; zero while a COMPOUND runs.
    pub(crate) fn idle(&self, now: Duration) -> Duration {
        if self.active.load(Acquire) > 0 {
            return Duration::ZERO;
        }
        if self.ended_untimed.load(Acquire) && self.ended_untimed.swap(false, Acquire) {
            self.renew(now);
        }
        Duration::from_nanos(nanos(now).saturating_sub(self.renewed.load(Relaxed)))
    }

    /// Notes its address and minor version.
    pub(crate) fn seen_at(&self, address: SocketAddr, minor: u32) {
        *self.seen.lock() = Some((address, minor));
    }

    /// Returns its last address and minor version.
    pub(crate) fn seen(&self) -> Option<(SocketAddr, u32)> {
        *self.seen.lock()
    }

    /// Returns its address at the last identification.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.seen().map(|(address, _)| address)
    }

    /// Returns the number of revoked stateids that it has not acknowledged.
    pub(crate) fn revoked(&self) -> u32 {
        let Holdings { revoked, admin_revoked, unreturned, .. } = &self.holdings;
        [revoked, admin_revoked, unreturned].map(|counter| counter.load(Relaxed)).into_iter().sum()
    }

    /// Returns the number of COMPOUNDs in progress.
    pub(crate) fn active(&self) -> u32 {
        self.active.load(Relaxed)
    }

    /// Returns whether it holds opens, locks or delegations, or has a background copy.
    pub(crate) fn has_state(&self) -> bool {
        self.holdings.state.load(Relaxed) > 0 || self.holdings.copies.load(Relaxed) > 0
    }

    /// Returns whether its record may be removed during its lease: it has nothing to hold, reclaim or acknowledge, and runs no
    /// COMPOUND.
    pub(crate) fn is_replaceable(&self) -> bool {
        !self.has_state() && !self.is_reclaiming() && self.revoked() == 0 && self.active.load(Acquire) == 0
    }

    /// Returns whether state was revoked because its lease expired.
    pub(crate) fn has_lost_state(&self) -> bool {
        self.holdings.revoked.load(Relaxed) > 0
    }

    /// Returns whether its record was removed.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.gone.get().is_some()
    }

    /// Marks its record as removed, for this reason.
    pub(crate) fn mark_removed(&self, reason: &'static str) {
        let _ = self.gone.set(reason);
    }

    /// Returns true once, when the confirmation should be logged.
    pub(crate) fn should_log_confirmation(&self) -> bool {
        !self.is_logged.swap(true, Relaxed)
    }

    /// Returns the reason why its record was removed, if its confirmation was logged.
    pub(crate) fn removal_to_log(&self) -> Option<&'static str> {
        self.gone.get().copied().filter(|_| self.is_logged.load(Relaxed))
    }

    pub(crate) fn set_wants_callbacks(&self) {
        self.wants_callbacks.store(true, Relaxed);
    }

    /// Returns whether it has, or had, a back channel.
    pub(crate) fn has_wanted_callbacks(&self) -> bool {
        self.wants_callbacks.load(Relaxed)
    }

    /// Returns whether any connection carries callbacks to it.
    pub(crate) fn has_back_connection(&self) -> bool {
        self.holdings.back_connections.load(Relaxed) > 0
    }

    /// Returns whether it holds delegations.
    pub(crate) fn holds_delegations(&self) -> bool {
        self.holdings.delegations.load(Relaxed) > 0
    }

    /// Returns whether it holds delegations that cannot be recalled now.
    pub(crate) fn lacks_callback_path(&self) -> bool {
        self.holds_delegations() && !self.is_reachable()
    }

    /// Returns whether the last callback or probe was answered.
    pub(crate) fn is_reachable(&self) -> bool {
        self.reachable.load(Relaxed)
    }

    /// Notes that it refused a CB_NOTIFY.
    pub(crate) fn refused_notice(&self, now: Duration) {
        self.refuses_notices.begin(0, now);
    }

    /// Returns whether it has refused a CB_NOTIFY lately.
    pub(crate) fn refuses_notices(&self, now: Duration) -> bool {
        self.refuses_notices.is_active(0, now)
    }

    pub(crate) fn set_reachable(&self, reachable: bool) {
        self.reachable.store(reachable, Relaxed);
    }

    /// Marks it as a client that the grace period waits for.
    pub(crate) fn set_reclaiming(&self) {
        self.reclaiming.store(true, Relaxed);
    }

    /// Returns whether it may reclaim.
    pub(crate) fn is_reclaiming(&self) -> bool {
        self.reclaiming.load(Acquire)
    }

    /// Returns whether it has sent RECLAIM_COMPLETE.
    pub(crate) fn has_completed(&self) -> bool {
        self.reclaim_complete.load(Relaxed)
    }

    /// Notes RECLAIM_COMPLETE; false if it came before.
    pub(crate) fn complete_reclaim(&self) -> bool {
        let is_first = !self.reclaim_complete.swap(true, AcqRel);
        // After the other flag, so that at least one of them is always set.
        self.reclaiming.store(false, Release);
        is_first
    }

    /// Returns the log change that wrote its recovery record.
    pub(crate) fn record_change(&self) -> Option<u64> {
        self.noted.load(Acquire).checked_sub(1)
    }

    pub(crate) fn set_record_change(&self, number: Option<u64>) {
        self.noted.store(number.map_or(0, |number| number + 1), Release);
    }

    /// Notes that it gets state.
    pub(crate) fn note_not_idle(&self) {
        if self.empty_since.load(Relaxed) > 0 {
            self.empty_since.store(0, Relaxed);
        }
    }

    /// Returns whether it has a recovery record, and has held nothing for this long. Called by the periodic sweep.
    pub(crate) fn is_long_empty(&self, now: Duration, long: Duration) -> bool {
        if self.record_change().is_none() || self.has_state() || self.revoked() > 0 {
            self.note_not_idle();
            return false;
        }
        match self.empty_since.load(Relaxed) {
            0 => {
                self.empty_since.store(nanos(now).max(1), Relaxed);
                false
            }
            since => nanos(now).saturating_sub(since) >= nanos(long),
        }
    }

    /// Returns the `sr_status_flags` (§18.46.3), except those of the session.
    pub(crate) fn status_flags(&self) -> SequenceStatus {
        let mut flags = SequenceStatus::empty();
        let some = |counter: &AtomicU32| counter.load(Relaxed) > 0;
        flags.set(SequenceStatus::EXPIRED_SOME_STATE_REVOKED, some(&self.holdings.revoked));
        flags.set(SequenceStatus::ADMIN_STATE_REVOKED, some(&self.holdings.admin_revoked));
        // Also for delegations revoked with the lease or by the administrator, as in Linux's server: the other two flags make Linux's
        // client check only its opens and locks.
        flags.set(SequenceStatus::RECALLABLE_STATE_REVOKED, some(&self.holdings.lost_delegations));
        // "Until the client sends a global RECLAIM_COMPLETE …, every SEQUENCE operation will return
        // SEQ4_STATUS_RESTART_RECLAIM_NEEDED."
        flags.set(SequenceStatus::RESTART_RECLAIM_NEEDED, self.is_reclaiming());
        let no_path = self.wants_callbacks.load(Relaxed) && !some(&self.holdings.back_connections);
        flags.set(SequenceStatus::CB_PATH_DOWN, no_path);
        flags
    }
}

impl Client {
    /// Checks that `by` may do an operation on the client ID or a session of it.
    ///
    /// # Errors
    /// WRONG_CRED if only the machine principal may.
    pub fn admit(&self, operation: OpNum, by: &Credential) -> Result<(), Status> {
        let protect = self.protect();
        // §15.1.6.4: "attempted by a principal that was not allowed to modify that piece of state."
        let may = !protect.enforces(operation) || protect.is_of(self.principal(), by);
        if may { Ok(()) } else { Err(Status::WRONG_CRED) }
    }

    /// Returns whether its sessions accept only bound connections. §18.35.3: "If spo_must_enforce in the results has
    /// BIND_CONN_TO_SESSION set, then connection binding enforcement is enabled".
    pub(crate) fn binds_connections(&self) -> bool {
        self.protect().enforces(OpNum::BIND_CONN_TO_SESSION)
    }

    /// Returns whether `by` is the machine principal, and may do this operation on its users' state (`spo_must_allow`).
    #[must_use]
    pub fn is_allowed(&self, operation: OpNum, by: &Credential) -> bool {
        match self.protect() {
            StateProtect::None => false,
            StateProtect::Machine(agreed) => {
                agreed.must_allow.has(operation.0) && self.protect().is_of(self.principal(), by)
            }
        }
    }
}

/// Returns a time in nanoseconds; 584 years fit.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
