//! The client's library against this project's server, over real loopback sockets.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use client::attributes::{FileKind, SetAttributes};
use client::config::{Caches, CallbackAddress, Caller, Config, Version};
use client::engine::{Engine, RetryPolicy};
use client::errno::Errno;
use client::error::{Fault, OpError};
use client::fs::{FileSystem, OpenOptions};
use client::url::Transport;
use net::transport::{Route, SystemClock, run_transport};
use net::{Limits, Listeners, Running, serve};
use protocol::nfs4::types::Status;
use rpc::auth::{AuthSys, GroupList};
use server::{Export, ExportId, ExportOptions, ExportTable, HandleKey, Server, Settings, Squash, Versions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use vfs::{MemFs, MemOptions};
use xdr::Opaque;

struct TestServer {
    address: SocketAddr,
    server: Arc<Server>,
    running: Option<Running>,
}

fn start() -> TestServer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    start_with(Arc::new(MemFs::new(&MemOptions::default())), 1, listener)
}

/// Starts a server with this content, as the `instance`th of its kind.
fn start_with(backend: Arc<MemFs>, instance: u64, listener: TcpListener) -> TestServer {
    let options = ExportOptions { squash: Squash::None, insecure: true, ..ExportOptions::default() };
    let export = Export {
        id: ExportId(1),
        path: "/export".into(),
        backend,
        options,
        fsid: (7, 0),
        counts: Arc::default(),
    };
    let mut settings = Settings::new(HandleKey([9; 16]), instance, [3; 16], b"test".to_vec());
    settings.versions = Versions::IMPLEMENTED;
    settings.udp = true;
    let server = Arc::new(Server::new(settings, ExportTable::new(vec![export]).unwrap()));
    let address = listener.local_addr().unwrap();
    let limits = Limits { cores: 1, ..Limits::default() };
    let udp = UdpSocket::bind(address).expect("a port that only the listener has");
    let listeners = Listeners { tcp: vec![listener], udp: vec![udp] };
    let running = serve(Arc::clone(&server), listeners, limits, None, None);
    TestServer { address, server, running: Some(running.unwrap()) }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shut_down();
        }
    }
}

fn root() -> Caller {
    let gids = GroupList::default();
    Caller::sys(&AuthSys { stamp: 0, machine_name: Opaque::from_static(b"test"), uid: 0, gid: 0, gids })
}

fn config(port: u16, version: Option<Version>) -> Config {
    Config {
        port,
        mount_port: Some(port),
        version,
        slots: 64,
        ..Config::new("127.0.0.1", b"library test", [1; 8], root())
    }
}

/// Runs `work` with a client, and closes the client.
fn with_client<F: Future<Output = ()>>(config: Config, work: impl FnOnce(Client) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let engine = Arc::new(Engine::new(Arc::new(SystemClock::default()), 1));
        let addresses = vec![Ipv4Addr::LOCALHOST.into()];
        let route = Route { addresses, reserved_port: true, record_max: 2 << 20 };
        let transport = tokio::task::spawn_local(run_transport(Arc::clone(&engine), route));
        let client = Client::connect(engine, config).await.unwrap();
        let keeper = tokio::task::spawn_local({
            let client = client.clone();
            async move { client.run().await }
        });
        work(client.clone()).await;
        // Some tests close the client themselves.
        if !client.engine().is_shut_down() {
            client.close().await.unwrap();
        }
        keeper.await.unwrap();
        transport.await.unwrap();
    });
}

#[test]
fn files_and_directories_are_made_listed_read_renamed_and_removed() {
    for version in [Some(Version::V42), Some(Version::V41), Some(Version::V3), Some(Version::V2), None] {
        let server = start();
        with_client(config(server.address.port(), version), async |client| {
            assert_eq!(client.version(), version.unwrap_or(Version::V42));
            let (fs, name) = FileSystem::mount(client, root(), b"/export").await.unwrap();
            assert_eq!(name, None);
            exercise(&fs).await;
        });
        let counts = server.server.counts();
        assert_eq!((counts.clients, counts.sessions), (0, 0), "the client has left");
    }
}

