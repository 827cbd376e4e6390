//! A client of version 4.1 whose connection is also its back channel.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::config::{Caller, Config, Version};
use client::engine::{ConnectionId, Engine, RetryPolicy};
use client::raw::{CallbackHandler, RawSession};
use net::transport::{Carrier, SystemClock};
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::session::CreateSessionFlags;
use protocol::nfs4::types::{Handle, Stateid, Status};
use rpc::auth::{AuthSys, GroupList};
use tokio::net::TcpStream;
use tokio::time::timeout;
use xdr::Opaque;

/// Maximum bytes of a record.
const RECORD_BYTES_MAX: usize = 1 << 20;
/// Time for the server's probe of the back channel; servers without a probe never send one.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for a reply.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Requested slots.
const SLOTS: u32 = 16;

/// A client with a session. Its methods wait for the server while its [`Carrier`] carries records.
pub(super) struct Client {
    pub(super) engine: Arc<Engine>,
    connection: ConnectionId,
    session: RawSession,
    caller: Caller,
}

impl Client {
    /// Connects, and creates a session with these flags.
    pub(super) async fn connect(
        server: SocketAddr,
        name: &str,
        flags: CreateSessionFlags,
    ) -> Result<(Self, Carrier), String> {
        let failed = |error| format!("connect to {server}: {error}");
        let stream = TcpStream::connect(server).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut carrier = Carrier::new(stream, RECORD_BYTES_MAX);
        let engine = Arc::new(Engine::new(Arc::new(SystemClock::default()), 1));
        let policy = RetryPolicy { timeout: TIMEOUT, retries: Some(0), fails_fast: true };
        let connection = engine.open_connection(server.port(), policy).map_err(|error| error.to_string())?;
        let (caller, owner) = (own_user(), format!("enfys-bench-{}-{name}", std::process::id()));
        let config = Config {
            version: Some(Version::V41),
            slots: SLOTS,
            ..Config::new(&server.to_string(), owner.as_bytes(), [0; 8], caller.clone())
        };
        let opening = RawSession::open(Arc::clone(&engine), connection, Arc::new(config), flags);
        let session = carrier.carry(&engine, connection, opening).await;
        let session = session.map_err(|error| format!("no session: {error}"))?;
        Ok((Self { engine, connection, session, caller }, carrier))
    }

    /// Runs `work`, which uses this client.
    pub(super) async fn run<T>(&self, carrier: &mut Carrier, work: impl Future<Output = T>) -> T {
        carrier.carry(&self.engine, self.connection, work).await
    }

    /// Answers callbacks until the server has probed the back channel, or sends no probe in time.
    pub(super) async fn await_trial(&self) -> Result<(), String> {
        match timeout(TRIAL_TIMEOUT, self.next_callback()).await {
            Ok(record) => self.answer_callback(record?).map(drop),
            Err(_) => Ok(()),
        }
    }

    /// Executes operations; returns their results, and the overall status.
    pub(super) async fn call(&self, operations: &[Op]) -> Result<(Status, Vec<OpResult>), String> {
        let outcome = self.session.call(&self.caller, operations).await;
        let outcome = outcome.map_err(|error| format!("not executed: {error:?}"))?;
        Ok((outcome.status, outcome.results))
    }

    /// Waits for a callback.
    pub(super) async fn next_callback(&self) -> Result<Bytes, String> {
        let callback = poll_fn(|context| self.engine.poll_callback(context)).await;
        callback.map(|(_, record)| record).ok_or_else(|| "the server has closed the connection".into())
    }

    /// Answers a callback; returns the delegations that it recalls.
    pub(super) fn answer_callback(&self, record: Bytes) -> Result<VecDeque<(Handle, Stateid)>, String> {
        let recalls = Recalls::default();
        let reply = self.session.answer_callback(record, &recalls).ok_or("a record that is no callback")?;
        self.engine.send_reply(self.connection, vec![reply]);
        recalls.0.into_inner()
    }
}

/// Collects recalls.
struct Recalls(RefCell<Result<VecDeque<(Handle, Stateid)>, String>>);

impl Default for Recalls {
    fn default() -> Self {
        Self(RefCell::new(Ok(VecDeque::new())))
    }
}

impl CallbackHandler for Recalls {
    fn execute(&self, op: &CbOp) -> CbOpResult {
        match (op, &mut *self.0.borrow_mut()) {
            (CbOp::Recall(recall), Ok(recalled)) => {
                recalled.push_back((recall.handle, recall.stateid));
                CbOpResult::Recall(Ok(()).into())
            }
            (other, outcome) => {
                *outcome = Err(format!("a callback that is not a recall: {other:?}"));
                CbOpResult::Illegal(Err(Status::OP_ILLEGAL).into())
            }
        }
    }
}

/// This process owns the files, and the server is configured not to squash.
fn own_user() -> Caller {
    Caller::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"enfys-bench"),
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        gids: GroupList::default(),
    })
}
