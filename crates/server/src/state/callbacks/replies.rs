//! Replies of clients to callbacks.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use protocol::nfs4::callback::sequence::CbSequenceOk;
use protocol::nfs4::callback::{CbCompoundResult, CbOpResult};
use rpc::message::{RpcError, parse_reply, peek};

use crate::ConnectionId;
use crate::state::root::State;
use crate::state::tables::callback::{Callback, CallbackPurpose, CallbackSlotId, Outbox, Sent, SentCallback};
use crate::state::tables::client::Client;
use crate::state::tables::session::Session;
use crate::state::tables::wire::{SessionId, Status};

/// A callback that the client has answered.
pub(super) struct AnsweredCallback {
    pub(super) callback: Callback,
    pub(super) status: Status,
    /// The result of the operation after CB_SEQUENCE.
    pub(super) result: Option<CbOpResult>,
}

/// The meaning of a reply to a CB_COMPOUND.
enum Answer {
    /// The operation after CB_SEQUENCE was executed or refused.
    Done(Status, Option<CbOpResult>),
    /// The client requests a later repetition.
    Delay,
    /// Slot and client disagree about the sequence.
    Fault,
}

impl State {
    /// Handles a reply to a call that was sent to a client over this connection; false if the record answers no such call.
    pub fn callback_replied(&self, connection: ConnectionId, outbox: &Outbox, record: Bytes) -> bool {
        let Some(sent) = peek(&record).ok().and_then(|(xid, _)| outbox.take(xid)) else {
            return false;
        };
        match sent {
            Sent::Probe(id) => {
                if let Some(session) = self.sessions.get(&id) {
                    match parse_reply::<()>(record) {
                        Ok(()) => note_reachable(&session),
                        Err(_) => self.drop_back_connection(&session, connection),
                    }
                }
            }
            Sent::Callback(id, SentCallback(slot)) => {
                if let Some(session) = self.sessions.get(&id) {
                    self.session_replied(&session, connection, slot, record);
                }
            }
            Sent::V40Probe(id) => {
                if let Some(client) = self.client_with_id(id) {
                    self.v40_probe_replied(connection, &client, record);
                }
            }
            Sent::V40Callback(id, number) => {
                if let Some(client) = self.client_with_id(id) {
                    let answered = self.v40_callback_replied(connection, &client, number, record);
                    answered.into_iter().for_each(|answered| self.callback_answered(answered));
                    self.send_waiting_v40(&client);
                }
            }
        }
        true
    }

    pub(super) fn client_with_id(&self, id: u64) -> Option<Arc<Client>> {
        self.clients.lock().record(id).map(|record| Arc::clone(&record.client))
    }

    fn session_replied(
        &self,
        session: &Session,
        connection: ConnectionId,
        slot: CallbackSlotId,
        record: Bytes,
    ) {
        let answer = match parse_reply::<CbCompoundResult>(record) {
            Ok(result) => answer_of(result, &session.id, slot),
            Err(RpcError::Garbled(_)) => Answer::Fault,
            // The program is not served there, or refuses this caller.
            Err(_) => return self.drop_back_connection(session, connection),
        };
        match answer {
            Answer::Done(status, result) => {
                let callback = session.back.lock().answered(slot);
                note_reachable(session);
                if let Some(callback) = callback {
                    self.callback_answered(AnsweredCallback { callback, status, result });
                }
            }
            Answer::Delay => self.callback_lost(session, slot),
            Answer::Fault => {
                let mut back = session.back.lock();
                // §18.46.3, SEQ4_STATUS_BACKCHANNEL_FAULT: "The server has encountered an unrecoverable fault with the
                // backchannel (e.g., it has lost track of the sequence ID for a slot in the backchannel)."
                session.has_fault.store(true, Relaxed);
                let left = back.abandon();
                drop(back);
                self.requeue(session, left);
            }
        }
        self.send_waiting(&session.client);
    }

    /// Passes the result of a callback to the part of the state that sent it.
    fn callback_answered(&self, answered: AnsweredCallback) {
        let AnsweredCallback { callback, status, result } = answered;
        match *callback.purpose() {
            CallbackPurpose::Advice => {}
            CallbackPurpose::Recall(place) => self.recall_answered(place, status),
            CallbackPurpose::GetAttr(place) => self.getattr_answered(place, result),
            CallbackPurpose::Notify(place, _) => self.notify_answered(self.latest_time(), place, status),
            CallbackPurpose::Offload(number) => self.offload_answered(number, callback, status),
        }
    }
}

/// Notes that the client answers, unless the session's slots disagree.
fn note_reachable(session: &Session) {
    if !session.has_fault.load(Relaxed) {
        session.client.set_reachable(true);
    }
}

fn answer_of(result: CbCompoundResult, session: &SessionId, slot: CallbackSlotId) -> Answer {
    let mut results = result.results.into_vec().into_iter();
    let Some(CbOpResult::Sequence(sequence)) = results.next() else { return Answer::Fault };
    match sequence.into_result() {
        Ok(CbSequenceOk { session_id, sequence_id, slot_id, .. }) => {
            if (session_id, sequence_id, slot_id) != (*session, slot.sequence_id, slot.slot_id) {
                return Answer::Fault;
            }
            Answer::Done(result.status, results.next())
        }
        Err(Status::DELAY) => Answer::Delay,
        Err(_) => Answer::Fault,
    }
}