#[test]
fn files_and_directories_are_used_over_datagrams() {
    let retry = RetryPolicy { timeout: Duration::from_millis(1100), ..RetryPolicy::default() };
    for version in [Version::V2, Version::V3] {
        let server = start();
        let config = Config {
            transport: Transport::Udp,
            mount_transport: Transport::Udp,
            retry,
            ..config(server.address.port(), Some(version))
        };
        with_client(config, async |client| {
            let (fs, _) = FileSystem::mount(client, root(), b"/export").await.unwrap();
            exercise(&fs).await;
        });
    }
}

#[test]
fn a_port_without_a_server_is_an_error_at_once_over_datagrams() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    is_refused(Config { transport: Transport::Udp, ..config(port, Some(Version::V3)) });
}

/// Checks that connecting fails because no server listens.
fn is_refused(config: Config) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let engine = Arc::new(Engine::new(Arc::new(SystemClock::default()), 1));
        let addresses = vec![Ipv4Addr::LOCALHOST.into()];
        let route = Route { addresses, reserved_port: false, record_max: 2 << 20 };
        let transport = tokio::task::spawn_local(run_transport(Arc::clone(&engine), route));
        let error = Client::connect(Arc::clone(&engine), config).await.err().unwrap();
        assert_eq!(error.fault(), Fault::Network);
        assert!(error.to_string().contains("Connection refused"), "{error}");
        engine.shut_down();
        transport.await.unwrap();
    });
}

async fn exercise(fs: &FileSystem) {
    fs.mkdir(b"dir", 0o755).await.unwrap();
    let content = Bytes::from((0..3_000_000u32).map(|at| (at % 251) as u8).collect::<Vec<_>>());
    let file = fs.open(b"dir/file", &OpenOptions::CREATE).await.unwrap();
    file.write_at(0, content.clone()).await.unwrap();
    file.close().await.unwrap();
    assert_eq!(fs.stat(b"/dir/./file").await.unwrap().size, 3_000_000);
    let file = fs.open(b"dir/../dir/file", &OpenOptions::READ).await.unwrap();
    let parts = file.read_at(0, 5_000_000).await.unwrap();
    assert!(parts.concat() == content, "the read data are the written data");
    file.close().await.unwrap();

    fs.symlink(b"file", b"dir/link").await.unwrap();
    assert_eq!(&fs.read_link(b"dir/link").await.unwrap()[..], b"file");
    assert_eq!(fs.stat(b"dir/link").await.unwrap().kind, FileKind::Regular);
    assert_eq!(fs.lstat(b"dir/link").await.unwrap().kind, FileKind::Symlink);
    let linked = fs.open(b"dir/link", &OpenOptions::READ).await.unwrap();
    assert_eq!(linked.stat().await.unwrap().size, 3_000_000);
    linked.close().await.unwrap();

    fs.link(b"dir/file", b"dir/hard").await.unwrap();
    fs.rename(b"dir/hard", b"moved").await.unwrap();
    assert_eq!(fs.stat(b"moved").await.unwrap().nlink, 2);
    let set = SetAttributes { mode: Some(0o600), size: Some(7), ..SetAttributes::default() };
    let changed = fs.set_attributes(b"moved", &set, true).await.unwrap();
    assert_eq!((changed.mode, changed.size), (0o600, 7));
    let mut names: Vec<_> =
        fs.read_dir(b"dir", true).await.unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    assert_eq!(names, [&b"file"[..], b"link"]);

    let error = fs.rmdir(b"dir").await.unwrap_err();
    assert_eq!((error.errno(), error.fault()), (Errno::ENOTEMPTY, Fault::Caller));
    assert_eq!(error.to_string(), "remove directory dir on 127.0.0.1: Directory not empty (NOTEMPTY)");
    assert_eq!(fs.stat(b"dir/none/x").await.unwrap_err().errno(), Errno::ENOENT);
    assert_eq!(fs.stat(b"moved/x").await.unwrap_err().errno(), Errno::ENOTDIR);
    assert_eq!(fs.unlink(b"dir").await.unwrap_err().errno(), Errno::EISDIR);
    for path in [&b"dir/file"[..], b"dir/link", b"moved"] {
        fs.unlink(path).await.unwrap();
    }
    fs.rmdir(b"dir").await.unwrap();
    assert!(fs.read_dir(b"", false).await.unwrap().is_empty());
    assert!(fs.stat_fs(b"").await.unwrap().total_bytes > 0);
}

