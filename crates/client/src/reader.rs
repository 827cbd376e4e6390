//! READs from one server over one connection.
//!
//! Each slot of the session carries one READ; further READs wait for a slot. READ_PLUS saves the transfer of holes; the reader
//! falls back to READ if the server does not support it. Every wait has a limit ([`Reader::deadline`]): the connection is
//! closed if the server is silent, sends too slowly or leaves one READ without a reply. Like the session, this has no socket
//! and no clock.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::types::Status;
use rpc::auth::OpaqueAuth;
use rpc::message::{Rejection, RpcError};

use crate::read::{Read, ReadData, ReadOp};
use crate::session::{CallId, CompoundOutcome, Identity, Reply, Session, SessionError};

/// Maximum time without a byte from the server while a reply is pending.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time between complete replies while one is pending, however steadily bytes arrive.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time from a READ to its reply, even if other replies arrive. The READ occupies its slot until then.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after which an idle connection is closed; shorter than any lease, so that no renewal is needed.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a READ failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// The server returned this status.
    Refused(Status),
    /// The server does not support NFSv4.2.
    Unsupported,
    /// The server sent no valid reply in time.
    Unresponsive,
    /// The session was lost. The READ can be repeated in a new one.
    SessionLost,
}

/// READs on one connection. `T` is the caller's tag of a READ.
#[derive(Debug)]
pub struct Reader<T> {
    session: Session,
    operation: ReadOp,
    /// READs that wait for a slot.
    waiting: VecDeque<Waiting<T>>,
    /// READs without a reply; at most one per slot.
    sent: HashMap<CallId, Sent<T>>,
    answered: VecDeque<(T, Result<ReadData, ReadError>)>,
    /// Time of the last received byte, or of the first pending call.
    received_at: Duration,
    /// Time of the last complete reply, or of the first pending call.
    replied_at: Duration,
}

#[derive(Debug)]
struct Waiting<T> {
    read: Read,
    credential: OpaqueAuth,
    tag: T,
}

#[derive(Debug)]
struct Sent<T> {
    request: Waiting<T>,
    /// The READ as sent.
    read: Read,
    operation: ReadOp,
    since: Duration,
}

/// Methods for callers.
impl<T> Reader<T> {
    /// Creates a reader that starts with EXCHANGE_ID; `xid` is the first transaction ID.
    #[must_use]
    pub fn new(identity: Identity, xid: u32, now: Duration) -> Self {
        Self {
            session: Session::new(identity, xid),
            operation: ReadOp::ReadPlus,
            waiting: VecDeque::new(),
            sent: HashMap::new(),
            answered: VecDeque::new(),
            received_at: now,
            replied_at: now,
        }
    }

    /// Starts a READ with `credential`. Its count is limited to [`Self::max_read`].
    pub fn read(&mut self, read: Read, credential: OpaqueAuth, tag: T) {
        self.waiting.push_back(Waiting { read, credential, tag });
    }

    /// Removes READs that wait for a slot and are no longer wanted.
    pub fn drop_waiting(&mut self, is_unwanted: impl Fn(&T) -> bool) {
        self.waiting.retain(|request| !is_unwanted(&request.tag));
    }

    /// Returns the result of a completed READ.
    pub fn poll_answer(&mut self) -> Option<(T, Result<ReadData, ReadError>)> {
        self.answered.pop_front()
    }

    /// Returns the maximum number of bytes of a READ, granted by the server; 0 until the session is ready.
    #[must_use]
    pub fn max_read(&self) -> u32 {
        self.session.max_read()
    }
}

/// Methods for the transport.
impl<T> Reader<T> {
    /// Returns the next record to send, without a record mark.
    pub fn poll_record(&mut self, now: Duration) -> Option<Bytes> {
        self.send_waiting(now);
        self.session.poll_record()
    }

    /// Handles the arrival of any bytes.
    pub fn handle_bytes(&mut self, now: Duration) {
        self.received_at = now;
    }

    /// Handles a complete record, without its mark.
    ///
    /// # Errors
    /// If the connection must be closed; then call [`Self::fail_all`] with the error.
    pub fn handle_record(&mut self, now: Duration, record: Bytes) -> Result<(), ReadError> {
        (self.received_at, self.replied_at) = (now, now);
        self.session.handle_record(record).map_err(|error| error_of(&error))?;
        while let Some(Reply { call, outcome }) = self.session.poll_answer() {
            if let Some(sent) = self.sent.remove(&call) {
                self.handle_reply(sent, outcome);
            }
        }
        Ok(())
    }

