//! The server's side of a session's back channel: its slots (RFC 8881 §2.10.6, with the roles changed), and the encoding of
//! callbacks.

use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::callback::sequence::{CbSequenceArgs, ReferringCallList};
use protocol::nfs4::callback::{self, CbCompoundArgs, CbOp};
use protocol::nfs4::ops::backchannel::{CallbackSecParms, SecParmsList};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, encode_call};
use xdr::{List, Opaque, Writer};

use super::callback::{Callback, CallbackSlotId};
use super::notices::NOTICE_BYTES_MAX;
use super::transitions::{Row, step};
use super::wire::{ChannelAttributes, SessionId};
use crate::ConnectionId;

/// Maximum number of callbacks in progress on one session, even if the client offers more.
const CALLBACKS_MAX: u32 = 64;
/// Bytes of the longest callback: RPC header with the longest AUTH_SYS (40 + 340), tag, minor version, ident and count (16),
/// CB_SEQUENCE with a referring call (72), CB_OFFLOAD (4 + 4 + 64 + 16 + 4 + 4 + 8 + 4 + 8), which is longer than the others.
const CALLBACK_BYTES: u32 = 584;
/// Bytes of its reply: RPC header (24), status, tag and count (12), CB_SEQUENCE (44), CB_GETATTR with all attributes (80).
const CALLBACK_REPLY_BYTES: u32 = 160;

/// The phase of a callback slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallbackSlotPhase {
    /// May carry a new callback.
    Idle,
    /// Waits for the client's reply.
    Sent,
    /// The connection was lost before the reply: the client may have executed the callback or not.
    Unsure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallbackSlotEvent {
    Send,
    Answer,
    Lose,
    /// The callback and the session's back channel are abandoned; the slot's state at the client is unknown.
    Abandon,
}

/// RFC 8881 §18.46.3: "The server cannot be sure whether or not the client received the callback operation, and so, per
/// rules on request retry, the server MUST retry the callback operation over the same session."
const TRANSITIONS: &[Row<CallbackSlotPhase, CallbackSlotEvent>] = &[
    (CallbackSlotPhase::Idle, CallbackSlotEvent::Send, CallbackSlotPhase::Sent),
    (CallbackSlotPhase::Sent, CallbackSlotEvent::Answer, CallbackSlotPhase::Idle),
    (CallbackSlotPhase::Sent, CallbackSlotEvent::Lose, CallbackSlotPhase::Unsure),
    (CallbackSlotPhase::Unsure, CallbackSlotEvent::Send, CallbackSlotPhase::Sent),
    (CallbackSlotPhase::Sent, CallbackSlotEvent::Abandon, CallbackSlotPhase::Idle),
    (CallbackSlotPhase::Unsure, CallbackSlotEvent::Abandon, CallbackSlotPhase::Idle),
];

#[derive(Debug)]
struct CallbackSlot {
    phase: CallbackSlotPhase,
    sequence_id: u32,
    /// The last callback, until it is answered.
    callback: Option<Callback>,
    /// Its referring calls, as in its first transmission: a retransmission must be the same request (§2.10.6.2).
    referring: Option<ReferringCallList>,
    /// The connection and the monotonic time of the last transmission.
    connection: ConnectionId,
    sent_at: Duration,
}

/// A session's back channel.
#[derive(Debug)]
pub(crate) struct BackChannel {
    session: SessionId,
    minor: u32,
    program: u32,
    credential: OpaqueAuth,
    /// Whether the client accepts that operation.
    is_spoken: bool,
    attributes: ChannelAttributes,
    slots: Vec<CallbackSlot>,
}

impl BackChannel {
    /// Creates the channel with the attributes of CREATE_SESSION, in this minor version.
    #[must_use]
    pub(crate) fn new(
        session: SessionId,
        minor: u32,
        (program, security): (u32, &SecParmsList),
        attributes: ChannelAttributes,
    ) -> Self {
        let offered = credential(security);
        let is_spoken = offered.is_some() || security.is_empty();
        let credential = offered.unwrap_or(OpaqueAuth::NONE);
        Self { session, minor, program, credential, is_spoken, attributes, slots: Vec::new() }
    }