#[test]
fn a_listing_of_many_names_is_whole() {
    let server = start();
    with_client(config(server.address.port(), None), async |client| {
        let (fs, _) = FileSystem::mount(client, root(), b"/export").await.unwrap();
        let names: Vec<String> =
            (0..3000).map(|number| format!("a long name of a directory {number}")).collect();
        let made = names.iter().map(|name| fs.mkdir(name.as_bytes(), 0o700));
        for outcome in futures_util::future::join_all(made).await {
            outcome.unwrap();
        }
        let listed: std::collections::HashSet<Bytes> =
            fs.read_dir(b"", true).await.unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(listed, names.into_iter().map(Bytes::from).collect());
    });
}

#[test]
fn an_unreachable_server_is_an_error_at_once() {
    // No server listens at a port that was free just before.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    is_refused(config(port, None));
}

/// A server that sends a record without end on every connection; counts the bytes that each connection takes.
fn send_endless_records(listener: &TcpListener, taken: &std::sync::Mutex<Vec<usize>>) {
    for connection in listener.incoming() {
        let Ok(mut connection) = connection else { return };
        // Fragments of 64 KiB, none of them the last one (RFC 5531 §11).
        let mut fragment = vec![0x55; 4 + (64 << 10)];
        fragment[..4].copy_from_slice(&(64_u32 << 10).to_be_bytes());
        let mut bytes = 0;
        while bytes < 1 << 30 && std::io::Write::write_all(&mut connection, &fragment).is_ok() {
            bytes += fragment.len();
        }
        taken.lock().unwrap().push(bytes);
    }
}

#[test]
fn records_without_end_are_an_error_and_take_little_memory() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken = Arc::new(std::sync::Mutex::new(Vec::new()));
    let counts = Arc::clone(&taken);
    std::thread::spawn(move || send_endless_records(&listener, &counts));
    for version in [Version::V3, Version::V40, Version::V42] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let engine = Arc::new(Engine::new(Arc::new(SystemClock::default()), 1));
            let addresses = vec![Ipv4Addr::LOCALHOST.into()];
            let route = Route { addresses, reserved_port: false, record_max: 2 << 20 };
            let transport = tokio::task::spawn_local(run_transport(Arc::clone(&engine), route));
            let retry = RetryPolicy { timeout: Duration::from_secs(20), retries: Some(1), fails_fast: true };
            let soft = Config { retry, ..config(port, Some(version)) };
            let error = Client::connect(Arc::clone(&engine), soft).await.err().unwrap();
            assert_eq!(error.fault(), Fault::Network, "{error}");
            assert!(error.to_string().contains("closes each connection without a reply"), "{error}");
            engine.shut_down();
            transport.await.unwrap();
        });
    }
    let taken = taken.lock().unwrap();
    assert!(taken.len() >= 3, "{taken:?}");
    // A record of the maximum, and the buffers of two sockets.
    assert!(taken.iter().all(|bytes| *bytes < 32 << 20), "{taken:?}");
}

#[test]
fn many_files_take_few_requests() {
    work_on_many_files(None, (100, 100));
}

/// Version 4.0 cannot open and write a file in one compound, and confirms new owners of opens once.
/// The data of each WRITE begin in the first 4 KiB of a request: some five files of half a KiB share one.
#[test]
fn many_files_take_few_requests_in_version_4_0() {
    work_on_many_files(Some(Version::V40), (300, 100));
}

