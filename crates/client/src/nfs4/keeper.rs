//! The session of a client: its creation, renewal, replacement after a loss, and destruction. In 4.0 it is a client
//! ID ([`super::v40`]).

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join, select};
use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;
use protocol::nfs4::callback::recall::recallable;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::open::DelegationType;
use protocol::nfs4::ops::session::SequenceStatus;
use protocol::nfs4::types::{Handle, SessionId, Status};

use super::callback::{CallbackHandler, CallbackSlots};
use super::callback_v40::{Answer, answer_v40, callback_ident};
use super::compound_size::CompoundSize;
use super::establish::{Registration, SESSION_FLAGS, Setup};
use super::lease::LEASE_DEFAULT;
use super::lock_owner::number_of;
use super::offloads::Offloads;
use super::open_args::delegation_type;
use super::session::{Session, SessionEvent};
use super::statuses::{FlagReaction, ask_for};
use super::wire::Results;
use super::write_start::WriteStart;
use crate::abandoned::Abandoned;
use crate::config::{Caller, Config};
use crate::delegations::{Delegations, Kind};
use crate::directory_watches::DirectoryWatches;
use crate::engine::{CallError, ConnectionId, Engine};
use crate::error::OpError;
use crate::locks::Locks;
use crate::opens::{OpenFile, OpenFiles};

/// Number of repetitions of a compound after lost sessions, before the caller gets an error.
pub(super) const SESSIONS_LOST_MAX: u32 = 16;
/// The pause between attempts to create a session.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Opens that are reclaimed at a time.
const RECLAIMS_MAX: usize = 64;

/// NFS 4.0, 4.1 or 4.2 with one server.
pub(crate) struct Nfs4 {
    pub(crate) engine: Arc<Engine>,
    pub(crate) config: Arc<Config>,
    pub(super) minor_version: u32,
    connections: Vec<ConnectionId>,
    current: Mutex<Current>,
    lease: Mutex<Duration>,
    pub(super) opens: OpenFiles,
    /// RENAMEs under way.
    pub(super) renames: AtomicU32,
    is_taking_over: AtomicBool,
    /// Whether the server lets the holder of a delegation keep the file's times (RFC 9754 §5).
    delegates_times: AtomicBool,
    /// RENEWs in a row whose reply was CB_PATH_DOWN.
    pub(super) renewals_uncalled: AtomicU32,
    pub(super) locks: Arc<Locks>,
    pub(crate) delegations: Delegations,
    pub(super) directory_watches: DirectoryWatches,
    /// Whether the server has no delegations of directories.
    pub(super) lacks_directory_delegations: AtomicBool,
    pub(super) background: Arc<Abandoned>,
    pub(super) offloads: Offloads,
    pub(super) compound_size: CompoundSize,
    pub(super) write_start: WriteStart,
}

struct Current {
    registration: Registration,
    state: SessionState,
    waiting: Vec<Waker>,
    /// The number of attempts to replace a session that found no server or only wrong replies, and the error of the last one.
    failed: (u64, OpError),
    /// The number of attempts to replace a session that the server has answered with an error.
    refused: u64,
}

impl Current {
    fn wake_all(&mut self) {
        for waker in self.waiting.drain(..) {
            waker.wake();
        }
    }
}

enum SessionState {
    Ready(Arc<Session>),
    /// A new session is being made; once it exists, state is reclaimed in it.
    Replacing(Option<Arc<Session>>),
    /// No session could be created, and none will be.
    Failed(OpError),
}

/// How a file is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reopening {
    /// After the server restarted, in its grace period (§8.4.2.1), with the delegation of this type.
    Reclaim(DelegationType),
    /// At any other time, as a new open. It waits while the server is in its grace period.
    Anew,
}

