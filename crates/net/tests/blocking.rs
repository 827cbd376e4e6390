//! The blocking interface of the client's library, over real loopback sockets.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use client::config::{Caller, Config, Version};
use client::errno::Errno;
use client::error::Fault;
use client::fs::OpenOptions;
use client::locks::{LockKind, LockOwner, LockRange};
use client::results::OpenMode;
use net::blocking::Connection;
use net::transport::Route;
use net::{Limits, Listeners, Running, serve};
use rpc::auth::{AuthSys, GroupList};
use server::{Export, ExportId, ExportOptions, ExportTable, HandleKey, Server, Settings, Squash};
use vfs::{MemFs, MemOptions};
use xdr::Opaque;

struct TestServer {
    port: u16,
    server: Arc<Server>,
    running: Option<Running>,
}

fn start() -> TestServer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let options = ExportOptions { squash: Squash::None, insecure: true, ..ExportOptions::default() };
    let backend = Arc::new(MemFs::new(&MemOptions::default()));
    let (id, path) = (ExportId(1), "/export".into());
    let export = Export { id, path, backend, options, fsid: (7, 0), counts: Arc::default() };
    let settings = Settings::new(HandleKey([9; 16]), 1, [3; 16], b"test".to_vec());
    let server = Arc::new(Server::new(settings, ExportTable::new(vec![export]).unwrap()));
    let listeners = Listeners { tcp: vec![listener], udp: vec![] };
    let limits = Limits { cores: 1, ..Limits::default() };
    let running = serve(Arc::clone(&server), listeners, limits, None, None).unwrap();
    TestServer { port, server, running: Some(running) }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shut_down();
        }
    }
}

fn root() -> Caller {
    let (machine_name, gids) = (Opaque::from_static(b"test"), GroupList::default());
    Caller::sys(&AuthSys { stamp: 0, machine_name, uid: 0, gid: 0, gids })
}

fn connect(
    port: u16,
    name: &'static [u8],
    version: Option<Version>,
) -> Result<Connection, client::error::Error> {
    let addresses = vec![Ipv4Addr::LOCALHOST.into()];
    let route = Route { addresses, reserved_port: false, record_max: 2 << 20 };
    let config = Config::new("127.0.0.1", name, [1; 8], root());
    Connection::open(route, Config { port, mount_port: Some(port), version, ..config })
}

#[test]
fn files_are_written_read_and_removed_by_any_thread() {
    for version in [Version::V42, Version::V3] {
        let server = start();
        let connection = connect(server.port, b"one", Some(version)).unwrap();
        let fs = connection.mount(root(), b"/export").unwrap();
        fs.create_dir(b"dir", 0o755).unwrap();
        std::thread::scope(|scope| {
            for number in 0..8u8 {
                let fs = &fs;
                scope.spawn(move || {
                    let path = format!("dir/{number}").into_bytes();
                    fs.write(&path, vec![number; 100_000]).unwrap();
                    assert_eq!(fs.read(&path).unwrap(), vec![number; 100_000]);
                });
            }
        });
        assert_eq!(fs.read_dir(b"dir").unwrap().len(), 8);
        let error = fs.remove_dir(b"dir").unwrap_err();
        assert_eq!((error.errno(), error.fault()), (Errno::ENOTEMPTY, Fault::Caller));
        connection.close().unwrap();
        assert_eq!(server.server.counts().clients, 0);
    }
}

#[test]
fn a_thread_waits_for_the_lock_of_another_client() {
    let server = start();
    let (one, two) =
        (connect(server.port, b"one", None).unwrap(), connect(server.port, b"two", None).unwrap());
    let open = |connection: &Connection| {
        let options = OpenOptions { mode: OpenMode::BOTH, truncate: false, ..OpenOptions::CREATE };
        connection.mount(root(), b"/export").unwrap().open(b"file", &options).unwrap()
    };
    let (first, second) = (open(&one), open(&two));
    let (owner, whole) = (LockOwner::Process(1), LockRange::WHOLE);
    first.lock(owner, whole, LockKind::Exclusive).unwrap();
    assert_eq!(second.try_lock(owner, whole, LockKind::Shared).unwrap_err().errno(), Errno::EAGAIN);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| second.lock(owner, whole, LockKind::Exclusive));
        first.write_at(0, "under the lock").unwrap();
        first.unlock(owner, whole).unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(second.inner().opened_attributes().size, 0);
    assert_eq!(second.read_at(0, 100).unwrap(), b"under the lock");
    first.close().unwrap();
    second.close().unwrap();
    one.close().unwrap();
    two.close().unwrap();
}

#[test]
fn a_server_that_does_not_listen_is_an_error() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    assert_eq!(connect(port, b"one", None).err().unwrap().fault(), Fault::Network);
}
