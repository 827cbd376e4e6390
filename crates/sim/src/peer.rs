//! The protocol work of every NFSv4.1 and 4.2 client: client ID, session, connection binding, retransmission, lease renewal, and
//! callbacks. Several requests run at once, each in its own slot.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::backchannel::{BindConnToSessionArgs, DirFromClient};
use protocol::nfs4::ops::exchange_id::DestroyClientIdArgs;
use protocol::nfs4::ops::session::{
    CreateSessionFlags, DestroySessionArgs, ReclaimCompleteArgs, SequenceArgs, SequenceStatus,
};
use protocol::nfs4::types::{HasStatus, OpNum, Outcome, SessionId, Status};
use rpc::message::{MessageType, parse_reply, peek};

use crate::backchannel::BackChannel;
use crate::client::{compound, create_session, exchange_id};
use crate::rng::Rng;

/// Retransmission interval.
const RETRANSMIT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval in which an idle client renews its lease, and learns the status of its back channel.
const KEEPALIVE: Duration = Duration::from_secs(5);
const SLOTS: usize = 4;
/// The slot of the client's program.
pub(crate) const PROGRAM: usize = 0;
/// The slot of DELEGRETURN and the like.
pub(crate) const RETURNS: usize = 1;
/// The slot of lease renewals.
const LEASE: usize = 2;
/// A slot for other calls.
pub(crate) const MORE: usize = 3;

/// The purpose of a call; `P` is that of the client's own calls.
#[derive(Debug, Clone, PartialEq)]
enum Purpose<P> {
    Exchange,
    Session,
    Complete,
    Bind,
    Renew,
    DestroySession,
    DestroyClient,
    Own(P),
}

/// Whether a client is present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Here,
    /// It destroys its session, then its client ID.
    Leaving,
    Gone,
}

/// Counts replies of one operation.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) calls: u64,
    /// With an error status.
    pub(crate) errors: u64,
}

/// By operation.
pub(crate) type OpTallies = BTreeMap<OpNum, Tally>;

#[derive(Debug)]
struct Pending<P> {
    xid: u32,
    bytes: Bytes,
    purpose: Purpose<P>,
    sent: Duration,
}

/// A received message.
#[derive(Debug)]
pub(crate) enum Incoming<P> {
    /// Nothing for the client.
    Nothing,
    /// A callback, for [`BackChannel::called`].
    Call(Bytes),
    /// The reply to one of its own calls.
    Answer(P, CompoundResult),
    /// The session is lost, with all state of the client.
    Lost,
}

/// The protocol state of a client.
#[derive(Debug)]
pub(crate) struct Peer<P> {
    pub(crate) name: String,
    /// Minor version.
    pub(crate) minor: u32,
    xid: u32,
    pub(crate) client_id: u64,
    create_sequence: u32,
    session: Option<SessionId>,
    is_complete: bool,
    sequences: [u32; SLOTS],
    /// By slot; the last is for calls outside of slots.
    pending: [Option<Pending<P>>; SLOTS + 1],
    needs_bind: bool,
    renewed: Duration,
    stay: Presence,
    /// Replies in its session, once for each request.
    pub(crate) tallies: OpTallies,
    pub(crate) back: BackChannel,
    /// It reclaims state, and sends RECLAIM_COMPLETE afterwards.
    pub(crate) is_reclaiming: bool,
    /// Status flags of SEQUENCE that are allowed, besides those about the back channel.
    pub(crate) expected_flags: SequenceStatus,
}

impl<P: Clone + std::fmt::Debug> Peer<P> {
    pub(crate) fn new(index: usize, rng: &mut Rng) -> Self {
        Self {
            name: format!("client-{index}"),
            minor: 1,
            xid: rng.next_u64() as u32,
            client_id: 0,
            create_sequence: 0,
            session: None,
            is_complete: false,
            sequences: [0; SLOTS],
            pending: [const { None }; SLOTS + 1],
            needs_bind: false,
            renewed: Duration::ZERO,
            stay: Presence::Here,
            tallies: OpTallies::new(),
            back: BackChannel::default(),
            is_reclaiming: false,
            expected_flags: SequenceStatus::empty(),
        }
    }

