//! A server with one file, and a connection to it.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::{Identity, Read, Session, SessionError};
use futures_util::FutureExt;
use protocol::nfs4::types::{Handle, Stateid};
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
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

pub(crate) fn user() -> OpaqueAuth {
    OpaqueAuth::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"destination"),
        uid: 1000,
        gid: 1000,
        gids: GroupList::default(),
    })
}

pub(crate) fn session() -> Session {
    let owner = Opaque::from_static(b"destination");
    Session::new(Identity { owner, verifier: [1; 8], credential: user() }, 77)
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

    /// Exchanges records until the session has none to send.
    pub(crate) fn exchange(&self, session: &mut Session) -> Result<(), SessionError> {
        while let Some(record) = session.poll_record() {
            session.handle_record(self.reply(record))?;
        }
        Ok(())
    }

    pub(crate) fn ready(&self) -> Session {
        let mut session = session();
        self.exchange(&mut session).unwrap();
        assert!(session.can_call());
        session
    }

    pub(crate) fn read(&self, offset: u64, count: u32) -> Read {
        Read { handle: self.file, stateid: Stateid::ANONYMOUS, offset, count, wants_size: true }
    }
}
