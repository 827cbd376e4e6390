//! A session of NFS 4.1 or 4.2 (RFC 8881 §2.10) and compounds in its slots. In 4.0 a session is the life of a client ID
//! (RFC 7530 §9.1.1): it ends when the server no longer knows the ID, and its compounds have no slots.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::session::{CreateSessionFlags, SequenceArgs, SequenceOk, SequenceStatus};
use protocol::nfs4::types::{ClientId, MAX_OPERATIONS, Outcome, SessionId, Status, Utf8};
use rpc::auth::OpaqueAuth;
use rpc::message::{Rejection, ReplyHeader, RpcError, parse_reply};
use xdr::{Decode, Reader};

use super::callback::CallbackSlots;
use super::lease::Lease;
use super::sequencer::{Place, Sequencer};
use super::statuses::{Recovery, recovery};
use super::wire::{Results, encode_gathered, label};
use crate::engine::{CallError, Completion, ConnectionId, Engine};
use crate::permits::{Ticket, WaitQueue};

mod shared_call;
mod sharing;

use shared_call::SharedMembers;
use sharing::Sharing;
pub(super) use sharing::may_share;

/// The first pause after DELAY; each further one is twice as long.
pub(crate) const DELAY_FIRST: Duration = Duration::from_millis(1);
/// The longest pause after DELAY.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(5);
/// The pause before another attempt in the server's grace period.
pub(super) const GRACE_PAUSE: Duration = Duration::from_secs(1);

/// The limits that the server granted with the session (`channel_attrs4`); in 4.0, limits that servers are known to accept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Maximum bytes of a request.
    pub(crate) request: u32,
    /// Maximum bytes of a reply.
    pub(crate) response: u32,
    /// Maximum number of operations in a compound, SEQUENCE included.
    pub(crate) operations: u32,
    /// Maximum useful number of compounds in flight.
    pub(crate) in_flight: u32,
}

/// Why a compound was not executed, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unexecuted {
    /// The session is lost. The compound may have been executed if it was sent.
    SessionLost {
        /// Whether the server may have executed it.
        was_sent: bool,
    },
    /// The server executed it earlier and has not kept the reply (RETRY_UNCACHED_REP).
    ReplyLost,
    /// Another status of SEQUENCE.
    Refused(Status),
    /// No usable reply.
    Call(CallError),
}

/// A session.
pub(crate) struct Session {
    /// Its ID; zeros in 4.0.
    pub(crate) id: SessionId,
    pub(crate) client_id: ClientId,
    pub(crate) minor_version: u32,
    /// The flags of CREATE_SESSION that the server granted.
    pub(crate) granted: CreateSessionFlags,
    pub(crate) limits: Limits,
    /// The time for which SEQUENCE may return DELAY; `None`: for ever.
    delay_limit: Option<Duration>,
    engine: Arc<Engine>,
    connections: Vec<ConnectionId>,
    next_connection: AtomicUsize,
    /// Flags of SEQUENCE that have not been taken yet.
    flags: AtomicU32,
    table: Mutex<Table>,
    slot_waits: AtomicUsize,
    pub(crate) callbacks: CallbackSlots,
}

struct Table {
    sequencer: Sequencer,
    queue: WaitQueue,
    sharing: Sharing,
    /// Why the session is lost.
    lost: Option<Status>,
    /// The task that keeps the session alive.
    keeper: Option<Waker>,
    lease: Lease,
}

