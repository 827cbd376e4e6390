//! Callbacks: calls to clients over the back channels of their sessions (RFC 8881 §2.10.3.1, §20).
//!
//! Criteria first. A callback belongs to a client, and takes any of its sessions that has a slot and a connection for it;
//! until there is one it waits with the client. What was sent and may have been lost is sent again under the same sequence ID
//! when its session has a connection again (§18.46.3). Nobody waits here: what a reply means is decided when it comes
//! ([`State::replied`]), and what does not come is noticed by [`State::expire`]. A path is trusted only once it has been tried
//! (CB_NULL): a delegation must not be granted to a client that cannot be reached.
//!
//! Everything is bounded: callbacks of a client that wait, slots of a session, calls on a connection.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::callback::recall::{CbRecallAnyArgs, CbRecallSlotArgs, recallable};
use protocol::nfs4::callback::sequence::{CbSequenceOk, ReferringCall, ReferringCallList};
use protocol::nfs4::callback::{CbCompoundResult, CbOp, CbOpResult};
use protocol::nfs4::types::Bitmap;
use rpc::message::{RpcError, parse_reply, peek};
use tracing::debug;
use xdr::List;

use crate::state::State;
use crate::state::tables::backchannel::CallbackTurn;
use crate::state::tables::client::Client;
use crate::state::tables::notices::Charge;
use crate::state::tables::session::Session;
use crate::state::tables::stateid::Place;
use crate::state::tables::wire::{SessionId, Status};
use crate::{ConnectionId, outbox};

/// How long a client may take to answer a callback before the connection counts as no way to it any more.
const PATIENCE: Duration = Duration::from_secs(15);
/// Callbacks of one client that wait for a way out, at most, beside notices of changes, which have a bound of their own
/// ([`Notices`](crate::state::tables::notices::Notices)). What is over is dropped: its sender comes again, or does without.
const WAITING_MAX: usize = 1 << 16;

/// A call to a client.
#[derive(Debug, Clone)]
pub(crate) struct Callback {
    operation: Box<CbOp>,
    purpose: Purpose,
    referring: Option<Referring>,
}

/// Who wants to know what became of a callback.
#[derive(Debug, Clone)]
pub(crate) enum Purpose {
    /// Nobody: it advises the client.
    Advice,
    /// The delegation there is recalled.
    Recall(Place),
    /// Its holder is asked for attributes.
    GetAttr(Place),
    /// The holder of the directory there is told of changes.
    Notify(Place, Weak<Charge>),
    /// The copy of this number has ended.
    Offload(u32),
}

/// The request whose reply the client must have seen before it understands a callback (§2.10.6.3).
#[derive(Debug, Clone)]
pub(crate) struct Referring {
    pub(crate) session: Weak<Session>,
    pub(crate) slot: u32,
    pub(crate) sequence: u32,
}

impl Referring {
    /// As the wire has it, while the client may not have seen the reply: its next request on the slot shows that it has.
    fn list(&self) -> Option<ReferringCallList> {
        let session = self.session.upgrade()?;
        let call = ReferringCall { sequence_id: self.sequence, slot_id: self.slot };
        let is_last = session.slots.is_last(self.slot, self.sequence);
        is_last.then(|| ReferringCallList {
            session_id: session.id,
            calls: List::new(vec![call]).unwrap_or_default(),
        })
    }
}

impl Callback {
    pub(crate) fn new(operation: CbOp, purpose: Purpose, referring: Option<Referring>) -> Self {
        Self { operation: Box::new(operation), purpose, referring }
    }

    /// CB_RECALL_SLOT: the client should use slots up to this one.
    pub(crate) fn recall_slot(target_highest_slot_id: u32) -> Self {
        let operation = CbOp::RecallSlot(CbRecallSlotArgs { target_highest_slot_id });
        Self::new(operation, Purpose::Advice, None)
    }

