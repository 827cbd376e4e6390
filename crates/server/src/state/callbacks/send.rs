//! Sends callbacks over the back channels of sessions, and repeats those that may be lost.
//!
//! A callback that may be lost is sent again under the same sequence ID when its session has a connection again (§18.46.3). No
//! task waits for a reply: [`State::callback_replied`](crate::state::State::callback_replied) handles those that arrive, and
//! [`State::expire`](crate::state::State::expire) notices those that do not. A path counts as working only after a probe
//! (CB_NULL): a client that cannot be reached must not get a delegation.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use protocol::nfs4::callback::sequence::{ReferringCall, ReferringCallList};
use tracing::debug;
use xdr::List;

use crate::ConnectionId;
use crate::state::root::State;
use crate::state::tables::callback::{Callback, CallbackSlotId, ReferringRequest, Sent};
use crate::state::tables::client::Client;
use crate::state::tables::session::Session;

/// Time limit for a client's answer to a callback, after which the connection no longer counts as a path to it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

impl State {
    /// Calls a client, now or when there is a path to it.
    pub(crate) fn call(&self, client: &Arc<Client>, callback: Callback) {
        let mut calls = client.calls.lock();
        if client.is_removed() {
            return;
        }
        calls.add(callback);
        drop(calls);
        match client.v40() {
            Some(_) => self.send_waiting_v40(client),
            None => self.send_waiting(client),
        }
    }

    /// Makes a new session available for callbacks.
    pub(crate) fn add_callback_session(&self, session: &Session) {
        let mut calls = session.client.calls.lock();
        calls.add_session(session.id, |id| self.sessions.contains(id));
    }

    /// Returns whether a client accepts notifications, and a session has room for them.
    pub(crate) fn takes_notices(&self, client: &Client, now: Duration) -> bool {
        !client.refuses_notices(now) && self.sessions.carry_notices(client.calls.lock().sessions())
    }

    /// Sends the callbacks that wait, while there are slots.
    pub(super) fn send_waiting(&self, client: &Client) {
        let mut calls = client.calls.lock();
        if !calls.has_waiting() {
            return;
        }
        let sessions: Vec<_> = calls.sessions().iter().filter_map(|id| self.sessions.get(id)).collect();
        calls.offer(|callback| {
            sessions.iter().try_fold(callback, |callback, session| self.send(session, callback))
        });
    }

    /// Sends a callback through a session; returns it if the session has no slot or no connection for it.
    fn send(&self, session: &Session, callback: Callback) -> Option<Callback> {
        let bound = session.bound.read();
        let Some((connection, outbox)) = bound.back() else { return Some(callback) };
        let referring = callback.referring().and_then(|request| self.referring_calls(request));
        let mut back = session.back.lock();
        let is_usable = if callback.is_notice() { back.carries_notices() } else { back.is_usable() };
        if !is_usable || session.has_fault.load(Relaxed) {
            return Some(callback);
        }
        let now = self.latest_time();
        let slot = match back.send(callback, referring, (*connection, now)) {
            Ok(slot) => slot,
            Err(callback) => return Some(callback),
        };
        if !outbox.call(Sent::callback(session.id, slot), |xid| back.record(slot, xid)) {
            back.lost(slot);
            self.sent_callbacks.add_lost(session.id);
        }
        drop(back);
        self.sent_callbacks.add(now, session.id, slot);
        None
    }

    /// Returns the request for CB_SEQUENCE as long as the client may not have seen its reply. The client's next request on
    /// the slot shows that it has.
    fn referring_calls(&self, request: ReferringRequest) -> Option<ReferringCallList> {
        let session = self.sessions.get(&request.session)?;
        let is_last = session.slots.is_last(request.slot, request.sequence);
        let call = ReferringCall { sequence_id: request.sequence, slot_id: request.slot };
        is_last.then(|| ReferringCallList {
            session_id: request.session,
            calls: List::new(vec![call]).unwrap_or_default(),
        })
    }

    /// Probes a new back channel connection of a session, and sends callbacks that may be lost again.
    pub(crate) fn probe_back_channel(&self, session: &Session) {
        let bound = session.bound.read();
        if let Some((_, outbox)) = bound.back() {
            let back = session.back.lock();
            let probe = Sent::Probe(session.id);
            // One probe at a time, also for a client that binds its connection over and over.
            if back.is_usable() && !outbox.awaits(|sent| *sent == probe) {
                outbox.call(probe, |xid| back.probe(xid));
            }
        }
        drop(bound);
        self.resend(session);
    }

