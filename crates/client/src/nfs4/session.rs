//! A session of NFS 4.1 or 4.2 (RFC 8881 §2.10) and compounds in its slots.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::session::{SequenceArgs, SequenceOk, SequenceStatus};
use protocol::nfs4::types::{ClientId, Outcome, SessionId, Status};
use rpc::auth::OpaqueAuth;
use rpc::message::{Rejection, RpcError, parse_reply};

use super::callback::CallbackSlots;
use super::slots::Slots;
use super::wire::encode_compound;
use crate::engine::{Abandoned, CallError, ConnectionId, Engine};
use crate::permits::{Ticket, WaitQueue};

/// The first pause after DELAY; each further one is twice as long.
pub(crate) const DELAY_FIRST: Duration = Duration::from_millis(1);
/// The longest pause after DELAY.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(5);

/// What the server granted with the session (`channel_attrs4`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Maximum bytes of a request.
    pub(crate) request: u32,
    /// Maximum bytes of a reply.
    pub(crate) response: u32,
    /// Maximum number of operations in a compound, SEQUENCE included.
    pub(crate) operations: u32,
}

/// Why a compound was not executed, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unexecuted {
    /// The session is lost. The compound may have been executed if it was sent.
    SessionLost {
        /// Whether the server may have executed it.
        was_sent: bool,
    },
    /// The server executed it earlier and has not kept the reply (RETRY_UNCACHED_REP).
    ReplyLost,
    /// Another status of SEQUENCE.
    Refused(Status),
    /// No reply that can be used.
    Call(CallError),
}

/// A session.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) client_id: ClientId,
    pub(crate) minor_version: u32,
    pub(crate) limits: Limits,
    engine: Arc<Engine>,
    connections: Vec<ConnectionId>,
    next_connection: AtomicUsize,
    /// Flags of SEQUENCE that nobody has taken yet.
    flags: AtomicU32,
    table: Mutex<Table>,
    slot_waits: AtomicUsize,
    pub(crate) callbacks: CallbackSlots,
}

struct Table {
    slots: Slots,
    queue: WaitQueue,
    /// Why the session is lost.
    lost: Option<Status>,
    /// The task that keeps the session alive.
    keeper: Option<Waker>,
    /// When the last SEQUENCE was executed: the lease was renewed then.
    renewed_at: Duration,
}

