//! The session of a client over its life: made, renewed, replaced when it is lost, destroyed at the end.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::session::SequenceStatus;
use protocol::nfs4::types::Status;
use rpc::message::{AcceptStatus, RpcError};

use super::callback::CallbackHandler;
use super::compound_size::CompoundSize;
use super::establish::{Registration, Setup};
use super::recovery::{Reopening, reopen};
use super::session::{Session, SessionEvent, Unexecuted};
use super::wire::Results;
use crate::config::{Caller, Config};
use crate::engine::{CallError, ConnectionId, Engine};
use crate::error::OpError;
use crate::opens::OpenFiles;

/// Assumed until the server has said its lease time; most have 90 s.
const LEASE_DEFAULT: Duration = Duration::from_secs(90);
/// How often a compound is executed anew after lost sessions, before the caller gets an error.
const SESSIONS_LOST_MAX: u32 = 16;
/// The pause before another attempt to make a session after a failed one.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// NFS 4.1 or 4.2 with one server.
pub(crate) struct Nfs4 {
    pub(crate) engine: Arc<Engine>,
    pub(crate) config: Arc<Config>,
    minor_version: u32,
    connections: Vec<ConnectionId>,
    current: Mutex<Current>,
    lease: Mutex<Duration>,
    pub(super) opens: OpenFiles,
    pub(super) compound_size: CompoundSize,
}

struct Current {
    registration: Registration,
    state: SessionState,
    waiting: Vec<Waker>,
}

enum SessionState {
    Ready(Arc<Session>),
    /// A new session is being made.
    Replacing,
    /// None could be made, and none will be.
    Failed(OpError),
}

impl Nfs4 {
    /// Makes the first session.
    ///
    /// # Errors
    /// Among others [`OpError::Unsupported`] if the server does not have this minor version.
    pub(crate) async fn establish(
        engine: Arc<Engine>,
        config: Arc<Config>,
        connections: Vec<ConnectionId>,
        minor_version: u32,
    ) -> Result<Self, OpError> {
        let setup = Setup { engine: &engine, connection: connections[0], config: &config, minor_version };
        let mut registration = setup.exchange_id().await.map_err(as_unsupported)?;
        let session = match setup.create_session(&mut registration, &connections).await {
            // The reply to EXCHANGE_ID was about an earlier start of this client.
            Err(OpError::Status(Status::STALE_CLIENTID | Status::SEQ_MISORDERED)) => {
                registration = setup.exchange_id().await?;
                setup.create_session(&mut registration, &connections).await?
            }
            outcome => outcome?,
        };
        setup.reclaim_complete(&session).await?;
        registration.is_confirmed = true;
        let current = Current { registration, state: SessionState::Ready(session), waiting: Vec::new() };
        let (current, lease) = (Mutex::new(current), Mutex::new(LEASE_DEFAULT));
        Ok(Self {
            engine,
            config,
            minor_version,
            connections,
            current,
            lease,
            opens: OpenFiles::default(),
            compound_size: CompoundSize::default(),
        })
    }

    /// Sets the server's lease time, which the attribute `lease_time` says.
    pub(crate) fn set_lease(&self, lease: Duration) {
        *self.lease.lock() = lease.max(Duration::from_secs(1));
    }

    /// Executes a compound, anew in the next session if the session is lost. `cache_this` as in [`Session::compound`].
    ///
    /// # Errors
    /// Only if the compound as a whole failed. A failed operation is in the results.
    pub(crate) async fn compound(
        &self,
        caller: &Caller,
        ops: &[Op],
        cache_this: bool,
    ) -> Result<Results, OpError> {
        let mut is_repeated = false;
        for _ in 0..SESSIONS_LOST_MAX {
            let session = self.session().await?;
            match session.compound(caller.credential(), ops, cache_this).await {
                Ok(result) => return Ok(Results::new(result.status, result.results.into_vec(), is_repeated)),
                Err(Unexecuted::SessionLost { was_sent }) => is_repeated |= was_sent,
                Err(Unexecuted::ReplyLost) => is_repeated = true,
                Err(Unexecuted::Refused(status)) => return Err(OpError::Status(status)),
                Err(Unexecuted::Call(error)) => return Err(OpError::Call(error)),
            }
        }
        Err(OpError::BadReply("it loses every session"))
    }

