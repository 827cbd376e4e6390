//! A client ID and its one session, from EXCHANGE_ID to DESTROY_CLIENTID, over one connection.
//!
//! A session ends with its connection. Callers repeat calls without a reply in a new session, so calls must be idempotent;
//! no reply is cached for retransmission. A new session has another verifier, so that the server discards the lost one
//! (RFC 8881 §2.4). Received records use no more memory than the pending replies.

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

/// Maximum length in bytes of a reply, without record mark: 1 MiB of data and [`REPLY_OVERHEAD`].
pub const MAX_REPLY: u32 = (1 << 20) + REPLY_OVERHEAD;
/// Bytes of a reply in addition to a READ's data: the RPC header, SEQUENCE and PUTFH, GETATTR of a few attributes.
const REPLY_OVERHEAD: u32 = 1024;
/// The maximum READ is rounded down to a multiple of this many bytes, as those of servers are.
const READ_UNIT: u32 = 64 << 10;
/// The multiple for servers with a smaller maximum READ.
const PAGE: u32 = 4 << 10;
/// Maximum length in bytes of a request: a handle, credentials and some numbers.
const MAX_REQUEST: u32 = 4096;
/// Maximum number of operations in a compound.
const MAX_OPERATIONS: u32 = 16;
/// Number of slots to request, which is the number of concurrent calls.
const SLOTS: u32 = 16;
/// A transient program number (RFC 5531 §8.3) for callbacks. Never used, because there is no back channel.
const CALLBACK_PROGRAM: u32 = 0x4000_0000;
const MINOR_VERSION: u32 = 2;

/// The identity of a client.
#[derive(Debug, Clone)]
pub struct Identity {
    /// `co_ownerid`: unique to this client, and the same for each session that replaces a lost one.
    pub owner: Opaque<OPAQUE_LIMIT>,
    /// `co_verifier`: different for each session.
    pub verifier: Verifier,
    /// The credential of the client itself, which is the principal of its client ID.
    pub credential: OpaqueAuth,
}

/// Identifies a call; unique in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(u32);

/// The reply to a call.
#[derive(Debug)]
pub struct Reply {
    /// The call.
    pub call: CallId,
    /// The outcome, or how the server rejected the call's credential. Any other error ends the session.
    pub outcome: Result<CompoundOutcome, RpcError>,
}

/// The outcome of an executed compound.
#[derive(Debug)]
pub struct CompoundOutcome {
    /// The status of the last operation executed; SEQUENCE's if that returned DELAY.
    pub status: Status,
    /// The results without SEQUENCE's, up to the first failure.
    pub results: Vec<OpResult>,
}

/// Why a session failed. The connection must be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionError {
    /// The server refused an operation of the session itself.
    Refused(Status),
    /// The server rejected a call.
    Rejected(RpcError),
    /// The server sent a record that cannot be decoded.
    Garbled(DecodeError),
    /// The server sent a record that is not a reply to a pending call.
    Unexpected,
}

impl SessionError {
    /// Returns whether the server does not support NFSv4.2.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        let of_program = |status: &AcceptStatus| {
            matches!(status, AcceptStatus::ProgramUnavailable | AcceptStatus::ProgramMismatch(_))
        };
        match self {
            Self::Refused(status) => *status == Status::MINOR_VERS_MISMATCH,
            Self::Rejected(RpcError::NotExecuted(status)) => of_program(status),
            _ => false,
        }
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "the server refused a session: {status:?}"),
            Self::Rejected(error) => error.fmt(f),
            Self::Garbled(error) => write!(f, "the reply cannot be decoded: {error}"),
            Self::Unexpected => write!(f, "the server sent an unexpected record"),
        }
    }
}

impl std::error::Error for SessionError {}

/// The phase of a session. Each but [`Phase::Ready`] and [`Phase::Closed`] waits for the reply to the named operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    ExchangeId,
    CreateSession,
    ReclaimComplete,
    Ready,
    DestroySession,
    DestroyClientId,
    Closed,
}

/// A call without a reply.
#[derive(Debug)]
enum Sent {
    /// The call that the phase waits for, without a slot.
    WithoutSlot,
    /// A call in a slot; RECLAIM_COMPLETE while the session is not ready.
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
    /// Maximum number of bytes of a READ.
    max_read: u32,
    next_xid: u32,
    /// By transaction ID: at most one per slot, and one without.
    sent: HashMap<u32, Sent>,
    /// Records to send.
    records: VecDeque<Bytes>,
    /// Replies for the caller.
    answers: VecDeque<Reply>,
}

