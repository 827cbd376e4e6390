//! READs of one server over one connection: what is sent, what becomes of it, and when the server is given up.
//!
//! Criteria. As many READs are under way as the session has slots; what comes later waits for one. READ_PLUS is asked where
//! the server has it, so that holes are told and not sent; one that says that it has not is asked by READ from then on. Every
//! wait has an end ([`Reader::deadline`]): a server that is silent, drips, or leaves one READ unanswered, is given up, and so is
//! the connection. Like the session, this has no socket and no clock.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use protocol::nfs4::types::Status;
use rpc::auth::OpaqueAuth;
use rpc::message::{Rejection, RpcError};

use crate::read::{Read, ReadData, Way};
use crate::session::{Answer, CallId, Executed, Identity, Session, SessionError};

/// How long a server may say nothing while something is asked of it.
pub const SILENCE_PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to complete an answer, however steadily its bytes drip.
pub const ANSWER_PATIENCE: Duration = Duration::from_secs(60);
/// How long a READ that was sent may remain unanswered, whatever else is answered: its slot is taken until then.
pub const CALL_PATIENCE: Duration = Duration::from_secs(60);
/// How long a connection stays when nothing is asked; less than any lease that it would have to renew.
pub const IDLE_PATIENCE: Duration = Duration::from_secs(5);

/// Why a READ has given nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// The server said so.
    Refused(Status),
    /// It does not serve NFSv4.2.
    Unsupported,
    /// It does not answer in time, or answers what makes no sense.
    Silent,
    /// The session was lost: the READ may be asked again in another one.
    Lost,
}

/// READs on one connection; `T` tells whoever asks which is which.
#[derive(Debug)]
pub struct Reader<T> {
    session: Session,
    way: Way,
    /// What has no slot yet.
    waiting: VecDeque<Ask<T>>,
    /// What the server has not answered yet; at most one a slot.
    sent: HashMap<CallId, Sent<T>>,
    answered: VecDeque<(T, Result<ReadData, ReadError>)>,
    /// When bytes came last, or what is waited for was sent.
    heard_at: Duration,
    /// The same of whole answers.
    answered_at: Duration,
}

#[derive(Debug)]
struct Ask<T> {
    read: Read,
    credential: OpaqueAuth,
    tag: T,
}

#[derive(Debug)]
struct Sent<T> {
    ask: Ask<T>,
    /// What was sent for it.
    read: Read,
    way: Way,
    since: Duration,
}

/// For whoever has something to read.
impl<T> Reader<T> {
    /// A client that makes itself known; its first transaction number is `xid`.
    #[must_use]
    pub fn new(identity: Identity, xid: u32, now: Duration) -> Self {
        Self {
            session: Session::new(identity, xid),
            way: Way::ReadPlus,
            waiting: VecDeque::new(),
            sent: HashMap::new(),
            answered: VecDeque::new(),
            heard_at: now,
            answered_at: now,
        }
    }

    /// Asks for a READ on behalf of `credential`. It is cut to what the server returns at once.
    pub fn ask(&mut self, read: Read, credential: OpaqueAuth, tag: T) {
        self.waiting.push_back(Ask { read, credential, tag });
    }

    /// Leaves out what waits for a slot and is not wanted any more.
    pub fn forget(&mut self, is_unwanted: impl Fn(&T) -> bool) {
        self.waiting.retain(|ask| !is_unwanted(&ask.tag));
    }

    /// What became of a READ.
    pub fn poll_answer(&mut self) -> Option<(T, Result<ReadData, ReadError>)> {
        self.answered.pop_front()
    }

    /// Bytes that a READ returns at most, as the server has granted; 0 before it has.
    #[must_use]
    pub fn granted(&self) -> u32 {
        self.session.max_read()
    }
}

/// For whoever carries the records.
impl<T> Reader<T> {
    /// The next record to send, without a record mark.
    pub fn poll_record(&mut self, now: Duration) -> Option<Bytes> {
        self.fill(now);
        self.session.poll_record()
    }

    /// Bytes came, of whatever.
    pub fn handle_bytes(&mut self, now: Duration) {
        self.heard_at = now;
    }

    /// A whole record came, without its mark.
    ///
    /// # Errors
    /// Where the connection is to be closed, and all that is asked [ended](Self::end) with this.
    pub fn handle_record(&mut self, now: Duration, record: Bytes) -> Result<(), ReadError> {
        (self.heard_at, self.answered_at) = (now, now);
        self.session.handle_record(record).map_err(|error| error_of(&error))?;
        while let Some(Answer { call, outcome }) = self.session.poll_answer() {
            if let Some(sent) = self.sent.remove(&call) {
                self.take(sent, outcome);
            }
        }
        Ok(())
    }