/// The parameters of a session.
pub(crate) struct NewSession {
    pub(crate) id: SessionId,
    pub(crate) client_id: ClientId,
    pub(crate) minor_version: u32,
    pub(crate) granted: CreateSessionFlags,
    pub(crate) limits: Limits,
    /// The time for which SEQUENCE may return DELAY ([`crate::engine::RetryPolicy::delay_limit`]).
    pub(crate) delay_limit: Option<Duration>,
    pub(crate) sequencer: Sequencer,
    /// When the request was sent that has created it, and renewed the lease.
    pub(crate) renewed_at: Duration,
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>, connections: Vec<ConnectionId>, new: NewSession) -> Arc<Self> {
        let NewSession { id, client_id, minor_version, granted, limits, delay_limit, sequencer, renewed_at } =
            new;
        let table = Table {
            sequencer,
            queue: WaitQueue::default(),
            sharing: Sharing::default(),
            lost: None,
            keeper: None,
            lease: Lease::new(renewed_at),
        };
        Arc::new(Self {
            id,
            client_id,
            minor_version,
            granted,
            limits,
            delay_limit,
            engine,
            connections,
            next_connection: AtomicUsize::new(0),
            flags: AtomicU32::new(0),
            table: Mutex::new(table),
            slot_waits: AtomicUsize::new(0),
            callbacks: CallbackSlots::new(id),
        })
    }

    /// Executes a compound in a slot, and repeats it in the same slot while SEQUENCE returns DELAY (§15.1.1.3); on a soft mount not
    /// for ever. `cache_this` asks the server to keep the reply, which compounds with changes need.
    pub(crate) async fn compound(
        self: &Arc<Self>,
        credential: &OpaqueAuth,
        ops: &[Op],
        cache_this: bool,
    ) -> Result<Results, Unexecuted> {
        self.compound_with(credential, ops, &[], cache_this).await
    }

    /// As [`Self::compound`]; a WRITE without data gets the data of these parts.
    pub(crate) async fn compound_with(
        self: &Arc<Self>,
        credential: &OpaqueAuth,
        ops: &[Op],
        gathered: &[Bytes],
        cache_this: bool,
    ) -> Result<Results, Unexecuted> {
        let Some(slot) = self.take_slot(cache_this).await else {
            return Err(Unexecuted::SessionLost { was_sent: false });
        };
        self.execute_in(&slot, credential, ops, gathered).await
    }

    /// Executes a compound in this slot.
    async fn execute_in(
        self: &Arc<Self>,
        slot: &SlotUse,
        credential: &OpaqueAuth,
        ops: &[Op],
        gathered: &[Bytes],
    ) -> Result<Results, Unexecuted> {
        let mut pause = DELAY_FIRST;
        let end = self.delay_limit.map_or(Duration::MAX, |limit| self.engine.now() + limit);
        loop {
            match self.send(credential, ops, gathered, slot).await? {
                Some(results) => return Ok(results),
                None if self.engine.now() >= end => return Err(Unexecuted::Refused(Status::DELAY)),
                None => self.engine.sleep(pause).await,
            }
            pause = (pause * 2).min(DELAY_MAX);
        }
    }

    /// Sends a compound once; `None` if SEQUENCE returned DELAY.
    async fn send(
        self: &Arc<Self>,
        credential: &OpaqueAuth,
        ops: &[Op],
        gathered: &[Bytes],
        slot: &SlotUse,
    ) -> Result<Option<Results>, Unexecuted> {
        let (minor, place) = (self.minor_version, slot.place);
        // The completion has judged the same reply, and has freed the slot or lost the session.
        let connection = self.pick_connection();
        let label = label(ops);
        let mut call = self.engine.call_labelled(connection, label, slot.start(), |xid| {
            encode_gathered(xid, credential, minor, place, ops, gathered)
        });
        let record = (&mut call).await.map_err(Unexecuted::Call)?;
        // A slot recognizes a repetition. Without one the server's reply cache does, which is limited and ends with the server.
        let is_repeated = place.is_none() && call.transmissions() > 1;
        let result: CompoundResult = parse_reply(record).map_err(|error| Unexecuted::Call(error.into()))?;
        if result.status != Status::OK {
            self.engine.note_error(label);
        }
        let mut results = result.results.into_vec();
        match judge(&place, result.status, results.first()) {
            // §2.10.6.1.3: the server did not keep the reply to the first execution. It reports this at the operation after SEQUENCE.
            Verdict::Executed(Some(_))
                if results.len() == 2 && result.status == Status::RETRY_UNCACHED_REP =>
            {
                Err(Unexecuted::ReplyLost)
            }
            Verdict::Executed(sequence) => {
                if sequence.is_some() {
                    results.remove(0);
                }
                Ok(Some(Results::new(result.status, results, is_repeated)))
            }
            Verdict::Delay => Ok(None),
            Verdict::ReplyLost => Err(Unexecuted::ReplyLost),
            Verdict::Lost(_) => Err(Unexecuted::SessionLost { was_sent: true }),
            Verdict::Refused(status) => Err(Unexecuted::Refused(status)),
        }
    }

    /// Handles the end of a request: frees its slot, keeps it for a repetition, or loses the session.
    fn handle_end(&self, request: &RequestInSlot, outcome: Option<&Result<Bytes, CallError>>) {
        let RequestInSlot { place: sent, state: slot, members, sent_at, .. } = request;
        let verdict = outcome.and_then(|outcome| judge_outcome(sent, outcome));
        let mut table = self.table.lock();
        let is_abandoned = slot.end(verdict.as_ref().is_none_or(Verdict::keeps_slot));
        match verdict {
            Some(Verdict::Executed(ok)) => {
                table.sequencer.executed(sent, ok.as_ref());
                if let Some(ok) = ok {
                    table.lease.renew(*sent_at, self.engine.now(), ok.status_flags);
                    if !ok.status_flags.is_empty() {
                        self.flags.fetch_or(ok.status_flags.bits(), Ordering::Relaxed);
                        wake(&mut table.keeper);
                    }
                }
            }
            Some(Verdict::ReplyLost) => table.sequencer.advance(sent),
            Some(Verdict::Lost(status)) => {
                table.lost.get_or_insert(status);
                table.queue.wake_all();
                wake(&mut table.keeper);
            }
            Some(Verdict::Delay | Verdict::Refused(_)) | None if is_abandoned => {
                table.sequencer.release(sent)
            }
            Some(Verdict::Delay | Verdict::Refused(_)) | None => {}
        }
        // Before a later call gets the slot: calls that were not executed come first.
        if let (Some(members), Some(Ok(record))) = (members, outcome) {
            self.end_shared(&mut table, sent, members, record);
        }
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

    /// Waits until the session is lost, flags of SEQUENCE have come, or the lease was not renewed for `interval`, which is asked
    /// again after [`Self::wake_keeper`].
    pub(crate) async fn event(&self, interval: impl Fn() -> Duration) -> SessionEvent {
        let mut sleep = None;
        poll_fn(|context| self.poll_event(interval(), &mut sleep, context)).await
    }

    /// Wakes the task in [`Self::event`].
    pub(crate) fn wake_keeper(&self) {
        wake(&mut self.table.lock().keeper);
    }

    fn poll_event(
        &self,
        interval: Duration,
        sleep: &mut Option<crate::engine::Sleep>,
        context: &mut Context<'_>,
    ) -> Poll<SessionEvent> {
        let renewed_at = {
            let mut table = self.table.lock();
            if let Some(status) = table.lost {
                return Poll::Ready(SessionEvent::Lost(status));
            }
            table.keeper = Some(context.waker().clone());
            table.lease.renewed_at
        };
        let flags = self.flags.swap(0, Ordering::Relaxed);
        if flags != 0 {
            return Poll::Ready(SessionEvent::Flags(SequenceStatus::from_bits_retain(flags)));
        }
        if self.engine.is_shut_down() {
            return Poll::Ready(SessionEvent::Closed);
        }
        let due = renewed_at + interval;
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

    /// Returns whether the lease has certainly not ended at the server (RFC 8881 §8.3), and the client knows all state that the
    /// server has revoked.
    pub(crate) fn is_lease_valid(&self, now: Duration) -> bool {
        self.table.lock().lease.is_valid(now)
    }

    /// Returns whether the server has executed a request that was sent after the last loss of each connection. Without such a request
    /// it may have restarted.
    pub(crate) fn is_confirmed(&self) -> bool {
        // The engine's lock comes before the table's.
        let renewed_at = self.table.lock().lease.renewed_at;
        let has_followed = |lost_at: Option<Duration>| lost_at.is_none_or(|lost_at| lost_at < renewed_at);
        self.connections.iter().all(|connection| has_followed(self.engine.lost_at(*connection)))
    }

    /// Sets the lease time.
    pub(crate) fn set_lease(&self, lease: Duration) {
        self.table.lock().lease.duration = lease;
    }

    /// Returns whether state may be revoked that the client does not know.
    pub(crate) fn may_be_revoked(&self) -> bool {
        self.table.lock().lease.flagged_at.is_some()
    }

    /// Notes the end of a search for revoked state. If any was found, a flag that is still shown is new.
    pub(crate) fn searched(&self, has_found: bool) {
        let lease = &mut self.table.lock().lease;
        lease.flagged_at = None;
        lease.shows_revoked &= !has_found;
    }

    /// Notes that a RENEW that was sent at `sent_at` was executed. State may have been revoked if the lease was over, or if
    /// the server cannot recall delegations; 4.0 does not tell.
    pub(crate) fn renewed(&self, sent_at: Duration, can_recall: bool) {
        let now = self.engine.now();
        let lease = &mut self.table.lock().lease;
        if !can_recall || now >= lease.renewed_at + lease.duration {
            lease.flagged_at = Some(now);
        }
        lease.renewed_at = lease.renewed_at.max(sent_at);
    }

    /// Forgets the flags of SEQUENCE that have come so far.
    pub(crate) fn forget_flags(&self) {
        self.flags.store(0, Ordering::Relaxed);
    }

    /// Obeys CB_RECALL_SLOT.
    pub(crate) fn set_target(&self, target: u32) {
        self.table.lock().sequencer.set_target(target);
    }

    /// Returns the number of compounds in slots, and of those that had to wait for one so far.
    pub(crate) fn slot_use(&self) -> (usize, usize) {
        (self.table.lock().sequencer.busy(), self.slot_waits.load(Ordering::Relaxed))
    }

    /// Returns the sequence ID of the last executed request in each slot; nothing in 4.0.
    pub(crate) fn sequences(&self) -> Vec<u32> {
        match &self.table.lock().sequencer {
            Sequencer::Slots(slots) => slots.sequences().to_vec(),
            Sequencer::Calls { .. } => Vec::new(),
        }
    }

    fn pick_connection(&self) -> ConnectionId {
        let next = self.next_connection.fetch_add(1, Ordering::Relaxed);
        self.connections[next % self.connections.len()]
    }

    /// Waits for a slot; `None` once the session is lost.
    async fn take_slot(self: &Arc<Self>, cache_this: bool) -> Option<SlotUse> {
        let mut place = Waiting { session: self, ticket: Ticket::default(), waits_since: None };
        poll_fn(|context| place.poll(cache_this, context)).await
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// The events that the task that keeps a session alive waits for.
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
struct Waiting<'a> {
    session: &'a Arc<Session>,
    ticket: Ticket,
    /// When it began to wait.
    waits_since: Option<Duration>,
}

impl Waiting<'_> {
    fn poll(&mut self, cache_this: bool, context: &mut Context<'_>) -> Poll<Option<SlotUse>> {
        let mut table = self.session.table.lock();
        let Table { sequencer, queue, lost, .. } = &mut *table;
        if lost.is_some() {
            return Poll::Ready(None);
        }
        let polled = queue.poll(&mut self.ticket, context, || sequencer.take(cache_this));
        drop(table);
        let engine = &self.session.engine;
        match (polled.is_pending(), self.waits_since) {
            (true, None) => {
                self.waits_since = Some(engine.now());
                self.session.slot_waits.fetch_add(1, Ordering::Relaxed);
            }
            (false, Some(began)) => engine.note_wait(began),
            _ => {}
        }
        polled.map(|place| Some(SlotUse::new(self.session, place, None)))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.session.table.lock().queue.leave(&mut self.ticket);
    }
}

/// A slot in use. Dropping it frees the slot, unless the server may be executing the request: then the reply frees it.
struct SlotUse {
    session: Arc<Session>,
    place: Place,
    state: Arc<SlotState>,
    /// The calls that share the compound.
    members: Option<Arc<SharedMembers>>,
}

impl SlotUse {
    fn new(session: &Arc<Session>, place: Place, members: Option<Arc<SharedMembers>>) -> Self {
        Self { session: Arc::clone(session), place, state: Arc::default(), members }
    }

    /// Notes that a request is sent in the slot; returns the handler of its end.
    fn start(&self) -> Box<dyn Completion> {
        self.state.0.store(SlotState::IN_FLIGHT, Ordering::Relaxed);
        let (session, state) = (Arc::clone(&self.session), Arc::clone(&self.state));
        let sent_at = session.engine.now();
        let members = self.members.clone();
        Box::new(RequestInSlot { session, place: self.place, state, members, sent_at })
    }
}

impl Drop for SlotUse {
    fn drop(&mut self) {
        let mut table = self.session.table.lock();
        if self.state.abandon() {
            table.sequencer.release(&self.place);
            table.queue.wake_first();
        }
    }
}

/// Whose a slot is. Changes only while the session's table is locked, or before the request is sent.
#[derive(Debug, Default)]
struct SlotState(AtomicU8);

impl SlotState {
    /// Of the task that took the slot.
    const HELD: u8 = 0;
    /// A request is in flight.
    const IN_FLIGHT: u8 = 1;
    /// A request is in flight whose task was dropped.
    const ABANDONED: u8 = 2;
    /// The slot is free again, or its session is lost.
    const FREE: u8 = 3;

    /// Notes the end of a request. Returns whether the task was dropped.
    fn end(&self, keeps_slot: bool) -> bool {
        let next = if keeps_slot { Self::HELD } else { Self::FREE };
        self.0.swap(next, Ordering::Relaxed) == Self::ABANDONED
    }

    /// Notes that the task is dropped. Returns whether the slot must be freed now.
    fn abandon(&self) -> bool {
        match self.0.load(Ordering::Relaxed) {
            Self::IN_FLIGHT => self.0.store(Self::ABANDONED, Ordering::Relaxed),
            Self::HELD => return true,
            _ => {}
        }
        false
    }
}

/// A request in a slot.
struct RequestInSlot {
    session: Arc<Session>,
    place: Place,
    state: Arc<SlotState>,
    members: Option<Arc<SharedMembers>>,
    sent_at: Duration,
}

impl Completion for RequestInSlot {
    fn complete(self: Box<Self>, outcome: Option<&Result<Bytes, CallError>>) {
        self.session.handle_end(&self, outcome);
    }
}

/// The information about the slot in a reply (RFC 8881 §2.10.6.1, §18.46.3).
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The request was executed, in 4.0 without SEQUENCE.
    Executed(Option<SequenceOk>),
    /// It must be repeated in the same slot.
    Delay,
    /// It was executed before; the reply is lost.
    ReplyLost,
    /// The session is lost.
    Lost(Status),
    /// It was not executed; the slot is unchanged.
    Refused(Status),
}

