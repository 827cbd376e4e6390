//! Connections over real loopback sockets, with well-behaved and hostile peers.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use net::{Call, Limits, Listeners, Observe, Running, serve};
use protocol::nfs3::*;
use rpc::auth::{AuthSys, GroupList, OpaqueAuth};
use rpc::message::{CallHeader, encode_call, parse_reply, peek};
use rpc::record::{RecordDecoder, finish_record, start_record};
use server::{Export, ExportId, ExportOptions, ExportTable, HandleKey, Server, Settings, Squash};
use vfs::{Backend, MemFs, MemOptions};
use xdr::{Decode, Encode, Opaque, Writer};

const KEY: HandleKey = HandleKey([9; 16]);

/// Time limit of a wait; far above the usual duration.
const TIME_LIMIT: Duration = Duration::from_secs(60);

struct TestServer {
    address: SocketAddr,
    root: FileHandle,
    server: Arc<Server>,
    running: Option<Running>,
}

fn start(limits: Limits) -> TestServer {
    start_observed(limits, None)
}

fn start_observed(limits: Limits, observer: Option<Arc<dyn Observe>>) -> TestServer {
    let backend = Arc::new(MemFs::new(&MemOptions::default()));
    let root = FileHandle::new(&KEY.seal(ExportId(1), &backend.root())).unwrap();
    let options = ExportOptions { squash: Squash::None, insecure: true, ..ExportOptions::default() };
    let export = Export {
        id: ExportId(1),
        path: "/export".into(),
        backend,
        options,
        fsid: (7, 0),
        counts: Arc::default(),
    };
    let settings = Settings::new(KEY, 1, [3; 16], b"test".to_vec());
    let server = Arc::new(Server::new(settings, ExportTable::new(vec![export]).unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let listeners = Listeners { tcp: vec![listener], udp: vec![] };
    let running = serve(Arc::clone(&server), listeners, limits, observer, None).unwrap();
    TestServer { address, root, server, running: Some(running) }
}

fn limits() -> Limits {
    Limits { cores: 2, ..Limits::default() }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shut_down();
        }
    }
}

/// A client that handles raw bytes.
struct Client {
    stream: TcpStream,
    decoder: RecordDecoder,
    buffer: BytesMut,
}

impl TestServer {
    /// Returns the numbers of stalled and of refused connections.
    fn closed(&self) -> (u64, u64) {
        let metrics = self.server.metrics();
        (metrics.stalled_connections.load(Relaxed), metrics.refused_connections.load(Relaxed))
    }

    fn client(&self) -> Client {
        self.client_from([127, 0, 0, 1])
    }

    /// Returns a client that has sent these bytes.
    fn sent(&self, bytes: &[u8]) -> Client {
        let mut client = self.client();
        client.send(bytes);
        client
    }

    fn client_from(&self, address: [u8; 4]) -> Client {
        use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((address, 0))).unwrap();
        connect(&socket, &self.address).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        Client { stream, decoder: RecordDecoder::new(4 << 20), buffer: BytesMut::new() }
    }
}