    /// Sends callbacks again that may be lost, then those that wait.
    fn resend(&self, session: &Session) {
        let bound = session.bound.read();
        if let Some((connection, outbox)) = bound.back() {
            let (mut back, now) = (session.back.lock(), self.latest_time());
            for slot in back.unsure() {
                let Some(slot) = back.send_again(slot, (*connection, now)) else { continue };
                if outbox.call(Sent::callback(session.id, slot), |xid| back.record(slot, xid)) {
                    self.sent_callbacks.add(now, session.id, slot);
                } else {
                    back.lost(slot);
                    self.sent_callbacks.add_lost(session.id);
                }
            }
            session.has_lost_callback.store(!back.unsure().is_empty(), Relaxed);
        }
        drop(bound);
        self.send_waiting(&session.client);
    }

    /// Notes that a connection no longer carries callbacks of a session.
    pub(crate) fn back_channel_lost(&self, session: &Session, connection: ConnectionId) {
        let mut back = session.back.lock();
        back.lost_connection(connection);
        session.has_lost_callback.store(!back.unsure().is_empty(), Relaxed);
        drop(back);
        if !self.sessions.carry_callbacks(session.client.calls.lock().sessions()) {
            session.client.set_reachable(false);
        }
        self.resend(session);
    }

    /// Moves the callbacks of a destroyed session to the client's other sessions.
    pub(crate) fn abandon_session(&self, session: &Session) {
        let left = session.back.lock().abandon();
        self.requeue(session, left);
        self.send_waiting(&session.client);
    }

    /// Returns unanswered callbacks of a session to the client's queue.
    pub(super) fn requeue(&self, session: &Session, left: Vec<Callback>) {
        let client = &session.client;
        let mut calls = client.calls.lock();
        calls.put_back(left);
        if !self.sessions.carry_callbacks(calls.sessions()) {
            client.set_reachable(false);
        }
    }

    /// Removes an open connection that does not carry callbacks from the back channel. The client sees CB_PATH_DOWN if it was
    /// the last one.
    pub(super) fn drop_back_connection(&self, session: &Session, connection: ConnectionId) {
        debug!(session = ?session.id, "connection does not carry callbacks");
        session.unbind_back(connection, |sent| sent.is_of_session(&session.id));
        self.back_channel_lost(session, connection);
    }

    /// If slot memory is scarce, asks the clients of some sessions to use fewer slots (§20.8). Idle clients would not learn it
    /// from SEQUENCE.
    pub(crate) fn recall_slots(&self, now: Duration) {
        for session in self.sessions.some(now.as_secs()) {
            let slots = session.slots.target_highest() + 1;
            let reported = session.recalled_slots.load(Relaxed);
            if !session.client.slot_memory.is_scarce() {
                session.recalled_slots.store(0, Relaxed);
            } else if reported != 0 && slots >= reported {
                // An increase needs no callback: the next SEQUENCE reports it.
                session.recalled_slots.store(slots, Relaxed);
            } else if self.recall_slots_of(&session, slots - 1) {
                session.recalled_slots.store(slots, Relaxed);
            }
        }
    }

    /// Sends CB_RECALL_SLOT through its session; false if it could not be sent.
    fn recall_slots_of(&self, session: &Session, target: u32) -> bool {
        session.client.is_reachable() && self.send(session, Callback::recall_slot(target)).is_none()
    }

    /// Handles callbacks that were not answered in time.
    pub(crate) fn maintain_callbacks(&self, now: Duration) {
        for id in self.sent_callbacks.take_lost() {
            if let Some(session) = self.sessions.get(&id) {
                self.resend(&session);
            }
        }
        while let Some((sent_at, id, slot)) = self.sent_callbacks.take_due(now, ANSWER_TIMEOUT) {
            let Some(session) = self.sessions.get(&id) else { continue };
            // A callback that was sent again has an entry of its own.
            let silent = session.back.lock().awaits(slot, sent_at);
            if let Some(connection) = silent {
                self.drop_back_connection(&session, connection);
            }
        }
    }

    /// Notes that a callback on a session may be lost.
    pub(super) fn callback_lost(&self, session: &Session, slot: CallbackSlotId) {
        session.back.lock().lost(slot);
        self.sent_callbacks.add_lost(session.id);
    }
}
