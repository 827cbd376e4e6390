//! READs from one server over one connection, for copies between servers.
//!
//! Each slot of the session carries one READ; further READs wait for a slot. READ_PLUS saves the transfer of holes; the reader
//! falls back to READ if the server does not support it. Every wait has a limit: the session ends if the server is silent, leaves one
//! READ without a reply, or is not asked for a while. A session ends with its connection. READs can be repeated in a new one, whose
//! verifier differs, so that the server discards the lost one (RFC 8881 §2.4).

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, Stream, StreamExt};
use protocol::nfs4::ops::session::CreateSessionFlags;
use protocol::nfs4::types::Status;
use rpc::message::{Rejection, RpcError};

use crate::config::{Caller, Config, TRANSFER_MAX, Version};
use crate::engine::{CallError, ConnectionId, Engine, RetryPolicy, Sleep};
use crate::error::OpError;
use crate::raw::{CompoundOutcome, RawSession, Unexecuted};
use crate::read::{Read, ReadData, ReadOp};

/// Maximum time without a byte from the server while a reply is pending.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time from a READ to its reply, however steadily bytes and other replies arrive.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after which an idle session is destroyed; shorter than any lease, so that no renewal is needed.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length in bytes of a reply, without record mark: 1 MiB of data and [`REPLY_OVERHEAD`].
pub const MAX_REPLY: u32 = TRANSFER_MAX + REPLY_OVERHEAD;
/// Bytes of a reply in addition to a READ's data: the RPC header, SEQUENCE and PUTFH, GETATTR of a few attributes.
const REPLY_OVERHEAD: u32 = 1024;
/// The maximum READ is rounded down to a multiple of this many bytes, as those of servers are.
const READ_UNIT: u32 = 64 << 10;
/// The multiple for servers with a smaller maximum READ.
const PAGE: u32 = 4 << 10;
/// Number of slots to request, which is the number of concurrent READs.
const SLOTS: u32 = 16;

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

/// Reads from one server.
pub struct Reader {
    engine: Arc<Engine>,
    connection: ConnectionId,
    session: RawSession,
    /// Whether to try READ_PLUS.
    reads_plus: AtomicBool,
    /// Whether the session was given up because the server is silent.
    is_silent: AtomicBool,
}

impl Reader {
    /// Returns how a reader's connection is opened.
    #[must_use]
    pub fn policy() -> RetryPolicy {
        RetryPolicy { timeout: CALL_TIMEOUT, retries: Some(0), fails_fast: true }
    }

    /// Makes a client ID and a session over a connection opened with [`Self::policy`]. `owner` is unique to this client;
    /// `verifier` is different for each session; `machine` is the principal of the client ID.
    ///
    /// # Errors
    /// Any but [`ReadError::Refused`].
    pub async fn open(
        engine: Arc<Engine>,
        connection: ConnectionId,
        owner: &[u8],
        verifier: [u8; 8],
        machine: Caller,
    ) -> Result<Self, ReadError> {
        let config = Config {
            version: Some(Version::V42),
            slots: SLOTS,
            // Requests have no data.
            write_size: 0,
            ..Config::new("the source", owner, verifier, machine)
        };
        let flags = CreateSessionFlags::empty();
        let opening = RawSession::open(Arc::clone(&engine), connection, Arc::new(config), flags);
        let session = unless_silent(&engine, connection, opening).await.ok_or(ReadError::Unresponsive)?;
        let session = session.map_err(|error| error_of_opening(&error))?;
        let (reads_plus, is_silent) = (AtomicBool::new(true), AtomicBool::new(false));
        let reader = Self { engine, connection, session, reads_plus, is_silent };
        if reader.max_read() == 0 { Err(ReadError::SessionLost) } else { Ok(reader) }
    }

    /// Returns the maximum number of bytes of a READ, granted by the server.
    #[must_use]
    pub fn max_read(&self) -> u32 {
        max_read_of(self.session.max_response())
    }

    /// Reads as `caller`. The count is limited to [`Self::max_read`].
    ///
    /// # Errors
    /// Why there are no data.
    pub async fn read(&self, caller: &Caller, read: &Read) -> Result<ReadData, ReadError> {
        let read = Read { count: read.count.min(self.max_read()), ..*read };
        let reading = self.exchange(caller, &read);
        if let Some(outcome) = unless_silent(&self.engine, self.connection, reading).await {
            return outcome;
        }
        // All READs in flight wait for the same silent server.
        self.is_silent.store(true, Ordering::Relaxed);
        self.engine.close_connection(self.connection);
        Err(ReadError::Unresponsive)
    }