    /// `csa_cb_program`.
    #[cfg(test)]
    pub(crate) fn program(&self) -> u32 {
        self.program
    }

    /// BACKCHANNEL_CTL (RFC 8881 §18.33.3), which "replaces the backchannel's callback program number and adds (not replaces)
    /// RPCSEC_GSS handles": if nothing else is offered, callbacks keep their flavor.
    pub(crate) fn control(&mut self, program: u32, security: &SecParmsList) {
        self.program = program;
        if let Some(credential) = credential(security) {
            (self.credential, self.is_spoken) = (credential, true);
        }
    }

    /// Returns whether it can carry every callback: it is wide enough, and the client accepts a flavor that this server can use.
    #[must_use]
    pub(crate) fn is_usable(&self) -> bool {
        let ChannelAttributes { max_request_size, max_response_size, max_operations, max_requests, .. } =
            self.attributes;
        max_request_size >= CALLBACK_BYTES
            && max_response_size >= CALLBACK_REPLY_BYTES
            && max_operations >= 2
            && max_requests >= 1
            && self.is_spoken
    }

    /// Returns whether it can carry directory notifications too.
    #[must_use]
    pub(crate) fn carries_notices(&self) -> bool {
        self.is_usable()
            && self.attributes.max_request_size as usize >= CALLBACK_BYTES as usize + NOTICE_BYTES_MAX
    }

    /// Puts a callback into the lowest idle slot, as sent over `connection` at this time; returns the callback if no slot is
    /// idle.
    pub(crate) fn send(
        &mut self,
        callback: Callback,
        referring: Option<ReferringCallList>,
        (connection, now): (ConnectionId, Duration),
    ) -> Result<CallbackSlotId, Callback> {
        let idle = self.slots.iter().position(|slot| slot.phase == CallbackSlotPhase::Idle);
        let index = match idle {
            Some(index) => index,
            None if (self.slots.len() as u32) < self.attributes.max_requests.min(CALLBACKS_MAX) => {
                let (phase, sequence_id, sent_at) = (CallbackSlotPhase::Idle, 0, now);
                let (callback, referring) = (None, None);
                self.slots.push(CallbackSlot {
                    phase,
                    sequence_id,
                    callback,
                    referring,
                    connection,
                    sent_at,
                });
                self.slots.len() - 1
            }
            None => return Err(callback),
        };
        let slot = &mut self.slots[index];
        // §18.36.4: "the first CB_SEQUENCE operation on a slot after session creation MUST have a sequence ID of one".
        slot.sequence_id = slot.sequence_id.wrapping_add(1);
        slot.referring = referring;
        slot.callback = Some(callback);
        Ok(self.sent(index, (connection, now)))
    }

    /// Returns the retransmission of a callback that may be lost, with the same sequence ID; `None` if the slot has none.
    pub(crate) fn send_again(
        &mut self,
        slot_id: u32,
        way: (ConnectionId, Duration),
    ) -> Option<CallbackSlotId> {
        let index = slot_id as usize;
        (self.slots.get(index)?.phase == CallbackSlotPhase::Unsure).then(|| self.sent(index, way))
    }