/// Version 3 has no compounds: CREATE and WRITE, or READ, of all files together.
#[test]
fn a_file_is_written_in_two_requests_and_read_in_one_in_version_3() {
    let files = MANY_FILES as u64;
    work_on_many_files(Some(Version::V3), (2 * files + 1, files + 1));
}

const MANY_FILES: usize = 1000;

/// Writes, reads and removes files; writing and reading take fewer requests than these.
fn work_on_many_files(version: Option<Version>, limits: (u64, u64)) {
    use client::many::{NewDirectory, NewFile, ReadFile};
    const FILES: usize = MANY_FILES;
    let server = start();
    with_client(config(server.address.port(), version), async |client| {
        let (fs, _) = FileSystem::mount(client.clone(), root(), b"/export").await.unwrap();
        let (caller, top) = (root(), fs.root().handle);
        let directory = NewDirectory { parent: top, name: b"many", mode: 0o755 };
        let made = client.create_directories(&caller, &[directory]).await.remove(0).unwrap();
        let names: Vec<Vec<u8>> = (0..FILES).map(|number| format!("file {number}").into_bytes()).collect();
        let content = |at: usize| Bytes::from(format!("content of file {at}").repeat(at % 50));
        let files: Vec<NewFile<'_>> = names
            .iter()
            .enumerate()
            .map(|(at, name)| NewFile {
                directory: made.handle,
                name,
                mode: 0o640,
                data: content(at),
                set: SetAttributes::default(),
            })
            .collect();
        let before = client.engine().requests_sent();
        let mut handles = Vec::new();
        for outcome in client.write_many(&caller, &files).await {
            let object = outcome.unwrap();
            assert_eq!(object.attributes.mode, 0o640);
            handles.push(object.handle);
        }
        let written = client.engine().requests_sent();
        let read = |(name, handle): (_, &_)| ReadFile {
            directory: made.handle,
            name,
            handle: Some(*handle),
            without_open: false,
            count: 4096,
        };
        let reads: Vec<ReadFile<'_>> = names.iter().map(|name| &name[..]).zip(&handles).map(read).collect();
        for (at, outcome) in client.read_many(&caller, &reads).await.into_iter().enumerate() {
            let whole = outcome.unwrap();
            assert!(whole.is_whole && whole.data == content(at), "file {at}");
        }
        let read = client.engine().requests_sent();
        let (writes, reads) = (written - before, read - written);
        assert!(
            writes < limits.0 && reads < limits.1,
            "{FILES} files: {writes} requests to write, {reads} to read"
        );
        let targets: Vec<_> = names.iter().map(|name| (made.handle, &name[..])).collect();
        let mut walked = 0;
        let mut walk = fs.walk(fs.root(), usize::MAX);
        while let Some(listed) = walk.next().await {
            walked += listed.unwrap().entries.len();
        }
        assert_eq!(walked, FILES + 1);
        // Existing files are truncated and overwritten.
        for outcome in client.write_many(&caller, &files[..10]).await {
            assert_eq!(outcome.unwrap().attributes.mode, 0o640);
        }
        // One name is missing: it alone fails.
        fs.unlink(b"many/file 500").await.unwrap();
        for (at, outcome) in client.remove_many(&caller, &targets, false).await.into_iter().enumerate() {
            assert_eq!(outcome.is_err(), at == 500, "file {at}: {outcome:?}");
        }
        fs.rmdir(b"many").await.unwrap();
    });
    assert_eq!(server.server.counts().opens, 0);
}

#[test]
fn a_walk_takes_a_request_for_each_directory() {
    for version in [None, Some(Version::V3)] {
        assert_eq!(walk_requests(version), 1 + 1 + 100);
    }
}

