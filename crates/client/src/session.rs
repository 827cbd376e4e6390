//! A client ID and its one session, from EXCHANGE_ID to DESTROY_CLIENTID, over one connection.
//!
//! Criteria. A session goes with its connection: what was not answered then is asked again by whoever asked, in another session,
//! so that only what may be repeated belongs here (nothing is asked to be kept for a retransmission). Whoever makes the next
//! connection gives another verifier, so that the server forgets the session that was lost (RFC 8881 §2.4). Whatever a
//! server sends costs no more memory than the answers that are waited for.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use bytes::Bytes;
use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::ops::backchannel::{CallbackSecParms, SecParmsList};
use protocol::nfs4::ops::exchange_id::{
    DestroyClientIdArgs, ExchangeIdArgs, ExchangeIdFlags, StateProtectArgs,
};
use protocol::nfs4::ops::session::{
    ChannelAttributes, CreateSessionArgs, CreateSessionFlags, CreateSessionOk, DestroySessionArgs,
    ReclaimCompleteArgs, SequenceArgs,
};
use protocol::nfs4::types::{
    ClientId, ClientOwner, OPAQUE_LIMIT, Outcome, SessionId, Status, Utf8, Verifier,
};
use protocol::nfs4::{PROC_COMPOUND, PROGRAM, VERSION};
use rpc::auth::OpaqueAuth;
use rpc::message::{
    AcceptStatus, CallHeader, MessageType, Rejection, RpcError, encode_call, parse_reply, peek,
};
use xdr::{DecodeError, List, Opaque, Writer};

use crate::slots::Slots;

/// Bytes of a reply at most, without record mark: 1 MiB of data and what is around them.
pub const MAX_REPLY: u32 = (1 << 20) + REPLY_OVERHEAD;
/// Room for what is around a READ's data: the RPC header, SEQUENCE and PUTFH, GETATTR of a few attributes.
const REPLY_OVERHEAD: u32 = 1024;
/// READs are a multiple of so many bytes, as servers' greatest ones are.
const READ_UNIT: u32 = 64 << 10;
/// The same of servers that do not return as many.
const PAGE: u32 = 4 << 10;
/// Bytes of a request at most: a handle, credentials and some numbers.
const MAX_REQUEST: u32 = 4096;
/// Operations of a compound at most.
const MAX_OPERATIONS: u32 = 16;
/// Slots that are asked for: requests at once.
const SLOTS: u32 = 16;
/// A program number for callbacks (RFC 5531 §8.3's transient ones), which are never sent: there is no back channel.
const CALLBACK_PROGRAM: u32 = 0x4000_0000;
const MINOR_VERSION: u32 = 2;

/// Who a client is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// `co_ownerid`: the same for every session that takes the place of the one before; nobody else's.
    pub owner: Opaque<OPAQUE_LIMIT>,
    /// `co_verifier`: another one for each of them.
    pub verifier: Verifier,
    /// Whose the client itself is; the principal of its client ID.
    pub credential: OpaqueAuth,
}

/// Number of a call, never used twice in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(u32);

/// What became of a call.
#[derive(Debug)]
pub struct Answer {
    /// Which one.
    pub call: CallId,
    /// What the server did, or how it refused the call's credential; any other error is the session's end.
    pub outcome: Result<Executed, RpcError>,
}

/// What a server made of a compound.
#[derive(Debug)]
pub struct Executed {
    /// That of the last operation executed; SEQUENCE's, where that asked to come again (DELAY).
    pub status: Status,
    /// Results without SEQUENCE's, up to the first failure.
    pub results: Vec<OpResult>,
}

/// Why a session is of no more use. The connection is to be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionError {
    /// The server refuses what a session needs.
    Refused(Status),
    /// It does not take such calls at all.
    NotTaken(RpcError),
    /// What it sent cannot be decoded.
    Garbled(DecodeError),
    /// What it sent answers nothing that was asked.
    Unexpected,
}

