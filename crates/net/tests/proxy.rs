//! The proxy over real sockets: order, content, half-close, resets and counts. Times are tested in virtual time.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::Duration;

use net::proxy::{Link, Outage, Proxy, Statistics};
use rustix::net::{AddressFamily, SocketType};
use tokio::sync::oneshot;

/// A proxy in a thread of its own.
struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Statistics>,
}

impl Running {
    fn start(listen: &str, target: SocketAddr, link: Link, max_connections: usize) -> Self {
        let listener = TcpListener::bind(listen).expect("a listener");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let proxy = Rc::new(Proxy::new(vec![target], link, max_connections, 7));
            tokio::task::LocalSet::new().block_on(&runtime, async {
                tokio::select! {
                    done = Rc::clone(&proxy).serve(listener) => done.expect("a listener"),
                    _ = stopped => {}
                }
            });
            proxy.statistics()
        });
        Self { address, stop, thread }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        stream
    }

    fn stop(self) -> Statistics {
        self.stop.send(()).expect("the proxy runs");
        self.thread.join().expect("the proxy does not panic")
    }
}

fn link() -> Link {
    Link { queue_bytes: Link::QUEUE_BYTES, buffer_bytes: Link::BUFFER_BYTES, ..Link::default() }
}

/// Returns a target that runs `serve` on each of `connections` connections, one after the other.
fn target(listen: &str, connections: usize, serve: fn(TcpStream)) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind(listen).expect("a listener");
    let address = listener.local_addr().expect("an address");
    let thread = std::thread::spawn(move || {
        for _ in 0..connections {
            serve(listener.accept().expect("a connection").0);
        }
    });
    (address, thread)
}

/// Bytes without a short period, so that lost, duplicated or reordered ones are detected.
fn pattern(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(length)
    .collect()
}

/// Reads everything, then sends it back.
fn echo_after_end(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the request");
    stream.write_all(&bytes).expect("the reply");
}

/// Sends everything back at once.
fn echo(mut stream: TcpStream) {
    let mut writer = stream.try_clone().expect("a descriptor");
    std::io::copy(&mut stream, &mut writer).expect("an echo");
}

#[test]
fn content_and_order_survive_delay_jitter_rate_loss_and_outage() {
    let link = Link {
        delay: Duration::from_millis(4),
        jitter: Duration::from_millis(2),
        rate: NonZeroU64::new(50_000_000),
        lost_per_million: 1_000,
        outages: vec![Outage { first: Duration::ZERO, period: None, length: Duration::from_millis(50) }],
        ..link()
    };
    let (address, server) = target("127.0.0.1:0", 1, echo);
    let proxy = Running::start("127.0.0.1:0", address, link, 8);
    let sent = pattern(3_000_000);
    let stream = proxy.connect();
    let mut writer = stream.try_clone().expect("a descriptor");
    let to_send = sent.clone();
    let writing = std::thread::spawn(move || {
        for chunk in to_send.chunks(10_007) {
            writer.write_all(chunk).expect("bytes are taken");
        }
        writer.shutdown(Shutdown::Write).expect("a half-close");
    });
    let mut received = Vec::new();
    (&stream).read_to_end(&mut received).expect("the echo");
    writing.join().expect("the writer");
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
    server.join().expect("the target");
    let statistics = proxy.stop();
    assert_eq!((statistics.up.bytes, statistics.down.bytes), (3_000_000, 3_000_000));
    // 2,072 segments each way, of which one in 1,000 is lost; the seed is fixed, the cuts between reads are not.
    let lost = statistics.up.lost_segments + statistics.down.lost_segments;
    assert!((1..30).contains(&lost), "{lost}");
    assert_eq!(statistics.connections, 1);
}

#[test]
fn a_half_close_is_passed_on_and_the_reply_still_arrives() {
    let (address, server) = target("127.0.0.1:0", 1, echo_after_end);
    let proxy = Running::start("127.0.0.1:0", address, Link { delay: Duration::from_millis(2), ..link() }, 8);
    let mut stream = proxy.connect();
    stream.write_all(b"everything").expect("bytes are taken");
    stream.shutdown(Shutdown::Write).expect("a half-close");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("the reply and its end");
    assert_eq!(reply, "everything");
    server.join().expect("the target");
    proxy.stop();
}

#[test]
fn both_address_families_can_be_joined() {
    let (address, server) = target("127.0.0.1:0", 1, echo_after_end);
    let proxy = Running::start("[::1]:0", address, link(), 8);
    let second = Running::start("127.0.0.1:0", proxy.address, link(), 8);
    let mut stream = second.connect();
    stream.write_all(b"across").expect("bytes are taken");
    stream.shutdown(Shutdown::Write).expect("a half-close");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("the reply");
    assert_eq!(reply, "across");
    server.join().expect("the target");
    assert_eq!(second.stop().up.bytes, 6);
    assert_eq!(proxy.stop().down.bytes, 6);
}

#[test]
fn connections_beyond_the_limit_are_closed_and_counted() {
    let (address, server) = target("127.0.0.1:0", 1, echo);
    let proxy = Running::start("127.0.0.1:0", address, link(), 1);
    let mut first = proxy.connect();
    first.write_all(b"x").expect("bytes are taken");
    first.read_exact(&mut [0]).expect("the echo");
    let mut second = proxy.connect();
    // Closed without a byte; unread bytes would make it a reset.
    assert_eq!(second.read(&mut [0; 8]).expect("the end"), 0);
    drop(first);
    server.join().expect("the target");
    let statistics = proxy.stop();
    assert_eq!((statistics.connections, statistics.refused), (1, 1));
}

#[test]
fn a_reset_of_one_side_resets_the_other() {
    let (address, server) = target("127.0.0.1:0", 1, |mut stream| {
        stream.read_exact(&mut [0]).expect("a byte");
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("an option");
    });
    let proxy = Running::start("127.0.0.1:0", address, link(), 8);
    let mut stream = proxy.connect();
    stream.write_all(b"x").expect("bytes are taken");
    let error = stream.read(&mut [0; 8]).expect_err("no reply and no end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    server.join().expect("the target");
    let statistics = proxy.stop();
    assert_eq!((statistics.broken, statistics.open), (1, 0));
}

#[test]
fn a_client_without_target_is_reset_and_counted() {
    // Bound and not listening: connections are refused, and no other program gets the port.
    let unused = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    rustix::net::bind(&unused, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("an address");
    let address = rustix::net::getsockname(&unused).expect("an address").try_into().expect("an IP address");
    let proxy = Running::start("127.0.0.1:0", address, link(), 8);
    let mut stream = proxy.connect();
    let error = stream.read(&mut [0; 8]).expect_err("no target");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let statistics = proxy.stop();
    assert_eq!((statistics.connections, statistics.unreachable), (0, 1));
}

#[test]
fn a_slow_receiver_blocks_the_sender() {
    let (address, server) = target("127.0.0.1:0", 1, |stream| {
        // Nothing is read until the sender was blocked.
        let mut stream = stream;
        let mut bytes = Vec::new();
        std::thread::sleep(Duration::from_millis(300));
        stream.read_to_end(&mut bytes).expect("everything");
        assert_eq!(bytes.len(), 30_000_000);
    });
    let link = Link { buffer_bytes: 64 << 10, ..link() };
    let proxy = Running::start("127.0.0.1:0", address, link, 8);
    let mut stream = proxy.connect();
    stream.write_all(&pattern(30_000_000)).expect("bytes are taken");
    drop(stream);
    server.join().expect("the target");
    proxy.stop();
}
