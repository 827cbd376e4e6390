//! A server with one file, and a connection to it.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use client::config::{Caller, Config, Version};
use client::engine::{Clock, Engine};
use client::error::OpError;
use client::raw::RawSession;
use client::{Read, Reader};
use futures_util::FutureExt;
use futures_util::task::noop_waker_ref;
use protocol::nfs4::ops::session::CreateSessionFlags;
use protocol::nfs4::types::{Handle, Stateid};
use rpc::auth::{AuthSys, GroupList};
use server::{
    Connection, ConnectionId, Disposition, Export, ExportId, ExportOptions, ExportTable, HandleKey, Now,
    Server, Settings, Transport,
};
use vfs::{
    Authority, Backend, Context, Create, CreateMode, Credentials, MemFs, MemOptions, SetAttributes,
    Stability, Timestamp,
};
use xdr::{Opaque, Writer};

const KEY: HandleKey = HandleKey([5; 16]);
const NOW: Now =
    Now { monotonic: Duration::from_secs(1), wall: Timestamp { seconds: 1_000_000, nanoseconds: 0 } };
pub(crate) const CONTENT: &[u8] = b"what another server holds";

/// A server with one world-readable file, and a connection to it.
pub(crate) struct World {
    pub(crate) server: Server,
    connection: Arc<Connection>,
    backend: Arc<MemFs>,
    inner: vfs::Handle,
    pub(crate) file: Handle,
}

pub(crate) fn world(change: impl FnOnce(&mut Settings)) -> World {
    let mut settings = Settings::new(KEY, 1, [3; 16], b"source".to_vec());
    change(&mut settings);
    let backend = Arc::new(MemFs::new(&MemOptions::default()));
    let inner = make_file(&backend);
    let id = ExportId(1);
    let options = ExportOptions::default();
    let exported = Arc::clone(&backend);
    let export = Export {
        id,
        path: "/export".into(),
        backend: exported,
        options,
        fsid: (1, 0),
        counts: Arc::default(),
    };
    let server = Server::new(settings, ExportTable::new(vec![export]).unwrap());
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let connection = Connection::new(ConnectionId(1), address(700), address(2049), Transport::Tcp, false);
    let file = Handle::new(&KEY.seal(id, &inner)).unwrap();
    World { server, connection: Arc::new(connection), backend, inner, file }
}

fn context() -> Context {
    Context::new(Arc::new(Credentials::root()), NOW.wall)
}

fn make_file(backend: &MemFs) -> vfs::Handle {
    let context = context();
    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let what = Create::File(CreateMode::Guarded);
    let made = backend.create(&context, &backend.root(), b"file", &what, &set).now().unwrap();
    let content = Bytes::from_static(CONTENT);
    let write = backend.write(&context, &made.handle, 0, &content, Stability::FileSync, Authority::Opened);
    assert_eq!(write.now().unwrap().count as usize, CONTENT.len());
    made.handle
}

pub(crate) fn user() -> Caller {
    Caller::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"destination"),
        uid: 1000,
        gid: 1000,
        gids: GroupList::default(),
    })
}

impl World {
    /// Returns the server's reply to one record.
    pub(crate) fn reply(&self, record: Bytes) -> Bytes {
        let mut reply = Writer::new();
        let done = self.server.handle(&self.connection, NOW, record, &mut reply).now_or_never();
        assert_eq!(done.expect("MemFs never waits").disposition, Disposition::Reply);
        reply.into_bytes()
    }

    /// Writes one byte of the file at `offset`.
    pub(crate) fn write(&self, offset: u64) {
        let (context, byte) = (context(), Bytes::from_static(b"x"));
        let (stability, authority) = (Stability::FileSync, Authority::Opened);
        let write = self.backend.write(&context, &self.inner, offset, &byte, stability, authority);
        assert_eq!(write.now().unwrap().count, 1);
    }

    pub(crate) fn read(&self, offset: u64, count: u32) -> Read {
        Read { handle: self.file, stateid: Stateid::ANONYMOUS, offset, count, wants_size: true }
    }
}

/// A connection of a client's engine to the server of a [`World`], in virtual time.
pub(crate) struct Wire<'a> {
    world: &'a World,
    clock: Arc<ManualClock>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) connection: client::engine::ConnectionId,
}

/// The time in milliseconds.
#[derive(Default)]
pub(crate) struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

impl<'a> Wire<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        let clock = Arc::new(ManualClock::default());
        let engine = Arc::new(Engine::new(Arc::clone(&clock) as Arc<dyn Clock>, 77));
        let connection = engine.open_connection(2049, Reader::policy()).unwrap();
        engine.handle_connected(connection);
        Self { world, clock, engine, connection }
    }

    /// Lets time pass.
    pub(crate) fn advance(&self, time: Duration) {
        self.clock.0.fetch_add(time.as_millis() as u64, Ordering::Relaxed);
        if self.engine.deadline().is_some_and(|deadline| deadline <= self.engine.now()) {
            self.engine.handle_timeout();
        }
    }

    /// Returns the requests to send, and handles none.
    pub(crate) fn requests(&self) -> Vec<Bytes> {
        let mut context = std::task::Context::from_waker(noop_waker_ref());
        let next = || match self.engine.poll_record(self.connection, &mut context) {
            Poll::Ready(Some(record)) => Some(record.concat().into()),
            _ => None,
        };
        std::iter::from_fn(next).collect()
    }

    /// Delivers a reply, or what takes its place.
    pub(crate) fn deliver(&self, reply: Bytes) {
        self.engine.handle_bytes(self.connection);
        assert!(self.engine.handle_record(self.connection, reply));
    }

    /// Has the server answer what is sent, until there is nothing more.
    pub(crate) fn exchange<F: Future + Unpin>(&self, work: &mut F) -> Option<F::Output> {
        loop {
            if let Some(done) = poll(work) {
                return Some(done);
            }
            let requests = self.requests();
            if requests.is_empty() {
                return None;
            }
            for request in requests {
                self.deliver(self.world.reply(request));
            }
        }
    }

    /// Runs `work` with a server that answers.
    pub(crate) fn run<F: Future>(&self, work: F) -> F::Output {
        self.exchange(&mut Box::pin(work)).expect("the server answers everything")
    }

    /// Makes a session of version 4.2.
    pub(crate) fn session(&self, verifier: u8) -> Result<RawSession, OpError> {
        let config = Config {
            version: Some(Version::V42),
            slots: 16,
            ..Config::new("the server", b"destination", [verifier; 8], user())
        };
        let (engine, flags) = (Arc::clone(&self.engine), CreateSessionFlags::empty());
        self.run(RawSession::open(engine, self.connection, Arc::new(config), flags))
    }
}

/// Polls a future once.
pub(crate) fn poll<F: Future + Unpin>(work: &mut F) -> Option<F::Output> {
    match Pin::new(work).poll(&mut std::task::Context::from_waker(noop_waker_ref())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}