/// Methods for the transport.
impl Session {
    /// Creates a session that starts with EXCHANGE_ID. `xid` is the first transaction ID.
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
            phase: Phase::ExchangeId,
            client: 0,
            id: SessionId::default(),
            slots: Slots::new(SessionId::default(), 0, 0),
            max_read: 0,
            next_xid: xid,
            sent: HashMap::new(),
            records: VecDeque::new(),
            answers: VecDeque::new(),
        };
        session.send_without_slot(Op::ExchangeId(args));
        session
    }

    /// Returns the next record to send, without a record mark.
    pub fn poll_record(&mut self) -> Option<Bytes> {
        self.records.pop_front()
    }

    /// Handles a received record, without its mark.
    ///
    /// # Errors
    /// If the session has failed.
    pub fn handle_record(&mut self, record: Bytes) -> Result<(), SessionError> {
        let (xid, kind) = peek(&record).map_err(SessionError::Garbled)?;
        // There is no back channel, so a call is unexpected.
        let expected = (kind == MessageType::REPLY).then(|| self.sent.remove(&xid)).flatten();
        let sent = expected.ok_or(SessionError::Unexpected)?;
        match (sent, parse_reply::<CompoundResult>(record)) {
            (_, Err(RpcError::Garbled(error))) => Err(SessionError::Garbled(error)),
            // RFC 5531 §9: a denied call was not executed. After any other error SEQUENCE may have been executed: the server
            // could take the next call in the slot for a retransmission, and reply with the old results.
            (Sent::InSlot(sequence), Err(error @ RpcError::Denied(Rejection::AuthError(_))))
                if self.phase == Phase::Ready =>
            {
                self.slots.release(&sequence);
                self.answers.push_back(Reply { call: CallId(xid), outcome: Err(error) });
                Ok(())
            }
            (_, Err(error)) => Err(SessionError::Rejected(error)),
            (Sent::InSlot(sequence), Ok(result)) => self.handle_in_slot(CallId(xid), &sequence, result),
            (Sent::WithoutSlot, Ok(result)) => self.handle_without_slot(result),
        }
    }

    /// Returns whether a reply is pending.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Returns whether the server has replied to the last operation of [`Self::close`].
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }
}

/// Methods for callers.
impl Session {
    /// Returns whether [`Self::call`] can send.
    #[must_use]
    pub fn can_call(&self) -> bool {
        self.phase == Phase::Ready && self.slots.has_free()
    }

    /// Returns the maximum number of bytes of a READ; 0 until the session is ready.
    #[must_use]
    pub fn max_read(&self) -> u32 {
        self.max_read
    }

    /// Sends a compound of at most 15 short operations with `credential`. `None` if the session is not ready or has no free
    /// slot.
    pub fn call(&mut self, credential: &OpaqueAuth, operations: Vec<Op>) -> Option<CallId> {
        if self.phase != Phase::Ready { None } else { self.send_in_slot(credential.clone(), operations) }
    }

    /// Returns the next reply.
    pub fn poll_answer(&mut self) -> Option<Reply> {
        self.answers.pop_front()
    }

    /// Starts to destroy the session and the client ID. Returns false if replies are pending or the session is not ready.
    pub fn close(&mut self) -> bool {
        if self.phase != Phase::Ready || self.is_waiting() {
            return false;
        }
        self.phase = Phase::DestroySession;
        self.send_without_slot(Op::DestroySession(DestroySessionArgs { session_id: self.id }));
        true
    }
}