fn record(xid: u32, procedure: Proc, args: &impl Encode) -> Bytes {
    let mut writer = Writer::new();
    let start = start_record(&mut writer);
    let credential = OpaqueAuth::sys(&AuthSys {
        stamp: 0,
        machine_name: Opaque::from_static(b"client"),
        uid: 0,
        gid: 0,
        gids: GroupList::default(),
    });
    let header = CallHeader { credential, ..CallHeader::new(xid, PROGRAM, VERSION, procedure.0) };
    encode_call(&mut writer, &header, args);
    finish_record(&mut writer, start);
    writer.into_bytes()
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Returns the next record, or `None` once the server has closed the connection.
    fn receive(&mut self) -> Option<Bytes> {
        loop {
            if let Some(record) = self.decoder.decode(&mut self.buffer).unwrap() {
                return Some(record);
            }
            let mut chunk = [0; 65_536];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(length) => self.buffer.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn call<T: Decode>(&mut self, xid: u32, procedure: Proc, args: &impl Encode) -> T {
        self.send(&record(xid, procedure, args));
        let reply = self.receive().expect("a reply");
        assert_eq!(peek(&reply).unwrap().0, xid);
        parse_reply(reply).unwrap()
    }

    fn is_alive(&mut self) -> bool {
        self.call::<()>(77, Proc::NULL, &());
        true
    }
}

/// Writes a file of `length` bytes; returns its handle.
fn file_of(server: &TestServer, client: &mut Client, length: usize) -> FileHandle {
    let where_ = DirOpArgs { dir: server.root, name: Filename::from_static(b"file") };
    let args = CreateArgs { where_, how: CreateHow::Guarded(Sattr::default()) };
    let file = client.call::<CreateResult>(1, Proc::CREATE, &args).into_result().unwrap().obj.unwrap();
    let data = Opaque::new(vec![7; length]).unwrap();
    let args = WriteArgs { file, offset: 0, count: length as u32, stable: StableHow::Unstable, data };
    client.call::<WriteResult>(2, Proc::WRITE, &args).into_result().unwrap();
    file
}

#[test]
fn answers_every_call_of_a_burst_in_order() {
    let server = start(limits());
    let mut client = server.client();
    let burst: Vec<u8> = (0..500u32).flat_map(|xid| record(xid, Proc::NULL, &()).to_vec()).collect();
    client.send(&burst);
    for xid in 0..500 {
        assert_eq!(peek(&client.receive().unwrap()).unwrap().0, xid);
    }
}

#[test]
fn answers_a_burst_longer_than_any_buffer() {
    let server = start(limits());
    let mut client = server.client();
    let file = file_of(&server, &mut client, 4096);
    let write = |index: u32| WriteArgs {
        file,
        offset: u64::from(index) * 4096,
        count: 4096,
        stable: StableHow::Unstable,
        data: Opaque::new(vec![index as u8; 4096]).unwrap(),
    };
    let burst: Vec<u8> =
        (0..500u32).flat_map(|index| record(100 + index, Proc::WRITE, &write(index)).to_vec()).collect();
    client.send(&burst);
    for xid in 100..600 {
        assert_eq!(peek(&client.receive().unwrap()).unwrap().0, xid);
    }
    let args = ReadArgs { file, offset: 0, count: 500 * 4096 };
    let read = client.call::<ReadResult>(600, Proc::READ, &args).into_result().unwrap();
    let read_pages = read.data.chunks(4096).zip(0..);
    assert!(read_pages.clone().count() >= 256, "1 MiB is the most that one READ returns");
    for (page, index) in read_pages {
        assert!(page.iter().all(|byte| *byte == index as u32 as u8), "page {index}");
    }
}

#[test]
fn accepts_a_record_in_single_bytes_and_in_fragments() {
    let server = start(limits());
    let mut client = server.client();
    client.stream.set_nodelay(true).unwrap();
    let whole = record(5, Proc::GETATTR, &GetattrArgs { object: server.root });
    for byte in &whole[..] {
        client.send(&[*byte]);
    }
    assert_eq!(peek(&client.receive().unwrap()).unwrap().0, 5);
    let body = &whole[4..];
    let (first, last) = body.split_at(30);
    let mut fragments = (first.len() as u32).to_be_bytes().to_vec();
    fragments.extend_from_slice(first);
    fragments.extend_from_slice(&[0; 4]);
    fragments.extend_from_slice(&(0x8000_0000 | last.len() as u32).to_be_bytes());
    fragments.extend_from_slice(last);
    client.send(&fragments);
    let reply: GetattrResult = parse_reply(client.receive().unwrap()).unwrap();
    assert_eq!(reply.status(), NfsStat::OK);
}

#[test]
fn long_replies_and_requests_arrive_whole() {
    let server = start(limits());
    let mut client = server.client();
    let file = file_of(&server, &mut client, 1 << 20);
    // Many at once, so that long and short replies queue up.
    let mut burst = Vec::new();
    for xid in 100..132 {
        burst.extend_from_slice(&record(xid, Proc::READ, &ReadArgs { file, offset: 0, count: 1 << 20 }));
        burst.extend_from_slice(&record(xid + 1000, Proc::GETATTR, &GetattrArgs { object: file }));
    }
    client.send(&burst);
    for _ in 0..64 {
        let reply = client.receive().unwrap();
        if peek(&reply).unwrap().0 < 1000 {
            let read = parse_reply::<ReadResult>(reply).unwrap().into_result().unwrap();
            assert_eq!((read.data.len(), read.eof), (1 << 20, true));
            assert!(read.data.iter().all(|byte| *byte == 7));
        } else {
            assert_eq!(parse_reply::<GetattrResult>(reply).unwrap().into_result().unwrap().size, 1 << 20);
        }
    }
}

#[test]
fn closes_on_a_record_over_the_limit_and_serves_others() {
    let server = start(limits());
    let mut other = server.client();
    for header in [0xffff_ffffu32, 0x7fff_ffff, 0x8020_0000] {
        let mut client = server.client();
        client.send(&record(1, Proc::NULL, &()));
        client.send(&header.to_be_bytes());
        assert!(client.receive().is_some(), "earlier calls are answered");
        assert!(client.receive().is_none(), "{header:#x}");
        assert!(other.is_alive());
    }
}

#[test]
fn closes_on_endless_fragments() {
    let server = start(limits());
    let mut client = server.client();
    // The server closes before all are sent, so sending may fail.
    let fragments = vec![0; 4 * 20_000];
    let _ = client.stream.write_all(&fragments);
    assert!(client.receive().is_none());
    assert!(server.client().is_alive());
}

#[test]
fn closes_on_bytes_that_are_not_rpc() {
    let server = start(limits());
    for garbage in [&b"\x80\0\0\x04GET "[..], b"\x80\0\0\0", b"\x80\0\0\x0c\0\0\0\x01\0\0\0\x01\0\0\0\0"] {
        let mut client = server.client();
        client.send(garbage);
        assert!(client.receive().is_none());
    }
    assert!(server.client().is_alive());
}

#[test]
fn closes_on_a_sender_that_stops_within_a_record() {
    let server = start(Limits { stall_timeout: Duration::from_millis(100), ..limits() });
    let mut stalled = server.client();
    let whole = record(1, Proc::NULL, &());
    stalled.send(&whole[..10]);
    let mut idle = server.client();
    assert!(stalled.receive().is_none());
    assert!(idle.is_alive(), "between records a client may be silent");
    assert_eq!(server.closed(), (1, 0));
}

#[test]
fn closes_on_a_record_that_arrives_too_slowly() {
    let server = start(Limits { stall_timeout: Duration::from_millis(100), ..limits() });
    let mut dripping = server.client();
    // A record of 2000 bytes, each of which arrives in time.
    dripping.send(&0x8000_07d0u32.to_be_bytes());
    dripping.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let is_closed = (0..1999).any(|_| {
        let mut end = [0];
        let sent = dripping.stream.write_all(&[0]);
        sent.is_err()
            || !matches!(dripping.stream.read(&mut end), Err(error) if error.kind() == ErrorKind::WouldBlock)
    });
    assert!(is_closed, "the server would have waited forever");
    assert!(server.client().is_alive());
    assert_eq!(server.closed(), (1, 0));
}

#[test]
fn one_client_cannot_take_every_connection() {
    let server = start(Limits { max_connections_per_address: 2, ..limits() });
    let (mut first, mut second) = (server.client(), server.client());
    assert!(first.is_alive() && second.is_alive());
    assert!(server.client().receive().is_none());
    assert_eq!(server.closed(), (0, 1));
    let mut other = server.client_from([127, 0, 0, 2]);
    assert!(other.is_alive(), "another address has a limit of its own");
}

#[test]
fn long_requests_are_served_one_by_one_when_memory_is_short() {
    let server = start(Limits { request_memory_bytes: 1, ..limits() });
    let mut client = server.client();
    let file = file_of(&server, &mut client, 1 << 20);
    let mut others: Vec<Client> = (0..4).map(|_| server.client()).collect();
    let data = Opaque::new(vec![8; 1 << 20]).unwrap();
    let args = WriteArgs { file, offset: 0, count: 1 << 20, stable: StableHow::Unstable, data };
    std::thread::scope(|scope| {
        // Distinct transaction numbers: a copy of a running call is dropped.
        for (xid, other) in (9..).zip(&mut others) {
            let args = &args;
            scope.spawn(move || {
                assert_eq!(other.call::<WriteResult>(xid, Proc::WRITE, args).status(), NfsStat::OK);
            });
        }
    });
    assert!(client.is_alive());
}

#[test]
fn endless_records_delay_only_other_long_records() {
    // Room for two: the last charge may exceed the limit.
    let server = start(Limits { cores: 1, request_memory_bytes: 100_000, ..limits() });
    let mut client = server.client();
    let file = file_of(&server, &mut client, 0);
    let data = Opaque::new(vec![8; 60_000]).unwrap();
    let args = WriteArgs { file, offset: 0, count: 60_000, stable: StableHow::Unstable, data };
    let whole = record(9, Proc::WRITE, &args);
    let (first, rest) = whole.split_at(30_000);
    // Its length is unknown, though each of its fragments is short.
    let fragment = |piece: &[u8]| [&(piece.len() as u32).to_be_bytes()[..], piece].concat();
    let in_fragments: Vec<u8> = first[4..].chunks(3_000).flat_map(fragment).collect();
    // Only the first header of this one has arrived.
    let header = 4_200_u32.to_be_bytes();
    for unfinished in [vec![first, first], vec![&in_fragments], vec![&header]] {
        let holders: Vec<Client> = unfinished.iter().map(|bytes| server.sent(bytes)).collect();
        // One thread serves all: a reply shows that earlier data of others were processed.
        assert!((0..20).all(|_| client.is_alive()));
        let mut late = server.sent(first);
        assert!((0..20).all(|_| client.is_alive()));
        late.send(rest);
        assert!((0..20).all(|_| client.is_alive()), "a client with small requests continues");
        late.stream.set_nonblocking(true).unwrap();
        let early = late.stream.read(&mut [0; 4]);
        assert_eq!(early.unwrap_err().kind(), ErrorKind::WouldBlock, "no memory for it");
        drop(holders);
        late.stream.set_nonblocking(false).unwrap();
        let reply = late.receive().expect("memory was released");
        assert_eq!(parse_reply::<WriteResult>(reply).unwrap().status(), NfsStat::OK);
    }
}

#[test]
fn closes_on_a_client_that_reads_no_replies_and_serves_others() {
    let server = start(Limits { cores: 1, stall_timeout: Duration::from_millis(300), ..Limits::default() });
    let mut client = server.client();
    let file = file_of(&server, &mut client, 1 << 20);
    let mut greedy = server.client();
    let read = ReadArgs { file, offset: 0, count: 1 << 20 };
    for xid in 0..64 {
        greedy.send(&record(xid, Proc::READ, &read));
    }
    for _ in 0..10 {
        assert!(client.is_alive());
    }
    // The server closes the connection before all 64 replies have arrived.
    let until = std::time::Instant::now() + TIME_LIMIT;
    while server.closed() == (0, 0) {
        assert!(std::time::Instant::now() < until, "the server would have waited forever");
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut taken = 0;
    while greedy.receive().is_some() {
        taken += 1;
    }
    assert!(taken < 64, "{taken}");
    assert!(client.is_alive());
    assert_eq!(server.closed(), (1, 0));
}

#[test]
fn closes_on_a_client_that_reads_replies_too_slowly() {
    let server = start(Limits { cores: 1, stall_timeout: Duration::from_millis(100), ..Limits::default() });
    let mut client = server.client();
    let file = file_of(&server, &mut client, 1 << 20);
    let mut dripping = server.client();
    let read = ReadArgs { file, offset: 0, count: 1 << 20 };
    for xid in 0..64 {
        dripping.send(&record(xid, Proc::READ, &read));
    }
    // Takes one percent of the replies in the time limit of all.
    let mut taken = 0;
    while server.closed() == (0, 0) && taken < 64 << 20 {
        taken += dripping.stream.read(&mut [0; 16 << 10]).unwrap();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(server.closed(), (1, 0), "{taken} bytes were taken");
    assert!(client.is_alive());
}

#[test]
fn answers_a_client_that_has_shut_down_sending() {
    let server = start(limits());
    let mut client = server.client();
    client.send(&record(1, Proc::NULL, &()));
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert!(client.receive().is_some());
    assert!(client.receive().is_none());
}

#[test]
fn refuses_connections_over_the_limit_until_one_closes() {
    let server = start(Limits { max_connections: 2, ..limits() });
    let (mut first, mut second) = (server.client(), server.client());
    assert!(first.is_alive() && second.is_alive());
    let mut third = server.client();
    assert!(third.receive().is_none());
    assert_eq!(server.closed(), (0, 1));
    drop(first);
    let until = std::time::Instant::now() + TIME_LIMIT;
    loop {
        let mut again = server.client();
        // Sending over a refused connection fails at some point.
        let _ = again.stream.write_all(&record(1, Proc::NULL, &()));
        if again.receive().is_some() {
            break;
        }
        assert!(std::time::Instant::now() < until, "the connection was never released");
    }
    assert!(second.is_alive());
}

#[test]
fn shutdown_answers_received_requests_and_closes() {
    let mut server = start(limits());
    let mut client = server.client();
    assert!(client.is_alive());
    server.running.take().unwrap().shut_down();
    assert!(client.receive().is_none());
    assert!(TcpStream::connect(server.address).is_err());
}

impl Client {
    /// Receives this number of bytes, then closes the connection.
    fn half(mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Returns the next record of one fragment, with its mark.
    fn whole(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        self.stream.read_exact(&mut bytes).unwrap();
        let length = u32::from_be_bytes(bytes[..4].try_into().unwrap()) & 0x7fff_ffff;
        bytes.resize(4 + length as usize, 0);
        self.stream.read_exact(&mut bytes[4..]).unwrap();
        bytes
    }
}

#[test]
fn a_half_sent_reply_is_repeated_over_the_next_connection() {
    let server = start(limits());
    let mut witness = server.client();
    let file = file_of(&server, &mut witness, 1 << 20);

    let read = record(100, Proc::READ, &ReadArgs { file, offset: 0, count: 1 << 20 });
    let half = server.sent(&read).half(1 << 19);
    assert!(half[1 << 18..].iter().all(|byte| *byte == 7), "that is within the data");
    let mut next = server.sent(&read);
    let again = parse_reply::<ReadResult>(next.receive().unwrap()).unwrap().into_result().unwrap();
    assert_eq!((again.data.len(), again.eof), (1 << 20, true));
    assert!(again.data.iter().all(|byte| *byte == 7));

    let at = |name: &'static [u8]| DirOpArgs { dir: server.root, name: Filename::from_static(name) };
    let args = RenameArgs { from: at(b"file"), to: at(b"renamed") };
    let rename = record(101, Proc::RENAME, &args);
    let half = server.sent(&rename).half(60);
    // A second execution would return NFS3ERR_NOENT (RFC 1813 §3.3.14).
    let again = server.sent(&rename).whole();
    assert!(again.len() > half.len());
    assert_eq!(again[..half.len()], half[..]);
    let result = parse_reply::<RenameResult>(Bytes::from(again).slice(4..)).unwrap();
    assert_eq!(result.status(), NfsStat::OK);
    assert_eq!(witness.call::<RenameResult>(102, Proc::RENAME, &args).status(), NfsStat::NOENT);
}

/// Counts at each call how often the serving thread has slept.
#[derive(Default)]
struct Sleeps(Mutex<Vec<u64>>);

impl Observe for Sleeps {
    fn observe(&self, _: Call) {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("this thread exists");
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        self.0.lock().unwrap().push(sleeps.and_then(|sleeps| sleeps.trim().parse().ok()).expect("a number"));
    }
}

/// Returns the number of sleeps of the only core during calls that follow ten others, each sent `pause` after the reply to the last.
fn sleeps_between_calls(busy_poll: Duration, calls: usize, pause: Duration) -> u64 {
    let sleeps = Arc::new(Sleeps::default());
    let limits = Limits { cores: 1, busy_poll, ..limits() };
    let server = start_observed(limits, Some(Arc::clone(&sleeps) as Arc<dyn Observe>));
    let mut client = server.client();
    for _ in 0..10 + calls {
        assert!(client.is_alive());
        std::thread::sleep(pause);
    }
    let sleeps = sleeps.0.lock().unwrap();
    sleeps[sleeps.len() - 1] - sleeps[10]
}

#[test]
fn a_core_polls_for_a_client_with_single_requests() {
    // Other threads of this process may delay it.
    let sleeps = sleeps_between_calls(Duration::from_secs(60), 1000, Duration::ZERO);
    assert!(sleeps < 100, "{sleeps}");
}

#[test]
fn a_core_sleeps_without_requests() {
    let pause = Duration::from_millis(5);
    assert!(sleeps_between_calls(Duration::ZERO, 50, pause) > 0);
    assert!(sleeps_between_calls(Limits::default().busy_poll, 50, pause) > 0);
}

#[test]
fn a_polling_core_serves_others_and_stops() {
    let mut server = start(Limits { cores: 1, busy_poll: Duration::from_secs(60), ..limits() });
    let mut client = server.client();
    for _ in 0..100 {
        assert!(client.is_alive());
    }
    for mut other in [server.client(), server.client()] {
        assert!(other.is_alive());
    }
    assert!(client.is_alive());
    for _ in 0..100 {
        assert!(client.is_alive());
    }
    server.running.take().expect("it runs").shut_down();
    assert_eq!(client.receive(), None);
}