    /// Returns the slots whose callbacks may be lost.
    #[must_use]
    pub(crate) fn unsure(&self) -> Vec<u32> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| slot.phase == CallbackSlotPhase::Unsure);
        slots.map(|(index, _)| index as u32).collect()
    }

    /// Handles the client's reply; returns its callback, once.
    pub(crate) fn answered(&mut self, turn: CallbackSlotId) -> Option<Callback> {
        self.turn(turn, CallbackSlotEvent::Answer)?.callback.take()
    }

    /// Notes that the client may not have the callback: the connection was lost, or it answered DELAY.
    pub(crate) fn lost(&mut self, turn: CallbackSlotId) {
        self.turn(turn, CallbackSlotEvent::Lose);
    }

    /// Notes that a connection was lost before the replies arrived.
    pub(crate) fn lost_connection(&mut self, connection: ConnectionId) {
        for slot in self.slots.iter_mut().filter(|slot| slot.connection == connection) {
            if let Some(next) = step(TRANSITIONS, slot.phase, CallbackSlotEvent::Lose) {
                slot.phase = next;
            }
        }
    }

    /// Abandons the back channel; returns its callbacks, which must be sent another way.
    pub(crate) fn abandon(&mut self) -> Vec<Callback> {
        let mut left = Vec::new();
        for slot in &mut self.slots {
            if let Some(next) = step(TRANSITIONS, slot.phase, CallbackSlotEvent::Abandon) {
                slot.phase = next;
            }
            left.extend(slot.callback.take());
        }
        left
    }

    /// Returns the connection over which a callback was last sent at this time, if it is unanswered.
    #[must_use]
    pub(crate) fn awaits(&self, turn: CallbackSlotId, sent_at: Duration) -> Option<ConnectionId> {
        let slot = self.slots.get(turn.slot_id as usize)?;
        let is_last = slot.sequence_id == turn.sequence_id && slot.sent_at == sent_at;
        let waits = slot.phase == CallbackSlotPhase::Sent && is_last;
        waits.then_some(slot.connection)
    }

    /// Encodes the record of the callback in a slot.
    pub(crate) fn record(&self, turn: CallbackSlotId, xid: u32) -> Bytes {
        let slot = self.slots.get(turn.slot_id as usize);
        let referring = slot.and_then(|slot| slot.referring.clone());
        let sequence = CbOp::Sequence(CbSequenceArgs {
            session_id: self.session,
            sequence_id: turn.sequence_id,
            slot_id: turn.slot_id,
            highest_slot_id: turn.highest_slot_id,
            cache_this: false,
            referring_calls: List::new(referring.into_iter().collect()).unwrap_or_default(),
        });
        let callback = slot.and_then(|slot| slot.callback.as_ref());
        let ops = std::iter::once(sequence).chain(callback.map(|callback| callback.operation().clone()));
        let args = CbCompoundArgs {
            tag: Opaque::default(),
            minor_version: self.minor,
            callback_ident: 0,
            ops: List::new(ops.collect()).unwrap_or_default(),
        };
        let mut record = Writer::new();
        encode_call(&mut record, &self.header(xid, callback::PROC_COMPOUND), &args);
        record.into_bytes()
    }

    /// Encodes the record of CB_NULL, which probes a path.
    pub(crate) fn probe(&self, xid: u32) -> Bytes {
        let mut record = Writer::new();
        encode_call(&mut record, &self.header(xid, callback::PROC_NULL), &());
        record.into_bytes()
    }

    fn header(&self, xid: u32, procedure: u32) -> CallHeader {
        let credential = self.credential.clone();
        CallHeader { credential, ..CallHeader::new(xid, self.program, callback::VERSION, procedure) }
    }

    fn turn(&mut self, turn: CallbackSlotId, event: CallbackSlotEvent) -> Option<&mut CallbackSlot> {
        let slot = self.slots.get_mut(turn.slot_id as usize)?;
        if slot.sequence_id != turn.sequence_id {
            return None;
        }
        slot.phase = step(TRANSITIONS, slot.phase, event)?;
        Some(slot)
    }

    fn sent(&mut self, index: usize, (connection, now): (ConnectionId, Duration)) -> CallbackSlotId {
        let slot = &mut self.slots[index];
        slot.phase = step(TRANSITIONS, slot.phase, CallbackSlotEvent::Send)
            .expect("only idle and unsure slots are sent on");
        (slot.connection, slot.sent_at) = (connection, now);
        let sequence_id = slot.sequence_id;
        let highest =
            self.slots.iter().rposition(|slot| slot.phase != CallbackSlotPhase::Idle).unwrap_or(index);
        CallbackSlotId { slot_id: index as u32, sequence_id, highest_slot_id: highest as u32 }
    }
}