/// What a session is made of.
pub(crate) struct NewSession {
    pub(crate) id: SessionId,
    pub(crate) client_id: ClientId,
    pub(crate) minor_version: u32,
    pub(crate) limits: Limits,
    pub(crate) slots: u32,
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>, connections: Vec<ConnectionId>, new: &NewSession) -> Arc<Self> {
        let NewSession { id, client_id, minor_version, limits, slots } = *new;
        let table = Table {
            slots: Slots::new(id, slots),
            queue: WaitQueue::default(),
            lost: None,
            keeper: None,
            renewed_at: engine.now(),
        };
        Arc::new(Self {
            id,
            client_id,
            minor_version,
            limits,
            engine,
            connections,
            next_connection: AtomicUsize::new(0),
            flags: AtomicU32::new(0),
            table: Mutex::new(table),
            slot_waits: AtomicUsize::new(0),
            callbacks: CallbackSlots::new(id),
        })
    }

    /// Executes a compound in a slot, and repeats it in the same slot while SEQUENCE says DELAY (§15.1.1.3). `cache_this` asks
    /// the server to keep the reply, which compounds that change something need.
    pub(crate) async fn compound(
        self: &Arc<Self>,
        credential: &OpaqueAuth,
        ops: &[Op],
        cache_this: bool,
    ) -> Result<CompoundResult, Unexecuted> {
        let Some(slot) = self.take_slot(cache_this).await else {
            return Err(Unexecuted::SessionLost { was_sent: false });
        };
        let mut pause = DELAY_FIRST;
        loop {
            match self.send(credential, ops, &slot).await? {
                Some(result) => return Ok(result),
                None => self.engine.sleep(pause).await,
            }
            pause = (pause * 2).min(DELAY_MAX);
        }
    }

    /// Sends a compound once; `None` if SEQUENCE said DELAY.
    async fn send(
        self: &Arc<Self>,
        credential: &OpaqueAuth,
        ops: &[Op],
        slot: &SlotUse,
    ) -> Result<Option<CompoundResult>, Unexecuted> {
        let (minor, sequence) = (self.minor_version, slot.sequence);
        let connection = self.pick_connection();
        let call =
            self.engine.call(connection, |xid| encode_compound(xid, credential, minor, Some(sequence), ops));
        let outcome = call.when_abandoned(slot.held()).await;
        slot.is_in_flight.store(false, Ordering::Relaxed);
        let record = match outcome {
            Ok(record) => record,
            Err(error) => {
                // The server may have executed the request: the slot's next sequence ID is unknown.
                self.lose(Status::SEQ_MISORDERED);
                return Err(Unexecuted::Call(error));
            }
        };
        match parse_reply::<CompoundResult>(record) {
            Ok(result) => self.handle_result(&sequence, result),
            // RFC 5531 §9: a denied call was not executed.
            Err(error @ RpcError::Denied(Rejection::AuthError(_))) => Err(Unexecuted::Call(error.into())),
            Err(error) => {
                self.lose(Status::SEQ_MISORDERED);
                Err(Unexecuted::Call(error.into()))
            }
        }
    }

    fn handle_result(
        &self,
        sent: &SequenceArgs,
        mut result: CompoundResult,
    ) -> Result<Option<CompoundResult>, Unexecuted> {
        let mut results = result.results.into_vec();
        let first = if results.is_empty() { None } else { Some(results.remove(0)) };
        let status = match first {
            Some(OpResult::Sequence(Outcome::Ok(ok))) if self.executed(sent, &ok) => {
                // Fewer results than before fit the same bound.
                result.results = xdr::List::new(results).unwrap_or_default();
                return Ok(Some(result));
            }
            Some(OpResult::Sequence(Outcome::Error(status))) => status,
            // A reply to another request, or none to SEQUENCE.
            _ if result.status == Status::OK => Status::SEQ_MISORDERED,
            _ => result.status,
        };
        match status {
            Status::DELAY => Ok(None),
            Status::RETRY_UNCACHED_REP => {
                self.skip_sequence(sent);
                Err(Unexecuted::ReplyLost)
            }
            Status::BADSESSION
            | Status::DEADSESSION
            | Status::BADSLOT
            | Status::SEQ_MISORDERED
            | Status::SEQ_FALSE_RETRY
            | Status::BAD_HIGH_SLOT
            | Status::CONN_NOT_BOUND_TO_SESSION
            | Status::STALE_CLIENTID => {
                self.lose(status);
                Err(Unexecuted::SessionLost { was_sent: true })
            }
            status => Err(Unexecuted::Refused(status)),
        }
    }

    fn executed(&self, sent: &SequenceArgs, ok: &SequenceOk) -> bool {
        let mut table = self.table.lock();
        let is_ours = table.slots.executed(sent, ok);
        if is_ours {
            table.renewed_at = self.engine.now();
            table.queue.wake_first();
        }
        let flags = ok.status_flags;
        if !flags.is_empty() {
            self.flags.fetch_or(flags.bits(), Ordering::Relaxed);
            wake(&mut table.keeper);
        }
        is_ours
    }

    /// Frees the slot of a request that was not executed.
    fn release(&self, sent: &SequenceArgs) {
        let mut table = self.table.lock();
        table.slots.release(sent);
        table.queue.wake_first();
    }

    /// Notes that the server had executed a request whose reply is gone.
    fn skip_sequence(&self, sent: &SequenceArgs) {
        let ok = SequenceOk {
            session_id: sent.session_id,
            sequence_id: sent.sequence_id,
            slot_id: sent.slot_id,
            highest_slot_id: sent.highest_slot_id,
            target_highest_slot_id: u32::MAX,
            status_flags: SequenceStatus::empty(),
        };
        let mut table = self.table.lock();
        table.slots.executed(sent, &ok);
        table.queue.wake_first();
    }

    /// Ends the session. Compounds that wait for a slot return, and the task that keeps sessions alive makes a new one.
    pub(crate) fn lose(&self, status: Status) {
        let mut table = self.table.lock();
        table.lost.get_or_insert(status);
        table.queue.wake_all();
        wake(&mut table.keeper);
    }

    /// Returns the status for which the session was lost.
    pub(crate) fn lost(&self) -> Option<Status> {
        self.table.lock().lost
    }

    /// Waits until the session is lost, flags of SEQUENCE have come, or the lease was not renewed until `deadline`.
    pub(crate) async fn event(&self, lease_part: Duration) -> SessionEvent {
        let mut sleep = None;
        poll_fn(|context| self.poll_event(lease_part, &mut sleep, context)).await
    }

    fn poll_event(
        &self,
        lease_part: Duration,
        sleep: &mut Option<crate::engine::Sleep>,
        context: &mut Context<'_>,
    ) -> Poll<SessionEvent> {
        let renewed_at = {
            let mut table = self.table.lock();
            if let Some(status) = table.lost {
                return Poll::Ready(SessionEvent::Lost(status));
            }
            table.keeper = Some(context.waker().clone());
            table.renewed_at
        };
        let flags = self.flags.swap(0, Ordering::Relaxed);
        if flags != 0 {
            return Poll::Ready(SessionEvent::Flags(SequenceStatus::from_bits_retain(flags)));
        }
        if self.engine.is_shut_down() {
            return Poll::Ready(SessionEvent::Closed);
        }
        let due = renewed_at + lease_part;
        if self.engine.now() >= due {
            return Poll::Ready(SessionEvent::RenewalDue);
        }
        let timer = sleep.insert(self.engine.sleep_until(due));
        match Pin::new(timer).poll(context) {
            Poll::Ready(()) if self.engine.is_shut_down() => Poll::Ready(SessionEvent::Closed),
            Poll::Ready(()) => Poll::Ready(SessionEvent::RenewalDue),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Follows CB_RECALL_SLOT.
    pub(crate) fn set_target(&self, target: u32) {
        self.table.lock().slots.set_target(target);
    }

    /// Returns how many compounds are in slots, and how many had to wait for one so far.
    pub(crate) fn slot_use(&self) -> (usize, usize) {
        (self.table.lock().slots.busy(), self.slot_waits.load(Ordering::Relaxed))
    }

    fn pick_connection(&self) -> ConnectionId {
        let next = self.next_connection.fetch_add(1, Ordering::Relaxed);
        self.connections[next % self.connections.len()]
    }

    /// Waits for a slot; `None` once the session is lost.
    async fn take_slot(self: &Arc<Self>, cache_this: bool) -> Option<SlotUse> {
        let mut place = Place { session: self, ticket: Ticket::default(), has_waited: false };
        poll_fn(|context| place.poll(cache_this, context)).await
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// What the task that keeps a session alive waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEvent {
    /// The session is lost, for this status.
    Lost(Status),
    /// The server has set these flags.
    Flags(SequenceStatus),
    /// The lease was not renewed for a while.
    RenewalDue,
    /// The client was closed.
    Closed,
}

/// A place in the queue for slots.
struct Place<'a> {
    session: &'a Arc<Session>,
    ticket: Ticket,
    has_waited: bool,
}

impl Place<'_> {
    fn poll(&mut self, cache_this: bool, context: &mut Context<'_>) -> Poll<Option<SlotUse>> {
        let mut table = self.session.table.lock();
        let Table { slots, queue, lost, .. } = &mut *table;
        if lost.is_some() {
            return Poll::Ready(None);
        }
        let polled = queue.poll(&mut self.ticket, context, || slots.take(cache_this));
        drop(table);
        if polled.is_pending() && !std::mem::replace(&mut self.has_waited, true) {
            self.session.slot_waits.fetch_add(1, Ordering::Relaxed);
        }
        polled.map(|sequence| {
            Some(SlotUse {
                session: Arc::clone(self.session),
                sequence,
                is_in_flight: AtomicBool::new(false),
            })
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.session.table.lock().queue.leave(&mut self.ticket);
    }
}

/// A slot in use. Dropping it frees the slot, unless the server may be executing the request: then the reply frees it.
struct SlotUse {
    session: Arc<Session>,
    sequence: SequenceArgs,
    is_in_flight: AtomicBool,
}

impl SlotUse {
    /// Returns what frees the slot if the caller drops the compound while the server executes it.
    fn held(&self) -> Box<dyn Abandoned> {
        self.is_in_flight.store(true, Ordering::Relaxed);
        Box::new(HeldSlot { session: Arc::clone(&self.session), sequence: self.sequence })
    }
}

impl Drop for SlotUse {
    fn drop(&mut self) {
        if !*self.is_in_flight.get_mut() {
            self.session.release(&self.sequence);
        }
    }
}

/// A slot whose compound was dropped by its caller while in flight.
struct HeldSlot {
    session: Arc<Session>,
    sequence: SequenceArgs,
}

impl Abandoned for HeldSlot {
    fn handle_reply(self: Box<Self>, record: Option<Bytes>) {
        // A call that was never sent, or whose engine has ended.
        let Some(record) = record else { return self.session.release(&self.sequence) };
        let mut results = parse_reply::<CompoundResult>(record).map(|result| result.results.into_vec());
        let first = results.as_mut().ok().and_then(|results| results.first_mut());
        match first {
            Some(OpResult::Sequence(Outcome::Ok(ok))) if self.session.executed(&self.sequence, ok) => {}
            Some(OpResult::Sequence(Outcome::Error(Status::DELAY))) => self.session.release(&self.sequence),
            _ => self.session.lose(Status::SEQ_MISORDERED),
        }
    }
}