impl Verdict {
    fn keeps_slot(&self) -> bool {
        matches!(self, Self::Delay | Self::Refused(_))
    }
}

/// Judges the outcome of a request that was sent; `None` if it was not executed and its slot is unchanged.
fn judge_outcome(sent: &Place, outcome: &Result<Bytes, CallError>) -> Option<Verdict> {
    if sent.is_none() {
        return Some(Verdict::Executed(None));
    }
    match outcome {
        Ok(record) => match judge_record(sent, record) {
            Ok(verdict) => Some(verdict),
            // RFC 5531 §9: a denied call was not executed.
            Err(RpcError::Denied(Rejection::AuthError(_))) => None,
            Err(_) => Some(Verdict::Lost(Status::SEQ_MISORDERED)),
        },
        // The server may have executed the request: the slot's next sequence ID is unknown.
        Err(_) => Some(Verdict::Lost(Status::SEQ_MISORDERED)),
    }
}

/// Judges a reply by its status and its first result.
fn judge(sent: &Place, status: Status, first: Option<&OpResult>) -> Verdict {
    let Some(sent) = sent else { return Verdict::Executed(None) };
    let status = match first {
        Some(OpResult::Sequence(Outcome::Ok(ok))) if is_reply_to(sent, ok) => {
            return Verdict::Executed(Some(*ok));
        }
        Some(OpResult::Sequence(Outcome::Error(status))) => *status,
        None if status != Status::OK => status,
        // A reply to another request.
        _ => Status::SEQ_MISORDERED,
    };
    match status {
        Status::DELAY => Verdict::Delay,
        Status::RETRY_UNCACHED_REP => Verdict::ReplyLost,
        status if matches!(recovery(status), Recovery::NewSession | Recovery::NewClient) => {
            Verdict::Lost(status)
        }
        status => Verdict::Refused(status),
    }
}