/// Returns the credentials of callbacks: the first offered ones that this server can use (RFC 8881 §2.10.8.2: the server "is free to
/// use any of the flavor/principal combinations the client offers, but it MUST NOT use unoffered combinations"). It cannot use
/// RPCSEC_GSS, because the contexts for callbacks are the client's, and this server initiates no calls with them. Linux's client
/// offers AUTH_SYS on Kerberos mounts too. A client that offers only RPCSEC_GSS has no back channel; a client that offers nothing
/// in CREATE_SESSION is called with AUTH_NONE, as by Linux's server.
fn credential(security: &SecParmsList) -> Option<OpaqueAuth> {
    let sys = |parms: &protocol::nfs4::ops::backchannel::AuthSysParms| {
        OpaqueAuth::sys(&AuthSys {
            stamp: parms.stamp,
            machine_name: Opaque::new(parms.machine_name.bytes().clone()).unwrap_or_default(),
            uid: parms.uid,
            gid: parms.gid,
            gids: GroupList::new(&parms.gids).unwrap_or_default(),
        })
    };
    security.iter().find_map(|parms| match parms {
        CallbackSecParms::None => Some(OpaqueAuth::NONE),
        CallbackSecParms::Sys(parms) => Some(sys(parms)),
        CallbackSecParms::Gss(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::transitions::check_table;
    use super::*;

    fn back() -> BackChannel {
        let attributes = ChannelAttributes { max_requests: 2, ..Default::default() };
        BackChannel::new([1; 16], 1, (7, &SecParmsList::default()), attributes)
    }

    fn turn(slot_id: u32, sequence_id: u32, highest_slot_id: u32) -> CallbackSlotId {
        CallbackSlotId { slot_id, sequence_id, highest_slot_id }
    }

    #[test]
    fn the_table_of_phases_is_consistent() {
        check_table(
            TRANSITIONS,
            CallbackSlotPhase::Idle,
            &[CallbackSlotPhase::Idle, CallbackSlotPhase::Sent, CallbackSlotPhase::Unsure],
        );
    }

    #[test]
    fn callbacks_use_the_lowest_idle_slot_and_retry_lost_ones() {
        let at = Duration::from_secs;
        let (mut back, home, new) = (back(), (ConnectionId(1), at(1)), (ConnectionId(2), at(5)));
        let send = |back: &mut BackChannel| back.send(Callback::recall_slot(1), None, home);
        let (first, second) = (send(&mut back).unwrap(), send(&mut back).unwrap());
        assert_eq!((first, second), (turn(0, 1, 0), turn(1, 1, 1)));
        assert!(send(&mut back).is_err(), "the client offered two");
        assert!(back.answered(first).is_some());
        assert_eq!(send(&mut back).unwrap(), turn(0, 2, 1));
        assert!(back.answered(first).is_none());
        assert!(send(&mut back).is_err(), "a repeated reply frees nothing");
        back.lost(second);
        assert!(send(&mut back).is_err(), "a lost callback keeps its slot");
        assert_eq!(back.unsure(), [1]);
        assert_eq!(back.send_again(0, new), None);
        assert_eq!(back.send_again(1, new), Some(turn(1, 1, 1)));
        assert_eq!(back.awaits(second, at(1)), None, "that one was lost");
        assert_eq!(back.awaits(second, at(5)), Some(new.0));
        back.lost_connection(home.0);
        assert_eq!(back.unsure(), [0], "callbacks over the new connection still wait");
        assert_eq!(back.abandon().len(), 2);
        assert!(back.answered(turn(1, 1, 1)).is_none(), "nobody waits for it any more");
    }
}
