//! Callbacks: their operations, the queue of each client, and the calls in progress (RFC 8881 §2.10.3.1, §20).
//!
//! A callback belongs to a client and uses any of its sessions that has a slot and a connection for it. Until there is one,
//! it waits in the client's queue. Everything is bounded: callbacks that wait, slots of a session, calls on a connection.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use protocol::nfs4::callback::CbOp;
use protocol::nfs4::callback::recall::{CbRecallAnyArgs, CbRecallSlotArgs, recallable};
use protocol::nfs4::types::Bitmap;

use super::notices::Charge;
use super::stateid::EntryId;
use super::wire::{ClientId, SessionId};
use crate::outbox;

/// Maximum number of callbacks in one client's queue, without notifications, which have their own bound
/// ([`Notices`](super::notices::Notices)). Further ones are dropped: their senders try again, or do without.
const WAITING_MAX: usize = 1 << 16;

/// A call to a client.
#[derive(Debug, Clone)]
pub(crate) struct Callback {
    operation: Box<CbOp>,
    purpose: CallbackPurpose,
    referring: Option<ReferringRequest>,
}

/// The purpose of a callback, which decides how its result is handled.
#[derive(Debug, Clone)]
pub(crate) enum CallbackPurpose {
    /// Only advises the client; the result does not matter.
    Advice,
    /// Recalls the delegation with this ID.
    Recall(EntryId),
    /// Asks the holder of the delegation with this ID for attributes.
    GetAttr(EntryId),
    /// Notifies the holder of a directory delegation of changes.
    Notify(EntryId, Weak<Charge>),
    /// Reports the end of the copy with this number.
    Offload(u32),
}

/// The request whose reply the client must have seen before it understands a callback (§2.10.6.3).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReferringRequest {
    pub(crate) session: SessionId,
    pub(crate) slot: u32,
    pub(crate) sequence: u32,
}

impl Callback {
    pub(crate) fn new(
        operation: CbOp,
        purpose: CallbackPurpose,
        referring: Option<ReferringRequest>,
    ) -> Self {
        Self { operation: Box::new(operation), purpose, referring }
    }

    /// CB_RECALL_SLOT: the client should use slots up to this one.
    pub(crate) fn recall_slot(target_highest_slot_id: u32) -> Self {
        let operation = CbOp::RecallSlot(CbRecallSlotArgs { target_highest_slot_id });
        Self::new(operation, CallbackPurpose::Advice, None)
    }

    /// CB_RECALL_ANY: the client should keep this many delegations, of its choice.
    pub(crate) fn recall_any(objects_to_keep: u32) -> Self {
        let type_mask = Bitmap::of(&[recallable::RDATA_DLG, recallable::WDATA_DLG, recallable::DIR_DLG]);
        let operation = CbOp::RecallAny(CbRecallAnyArgs { objects_to_keep, type_mask });
        Self::new(operation, CallbackPurpose::Advice, None)
    }

    /// Returns whether it is about the session that carries it. §20.8: "the value of the target highest slot ID the server wants
    /// for the session", which is the one that CB_SEQUENCE names.
    fn is_of_its_session(&self) -> bool {
        matches!(*self.operation, CbOp::RecallSlot(_))
    }

    /// Returns whether it is a notification, which may be longer than other callbacks.
    pub(crate) fn is_notice(&self) -> bool {
        matches!(self.purpose, CallbackPurpose::Notify(..))
    }

    pub(crate) fn referring(&self) -> Option<ReferringRequest> {
        self.referring
    }

    pub(crate) fn operation(&self) -> &CbOp {
        &self.operation
    }

    pub(crate) fn purpose(&self) -> &CallbackPurpose {
        &self.purpose
    }
}

/// The slot and sequence ID of a callback, as in its CB_SEQUENCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallbackSlotId {
    /// `csa_slotid`.
    pub(crate) slot_id: u32,
    /// `csa_sequenceid`.
    pub(crate) sequence_id: u32,
    /// `csa_highest_slotid`.
    pub(crate) highest_slot_id: u32,
}

/// A call that waits for its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// CB_NULL, which probes the back channel of a session.
    Probe(SessionId),
    /// A callback over the back channel of a session.
    Callback(SessionId, SentCallback),
    /// CB_NULL to a client of version 4.0.
    V40Probe(ClientId),
    /// A callback to a client of version 4.0, by number.
    V40Callback(ClientId, u64),
}

/// A callback on a session's back channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentCallback(pub(crate) CallbackSlotId);

/// Calls to a client over one connection.
pub type Outbox = outbox::Outbox<Sent>;