/// Returns the number of requests of a walk over a hundred directories two levels below the root.
fn walk_requests(version: Option<Version>) -> u64 {
    use client::many::NewDirectory;
    let (server, mut requests) = (start(), 0);
    with_client(config(server.address.port(), version), async |client| {
        let (fs, _) = FileSystem::mount(client.clone(), root(), b"/export").await.unwrap();
        let parent = fs.mkdir(b"above", 0o755).await.unwrap().handle;
        let names: Vec<Vec<u8>> = (0..100).map(|number| format!("{number}").into_bytes()).collect();
        let new = |name| NewDirectory { parent, name, mode: 0o755 };
        let new: Vec<NewDirectory<'_>> = names.iter().map(|name| new(name)).collect();
        for made in client.create_directories(&root(), &new).await {
            made.unwrap();
        }
        let before = client.engine().requests_sent();
        let (mut walk, mut listed) = (fs.walk(fs.root(), usize::MAX), 0);
        while let Some(directory) = walk.next().await {
            directory.unwrap();
            listed += 1;
        }
        assert_eq!(listed, 102);
        requests = client.engine().requests_sent() - before;
    });
    requests
}

#[test]
fn many_missing_names_take_few_round_trips() {
    let server = start();
    with_client(config(server.address.port(), None), async |client| {
        let (fs, _) = FileSystem::mount(client.clone(), root(), b"/export").await.unwrap();
        fs.mkdir(b"there", 0o755).await.unwrap();
        let names: Vec<Vec<u8>> = (0..500).map(|number| format!("missing {number}").into_bytes()).collect();
        let mut targets: Vec<_> = names.iter().map(|name| (fs.root().handle, &name[..])).collect();
        targets.push((fs.root().handle, b"there"));
        let found = client.stat_many(&root(), &targets).await;
        assert!(found[..500].iter().all(|found| found == &Err(OpError::Status(Status::NOENT))));
        assert_eq!(found[500].as_ref().unwrap().attributes.kind, FileKind::Directory);
    });
}

#[test]
fn large_directories_of_a_walk_are_listed_whole() {
    use client::many::NewFile;
    for version in [None, Some(Version::V3)] {
        let server = start();
        with_client(config(server.address.port(), version), async |client| {
            let (fs, _) = FileSystem::mount(client.clone(), root(), b"/export").await.unwrap();
            let names: Vec<Vec<u8>> = (0..1500).map(|number| format!("{number}").into_bytes()).collect();
            for number in 0..40 {
                let directory = fs.mkdir(format!("d{number}").as_bytes(), 0o755).await.unwrap().handle;
                // Two of them have more entries than their part of a reply.
                let count = if number % 20 == 0 { 1500 } else { 1 };
                let (data, set) = (Bytes::new(), SetAttributes::default());
                let new = |name| NewFile { directory, name, mode: 0o644, data: data.clone(), set };
                let files: Vec<NewFile<'_>> = names[..count].iter().map(|name| new(name)).collect();
                assert!(client.write_many(&root(), &files).await.iter().all(Result::is_ok));
            }
            let (mut walk, mut entries) = (fs.walk(fs.root(), usize::MAX), 0);
            while let Some(directory) = walk.next().await {
                entries += directory.unwrap().entries.len();
            }
            assert_eq!(entries, 40 + 38 + 2 * 1500);
        });
    }
}