    async fn exchange(&self, caller: &Caller, read: &Read) -> Result<ReadData, ReadError> {
        let started_at = self.engine.now();
        loop {
            let is_plus = self.reads_plus.load(Ordering::Relaxed);
            let operation = if is_plus { ReadOp::ReadPlus } else { ReadOp::Read };
            let outcome = self.session.call(caller, &read.operations(operation)).await;
            let outcome = outcome.map_err(|error| self.error_of(&error, started_at))?;
            if is_plus && lacks_read_plus(&outcome) {
                self.reads_plus.store(false, Ordering::Relaxed);
                continue;
            }
            return match outcome.status {
                Status::OK => read.data(&outcome.results).ok_or(ReadError::Unresponsive),
                status => Err(ReadError::Refused(status)),
            };
        }
    }

    /// Runs `answer` for each request, many at a time, until the session is lost or was idle for [`IDLE_TIMEOUT`]; then it is
    /// destroyed.
    ///
    /// # Errors
    /// The session was lost.
    pub async fn serve<Q>(
        &self,
        requests: impl Stream<Item = Q>,
        answer: impl AsyncFn(&Self, Q),
    ) -> Result<(), ReadError> {
        let (mut requests, mut answering) = (pin!(requests), FuturesUnordered::new());
        let mut idle: Option<Sleep> = None;
        poll_fn(|context| {
            while let Poll::Ready(Some(request)) = requests.as_mut().poll_next(context) {
                answering.push(answer(self, request));
            }
            while let Poll::Ready(Some(())) = answering.poll_next_unpin(context) {}
            if self.is_lost() {
                return Poll::Ready(());
            }
            if !answering.is_empty() {
                idle = None;
                return Poll::Pending;
            }
            Pin::new(idle.get_or_insert_with(|| self.engine.sleep(IDLE_TIMEOUT))).poll(context)
        })
        .await;
        if self.is_lost() {
            // What is in flight can be repeated in another session.
            self.engine.close_connection(self.connection);
            while answering.next().await.is_some() {}
            return Err(ReadError::SessionLost);
        }
        // A server that does not answer forgets the client after its lease.
        let _ = unless_silent(&self.engine, self.connection, self.session.destroy()).await;
        Ok(())
    }

    /// Returns whether further READs would fail.
    fn is_lost(&self) -> bool {
        self.session.lost().is_some() || self.engine.is_closed(self.connection)
    }

    /// A READ is repeated after the session is lost, but not after an invalid reply to it.
    fn error_of(&self, error: &Unexecuted, started_at: Duration) -> ReadError {
        match error {
            // The user's credential was rejected (RFC 5531 §9: the call was not executed).
            Unexecuted::Call(CallError::Rpc(RpcError::Denied(Rejection::AuthError(_)))) => {
                ReadError::Refused(Status::ACCESS)
            }
            Unexecuted::Call(CallError::Rpc(_)) => ReadError::Unresponsive,
            _ if self.is_silent.load(Ordering::Relaxed) => ReadError::Unresponsive,
            // Another READ may be the one without a reply.
            Unexecuted::Call(CallError::TimedOut) if self.engine.now() >= started_at + CALL_TIMEOUT => {
                ReadError::Unresponsive
            }
            _ => ReadError::SessionLost,
        }
    }
}

/// Waits for `work`; `None` if meanwhile no byte comes from the server for [`SILENCE_TIMEOUT`].
async fn unless_silent<T>(
    engine: &Arc<Engine>,
    connection: ConnectionId,
    work: impl Future<Output = T>,
) -> Option<T> {
    let started_at = engine.now();
    let silence = async {
        loop {
            let until = engine.received_at(connection).max(started_at) + SILENCE_TIMEOUT;
            if engine.now() >= until || engine.is_shut_down() {
                return;
            }
            engine.sleep_until(until).await;
        }
    };
    match select(pin!(work), pin!(silence)).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

/// Returns the maximum number of bytes of a READ. Servers grant replies with room for their maximum READ and some overhead
/// (Linux: one page). A longer READ would be short and need a second call, so the value is rounded down.
fn max_read_of(max_response_size: u32) -> u32 {
    let room = max_response_size.min(MAX_REPLY).saturating_sub(REPLY_OVERHEAD);
    let unit = if room >= READ_UNIT { READ_UNIT } else { PAGE };
    if room >= unit { room - room % unit } else { room }
}

/// Returns whether the server does not support READ_PLUS, or only with content types that version 4.2 does not define.
fn lacks_read_plus(executed: &CompoundOutcome) -> bool {
    // RFC 7862 §11.1.1.1: UNION_NOTSUPP is for arms of a union. RFC 8178 §4.4.3: an unknown operation is OP_ILLEGAL.
    let without = [Status::NOTSUPP, Status::OP_ILLEGAL, Status::UNION_NOTSUPP];
    without.contains(&executed.status) || executed.results.iter().any(crate::read::has_other_arms)
}

fn error_of_opening(error: &OpError) -> ReadError {
    match error {
        OpError::Unsupported(_) => ReadError::Unsupported,
        OpError::Call(CallError::Rpc(_) | CallError::TimedOut) | OpError::BadReply(_) => {
            ReadError::Unresponsive
        }
        _ => ReadError::SessionLost,
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