impl Nfs4 {
    /// Creates the first session.
    ///
    /// # Errors
    /// Among others [`OpError::Unsupported`] if the server does not have this minor version.
    pub(crate) async fn establish(
        engine: Arc<Engine>,
        config: Arc<Config>,
        connections: Vec<ConnectionId>,
        minor_version: u32,
    ) -> Result<Self, OpError> {
        let (connection, flags) = (connections[0], SESSION_FLAGS);
        let is_taking_over = config.continues.is_some();
        let setup =
            Setup { engine: &engine, connection, config: &config, minor_version, flags, is_taking_over };
        let (registration, session) = setup.first_session(&connections).await?;
        let (state, waiting) = (SessionState::Ready(session), Vec::new());
        let current =
            Current { registration, state, waiting, failed: (0, CallError::TimedOut.into()), refused: 0 };
        let (current, lease) = (Mutex::new(current), Mutex::new(LEASE_DEFAULT));
        Ok(Self {
            engine,
            config,
            minor_version,
            connections,
            current,
            lease,
            delegates_times: AtomicBool::new(false),
            is_taking_over: AtomicBool::new(is_taking_over),
            renewals_uncalled: AtomicU32::new(0),
            opens: OpenFiles::new(minor_version == 0),
            renames: AtomicU32::new(0),
            locks: Locks::new(minor_version == 0),
            delegations: Delegations::default(),
            directory_watches: DirectoryWatches::default(),
            lacks_directory_delegations: AtomicBool::new(false),
            background: Arc::default(),
            offloads: Offloads::default(),
            compound_size: CompoundSize::default(),
            write_start: WriteStart::default(),
        })
    }

    /// Sets the server's lease time from the attribute `lease_time`.
    pub(crate) fn set_lease(&self, lease: Duration) {
        *self.lease.lock() = lease.max(Duration::from_secs(1));
        if let SessionState::Ready(session) = &self.current.lock().state {
            session.set_lease(*self.lease.lock());
            session.wake_keeper();
        }
    }

    /// Sets whether the server lets the holder of a delegation keep the file's times.
    pub(super) fn set_delegates_times(&self, delegates: bool) {
        self.delegates_times.store(delegates, Ordering::Relaxed);
    }

    /// Returns whether the times of delegated files are kept, which takes a clock.
    pub(super) fn delegates_times(&self) -> bool {
        self.delegates_times.load(Ordering::Relaxed) && self.engine.time_of_day().is_some()
    }

    /// Returns the time without a request after which the lease is renewed.
    fn renewal_interval(&self) -> Duration {
        *self.lease.lock() / 3
    }

    /// Returns whether the lease has certainly not ended at the server (RFC 8881 §8.3), and the client knows all state that the
    /// server has revoked.
    pub(super) fn is_lease_valid(&self, now: Duration) -> bool {
        let current = self.current.lock();
        let SessionState::Ready(session) = &current.state else { return false };
        session.is_lease_valid(now)
    }

    /// Returns whether the server has executed a request in the session since each of its connections was lost last.
    pub(super) fn is_confirmed(&self) -> bool {
        let SessionState::Ready(session) = &self.current.lock().state else { return false };
        session.is_confirmed()
    }

    /// Returns whether this version has sessions, and with them the current stateid.
    pub(crate) fn has_sessions(&self) -> bool {
        self.minor_version > 0
    }

    /// Executes a compound, again in the next session if the session is lost. `cache_this` as in [`Session::compound`].
    ///
    /// # Errors
    /// Only if the compound as a whole failed. A failed operation is in the results.
    pub(crate) async fn compound(
        &self,
        caller: &Caller,
        ops: &[Op],
        cache_this: bool,
    ) -> Result<Results, OpError> {
        self.compound_with(caller, ops, &[], cache_this).await
    }

    /// As [`Self::compound`]; a WRITE without data gets the data of these parts.
    pub(super) async fn compound_with(
        &self,
        caller: &Caller,
        ops: &[Op],
        gathered: &[Bytes],
        cache_this: bool,
    ) -> Result<Results, OpError> {
        let mut attempts = self.attempts();
        loop {
            let session = attempts.session().await?;
            match session.compound_with(caller.credential(), ops, gathered, cache_this).await {
                Ok(mut results) => {
                    results.is_repeated |= attempts.is_repeated();
                    return Ok(results);
                }
                Err(error) => attempts.handle(error)?,
            }
        }
    }

    /// As [`Self::compound`], for operations that [`may_share`].
    pub(super) async fn shared_compound(&self, caller: &Caller, ops: &[Op]) -> Result<Results, OpError> {
        let mut attempts = self.attempts();
        loop {
            let session = attempts.session().await?;
            match session.shared_compound(caller.credential(), ops).await {
                Ok(results) => return Ok(results),
                Err(error) => attempts.handle(error)?,
            }
        }
    }