    /// CB_RECALL_ANY: the client should keep so many delegations, of its choice.
    pub(crate) fn recall_any(objects_to_keep: u32) -> Self {
        let type_mask = Bitmap::of(&[recallable::RDATA_DLG, recallable::WDATA_DLG, recallable::DIR_DLG]);
        let operation = CbOp::RecallAny(CbRecallAnyArgs { objects_to_keep, type_mask });
        Self::new(operation, Purpose::Advice, None)
    }

    /// Whether it is about the session that carries it. §20.8: "the value of the target highest slot ID the server wants for the
    /// session", which is the one that CB_SEQUENCE names.
    fn is_of_its_session(&self) -> bool {
        matches!(*self.operation, CbOp::RecallSlot(_))
    }

    /// Whether it tells of changes: it may be longer than others.
    pub(crate) fn is_notice(&self) -> bool {
        matches!(self.purpose, Purpose::Notify(..))
    }

    /// The request whose reply the client must have seen, while it may not have.
    pub(crate) fn referring_calls(&self) -> Option<ReferringCallList> {
        self.referring.as_ref().and_then(Referring::list)
    }

    pub(crate) fn operation(&self) -> &CbOp {
        &self.operation
    }
}

/// Calls to a client on one of its connections.
pub type Outbox = outbox::Outbox<Sent>;

/// What a reply from a client will be about.
#[derive(Debug)]
pub struct Sent {
    session: Weak<Session>,
    /// `None` for a trial of the path.
    turn: Option<CallbackTurn>,
    /// In version 4.0 the client itself, and the callback's number.
    path: Option<(Weak<Client>, Option<u64>)>,
}

impl Sent {
    fn through(session: &Arc<Session>, turn: Option<CallbackTurn>) -> Self {
        Self { session: Arc::downgrade(session), turn, path: None }
    }

    /// Whether it is a trial of the path to this session.
    fn is_trial_of(&self, session: &Arc<Session>) -> bool {
        self.turn.is_none() && self.session.as_ptr() == Arc::as_ptr(session)
    }

    pub(crate) fn over_path(client: &Arc<Client>, number: Option<u64>) -> Self {
        Self { session: Weak::new(), turn: None, path: Some((Arc::downgrade(client), number)) }
    }

    #[cfg(test)]
    pub(crate) fn to_nobody() -> Self {
        Self { session: Weak::new(), turn: None, path: None }
    }
}

/// Callbacks of a client, and the ways to it.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    waiting: VecDeque<Callback>,
    /// Notices of changes, with what each of them counts. They want more room than a session may have that carries all else:
    /// recalls must not wait for them.
    notices: VecDeque<(Arc<Charge>, Callback)>,
    sessions: Vec<Weak<Session>>,
}

impl Calls {
    pub(crate) fn has_waiting(&self) -> bool {
        !(self.waiting.is_empty() && self.notices.is_empty())
    }

    /// Has a callback wait. What is over is dropped, and a notice whose delegation has ended.
    fn add(&mut self, callback: Callback) {
        match &callback.purpose {
            Purpose::Notify(_, charge) => {
                let charge = charge.upgrade();
                self.notices.extend(charge.map(|charge| (charge, callback)));
            }
            _ if self.waiting.len() < WAITING_MAX => self.waiting.push_back(callback),
            _ => {}
        }
    }

    /// Offers what waits to `send`, which gives back what it has no way for.
    pub(crate) fn offer(&mut self, mut send: impl FnMut(Callback) -> Option<Callback>) {
        while let Some(callback) = self.waiting.pop_front() {
            if let Some(left) = send(callback) {
                self.waiting.push_front(left);
                break;
            }
        }
        while let Some((charge, notice)) = self.notices.pop_front() {
            // Where nobody else counts it, its delegation has ended meanwhile: the client has nothing that it is about.
            let is_wanted = Arc::strong_count(&charge) > 1;
            // Where one has no way, those behind it have none either.
            if is_wanted && let Some(left) = send(notice) {
                self.notices.push_front((charge, left));
                break;
            }
        }
    }

    /// Notices that wait.
    #[cfg(test)]
    pub(crate) fn notices_waiting(&self) -> usize {
        self.notices.len()
    }