impl SessionError {
    /// Whether NFSv4.2 is not served there.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        let of_program = |status: &AcceptStatus| {
            matches!(status, AcceptStatus::ProgramUnavailable | AcceptStatus::ProgramMismatch(_))
        };
        match self {
            Self::Refused(status) => *status == Status::MINOR_VERS_MISMATCH,
            Self::NotTaken(RpcError::NotExecuted(status)) => of_program(status),
            _ => false,
        }
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "the server refuses a session: {status:?}"),
            Self::NotTaken(error) => error.fmt(f),
            Self::Garbled(error) => write!(f, "the reply cannot be decoded: {error}"),
            Self::Unexpected => write!(f, "the server sends what answers nothing"),
        }
    }
}

impl std::error::Error for SessionError {}

/// Where a session stands. Each phase but [`Phase::Ready`] and [`Phase::Over`] waits for one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// For EXCHANGE_ID's.
    Naming,
    /// For CREATE_SESSION's.
    Opening,
    /// For RECLAIM_COMPLETE's.
    Completing,
    Ready,
    /// For DESTROY_SESSION's.
    Closing,
    /// For DESTROY_CLIENTID's.
    Leaving,
    Over,
}

/// A request without an answer yet.
#[derive(Debug)]
enum Sent {
    /// What the phase waits for, outside of any slot.
    Alone,
    /// In a slot: RECLAIM_COMPLETE while the session is not ready.
    InSlot(SequenceArgs),
}

/// A client and its session on one connection.
#[derive(Debug)]
pub struct Session {
    identity: Identity,
    phase: Phase,
    client: ClientId,
    id: SessionId,
    slots: Slots,
    /// Bytes of data that a READ's reply has room for.
    max_read: u32,
    next_xid: u32,
    /// At most one a slot, and one outside.
    sent: HashMap<u32, Sent>,
    /// To be sent.
    records: VecDeque<Bytes>,
    /// To be taken.
    answers: VecDeque<Answer>,
}

/// For whoever carries the records.
impl Session {
    /// A client that is about to make itself known. `xid` is the first transaction number.
    #[must_use]
    pub fn new(identity: Identity, xid: u32) -> Self {
        let args = ExchangeIdArgs {
            client_owner: ClientOwner { verifier: identity.verifier, owner_id: identity.owner.clone() },
            flags: ExchangeIdFlags::USE_NON_PNFS,
            state_protect: StateProtectArgs::None,
            implementation: List::default(),
        };
        let mut session = Self {
            identity,
            phase: Phase::Naming,
            client: 0,
            id: SessionId::default(),
            slots: Slots::new(SessionId::default(), 0),
            max_read: 0,
            next_xid: xid,
            sent: HashMap::new(),
            records: VecDeque::new(),
            answers: VecDeque::new(),
        };
        session.send_alone(Op::ExchangeId(args));
        session
    }

    /// The next record to send, without a record mark.
    pub fn poll_record(&mut self) -> Option<Bytes> {
        self.records.pop_front()
    }

    /// Takes a record, without its mark, that came over the connection.
    ///
    /// # Errors
    /// Where the session is of no more use.
    pub fn handle_record(&mut self, record: Bytes) -> Result<(), SessionError> {
        let (xid, kind) = peek(&record).map_err(SessionError::Garbled)?;
        // There is no back channel, so that no call is expected.
        let expected = (kind == MessageType::REPLY).then(|| self.sent.remove(&xid)).flatten();
        let sent = expected.ok_or(SessionError::Unexpected)?;
        match (sent, parse_reply::<CompoundResult>(record)) {
            (_, Err(RpcError::Garbled(error))) => Err(SessionError::Garbled(error)),
            // RFC 5531 §9: a call is denied before anything of it is executed. Behind any other error nobody knows whether
            // SEQUENCE was: its number could be taken for a retransmission, and be answered with what was asked before.
            (Sent::InSlot(sequence), Err(error @ RpcError::Denied(Rejection::AuthError(_))))
                if self.phase == Phase::Ready =>
            {
                self.slots.release(&sequence);
                self.answers.push_back(Answer { call: CallId(xid), outcome: Err(error) });
                Ok(())
            }
            (_, Err(error)) => Err(SessionError::NotTaken(error)),
            (Sent::InSlot(sequence), Ok(result)) => self.in_slot(CallId(xid), &sequence, result),
            (Sent::Alone, Ok(result)) => self.alone(result),
        }
    }