#[test]
fn an_open_file_survives_a_restart_of_the_server() {
    let backend = Arc::new(MemFs::new(&MemOptions::default()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let first = start_with(Arc::clone(&backend), 1, listener);
    let address = first.address;
    // With a delegation, the server would know an open after the last close.
    let mut config = config(address.port(), None);
    config.caches.delegations = false;
    with_client(config, async |client| {
        let (fs, _) = FileSystem::mount(client.clone(), root(), b"/export").await.unwrap();
        let file = fs.open(b"file", &OpenOptions::CREATE).await.unwrap();
        file.write_at(0, Bytes::from_static(b"before ")).await.unwrap();
        file.sync().await.unwrap();
        drop(first);
        // A request that no server answers waits for the next one.
        let write = file.write_at(7, Bytes::from_static(b"and after"));
        let restart = async {
            let listener = TcpListener::bind(address).unwrap();
            start_with(Arc::clone(&backend), 2, listener)
        };
        let (written, second) = futures_util::future::join(write, restart).await;
        written.unwrap();
        file.close().await.unwrap();
        let file = fs.open(b"file", &OpenOptions::READ).await.unwrap();
        assert_eq!(file.read_at(0, 100).await.unwrap().concat(), b"before and after");
        file.close().await.unwrap();
        assert_eq!(second.server.counts().opens, 0, "the earlier open was replaced and closed");
        client.close().await.unwrap();
        drop(second);
    });
}

#[test]
fn a_walk_leaves_slots_for_its_consumer() {
    let server = start();
    with_client(Config { slots: 2, ..config(server.address.port(), None) }, async |client| {
        let (fs, _) = FileSystem::mount(client, root(), b"/export").await.unwrap();
        for number in 0..20 {
            fs.mkdir(format!("directory {number}").as_bytes(), 0o755).await.unwrap();
        }
        let (mut walk, mut listed) = (fs.walk(fs.root(), usize::MAX), 0);
        while let Some(directory) = walk.next().await {
            let path = directory.unwrap().path;
            assert_eq!(fs.stat(&path).await.unwrap().kind, FileKind::Directory);
            listed += 1;
        }
        assert_eq!(listed, 21);
    });
}

#[test]
fn sizes_of_many_files_are_set_without_an_open() {
    let server = start();
    with_client(config(server.address.port(), None), async |client| {
        let (fs, _) = FileSystem::mount(client.clone(), root(), b"/export").await.unwrap();
        let mut objects = Vec::new();
        for number in 0..5 {
            let file = fs.open(format!("file {number}").as_bytes(), &OpenOptions::CREATE).await.unwrap();
            objects.push((
                file.object().handle,
                SetAttributes { size: Some(number), ..SetAttributes::default() },
            ));
            file.close().await.unwrap();
        }
        for (outcome, (_, set)) in
            client.set_attributes_many(&root(), &objects).await.into_iter().zip(&objects)
        {
            assert_eq!(Some(outcome.unwrap().size), set.size);
        }
    });
}

/// Opens and closes a file until the server delegates it: it first tries to call the client, and then an owner must be confirmed.
async fn open_until_delegated(client: &Client, fs: &FileSystem) {
    for _ in 0..500 {
        let file = fs.open(b"file", &OpenOptions::READ).await.unwrap();
        file.close().await.unwrap();
        if client.delegation_counts().held > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the server delegates nothing");
}

/// Writes a file as another client.
async fn write_elsewhere(port: u16, owner: &'static [u8], text: &'static [u8]) {
    let write = move || {
        let config = Config { owner: Bytes::from_static(owner), ..config(port, Some(Version::V42)) };
        with_client(config, async |client| {
            let (fs, _) = FileSystem::mount(client, root(), b"/export").await.unwrap();
            let file = fs.open(b"file", &OpenOptions::CREATE).await.unwrap();
            file.write_at(0, Bytes::from_static(text)).await.unwrap();
            file.close().await.unwrap();
        });
    };
    tokio::task::spawn_blocking(write).await.unwrap();
}

fn delegating(port: u16, callbacks: CallbackAddress) -> Config {
    let caches = Caches { delegations: true, ..Caches::default() };
    Config { callbacks, caches, ..config(port, Some(Version::V40)) }
}

#[test]
fn the_server_calls_a_client_of_version_4_0_at_a_port_of_its_own() {
    let server = start();
    let port = server.address.port();
    with_client(
        delegating(port, CallbackAddress { accepts: true, ..CallbackAddress::default() }),
        async |client| {
            write_elsewhere(port, b"first", b"first").await;
            let (fs, _) = FileSystem::mount(client.clone(), root(), b"/export").await.unwrap();
            open_until_delegated(&client, &fs).await;
            let (file, before) =
                (fs.open(b"file", &OpenOptions::READ).await.unwrap(), client.engine().requests_sent());
            assert_eq!(file.read_at(0, 5).await.unwrap().concat(), b"first");
            let read = client.engine().requests_sent() - before;
            let again = fs.open(b"file", &OpenOptions::READ).await.unwrap();
            assert_eq!(again.read_at(0, 5).await.unwrap().concat(), b"first");
            again.close().await.unwrap();
            assert!(
                read <= 1 && client.engine().requests_sent() == before + read,
                "opens and reads are local"
            );
            write_elsewhere(port, b"second", b"other").await;
            assert_eq!(client.delegation_counts().recalled, 1);
            file.close().await.unwrap();
            let file = fs.open(b"file", &OpenOptions::READ).await.unwrap();
            assert_eq!(file.read_at(0, 5).await.unwrap().concat(), b"other");
            file.close().await.unwrap();
        },
    );
    assert_eq!((server.server.counts().opens, server.server.counts().delegations), (0, 0));
}

#[test]
fn without_a_callback_address_nothing_is_delegated_and_all_else_works() {
    let server = start();
    let port = server.address.port();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let not_asked = CallbackAddress::default();
    let nowhere = Some(Ipv4Addr::UNSPECIFIED.into());
    let any = CallbackAddress { accepts: true, address: nowhere, port: None };
    let in_use = taken.local_addr().unwrap().port();
    let in_use = CallbackAddress { accepts: true, address: None, port: Some(in_use) };
    for (callbacks, text) in [(any, b"one"), (in_use, b"two"), (not_asked, b"six")] {
        with_client(delegating(port, callbacks), async |client| {
            let (fs, _) = FileSystem::mount(client.clone(), root(), b"/export").await.unwrap();
            for _ in 0..3 {
                let file = fs.open(b"file", &OpenOptions::CREATE).await.unwrap();
                file.write_at(0, Bytes::from_static(text)).await.unwrap();
                file.close().await.unwrap();
            }
            assert_eq!(client.delegation_counts().granted, 0);
        });
    }
}

#[test]
fn strangers_garbage_and_a_flood_of_connections_do_not_disturb_callbacks() {
    let server = start();
    let port = server.address.port();
    // Free a moment ago.
    let own = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let callbacks = CallbackAddress { accepts: true, address: None, port: Some(own) };
    with_client(delegating(port, callbacks), async |client| {
        write_elsewhere(port, b"first", b"first").await;
        let (fs, _) = FileSystem::mount(client.clone(), root(), b"/export").await.unwrap();
        open_until_delegated(&client, &fs).await;
        let mut held = Vec::new();
        for number in 0..100_u32 {
            let socket = TcpSocket::new_v4().unwrap();
            let is_stranger = number % 10 == 0;
            let from = if is_stranger { [127, 0, 0, 2] } else { [127, 0, 0, 1] };
            socket.bind(SocketAddr::from((from, 0))).unwrap();
            let mut stream = socket.connect(SocketAddr::from(([127, 0, 0, 1], own))).await.unwrap();
            match number % 4 {
                // A fragment that has no end, and one that is too long.
                0 => stream.write_all(&[0, 0, 0, 0].repeat(100)).await.unwrap_or_default(),
                1 => stream.write_all(&[0xff; 64]).await.unwrap_or_default(),
                // A record that is no call.
                2 => stream.write_all(&[0x80, 0, 0, 4, 1, 2, 3, 4]).await.unwrap_or_default(),
                _ => {}
            }
            if is_stranger {
                let closed = stream.read(&mut [0; 16]).await;
                assert!(matches!(closed, Ok(0) | Err(_)), "{closed:?}");
            }
            held.push(stream);
        }
        write_elsewhere(port, b"second", b"other").await;
        assert_eq!((client.delegation_counts().recalled, client.delegation_counts().lost), (1, 0));
    });
}
