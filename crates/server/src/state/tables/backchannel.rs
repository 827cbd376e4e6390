//! The back channel's side of a session: which slots callbacks may use (RFC 8881 §2.10.6, with the roles changed), and what
//! a callback looks like on the wire.

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

/// Callbacks under way on one session at most, whatever the client offers.
const CALLBACKS_MAX: u32 = 64;
/// Bytes of the longest callback: RPC header with the longest AUTH_SYS (40 + 340), tag, minor version, ident and count (16),
/// CB_SEQUENCE with a referring call (72), CB_OFFLOAD (4 + 4 + 64 + 16 + 4 + 4 + 8 + 4 + 8), which is longer than the others.
const CALLBACK_BYTES: u32 = 584;
/// Bytes of its reply: RPC header (24), status, tag and count (12), CB_SEQUENCE (44), CB_GETATTR with all that is asked (80).
const CALLBACK_REPLY_BYTES: u32 = 160;

/// What a callback slot is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// May carry a new callback.
    Idle,
    /// Waits for the client's reply.
    Sent,
    /// The connection was lost before the reply: the client may have executed the callback or not.
    Unsure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Send,
    Answer,
    Lose,
    /// The callback is given up together with the session's back channel: nothing is known of the slot any more.
    Abandon,
}

/// RFC 8881 §18.46.3: "The server cannot be sure whether or not the client received the callback operation, and so, per
/// rules on request retry, the server MUST retry the callback operation over the same session."
const TRANSITIONS: &[Row<Phase, Event>] = &[
    (Phase::Idle, Event::Send, Phase::Sent),
    (Phase::Sent, Event::Answer, Phase::Idle),
    (Phase::Sent, Event::Lose, Phase::Unsure),
    (Phase::Unsure, Event::Send, Phase::Sent),
    (Phase::Sent, Event::Abandon, Phase::Idle),
    (Phase::Unsure, Event::Abandon, Phase::Idle),
];

#[derive(Debug)]
struct CallbackSlot {
    phase: Phase,
    sequence_id: u32,
    /// What was sent, until it is answered.
    callback: Option<Callback>,
    /// The calls that it refers to, as they were when it was sent first: sent again, it is the same request (§2.10.6.2).
    referring: Option<ReferringCallList>,
    /// Over which connection, when it was sent last, and when that was, monotonic.
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
    /// Whether the client takes that.
    is_spoken: bool,
    attributes: ChannelAttributes,
    slots: Vec<CallbackSlot>,
}

impl BackChannel {
    /// As CREATE_SESSION agreed, in this minor version.
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
    /// RPCSEC_GSS handles": where nothing else is offered, callbacks keep the flavor that they have.
    pub(crate) fn control(&mut self, program: u32, security: &SecParmsList) {
        self.program = program;
        if let Some(credential) = credential(security) {
            (self.credential, self.is_spoken) = (credential, true);
        }
    }

    /// Whether every callback that there is can be sent through it: it is wide enough, and its client takes calls by a flavor that
    /// can be spoken here.
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

    /// Whether notices of changed directories fit through it too.
    #[must_use]
    pub(crate) fn carries_notices(&self) -> bool {
        self.is_usable()
            && self.attributes.max_request_size as usize >= CALLBACK_BYTES as usize + NOTICE_BYTES_MAX
    }