    /// Whether an answer is waited for.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Whether the client has said good-bye and the server has heard it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }
}

/// For whoever has something to ask.
impl Session {
    /// Whether [`Self::call`] would send something.
    #[must_use]
    pub fn can_call(&self) -> bool {
        self.phase == Phase::Ready && self.slots.has_free()
    }

    /// Bytes that a READ can return at most; 0 before the session is ready.
    #[must_use]
    pub fn max_read(&self) -> u32 {
        self.max_read
    }

    /// Asks for some operations (15 at most, whose request is short), on behalf of `credential`. None where the session is not
    /// ready or all slots are taken.
    pub fn call(&mut self, credential: &OpaqueAuth, operations: Vec<Op>) -> Option<CallId> {
        if self.phase != Phase::Ready { None } else { self.send_in_slot(credential.clone(), operations) }
    }

    /// The next answer.
    pub fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }

    /// Takes leave of the server; false where answers are still waited for, or the session is not ready.
    pub fn end(&mut self) -> bool {
        if self.phase != Phase::Ready || self.is_waiting() {
            return false;
        }
        self.phase = Phase::Closing;
        self.send_alone(Op::DestroySession(DestroySessionArgs { session_id: self.id }));
        true
    }
}

/// What is sent, and what follows from the answers.
impl Session {
    fn send(&mut self, credential: OpaqueAuth, operations: Vec<Op>, sent: Sent) -> CallId {
        let xid = self.next_xid;
        self.next_xid = xid.wrapping_add(1);
        let header = CallHeader { credential, ..CallHeader::new(xid, PROGRAM, VERSION, PROC_COMPOUND) };
        let ops = List::new(operations).unwrap_or_default();
        let compound = CompoundArgs { tag: Utf8::default(), minor_version: MINOR_VERSION, ops };
        let mut call = Writer::new();
        encode_call(&mut call, &header, &compound);
        self.records.push_back(call.into_bytes());
        self.sent.insert(xid, sent);
        CallId(xid)
    }

    fn send_alone(&mut self, operation: Op) {
        self.send(self.identity.credential.clone(), vec![operation], Sent::Alone);
    }

    fn send_in_slot(&mut self, credential: OpaqueAuth, operations: Vec<Op>) -> Option<CallId> {
        let sequence = self.slots.take()?;
        let all = std::iter::once(Op::Sequence(sequence)).chain(operations).collect();
        Some(self.send(credential, all, Sent::InSlot(sequence)))
    }

    /// An answer to what was asked outside of any slot.
    fn alone(&mut self, result: CompoundResult) -> Result<(), SessionError> {
        let refused = |status| Err(SessionError::Refused(status));
        match (self.phase, &result.results[..]) {
            // Whoever leaves need not be let go.
            (Phase::Closing, _) => {
                self.phase = Phase::Leaving;
                self.send_alone(Op::DestroyClientId(DestroyClientIdArgs { client_id: self.client }));
                Ok(())
            }
            (Phase::Leaving, _) => {
                self.phase = Phase::Over;
                Ok(())
            }
            (Phase::Naming, [OpResult::ExchangeId(Outcome::Ok(ok))]) => {
                self.client = ok.client_id;
                self.phase = Phase::Opening;
                self.send_alone(Op::CreateSession(create_session(ok.client_id, ok.sequence_id)));
                Ok(())
            }
            (Phase::Opening, [OpResult::CreateSession(Outcome::Ok(ok))]) => self.opened(ok),
            _ if result.status != Status::OK => refused(result.status),
            _ => Err(SessionError::Unexpected),
        }
    }