impl Sent {
    pub(crate) fn callback(session: SessionId, slot: CallbackSlotId) -> Self {
        Self::Callback(session, SentCallback(slot))
    }

    /// Returns whether it went over the back channel of this session.
    pub(crate) fn is_of_session(&self, id: &SessionId) -> bool {
        matches!(self, Self::Probe(session) | Self::Callback(session, _) if session == id)
    }
}

/// A client's callbacks that wait, and its sessions.
#[derive(Debug, Default)]
pub(crate) struct CallbackQueue {
    waiting: VecDeque<Callback>,
    /// Notifications with their charges, apart from other callbacks: a back channel may be too narrow for them, and recalls
    /// must not wait for them.
    notices: VecDeque<(Arc<Charge>, Callback)>,
    sessions: Vec<SessionId>,
}

impl CallbackQueue {
    pub(crate) fn has_waiting(&self) -> bool {
        !(self.waiting.is_empty() && self.notices.is_empty())
    }

    /// Appends a callback. Drops it if the queue is full, or if it is a notification for an ended delegation.
    pub(crate) fn add(&mut self, callback: Callback) {
        match &callback.purpose {
            CallbackPurpose::Notify(_, charge) => {
                let charge = charge.upgrade();
                self.notices.extend(charge.map(|charge| (charge, callback)));
            }
            _ if self.waiting.len() < WAITING_MAX => self.waiting.push_back(callback),
            _ => {}
        }
    }

    /// Offers the waiting callbacks to `send`, which returns those that it cannot send.
    pub(crate) fn offer(&mut self, mut send: impl FnMut(Callback) -> Option<Callback>) {
        while let Some(callback) = self.waiting.pop_front() {
            if let Some(left) = send(callback) {
                self.waiting.push_front(left);
                break;
            }
        }
        while let Some((charge, notice)) = self.notices.pop_front() {
            // The delegation holds the other reference; without it, the delegation has ended.
            let is_wanted = Arc::strong_count(&charge) > 1;
            // If one cannot be sent, those after it cannot either.
            if is_wanted && let Some(left) = send(notice) {
                self.notices.push_front((charge, left));
                break;
            }
        }
    }

    /// Takes the next callback for a client of version 4.0, which gets no notifications.
    pub(crate) fn take_next(&mut self) -> Option<Callback> {
        self.waiting.pop_front()
    }

    /// Puts callbacks that were not answered back to the front, except those about the session that failed.
    pub(crate) fn put_back(&mut self, left: Vec<Callback>) {
        for callback in left.into_iter().rev().filter(|callback| !callback.is_of_its_session()) {
            match &callback.purpose {
                CallbackPurpose::Notify(_, charge) => {
                    if let Some(charge) = charge.upgrade() {
                        self.notices.push_front((charge, callback));
                    }
                }
                _ => self.waiting.push_front(callback),
            }
        }
    }

    /// Returns the client's sessions. Some may be destroyed.
    pub(crate) fn sessions(&self) -> &[SessionId] {
        &self.sessions
    }

    /// Adds a session, and forgets those for which `exists` is false.
    pub(crate) fn add_session(&mut self, id: SessionId, exists: impl Fn(&SessionId) -> bool) {
        self.sessions.retain(exists);
        self.sessions.push(id);
    }

    /// Number of notifications that wait.
    #[cfg(test)]
    pub(crate) fn notices_waiting(&self) -> usize {
        self.notices.len()
    }
}

/// Callbacks without an answer, over all sessions.
#[derive(Debug, Default)]
pub(crate) struct SentCallbacks {
    /// In the order of sending.
    sent: Mutex<VecDeque<(Duration, SessionId, CallbackSlotId)>>,
    /// Sessions with callbacks that may be lost and must be sent again.
    lost: Mutex<Vec<SessionId>>,
}

impl SentCallbacks {
    /// Notes that a callback was sent.
    pub(crate) fn add(&self, sent_at: Duration, session: SessionId, slot: CallbackSlotId) {
        self.sent.lock().push_back((sent_at, session, slot));
    }

    /// Takes the next callback that was sent at least `timeout` ago.
    pub(crate) fn take_due(
        &self,
        now: Duration,
        timeout: Duration,
    ) -> Option<(Duration, SessionId, CallbackSlotId)> {
        self.sent.lock().pop_front_if(|entry| entry.0 + timeout <= now)
    }

    /// Notes that a session has callbacks to send again.
    pub(crate) fn add_lost(&self, session: SessionId) {
        self.lost.lock().push(session);
    }

    /// Takes the sessions with callbacks to send again.
    pub(crate) fn take_lost(&self) -> Vec<SessionId> {
        std::mem::take(&mut *self.lost.lock())
    }
}