    /// Whether any session carries callbacks: one that is out of step, or too narrow, is no way, whatever connection it has.
    fn has_way(&self) -> bool {
        let carries = |session: Arc<Session>| {
            let is_sound = !session.has_fault.load(Relaxed);
            is_sound && session.bound.read().back().is_some() && session.back.lock().is_usable()
        };
        self.sessions.iter().filter_map(Weak::upgrade).any(carries)
    }

    /// Whether any session has room for notices of changes.
    pub(crate) fn carries_notices(&self) -> bool {
        self.sessions.iter().filter_map(Weak::upgrade).any(|session| session.back.lock().carries_notices())
    }

    pub(crate) fn take_next(&mut self) -> Option<Callback> {
        self.waiting.pop_front()
    }

    /// What did not get through waits again, before all others; but what is about the session that it did not get through.
    pub(crate) fn put_back(&mut self, left: Vec<Callback>) {
        for callback in left.into_iter().rev().filter(|callback| !callback.is_of_its_session()) {
            match &callback.purpose {
                Purpose::Notify(_, charge) => {
                    if let Some(charge) = charge.upgrade() {
                        self.notices.push_front((charge, callback));
                    }
                }
                _ => self.waiting.push_front(callback),
            }
        }
    }
}

/// Callbacks under way, and sessions on whose slots something may be lost; for [`State::expire`].
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// In the order in which they were sent.
    sent: Mutex<VecDeque<(Duration, Weak<Session>, CallbackTurn)>>,
    unsure: Mutex<Vec<Weak<Session>>>,
}

/// What the client said to a CB_COMPOUND.
enum Answer {
    /// The operation behind CB_SEQUENCE was executed, or refused.
    Done(Status, Option<CbOpResult>),
    /// It asks to be asked again.
    Later,
    /// Slot and client are out of step.
    Fault,
}

impl State {
    /// Calls a client, now or when there is a way to it.
    pub(crate) fn call(&self, client: &Arc<Client>, callback: Callback) {
        let mut calls = client.calls.lock();
        if client.is_gone() {
            return;
        }
        calls.add(callback);
        drop(calls);
        match client.sessionless() {
            Some(_) => self.pump_path(client),
            None => self.pump(client),
        }
    }

    /// Adds a session to the ways to its client.
    pub(crate) fn add_way(session: &Arc<Session>) {
        let mut calls = session.client.calls.lock();
        calls.sessions.retain(|known| known.strong_count() > 0);
        calls.sessions.push(Arc::downgrade(session));
    }

    /// Sends what waits, as far as slots go.
    fn pump(&self, client: &Client) {
        let mut calls = client.calls.lock();
        if !calls.has_waiting() {
            return;
        }
        let sessions: Vec<Arc<Session>> = calls.sessions.iter().filter_map(Weak::upgrade).collect();
        calls.offer(|callback| {
            sessions.iter().try_fold(callback, |callback, session| self.send(session, callback))
        });
    }

    /// Sends a callback through a session; gives it back where that has no slot or no connection for it.
    fn send(&self, session: &Arc<Session>, callback: Callback) -> Option<Callback> {
        let bound = session.bound.read();
        let Some((connection, outbox)) = bound.back() else { return Some(callback) };
        let mut back = session.back.lock();
        let is_usable = if callback.is_notice() { back.carries_notices() } else { back.is_usable() };
        if !is_usable || session.has_fault.load(Relaxed) {
            return Some(callback);
        }
        let now = self.tick();
        let turn = match back.send(callback, (*connection, now)) {
            Ok(turn) => turn,
            Err(callback) => return Some(callback),
        };
        let sent = Sent::through(session, Some(turn));
        if !outbox.call(sent, |xid| back.record(turn, xid)) {
            back.lost(turn);
            self.watched.unsure.lock().push(Arc::downgrade(session));
        }
        drop(back);
        self.watch(session, turn, now);
        None
    }

    fn watch(&self, session: &Arc<Session>, turn: CallbackTurn, now: Duration) {
        let mut sent = self.watched.sent.lock();
        sent.push_back((now, Arc::downgrade(session), turn));
    }