    /// Returns when to call [`Self::handle_timeout`].
    #[must_use]
    pub fn deadline(&self) -> Duration {
        if !self.session.is_waiting() {
            return self.replied_at + IDLE_TIMEOUT;
        }
        self.sent.values().map(|sent| sent.since + CALL_TIMEOUT).fold(self.timeout_at(), Duration::min)
    }

    /// Handles the passing of time: closes the session after the idle timeout.
    ///
    /// # Errors
    /// If a reply did not arrive in time; then call [`Self::fail_all`] with the error.
    pub fn handle_timeout(&mut self, now: Duration) -> Result<(), ReadError> {
        if now < self.deadline() {
            return Ok(());
        }
        if self.session.is_waiting() {
            return Err(self.timed_out(now));
        }
        self.session.close();
        (self.received_at, self.replied_at) = (now, now);
        Ok(())
    }

    /// Returns whether the session is closed, so that the connection can be closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.session.is_closed()
    }

    /// Fails all READs with `error`, after the connection was lost.
    pub fn fail_all(&mut self, error: ReadError) {
        let sent = self.sent.drain().map(|(_, sent)| sent.request);
        let all = sent.chain(self.waiting.drain(..));
        self.answered.extend(all.map(|request| (request.tag, Err(error))));
    }
}

impl<T> Reader<T> {
    /// Sends waiting READs while slots are free.
    fn send_waiting(&mut self, now: Duration) {
        while self.session.can_call() {
            let Some(request) = self.waiting.pop_front() else { return };
            if !self.session.is_waiting() {
                (self.received_at, self.replied_at) = (now, now);
            }
            let read = Read { count: request.read.count.min(self.session.max_read()), ..request.read };
            let operations = read.operations(self.operation);
            let Some(call) = self.session.call(&request.credential, operations) else { return };
            self.sent.insert(call, Sent { request, read, operation: self.operation, since: now });
        }
    }

    /// Handles the reply to one READ.
    fn handle_reply(&mut self, sent: Sent<T>, outcome: Result<CompoundOutcome, RpcError>) {
        let answer = match outcome {
            Ok(executed) if sent.operation == ReadOp::ReadPlus && lacks_read_plus(&executed) => {
                self.operation = ReadOp::Read;
                self.waiting.push_front(sent.request);
                return;
            }
            // Invalid results count as no reply.
            Ok(CompoundOutcome { status: Status::OK, results }) => {
                sent.read.data(&results).ok_or(ReadError::Unresponsive)
            }
            Ok(CompoundOutcome { status, .. }) => Err(ReadError::Refused(status)),
            // The user's credential was rejected.
            Err(RpcError::Denied(Rejection::AuthError(_))) => Err(ReadError::Refused(Status::ACCESS)),
            Err(_) => Err(ReadError::Unresponsive),
        };
        self.answered.push_back((sent.request.tag, answer));
    }

    fn timeout_at(&self) -> Duration {
        (self.received_at + SILENCE_TIMEOUT).min(self.replied_at + REPLY_TIMEOUT)
    }

    /// Returns the error for pending READs after the deadline. If the server replied to other READs in time, only the overdue
    /// ones fail as unresponsive; the others can be repeated over a new connection.
    fn timed_out(&mut self, now: Duration) -> ReadError {
        if now >= self.timeout_at() {
            return ReadError::Unresponsive;
        }
        let overdue = self.sent.extract_if(|_, sent| now >= sent.since + CALL_TIMEOUT);
        self.answered.extend(overdue.map(|(_, sent)| (sent.request.tag, Err(ReadError::Unresponsive))));
        ReadError::SessionLost
    }
}

/// Returns whether the server does not support READ_PLUS, or only with content types that version 4.2 does not define.
fn lacks_read_plus(executed: &CompoundOutcome) -> bool {
    // RFC 7862 §11.1.1.1: UNION_NOTSUPP is for arms of a union. RFC 8178 §4.4.3: an unknown operation is OP_ILLEGAL.
    let without = [Status::NOTSUPP, Status::OP_ILLEGAL, Status::UNION_NOTSUPP];
    without.contains(&executed.status) || executed.results.iter().any(crate::read::has_other_arms)
}

/// Maps the error of a session. A READ is repeated after the server lost the session, but not after an invalid reply.
fn error_of(error: &SessionError) -> ReadError {
    match error {
        _ if error.is_unsupported() => ReadError::Unsupported,
        SessionError::Refused(_) => ReadError::SessionLost,
        SessionError::Rejected(_) | SessionError::Garbled(_) | SessionError::Unexpected => {
            ReadError::Unresponsive
        }
    }
}