    fn opened(&mut self, ok: &CreateSessionOk) -> Result<(), SessionError> {
        let ChannelAttributes { max_response_size, max_requests, .. } = ok.fore_channel;
        self.id = ok.session_id;
        self.slots = Slots::new(ok.session_id, max_requests.min(SLOTS));
        self.max_read = readable(max_response_size);
        if self.max_read == 0 {
            return Err(SessionError::Refused(Status::TOOSMALL));
        }
        self.phase = Phase::Completing;
        // RFC 8881 §18.51.3: "Whenever a client establishes a new client ID and before it does the first non-reclaim operation
        // that obtains a lock, it MUST send a RECLAIM_COMPLETE". No lock is obtained here, but servers take the end of their
        // grace period from it.
        let complete = Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
        let credential = self.identity.credential.clone();
        self.send_in_slot(credential, vec![complete]).ok_or(SessionError::Unexpected)?;
        Ok(())
    }

    /// An answer to what was asked in a slot.
    fn in_slot(
        &mut self,
        call: CallId,
        sent: &SequenceArgs,
        result: CompoundResult,
    ) -> Result<(), SessionError> {
        let mut results = result.results.into_vec();
        match results.first() {
            Some(OpResult::Sequence(Outcome::Ok(ok))) if self.slots.executed(sent, ok) => {}
            // The one error that says nothing about session or slot (RFC 8881 §15.1.1.3).
            Some(OpResult::Sequence(Outcome::Error(Status::DELAY))) => self.slots.release(sent),
            Some(OpResult::Sequence(Outcome::Error(status))) => return Err(SessionError::Refused(*status)),
            _ => return Err(SessionError::Unexpected),
        }
        results.remove(0);
        if self.phase == Phase::Completing {
            return match result.status {
                Status::OK | Status::COMPLETE_ALREADY => {
                    self.phase = Phase::Ready;
                    Ok(())
                }
                status => Err(SessionError::Refused(status)),
            };
        }
        let outcome = Ok(Executed { status: result.status, results });
        self.answers.push_back(Answer { call, outcome });
        Ok(())
    }
}

/// Bytes of data that a reply has room for. Servers grant their greatest READ and something for what is around it (Linux's a
/// page): what is asked beyond that READ comes short, and the rest of it has to be asked for again. So it is rounded down.
fn readable(max_response_size: u32) -> u32 {
    let room = max_response_size.min(MAX_REPLY).saturating_sub(REPLY_OVERHEAD);
    let unit = if room >= READ_UNIT { READ_UNIT } else { PAGE };
    if room >= unit { room - room % unit } else { room }
}

fn create_session(client_id: ClientId, sequence: u32) -> CreateSessionArgs {
    let channel = |max_response_size, max_requests| ChannelAttributes {
        header_pad_size: 0,
        max_request_size: MAX_REQUEST,
        max_response_size,
        // Nothing is asked to be kept; servers want to be asked for something.
        max_response_size_cached: REPLY_OVERHEAD,
        max_operations: MAX_OPERATIONS,
        max_requests,
        rdma_ird: List::default(),
    };
    CreateSessionArgs {
        client_id,
        sequence,
        flags: CreateSessionFlags::empty(),
        fore_channel: channel(MAX_REPLY, SLOTS),
        back_channel: channel(MAX_REQUEST, 1),
        callback_program: CALLBACK_PROGRAM,
        sec_parms: SecParmsList::new(vec![CallbackSecParms::None]).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_as_long_as_those_of_the_server() {
        // Linux's server grants its greatest READ and a page; with 2 GiB of memory that is 256 KiB.
        assert_eq!(readable((256 << 10) + 4096), 256 << 10);
        assert_eq!(readable((1 << 20) + 4096), 1 << 20);
        assert_eq!(readable(u32::MAX), 1 << 20);
        assert_eq!(readable((16 << 10) + 2048), 16 << 10);
        assert_eq!((readable(3000), readable(1000)), (1976, 0));
    }
}