    /// Returns when a request that begins now fails if the server delays it for ever.
    pub(super) fn retry_deadline(&self) -> Duration {
        let limit = self.config.retry.delay_limit();
        limit.map_or(Duration::MAX, |limit| self.engine.now() + limit)
    }

    /// Returns whether calls are repeated without a limit (nfs(5): `hard`).
    pub(super) fn is_hard(&self) -> bool {
        self.config.retry.retries.is_none()
    }

    /// Returns the session, once there is one.
    ///
    /// # Errors
    /// The reason why there will be none, or, for a soft mount (nfs(5)), the error of a failed attempt to create one.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, OpError> {
        let failures_before = self.current.lock().failed.0;
        poll_fn(|context| {
            let mut current = self.current.lock();
            match &current.state {
                SessionState::Ready(session) if session.lost().is_none() => {
                    return Poll::Ready(Ok(Arc::clone(session)));
                }
                SessionState::Failed(error) => return Poll::Ready(Err(error.clone())),
                SessionState::Ready(_) | SessionState::Replacing(_) => {}
            }
            if self.engine.is_shut_down() {
                return Poll::Ready(Err(OpError::Call(CallError::Closed)));
            }
            if current.failed.0 > failures_before {
                return Poll::Ready(Err(current.failed.1.clone()));
            }
            if !current.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                current.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// Returns the number of attempts to replace a session that the server has refused.
    pub(super) fn refused_sessions(&self) -> u64 {
        self.current.lock().refused
    }

    /// Keeps the lease, replaces lost sessions and answers callbacks, until the client is closed.
    pub(crate) async fn run(&self) {
        let session = pin!(join(self.keep_session(), self.answer_callbacks()));
        // Delegations are returned as long as there is a session.
        let returns = pin!(self.return_delegations());
        let kept = select(session, returns);
        // Abandoned operations end with the client.
        select(kept, pin!(self.background.run())).await;
    }

    async fn answer_callbacks(&self) {
        while let Some((path, record)) = poll_fn(|context| self.engine.poll_callback(context)).await {
            if self.minor_version == 0 {
                let ident = callback_ident(&self.config);
                let Answer { reply, is_proven } =
                    answer_v40(record, ident, &Callbacks { session: None, nfs4: self });
                self.engine.answer(path, reply, is_proven);
                continue;
            }
            let session = match &self.current.lock().state {
                SessionState::Ready(session) | SessionState::Replacing(Some(session)) => {
                    Some(Arc::clone(session))
                }
                SessionState::Replacing(None) | SessionState::Failed(_) => None,
            };
            let answer = match &session {
                Some(session) => {
                    let handler = Callbacks { session: Some(session), nfs4: self };
                    session.callbacks.answer(record, &handler)
                }
                // Without a session its callbacks get BADSESSION.
                None => CallbackSlots::new(SessionId::default()).answer(record, &NoSession),
            };
            self.engine.answer(path, answer, true);
        }
    }

    async fn keep_session(&self) {
        let mut revoked_after = Duration::ZERO;
        loop {
            let session = match &self.current.lock().state {
                SessionState::Ready(session) => Arc::clone(session),
                SessionState::Replacing(_) | SessionState::Failed(_) => return,
            };
            // The lease time is known only some time after the first session was made.
            match session.event(|| self.renewal_interval()).await {
                SessionEvent::Closed => return,
                SessionEvent::RenewalDue => self.renew(&session).await,
                SessionEvent::Flags(flags) => {
                    self.handle_flags(&session, flags).await;
                    // The flags remain set if the client does not know the revoked state. So it searches only periodically.
                    let is_due = self.engine.now() >= revoked_after || session.may_be_revoked();
                    if ask_for(flags, FlagReaction::FindRevoked) && is_due {
                        revoked_after = self.engine.now() + self.renewal_interval();
                        // A lost session is the next event.
                        if let Ok(has_found) = self.free_revoked(&session).await {
                            session.searched(has_found);
                        }
                    }
                }
                SessionEvent::Lost(status) => self.replace(status).await,
            }
        }
    }

    /// Renews the lease. A relevant failure appears as a lost session.
    async fn renew(&self, session: &Arc<Session>) {
        if self.minor_version > 0 {
            // Its SEQUENCE is the renewal.
            let _ = session.compound(self.config.machine.credential(), &[], false).await;
            return;
        }
        match self.setup().renew(session).await {
            Ok(can_recall) => self.handle_renewed(session, can_recall).await,
            Err(_) if session.lost().is_none() => self.engine.sleep(RETRY_PAUSE).await,
            Err(_) => {}
        }
    }

    async fn handle_flags(&self, session: &Arc<Session>, flags: SequenceStatus) {
        // A persistent session survives the server's restart; opens and locks do not (RFC 8881 §18.46.3).
        if ask_for(flags, FlagReaction::Reclaim)
            && (self.is_taking_over() || self.reclaim(session).await.is_err())
        {
            session.lose(Status::DEADSESSION);
            return;
        }
        if ask_for(flags, FlagReaction::BindBackChannel) && self.setup().bind(session).await.is_err() {
            // §18.34.3: a back channel that cannot be bound again needs a new session.
            self.engine.sleep(RETRY_PAUSE).await;
        }
    }

    /// Creates a new session for a lost one. Fails only if the server refuses permanently.
    async fn replace(&self, lost_for: Status) {
        let mut registration = {
            let mut current = self.current.lock();
            if self.is_taking_over() {
                // Only the other process can reclaim its state.
                current.state = SessionState::Failed(OpError::Status(lost_for));
                current.wake_all();
                return;
            }
            current.state = SessionState::Replacing(None);
            current.registration
        };
        // Other statuses do not invalidate the client ID: CREATE_SESSION is tried with it first.
        let mut needs_client_id = lost_for == Status::STALE_CLIENTID || self.minor_version == 0;
        // Set until all state is reclaimed, even if more sessions are lost meanwhile. An expired lease has none left.
        let mut must_reclaim = lost_for == Status::EXPIRED;
        let mut failures = 0;
        let state = loop {
            match self.make_session(&mut registration, needs_client_id, &mut must_reclaim).await {
                Ok(session) => break SessionState::Ready(session),
                Err(OpError::Status(Status::STALE_CLIENTID | Status::SEQ_MISORDERED)) if !needs_client_id => {
                    needs_client_id = true;
                }
                Err(OpError::Call(CallError::Closed)) => {
                    break SessionState::Failed(CallError::Closed.into());
                }
                Err(error @ OpError::Status(Status::CLID_INUSE | Status::MINOR_VERS_MISMATCH)) => {
                    break SessionState::Failed(error);
                }
                Err(error) => {
                    needs_client_id = true;
                    failures += 1;
                    self.fail_waiting(error, failures >= SESSIONS_LOST_MAX);
                    self.engine.sleep(RETRY_PAUSE).await;
                }
            }
        };
        let mut current = self.current.lock();
        current.registration = registration;
        current.state = state;
        current.wake_all();
    }

    /// Counts a refused attempt to create a session. Fails the compounds of a soft mount that wait for one, if an attempt has found no
    /// server, or one whose replies are wrong, or if `are_many` attempts have failed in turn.
    fn fail_waiting(&self, error: OpError, are_many: bool) {
        let is_final = match &error {
            OpError::Call(CallError::Unreachable(_) | CallError::TimedOut | CallError::Rpc(_)) => true,
            error => are_many || matches!(error, OpError::BadReply(_)),
        };
        let mut current = self.current.lock();
        current.refused += u64::from(matches!(error, OpError::Status(_)));
        if !is_final || self.is_hard() {
            return;
        }
        current.failed = (current.failed.0 + 1, error);
        current.wake_all();
    }

    async fn make_session(
        &self,
        registration: &mut Registration,
        needs_client_id: bool,
        must_reclaim: &mut bool,
    ) -> Result<Arc<Session>, OpError> {
        let setup = self.setup();
        if needs_client_id {
            let before = registration.client_id;
            *registration = setup.register().await?;
            // A confirmed client ID still has its state (RFC 8881 §18.35.4, RFC 7530 §16.33.5).
            *must_reclaim |= registration.client_id != before || !registration.is_confirmed;
        }
        let session = setup.create_session(registration, &self.connections).await?;
        session.set_lease(*self.lease.lock());
        self.current.lock().state = SessionState::Replacing(Some(Arc::clone(&session)));
        if *must_reclaim {
            self.write_start.reset();
            self.reclaim(&session).await?;
        } else {
            setup.reclaim_complete(&session).await?;
        }
        *must_reclaim = false;
        registration.is_confirmed = true;
        Ok(session)
    }

    /// Returns whether another process still has the state of this client.
    pub(super) fn is_taking_over(&self) -> bool {
        self.is_taking_over.load(Ordering::Relaxed)
    }

    /// Notes that this process has the state of the client.
    ///
    /// # Errors
    /// The session was lost before.
    pub(super) fn end_take_over(&self) -> Result<(), OpError> {
        let current = self.current.lock();
        self.is_taking_over.store(false, Ordering::Relaxed);
        match &current.state {
            SessionState::Failed(error) => Err(error.clone()),
            SessionState::Ready(_) | SessionState::Replacing(_) => Ok(()),
        }
    }

    /// Reclaims opens, many at a time. Adds the numbers of those that are open to `open`.
    async fn reclaim_opens(
        &self,
        session: &Arc<Session>,
        files: &[(Arc<OpenFile>, DelegationType)],
        open: &mut HashSet<u32>,
    ) -> Result<(), OpError> {
        let reopening = files.iter().map(async |(file, delegation)| {
            let mut owner = file.turn().await;
            if file.is_closed() {
                return Ok(None);
            }
            let reopening = Reopening::Reclaim(*delegation);
            let is_open = self.reopen(session, file, &mut owner, reopening).await?;
            Ok::<_, OpError>(is_open.then_some(file.owner))
        });
        let mut running = stream::iter(reopening).buffer_unordered(RECLAIMS_MAX);
        while let Some(reopened) = running.next().await {
            open.extend(reopened?);
        }
        Ok(())
    }

    /// Reclaims all opens and delegations, then the locks through them, and reports the end of reclaims.
    async fn reclaim(&self, session: &Arc<Session>) -> Result<(), OpError> {
        // §10.9.5 has no reclaim of directory delegations.
        self.directory_watches.lost(None);
        let mut open = HashSet::new();
        let mut claims = reclaims(self.opens.all(), self.delegations.begin_reclaim());
        self.reclaim_opens(session, &claims, &mut open).await?;
        // An open that was closed meanwhile has not reclaimed its file's delegation, but a local one can.
        let local = self.opens.all().into_iter().filter(|file| file.is_local()).collect();
        let again = reclaims(local, self.delegations.not_reclaimed());
        self.reclaim_opens(session, &again, &mut open).await?;
        claims.extend(again);
        // What is still local has no delegation any longer.
        let reopened = claims.iter().filter(|(file, _)| open.contains(&file.owner));
        self.delegations.end_reclaim(&reopened.map(|(file, _)| file.handle).collect());
        let rest = self.opens.all().into_iter().filter(|file| self.is_undelegated(file));
        let rest: Vec<_> = rest.map(|file| (file, DelegationType::NONE)).collect();
        self.reclaim_opens(session, &rest, &mut open).await?;
        let lockers = self.locks.all();
        let reclaiming = lockers.iter().map(|locker| self.reclaim_locks(session, locker, &open));
        let mut running = stream::iter(reclaiming).buffer_unordered(RECLAIMS_MAX);
        while let Some(reclaimed) = running.next().await {
            reclaimed?;
        }
        self.setup().reclaim_complete(session).await?;
        // Each SEQUENCE of these has returned the flag, too.
        session.forget_flags();
        Ok(())
    }

    /// Returns the client ID.
    pub(crate) fn client_id(&self) -> u64 {
        self.current.lock().registration.client_id
    }

    /// Returns the number of compounds in slots, and of those that had to wait for one so far in this session.
    pub(crate) fn slot_use(&self) -> (usize, usize) {
        match &self.current.lock().state {
            SessionState::Ready(session) => session.slot_use(),
            SessionState::Replacing(_) | SessionState::Failed(_) => (0, 0),
        }
    }

    pub(super) fn setup(&self) -> Setup<'_> {
        Setup {
            engine: &self.engine,
            connection: self.connections[0],
            config: &self.config,
            minor_version: self.minor_version,
            flags: SESSION_FLAGS,
            is_taking_over: self.is_taking_over(),
        }
    }
}

/// Returns the opens to reclaim, with the type of delegation that is reclaimed with each: the first open of a delegated file
/// has its delegation. An open that was local is reclaimed only if the file has no other.
fn reclaims(
    files: Vec<Arc<OpenFile>>,
    mut claims: HashMap<Handle, Kind>,
) -> Vec<(Arc<OpenFile>, DelegationType)> {
    let (local, mut known): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.is_local());
    // A delegation for writing is reclaimed with an open for writing.
    known.sort_by_key(|file| !file.mode.write);
    let mut take = |file: &OpenFile| claims.remove(&file.handle).map(delegation_type);
    let mut reclaims: Vec<_> = known
        .into_iter()
        .map(|file| {
            let delegation = take(&file).unwrap_or(DelegationType::NONE);
            (file, delegation)
        })
        .collect();
    for file in local {
        if let Some(delegation) = take(&file) {
            reclaims.push((file, delegation));
        }
    }
    reclaims
}