/// Judges a reply by its record, of which only the start is decoded.
fn judge_record(sent: &Place, record: &Bytes) -> Result<Verdict, RpcError> {
    let mut reader = Reader::new(record.clone());
    ReplyHeader::parse(&mut reader)?.success()?;
    let status = Status::decode(&mut reader)?;
    Utf8::decode(&mut reader)?;
    let first = match reader.length(MAX_OPERATIONS)? {
        0 => None,
        _ => Some(OpResult::decode(&mut reader)?),
    };
    Ok(judge(sent, status, first.as_ref()))
}

fn is_reply_to(sent: &SequenceArgs, ok: &SequenceOk) -> bool {
    (ok.session_id, ok.slot_id, ok.sequence_id) == (sent.session_id, sent.slot_id, sent.sequence_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Place = Some(SequenceArgs {
        session_id: [1; 16],
        sequence_id: 5,
        slot_id: 2,
        highest_slot_id: 2,
        cache_this: false,
    });

    fn ok(slot_id: u32, sequence_id: u32) -> OpResult {
        let (session_id, status_flags) = ([1; 16], SequenceStatus::empty());
        let (highest_slot_id, target_highest_slot_id) = (9, 9);
        let ok = SequenceOk {
            session_id,
            sequence_id,
            slot_id,
            highest_slot_id,
            target_highest_slot_id,
            status_flags,
        };
        OpResult::Sequence(Ok(ok).into())
    }

    #[test]
    fn a_reply_to_another_request_of_any_status_loses_the_session() {
        for status in [Status::OK, Status::NOENT, Status::DELAY] {
            for wrong in [ok(3, 5), ok(2, 4), OpResult::PutRootFh(Ok(()).into())] {
                assert_eq!(judge(&SENT, status, Some(&wrong)), Verdict::Lost(Status::SEQ_MISORDERED));
            }
            assert!(matches!(judge(&SENT, status, Some(&ok(2, 5))), Verdict::Executed(_)));
        }
        assert_eq!(judge(&SENT, Status::OK, None), Verdict::Lost(Status::SEQ_MISORDERED));
    }

    #[test]
    fn the_status_of_sequence_tells_what_becomes_of_the_slot() {
        let of = |status: Status| judge(&SENT, status, Some(&OpResult::Sequence(Err(status).into())));
        assert_eq!(of(Status::DELAY), Verdict::Delay);
        assert_eq!(of(Status::RETRY_UNCACHED_REP), Verdict::ReplyLost);
        assert_eq!(of(Status::REQ_TOO_BIG), Verdict::Refused(Status::REQ_TOO_BIG));
        for status in [Status::BADSESSION, Status::DEADSESSION, Status::BADSLOT, Status::STALE_CLIENTID] {
            assert_eq!(of(status), Verdict::Lost(status));
        }
        // A server without this minor version sends no results.
        let refused = Verdict::Refused(Status::MINOR_VERS_MISMATCH);
        assert_eq!(judge(&SENT, Status::MINOR_VERS_MISMATCH, None), refused);
    }

    #[test]
    fn a_slot_is_freed_once_by_its_task_or_by_the_reply() {
        let state = SlotState::default();
        assert!(state.abandon(), "never sent");
        state.0.store(SlotState::IN_FLIGHT, Ordering::Relaxed);
        assert!(!state.abandon() && state.end(true), "the reply frees it");
        state.0.store(SlotState::IN_FLIGHT, Ordering::Relaxed);
        assert!(!state.end(false) && !state.abandon(), "the reply has freed it");
        state.0.store(SlotState::IN_FLIGHT, Ordering::Relaxed);
        assert!(!state.end(true) && state.abandon(), "kept for a repetition, and abandoned");
    }
}