    /// Takes a slot for a new callback, the lowest that is idle, as sent over `connection` at this time; gives it back where all
    /// are taken.
    pub(crate) fn send(
        &mut self,
        callback: Callback,
        referring: Option<ReferringCallList>,
        (connection, now): (ConnectionId, Duration),
    ) -> Result<CallbackSlotId, Callback> {
        let idle = self.slots.iter().position(|slot| slot.phase == Phase::Idle);
        let index = match idle {
            Some(index) => index,
            None if (self.slots.len() as u32) < self.attributes.max_requests.min(CALLBACKS_MAX) => {
                let (phase, sequence_id, sent_at) = (Phase::Idle, 0, now);
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

    /// Sends again what may have been lost, under the same sequence ID; `None` where nothing was lost on this slot.
    pub(crate) fn send_again(
        &mut self,
        slot_id: u32,
        way: (ConnectionId, Duration),
    ) -> Option<CallbackSlotId> {
        let index = slot_id as usize;
        (self.slots.get(index)?.phase == Phase::Unsure).then(|| self.sent(index, way))
    }

    /// Slots whose callback may have been lost.
    #[must_use]
    pub(crate) fn unsure(&self) -> Vec<u32> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| slot.phase == Phase::Unsure);
        slots.map(|(index, _)| index as u32).collect()
    }

    /// The client replied; gives the callback, once.
    pub(crate) fn answered(&mut self, turn: CallbackSlotId) -> Option<Callback> {
        self.turn(turn, Event::Answer)?.callback.take()
    }

    /// It is not known whether the client has it: the connection went, or the client asked to be asked again.
    pub(crate) fn lost(&mut self, turn: CallbackSlotId) {
        self.turn(turn, Event::Lose);
    }

    /// A connection went before the replies came.
    pub(crate) fn lost_connection(&mut self, connection: ConnectionId) {
        for slot in self.slots.iter_mut().filter(|slot| slot.connection == connection) {
            if let Some(next) = step(TRANSITIONS, slot.phase, Event::Lose) {
                slot.phase = next;
            }
        }
    }

    /// The back channel is given up; its callbacks must find another way.
    pub(crate) fn abandon(&mut self) -> Vec<Callback> {
        let mut left = Vec::new();
        for slot in &mut self.slots {
            if let Some(next) = step(TRANSITIONS, slot.phase, Event::Abandon) {
                slot.phase = next;
            }
            left.extend(slot.callback.take());
        }
        left
    }

    /// Over which connection a callback was sent, last at this time, that is not answered yet.
    #[must_use]
    pub(crate) fn awaits(&self, turn: CallbackSlotId, sent_at: Duration) -> Option<ConnectionId> {
        let slot = self.slots.get(turn.slot_id as usize)?;
        let is_last = slot.sequence_id == turn.sequence_id && slot.sent_at == sent_at;
        let waits = slot.phase == Phase::Sent && is_last;
        waits.then_some(slot.connection)
    }

    /// The record of a callback in its slot.
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

    /// The record of CB_NULL, by which a path is tried.
    pub(crate) fn probe(&self, xid: u32) -> Bytes {
        let mut record = Writer::new();
        encode_call(&mut record, &self.header(xid, callback::PROC_NULL), &());
        record.into_bytes()
    }

    fn header(&self, xid: u32, procedure: u32) -> CallHeader {
        let credential = self.credential.clone();
        CallHeader { credential, ..CallHeader::new(xid, self.program, callback::VERSION, procedure) }
    }

    fn turn(&mut self, turn: CallbackSlotId, event: Event) -> Option<&mut CallbackSlot> {
        let slot = self.slots.get_mut(turn.slot_id as usize)?;
        if slot.sequence_id != turn.sequence_id {
            return None;
        }
        slot.phase = step(TRANSITIONS, slot.phase, event)?;
        Some(slot)
    }

    fn sent(&mut self, index: usize, (connection, now): (ConnectionId, Duration)) -> CallbackSlotId {
        let slot = &mut self.slots[index];
        slot.phase =
            step(TRANSITIONS, slot.phase, Event::Send).expect("only idle and unsure slots are sent on");
        (slot.connection, slot.sent_at) = (connection, now);
        let sequence_id = slot.sequence_id;
        let highest = self.slots.iter().rposition(|slot| slot.phase != Phase::Idle).unwrap_or(index);
        CallbackSlotId { slot_id: index as u32, sequence_id, highest_slot_id: highest as u32 }
    }
}

/// Who we are to the client: the first that it offered of what can be spoken here, if any (RFC 8881 §2.10.8.2: the server "is free to
/// use any of the flavor/principal combinations the client offers, but it MUST NOT use unoffered combinations"). RPCSEC_GSS cannot: its
/// contexts for callbacks are the client's, and nothing here makes calls with one. Linux's client offers AUTH_SYS on Kerberos mounts
/// too. Who offers RPCSEC_GSS alone has no back channel; who offers nothing at all with CREATE_SESSION is called by AUTH_NONE, as by
/// Linux's server.
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
    fn the_table_of_phases_is_sound() {
        check_table(TRANSITIONS, Phase::Idle, &[Phase::Idle, Phase::Sent, Phase::Unsure]);
    }

    #[test]
    fn callbacks_take_the_lowest_idle_slot_and_retry_what_was_lost() {
        let at = Duration::from_secs;
        let (mut back, home, new) = (back(), (ConnectionId(1), at(1)), (ConnectionId(2), at(5)));
        let send = |back: &mut BackChannel| back.send(Callback::recall_slot(1), None, home);
        let (first, second) = (send(&mut back).unwrap(), send(&mut back).unwrap());
        assert_eq!((first, second), (turn(0, 1, 0), turn(1, 1, 1)));
        assert!(send(&mut back).is_err(), "the client offered two");
        assert!(back.answered(first).is_some());
        assert_eq!(send(&mut back).unwrap(), turn(0, 2, 1));
        assert!(back.answered(first).is_none());
        assert!(send(&mut back).is_err(), "an answer to what was answered before frees nothing");
        back.lost(second);
        assert!(send(&mut back).is_err(), "a lost callback keeps its slot");
        assert_eq!(back.unsure(), [1]);
        assert_eq!(back.send_again(0, new), None);
        assert_eq!(back.send_again(1, new), Some(turn(1, 1, 1)));
        assert_eq!(back.awaits(second, at(1)), None, "that one was lost");
        assert_eq!(back.awaits(second, at(5)), Some(new.0));
        back.lost_connection(home.0);
        assert_eq!(back.unsure(), [0], "what went over the new one is still on its way");
        assert_eq!(back.abandon().len(), 2);
        assert!(back.answered(turn(1, 1, 1)).is_none(), "nobody waits for it any more");
    }
}