/// Executes callbacks.
struct Callbacks<'a> {
    /// The session of the callback; 4.0 has none.
    session: Option<&'a Session>,
    nfs4: &'a Nfs4,
}

impl CallbackHandler for Callbacks<'_> {
    fn execute(&self, op: &CbOp) -> CbOpResult {
        match op {
            CbOp::RecallSlot(args) => {
                self.session.iter().for_each(|session| session.set_target(args.target_highest_slot_id));
                CbOpResult::RecallSlot(Ok(()).into())
            }
            CbOp::RecallAny(args) => {
                self.nfs4.recall_any(args);
                if args.type_mask.has(recallable::DIR_DLG) {
                    self.nfs4.directory_watches.recall_any(args.objects_to_keep as usize);
                }
                CbOpResult::RecallAny(Ok(()).into())
            }
            // The other process still has the delegation, and returns it before this one gets its state.
            CbOp::Recall(_) if self.nfs4.is_taking_over() => CbOpResult::Recall(Err(Status::DELAY).into()),
            CbOp::GetAttr(_) if self.nfs4.is_taking_over() => CbOpResult::GetAttr(Err(Status::DELAY).into()),
            // §20.2.3: with `truncate` the client "is freed of the obligation to propagate modified data". It does so nevertheless:
            // if the truncation fails, or the server stops before, they would be lost without an error.
            CbOp::Recall(args) => {
                let delegations = &self.nfs4.delegations;
                let is_known = (!delegations.is_held(&args.handle, &args.stateid)
                    && self.nfs4.directory_watches.recalled(args.handle, &args.stateid))
                    || delegations.recall(&args.handle, &args.stateid);
                let outcome = if is_known { Ok(()) } else { Err(Status::BAD_STATEID) };
                CbOpResult::Recall(outcome.into())
            }
            CbOp::Notify(args) => CbOpResult::Notify(self.nfs4.notified(args).into()),
            CbOp::GetAttr(args) => CbOpResult::GetAttr(self.nfs4.held_attributes(args).into()),
            CbOp::NotifyLock(args) => {
                if let Some(number) = number_of(&args.lock_owner.owner) {
                    self.nfs4.locks.waiters.notify(&args.handle, number);
                }
                CbOpResult::NotifyLock(Ok(()).into())
            }
            CbOp::Offload(args) => {
                self.nfs4.offloads.ended(&args.stateid, args.info.clone());
                CbOpResult::Offload(Ok(()).into())
            }
            // Layouts are not used, nor delegations for which nothing is opened.
            CbOp::LayoutRecall(_) => CbOpResult::LayoutRecall(Err(Status::NOMATCHING_LAYOUT).into()),
            CbOp::PushDeleg(_) => CbOpResult::PushDeleg(Err(Status::REJECT_DELEG).into()),
            CbOp::RecallableObjAvail(_) => CbOpResult::RecallableObjAvail(Err(Status::NOTSUPP).into()),
            CbOp::WantsCancelled(_) => CbOpResult::WantsCancelled(Err(Status::NOTSUPP).into()),
            CbOp::NotifyDeviceId(_) => CbOpResult::NotifyDeviceId(Err(Status::NOTSUPP).into()),
            CbOp::Sequence(_) | CbOp::Illegal => CbOpResult::Illegal(Err(Status::OP_ILLEGAL).into()),
        }
    }
}

/// Executes no callback: there is no session.
struct NoSession;

impl CallbackHandler for NoSession {
    fn execute(&self, _: &CbOp) -> CbOpResult {
        CbOpResult::Illegal(Err(Status::OP_ILLEGAL).into())
    }
}