    /// Returns whether its session is ready for all requests.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_complete
    }

    /// Returns whether its session is ready for reclaims.
    pub(crate) fn may_reclaim(&self) -> bool {
        self.session.is_some() && !self.is_complete
    }

    /// Returns whether a slot is free.
    pub(crate) fn is_free(&self, slot: usize) -> bool {
        self.pending[slot].is_none()
    }

    /// Destroys session and client ID, once all calls are answered.
    pub(crate) fn leave(&mut self) {
        if self.stay == Presence::Here {
            self.stay = Presence::Leaving;
        }
    }

    /// Returns whether its client ID is destroyed.
    pub(crate) fn is_gone(&self) -> bool {
        self.stay == Presence::Gone
    }

    /// Returns the purpose of the client's own call in a slot.
    pub(crate) fn doing(&self, slot: usize) -> Option<&P> {
        match &self.pending[slot].as_ref()?.purpose {
            Purpose::Own(purpose) => Some(purpose),
            _ => None,
        }
    }

    /// Handles a new connection.
    pub(crate) fn reconnected(&mut self) {
        self.needs_bind = self.session.is_some();
    }

    /// Returns calls that were not answered in time.
    pub(crate) fn retransmit(&mut self, now: Duration) -> Vec<Bytes> {
        let due =
            self.pending.iter_mut().flatten().filter(|pending| pending.sent + RETRANSMIT_INTERVAL <= now);
        due.map(|pending| {
            pending.sent = now;
            pending.bytes.clone()
        })
        .collect()
    }

    /// Returns calls that precede or accompany the client's own.
    pub(crate) fn proceed(&mut self, now: Duration) -> Vec<Bytes> {
        let mut out = Vec::new();
        if self.is_gone() {
            return out;
        }
        if self.pending[SLOTS].is_none() {
            out.extend(self.next_alone(now));
        }
        if self.stay == Presence::Leaving {
            return out;
        }
        if !self.is_complete {
            if self.session.is_some() && !self.is_reclaiming && self.is_free(PROGRAM) {
                let complete = Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
                out.push(self.put(PROGRAM, vec![complete], Purpose::Complete, now));
            }
        } else if self.is_free(LEASE) && self.renewed + KEEPALIVE <= now {
            self.renewed = now;
            out.push(self.put(LEASE, Vec::new(), Purpose::Renew, now));
        }
        out
    }

    /// Returns the next call outside of a session.
    fn next_alone(&mut self, now: Duration) -> Option<Bytes> {
        let is_idle = self.pending.iter().all(Option::is_none);
        let (op, purpose) = if self.stay == Presence::Leaving && !self.needs_bind {
            if !is_idle {
                return None;
            }
            match self.session {
                Some(session_id) => {
                    (Op::DestroySession(DestroySessionArgs { session_id }), Purpose::DestroySession)
                }
                None => {
                    let args = DestroyClientIdArgs { client_id: self.client_id };
                    (Op::DestroyClientId(args), Purpose::DestroyClient)
                }
            }
        } else if self.client_id == 0 {
            (exchange_id(&self.name), Purpose::Exchange)
        } else if let Some(session_id) = self.session {
            if !self.needs_bind {
                return None;
            }
            self.needs_bind = false;
            let direction = DirFromClient::FORE_OR_BOTH;
            let args = BindConnToSessionArgs { session_id, direction, use_rdma: false };
            (Op::BindConnToSession(args), Purpose::Bind)
        } else {
            let flags = CreateSessionFlags::CONN_BACK_CHAN;
            (create_session(self.client_id, self.create_sequence, flags), Purpose::Session)
        };
        Some(self.keep(SLOTS, vec![op], purpose, now))
    }

    /// Returns a call of the client's own, in a free slot.
    pub(crate) fn send(&mut self, slot: usize, ops: Vec<Op>, purpose: P, now: Duration) -> Bytes {
        self.put(slot, ops, Purpose::Own(purpose), now)
    }

    /// The same without SEQUENCE, or with the SEQUENCE of another session.
    pub(crate) fn send_bare(&mut self, slot: usize, ops: Vec<Op>, purpose: P, now: Duration) -> Bytes {
        self.keep(slot, ops, Purpose::Own(purpose), now)
    }

    fn put(&mut self, slot: usize, ops: Vec<Op>, purpose: Purpose<P>, now: Duration) -> Bytes {
        self.sequences[slot] += 1;
        let sequence = Op::Sequence(SequenceArgs {
            session_id: self.session.expect("a session"),
            sequence_id: self.sequences[slot],
            slot_id: slot as u32,
            highest_slot_id: SLOTS as u32 - 1,
            cache_this: true,
        });
        self.keep(slot, std::iter::once(sequence).chain(ops).collect(), purpose, now)
    }

    fn keep(&mut self, place: usize, ops: Vec<Op>, purpose: Purpose<P>, now: Duration) -> Bytes {
        self.xid = self.xid.wrapping_add(1);
        let bytes = compound(self.xid, self.minor, ops);
        self.pending[place] = Some(Pending { xid: self.xid, bytes: bytes.clone(), purpose, sent: now });
        bytes
    }

    /// Handles a message.
    ///
    /// # Errors
    /// Returns the error in it.
    pub(crate) fn receive(&mut self, bytes: Bytes) -> Result<Incoming<P>, String> {
        let (xid, message) = peek(&bytes).map_err(|error| error.to_string())?;
        if message == MessageType::CALL {
            return Ok(Incoming::Call(bytes));
        }
        let is_it = |pending: &Option<Pending<P>>| pending.as_ref().is_some_and(|pending| pending.xid == xid);
        // Otherwise the call was answered before.
        let Some(at) = self.pending.iter().position(is_it) else { return Ok(Incoming::Nothing) };
        let result: CompoundResult = parse_reply(bytes).map_err(|error| error.to_string())?;
        if let Some(OpResult::Sequence(sequence)) = result.results.first() {
            match sequence.as_result() {
                // A copy of a request that still runs.
                Err(Status::DELAY) => return Ok(Incoming::Nothing),
                Err(Status::BADSESSION | Status::DEADSESSION) => return Ok(self.lose()),
                Err(status) => return Err(format!("{}: SEQUENCE: {status:?}", self.name)),
                Ok(ok) => self.look_at(ok.status_flags)?,
            }
        }
        self.count(&result);
        let pending = self.pending[at].take().expect("it was found there");
        match pending.purpose {
            Purpose::Own(purpose) => Ok(Incoming::Answer(purpose, result)),
            purpose => self.learn(&purpose, &result),
        }
    }

    /// Counts the replies of a compound.
    fn count(&mut self, result: &CompoundResult) {
        if !matches!(result.results.first(), Some(OpResult::Sequence(_))) {
            return;
        }
        for result in result.results.iter() {
            let tally = self.tallies.entry(result.opnum()).or_default();
            tally.calls += 1;
            tally.errors += u64::from(result.status() != Status::OK);
        }
    }

    /// Handles the reply to a call of its own protocol work.
    fn learn(&mut self, purpose: &Purpose<P>, result: &CompoundResult) -> Result<Incoming<P>, String> {
        match (purpose, result.results.first(), result.status) {
            (Purpose::Exchange, Some(OpResult::ExchangeId(Outcome::Ok(ok))), _) => {
                (self.client_id, self.create_sequence) = (ok.client_id, ok.sequence_id);
            }
            (Purpose::Session, Some(OpResult::CreateSession(Outcome::Ok(ok))), _) => {
                self.session = Some(ok.session_id);
                // The connection may have changed since.
                self.needs_bind = true;
            }
            // A late copy of EXCHANGE_ID has created another record.
            (Purpose::Session, _, Status::STALE_CLIENTID) => self.client_id = 0,
            (Purpose::Complete, _, Status::OK) => self.is_complete = true,
            (Purpose::Bind | Purpose::Renew, _, Status::OK) => {}
            // A late copy of DESTROY_SESSION has succeeded after the first was refused.
            (Purpose::Bind, _, Status::BADSESSION) if self.stay == Presence::Leaving => {
                (self.session, self.needs_bind) = (None, false);
            }
            (Purpose::Bind, _, Status::BADSESSION) => return Ok(self.lose()),
            // BADSESSION: the reply to the first copy was lost. RFC 8881 §18.37.3: "DESTROY_SESSION MUST be invoked
            // on a connection that is associated with the session being destroyed."
            (Purpose::DestroySession, _, Status::OK | Status::BADSESSION) => {
                (self.session, self.needs_bind) = (None, false);
            }
            (Purpose::DestroySession, _, Status::CONN_NOT_BOUND_TO_SESSION) => self.needs_bind = true,
            (Purpose::DestroyClient, _, Status::OK | Status::STALE_CLIENTID) => self.stay = Presence::Gone,
            (purpose, _, status) => return Err(format!("{}: {purpose:?}: {status:?}", self.name)),
        }
        Ok(Incoming::Nothing)
    }

    /// Starts over after the server has forgotten the client.
    fn lose(&mut self) -> Incoming<P> {
        (self.client_id, self.create_sequence, self.session) = (0, 0, None);
        (self.is_complete, self.needs_bind, self.sequences) = (false, false, [0; SLOTS]);
        self.pending = [const { None }; SLOTS + 1];
        self.back.clear();
        Incoming::Lost
    }

    /// Checks SEQ4_STATUS flags, and repairs the back channel.
    fn look_at(&mut self, flags: SequenceStatus) -> Result<(), String> {
        let down = SequenceStatus::CB_PATH_DOWN | SequenceStatus::CB_PATH_DOWN_SESSION;
        self.needs_bind |= flags.intersects(down);
        let other = flags.difference(down | self.expected_flags);
        if other.is_empty() { Ok(()) } else { Err(format!("{}: {other:?}", self.name)) }
    }
}