/// Sending calls and handling replies.
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

    fn send_without_slot(&mut self, operation: Op) {
        self.send(self.identity.credential.clone(), vec![operation], Sent::WithoutSlot);
    }

    fn send_in_slot(&mut self, credential: OpaqueAuth, operations: Vec<Op>) -> Option<CallId> {
        let sequence = self.slots.take(false)?;
        let all = std::iter::once(Op::Sequence(sequence)).chain(operations).collect();
        Some(self.send(credential, all, Sent::InSlot(sequence)))
    }

    /// Handles the reply to a call without a slot.
    fn handle_without_slot(&mut self, result: CompoundResult) -> Result<(), SessionError> {
        let refused = |status| Err(SessionError::Refused(status));
        match (self.phase, &result.results[..]) {
            // Failures do not matter when the session ends.
            (Phase::DestroySession, _) => {
                self.phase = Phase::DestroyClientId;
                self.send_without_slot(Op::DestroyClientId(DestroyClientIdArgs { client_id: self.client }));
                Ok(())
            }
            (Phase::DestroyClientId, _) => {
                self.phase = Phase::Closed;
                Ok(())
            }
            (Phase::ExchangeId, [OpResult::ExchangeId(Outcome::Ok(ok))]) => {
                self.client = ok.client_id;
                self.phase = Phase::CreateSession;
                self.send_without_slot(Op::CreateSession(create_session(ok.client_id, ok.sequence_id)));
                Ok(())
            }
            (Phase::CreateSession, [OpResult::CreateSession(Outcome::Ok(ok))]) => self.opened(ok),
            _ if result.status != Status::OK => refused(result.status),
            _ => Err(SessionError::Unexpected),
        }
    }

    fn opened(&mut self, ok: &CreateSessionOk) -> Result<(), SessionError> {
        let ChannelAttributes { max_response_size, max_requests, .. } = ok.fore_channel;
        self.id = ok.session_id;
        let count = max_requests.min(SLOTS);
        self.slots = Slots::new(ok.session_id, count, count);
        self.max_read = max_read_of(max_response_size);
        if self.max_read == 0 {
            return Err(SessionError::Refused(Status::TOOSMALL));
        }
        self.phase = Phase::ReclaimComplete;
        // RFC 8881 §18.51.3: "Whenever a client establishes a new client ID and before it does the first non-reclaim operation
        // that obtains a lock, it MUST send a RECLAIM_COMPLETE". This client takes no locks, but servers end their grace
        // period by it.
        let complete = Op::ReclaimComplete(ReclaimCompleteArgs { one_fs: false });
        let credential = self.identity.credential.clone();
        self.send_in_slot(credential, vec![complete]).ok_or(SessionError::Unexpected)?;
        Ok(())
    }

    /// Handles the reply to a call in a slot.
    fn handle_in_slot(
        &mut self,
        call: CallId,
        sent: &SequenceArgs,
        result: CompoundResult,
    ) -> Result<(), SessionError> {
        let mut results = result.results.into_vec();
        match results.first() {
            Some(OpResult::Sequence(Outcome::Ok(ok))) if self.slots.executed(sent, ok) => {}
            // The only error that does not concern session or slot (RFC 8881 §15.1.1.3).
            Some(OpResult::Sequence(Outcome::Error(Status::DELAY))) => self.slots.release(sent),
            Some(OpResult::Sequence(Outcome::Error(status))) => return Err(SessionError::Refused(*status)),
            _ => return Err(SessionError::Unexpected),
        }
        results.remove(0);
        if self.phase == Phase::ReclaimComplete {
            return match result.status {
                Status::OK | Status::COMPLETE_ALREADY => {
                    self.phase = Phase::Ready;
                    Ok(())
                }
                status => Err(SessionError::Refused(status)),
            };
        }
        let outcome = Ok(CompoundOutcome { status: result.status, results });
        self.answers.push_back(Reply { call, outcome });
        Ok(())
    }
}

/// Returns the maximum number of bytes of a READ. Servers grant replies with room for their maximum READ and some overhead
/// (Linux: one page). A longer READ would be short and need a second call, so the value is rounded down.
fn max_read_of(max_response_size: u32) -> u32 {
    let room = max_response_size.min(MAX_REPLY).saturating_sub(REPLY_OVERHEAD);
    let unit = if room >= READ_UNIT { READ_UNIT } else { PAGE };
    if room >= unit { room - room % unit } else { room }
}

fn create_session(client_id: ClientId, sequence: u32) -> CreateSessionArgs {
    let channel = |max_response_size, max_requests| ChannelAttributes {
        header_pad_size: 0,
        max_request_size: MAX_REQUEST,
        max_response_size,
        // No reply is cached, but some servers reject zero.
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
    fn rounds_the_maximum_read_down_to_that_of_the_server() {
        // Linux's server grants its maximum READ, 256 KiB with 2 GiB of memory, and a page.
        assert_eq!(max_read_of((256 << 10) + 4096), 256 << 10);
        assert_eq!(max_read_of((1 << 20) + 4096), 1 << 20);
        assert_eq!(max_read_of(u32::MAX), 1 << 20);
        assert_eq!(max_read_of((16 << 10) + 2048), 16 << 10);
        assert_eq!((max_read_of(3000), max_read_of(1000)), (1976, 0));
    }
}