    /// A session has another connection for callbacks: it is tried, and what may be lost is sent again.
    pub(crate) fn try_path(&self, session: &Arc<Session>) {
        let bound = session.bound.read();
        if let Some((_, outbox)) = bound.back() {
            let back = session.back.lock();
            // One trial at a time: a client that binds its connection over and over has no use for more.
            if back.is_usable() && !outbox.awaits(|sent| sent.is_trial_of(session)) {
                let sent = Sent::through(session, None);
                outbox.call(sent, |xid| back.probe(xid));
            }
        }
        drop(bound);
        self.resume(session);
    }

    /// Sends again what may be lost, and then what waits.
    fn resume(&self, session: &Arc<Session>) {
        let bound = session.bound.read();
        if let Some((connection, outbox)) = bound.back() {
            let (mut back, now) = (session.back.lock(), self.tick());
            for slot in back.unsure() {
                let Some(turn) = back.send_again(slot, (*connection, now)) else { continue };
                let sent = Sent::through(session, Some(turn));
                if outbox.call(sent, |xid| back.record(turn, xid)) {
                    self.watch(session, turn, now);
                } else {
                    back.lost(turn);
                    self.watched.unsure.lock().push(Arc::downgrade(session));
                }
            }
            session.is_cut.store(!back.unsure().is_empty(), Relaxed);
        }
        drop(bound);
        self.pump(&session.client);
    }

    /// A connection is no way to the client any more.
    pub(crate) fn path_lost(&self, session: &Arc<Session>, connection: ConnectionId) {
        let mut back = session.back.lock();
        back.lost_connection(connection);
        session.is_cut.store(!back.unsure().is_empty(), Relaxed);
        drop(back);
        if !session.client.calls.lock().has_way() {
            session.client.set_reachable(false);
        }
        self.resume(session);
    }

    /// A session is gone: its callbacks take the client's others.
    pub(crate) fn abandon_session(&self, session: &Session) {
        let left = session.back.lock().abandon();
        let client = &session.client;
        let mut calls = client.calls.lock();
        if !calls.has_way() {
            client.set_reachable(false);
        }
        calls.put_back(left);
        drop(calls);
        self.pump(client);
    }

    /// The client has answered; through a session that is out of step nothing reaches it all the same.
    fn path_up(session: &Session) {
        if !session.has_fault.load(Relaxed) {
            session.client.set_reachable(true);
        }
    }

    /// A connection does not carry callbacks although it is open: it is taken out of the back channel, and the client sees
    /// CB_PATH_DOWN where it was the last.
    fn give_up(&self, session: &Arc<Session>, connection: ConnectionId) {
        debug!(session = ?session.id, "no way for callbacks any more");
        session.unbind_back(connection, |sent| sent.session.as_ptr() == Arc::as_ptr(session));
        self.path_lost(session, connection);
    }

    /// A client answered a call of ours that came over the connection with this outbox; false where the record answers nothing
    /// that was asked.
    pub fn replied(&self, connection: ConnectionId, outbox: &Outbox, record: Bytes) -> bool {
        let Some(sent) = peek(&record).ok().and_then(|(xid, _)| outbox.take(xid)) else {
            return false;
        };
        if let Some((client, number)) = sent.path {
            if let Some(client) = client.upgrade() {
                self.path_answered(connection, &client, number, record);
            }
            return true;
        }
        let Some(session) = sent.session.upgrade() else { return true };
        match sent.turn {
            None => match parse_reply::<()>(record) {
                Ok(()) => Self::path_up(&session),
                Err(_) => self.give_up(&session, connection),
            },
            Some(turn) => match parse_reply::<CbCompoundResult>(record) {
                Ok(result) => self.answered(&session, turn, judge(result, &session.id, turn)),
                Err(RpcError::Garbled(_)) => self.answered(&session, turn, Answer::Fault),
                // The program is not served there, or not for us.
                Err(_) => self.give_up(&session, connection),
            },
        }
        true
    }