    /// Returns the session, once there is one.
    pub(crate) async fn session(&self) -> Result<Arc<Session>, OpError> {
        poll_fn(|context| {
            let mut current = self.current.lock();
            match &current.state {
                SessionState::Ready(session) if session.lost().is_none() => {
                    return Poll::Ready(Ok(Arc::clone(session)));
                }
                SessionState::Failed(error) => return Poll::Ready(Err(error.clone())),
                SessionState::Ready(_) | SessionState::Replacing => {}
            }
            if self.engine.is_shut_down() {
                return Poll::Ready(Err(OpError::Call(CallError::Closed)));
            }
            current.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Keeps the lease, replaces lost sessions and answers callbacks, until the client is closed.
    pub(crate) async fn run(&self) {
        futures_util::future::join(self.keep_session(), self.answer_callbacks()).await;
    }

    async fn answer_callbacks(&self) {
        while let Some((connection, record)) = poll_fn(|context| self.engine.poll_callback(context)).await {
            let session = match &self.current.lock().state {
                SessionState::Ready(session) => Arc::clone(session),
                // The callback's session is lost; the server repeats what it still wants.
                SessionState::Replacing | SessionState::Failed(_) => continue,
            };
            if let Some(reply) = session.callbacks.answer(record, &Callbacks { session: &session }) {
                self.engine.send_reply(connection, vec![reply]);
            }
        }
    }

    async fn keep_session(&self) {
        loop {
            let session = match &self.current.lock().state {
                SessionState::Ready(session) => Arc::clone(session),
                SessionState::Replacing | SessionState::Failed(_) => return,
            };
            let lease_part = *self.lease.lock() / 3;
            match session.event(lease_part).await {
                SessionEvent::Closed => return,
                SessionEvent::RenewalDue => {
                    // Its SEQUENCE is the renewal. A failure shows as a lost session.
                    let _ = session.compound(self.config.machine.credential(), &[], false).await;
                }
                SessionEvent::Flags(flags) => self.handle_flags(&session, flags).await,
                SessionEvent::Lost(status) => self.replace(status).await,
            }
        }
    }

    async fn handle_flags(&self, session: &Arc<Session>, flags: SequenceStatus) {
        let path_down = SequenceStatus::CB_PATH_DOWN
            | SequenceStatus::CB_PATH_DOWN_SESSION
            | SequenceStatus::BACKCHANNEL_FAULT;
        if flags.intersects(path_down) && self.setup().bind(session).await.is_err() {
            // §18.34.3: a back channel that cannot be bound again needs a new session.
            self.engine.sleep(RETRY_PAUSE).await;
        }
    }

    /// Makes a new session in place of a lost one. Fails only if the server refuses for good.
    async fn replace(&self, lost_for: Status) {
        let mut registration = {
            let mut current = self.current.lock();
            current.state = SessionState::Replacing;
            current.registration
        };
        // Other statuses say nothing against the client ID: CREATE_SESSION is tried with it first.
        let mut needs_client_id = lost_for == Status::STALE_CLIENTID;
        let state = loop {
            match self.make_session(&mut registration, needs_client_id).await {
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
                Err(_) => {
                    needs_client_id = true;
                    self.engine.sleep(RETRY_PAUSE).await;
                }
            }
        };
        let mut current = self.current.lock();
        current.registration = registration;
        current.state = state;
        for waker in current.waiting.drain(..) {
            waker.wake();
        }
    }

    async fn make_session(
        &self,
        registration: &mut Registration,
        needs_client_id: bool,
    ) -> Result<Arc<Session>, OpError> {
        let setup = self.setup();
        let client_id = registration.client_id;
        if needs_client_id {
            *registration = setup.exchange_id().await?;
        }
        let session = setup.create_session(registration, &self.connections).await?;
        // A confirmed client ID still has its state (RFC 8881 §18.35.4).
        if registration.client_id != client_id || !registration.is_confirmed {
            for file in self.opens.all() {
                reopen(&self.engine, &session, &file, Reopening::Reclaim).await?;
            }
        }
        setup.reclaim_complete(&session).await?;
        registration.is_confirmed = true;
        Ok(session)
    }

    /// Returns how many compounds are in slots, and how many had to wait for one so far in this session.
    pub(crate) fn slot_use(&self) -> (usize, usize) {
        match &self.current.lock().state {
            SessionState::Ready(session) => session.slot_use(),
            SessionState::Replacing | SessionState::Failed(_) => (0, 0),
        }
    }

    /// Destroys session and client ID. The client must have closed its files before.
    pub(crate) async fn leave(&self) -> Result<(), OpError> {
        let session = self.session().await?;
        self.setup().leave(&session).await
    }

    fn setup(&self) -> Setup<'_> {
        Setup {
            engine: &self.engine,
            connection: self.connections[0],
            config: &self.config,
            minor_version: self.minor_version,
        }
    }
}

/// Executes callbacks.
struct Callbacks<'a> {
    session: &'a Session,
}

impl CallbackHandler for Callbacks<'_> {
    fn execute(&self, op: &CbOp) -> CbOpResult {
        match op {
            CbOp::RecallSlot(args) => {
                self.session.set_target(args.target_highest_slot_id);
                CbOpResult::RecallSlot(Ok(()).into())
            }
            // The client asks for no delegations and layouts, so that there is nothing to return.
            CbOp::RecallAny(_) => CbOpResult::RecallAny(Ok(()).into()),
            CbOp::Recall(_) => CbOpResult::Recall(Err(Status::BAD_STATEID).into()),
            CbOp::NotifyLock(_) => CbOpResult::NotifyLock(Ok(()).into()),
            _ => CbOpResult::Illegal(Err(Status::NOTSUPP).into()),
        }
    }
}

/// Names what is missing if the server does not have the program or the minor version.
fn as_unsupported(error: OpError) -> OpError {
    match error {
        OpError::Status(Status::MINOR_VERS_MISMATCH)
        | OpError::Call(CallError::Rpc(RpcError::NotExecuted(
            AcceptStatus::ProgramMismatch(_) | AcceptStatus::ProgramUnavailable,
        ))) => OpError::Unsupported("this version of NFS"),
        error => error,
    }
}