    /// When to call [`Self::handle_timeout`] although nothing happens.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        if !self.session.is_waiting() {
            return self.answered_at + IDLE_PATIENCE;
        }
        self.sent.values().map(|sent| sent.since + CALL_PATIENCE).fold(self.patience_ends(), Duration::min)
    }

    /// Looks at the clock: takes leave of the server where nothing was asked for a while.
    ///
    /// # Errors
    /// As [`Self::handle_record`], where something was not answered in time.
    pub fn handle_timeout(&mut self, now: Duration) -> Result<(), ReadError> {
        if now < self.deadline() {
            return Ok(());
        }
        if self.session.is_waiting() {
            return Err(self.give_up(now));
        }
        self.session.end();
        (self.heard_at, self.answered_at) = (now, now);
        Ok(())
    }

    /// Whether leave was taken: the connection is to be closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.session.is_over()
    }

    /// Answers all that was asked with `error`: the connection is no more.
    pub fn end(&mut self, error: ReadError) {
        let sent = self.sent.drain().map(|(_, sent)| sent.ask);
        let all = sent.chain(self.waiting.drain(..));
        self.answered.extend(all.map(|ask| (ask.tag, Err(error))));
    }
}

impl<T> Reader<T> {
    /// Has the session send what it has slots for.
    fn fill(&mut self, now: Duration) {
        while self.session.can_call() {
            let Some(ask) = self.waiting.pop_front() else { return };
            if !self.session.is_waiting() {
                (self.heard_at, self.answered_at) = (now, now);
            }
            let read = Read { count: ask.read.count.min(self.session.max_read()), ..ask.read };
            let Some(call) = self.session.call(&ask.credential, read.operations(self.way)) else { return };
            self.sent.insert(call, Sent { ask, read, way: self.way, since: now });
        }
    }

    /// Takes what was answered.
    fn take(&mut self, sent: Sent<T>, outcome: Result<Executed, RpcError>) {
        let answer = match outcome {
            Ok(executed) if sent.way == Way::ReadPlus && is_without_read_plus(&executed) => {
                self.way = Way::Read;
                self.waiting.push_front(sent.ask);
                return;
            }
            // What makes no sense is as good as nothing.
            Ok(Executed { status: Status::OK, results }) => sent.read.data(&results).ok_or(ReadError::Silent),
            Ok(Executed { status, .. }) => Err(ReadError::Refused(status)),
            // Of the user's credentials.
            Err(RpcError::Denied(Rejection::AuthError(_))) => Err(ReadError::Refused(Status::ACCESS)),
            Err(_) => Err(ReadError::Silent),
        };
        self.answered.push_back((sent.ask.tag, answer));
    }

    fn patience_ends(&self) -> Duration {
        (self.heard_at + SILENCE_PATIENCE).min(self.answered_at + ANSWER_PATIENCE)
    }

    /// What to tell those who wait when the deadline has passed. Where the server has answered others in time, only those whose
    /// READs it has not answered for too long are told that it is silent; the others ask again over another connection.
    fn give_up(&mut self, now: Duration) -> ReadError {
        if now >= self.patience_ends() {
            return ReadError::Silent;
        }
        let overdue = self.sent.extract_if(|_, sent| now >= sent.since + CALL_PATIENCE);
        self.answered.extend(overdue.map(|(_, sent)| (sent.ask.tag, Err(ReadError::Silent))));
        ReadError::Lost
    }
}

/// Whether a server has answered that it has no READ_PLUS, or one that tells of what is not in version 4.2.
fn is_without_read_plus(executed: &Executed) -> bool {
    // RFC 7862 §11.1.1.1: UNION_NOTSUPP is about the arms of a union. RFC 8178 §4.4.3: an operation that is not known at all is
    // OP_ILLEGAL.
    let without = [Status::NOTSUPP, Status::OP_ILLEGAL, Status::UNION_NOTSUPP];
    without.contains(&executed.status) || executed.results.iter().any(crate::read::has_other_arms)
}

/// What ends a session. One that the server has forgotten is made anew; what makes no sense is not asked for again.
fn error_of(error: &SessionError) -> ReadError {
    match error {
        _ if error.is_unsupported() => ReadError::Unsupported,
        SessionError::Refused(_) => ReadError::Lost,
        SessionError::NotTaken(_) | SessionError::Garbled(_) | SessionError::Unexpected => ReadError::Silent,
    }
}