    fn answered(&self, session: &Arc<Session>, turn: CallbackTurn, answer: Answer) {
        let client = &session.client;
        let mut back = session.back.lock();
        match answer {
            Answer::Done(status, result) => {
                let callback = back.answered(turn);
                drop(back);
                Self::path_up(session);
                if let Some(callback) = callback {
                    self.called(callback, status, result);
                }
            }
            Answer::Later => {
                back.lost(turn);
                drop(back);
                self.watched.unsure.lock().push(Arc::downgrade(session));
            }
            Answer::Fault => {
                // §18.46.3, SEQ4_STATUS_BACKCHANNEL_FAULT: "The server has encountered an unrecoverable fault with the
                // backchannel (e.g., it has lost track of the sequence ID for a slot in the backchannel)."
                session.has_fault.store(true, Relaxed);
                let left = back.abandon();
                drop(back);
                let mut calls = client.calls.lock();
                calls.put_back(left);
                if !calls.has_way() {
                    client.set_reachable(false);
                }
            }
        }
        self.pump(client);
    }

    /// What becomes of a callback's purpose.
    pub(crate) fn called(&self, callback: Callback, status: Status, result: Option<CbOpResult>) {
        match callback.purpose {
            Purpose::Advice => {}
            Purpose::Recall(place) => self.recall_answered(place, status),
            Purpose::GetAttr(place) => self.getattr_answered(place, result),
            Purpose::Notify(place, _) => self.notify_answered(self.tick(), place, status),
            Purpose::Offload(number) => self.offload_answered(number, callback, status),
        }
    }

    /// Where memory for slots is scarce, asks the clients of some sessions to use fewer (§20.8): those that are idle hear it
    /// from no SEQUENCE.
    pub(crate) fn recall_slots(&self, now: Duration) {
        for session in self.sessions.some(now.as_secs()) {
            let slots = session.slots.target_highest() + 1;
            let told = session.recalled_slots.load(Relaxed);
            if !session.client.slot_memory.is_scarce() {
                session.recalled_slots.store(0, Relaxed);
            } else if told != 0 && slots >= told {
                // More of them are no recall: the next SEQUENCE tells it.
                session.recalled_slots.store(slots, Relaxed);
            } else if self.recall_slots_of(&session, slots - 1) {
                session.recalled_slots.store(slots, Relaxed);
            }
        }
    }

    /// Sends CB_RECALL_SLOT through the session that it is about; whether it could.
    fn recall_slots_of(&self, session: &Arc<Session>, target: u32) -> bool {
        session.client.is_reachable() && self.send(session, Callback::recall_slot(target)).is_none()
    }

    /// Looks after callbacks that were not answered.
    pub(crate) fn tend_callbacks(&self, now: Duration) {
        // Taken in a statement of its own, so that the lock is given back: what is lost again is put there again.
        let lost = std::mem::take(&mut *self.watched.unsure.lock());
        for session in lost {
            if let Some(session) = session.upgrade() {
                self.resume(&session);
            }
        }
        let is_due = |entry: &mut (Duration, Weak<Session>, CallbackTurn)| entry.0 + PATIENCE <= now;
        loop {
            let due = self.watched.sent.lock().pop_front_if(is_due);
            let Some((sent_at, session, turn)) = due else { break };
            let Some(session) = session.upgrade() else { continue };
            // What was sent again since has its time from then on, and an entry of its own.
            let silent = session.back.lock().awaits(turn, sent_at);
            if let Some(connection) = silent {
                self.give_up(&session, connection);
            }
        }
    }
}

/// What a reply says.
fn judge(result: CbCompoundResult, session: &SessionId, turn: CallbackTurn) -> Answer {
    let mut results = result.results.into_vec().into_iter();
    let Some(CbOpResult::Sequence(sequence)) = results.next() else { return Answer::Fault };
    match sequence.into_result() {
        Ok(CbSequenceOk { session_id, sequence_id, slot_id, .. }) => {
            if (session_id, sequence_id, slot_id) != (*session, turn.sequence_id, turn.slot_id) {
                return Answer::Fault;
            }
            Answer::Done(result.status, results.next())
        }
        Err(Status::DELAY) => Answer::Later,
        Err(_) => Answer::Fault,
    }
}
