//! Locks of version 3 over UDP, with a network that loses calls and replies.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use client::errno::Errno;
use client::fs::OpenOptions;
use client::locks::LockKind::Exclusive;
use client::locks::{LockOwner, LockRange};
use client::results::OpenMode;
use net::blocking::Connection;

use crate::metrics::scrape;
use crate::server::{Server, TestDir};

/// Pause of the relay between two looks at its sockets.
const PAUSE: Duration = Duration::from_millis(1);

/// Carries datagrams to a server and back. Of two calls, it loses the first datagram of one, and the first reply to the other.
struct Relay {
    address: SocketAddr,
    lost_calls: Arc<AtomicUsize>,
    lost_replies: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    fn start(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_nonblocking(true).expect("an option");
        let address = socket.local_addr().expect("a bound socket");
        let (lost_calls, lost_replies, is_over) = (Arc::default(), Arc::default(), Arc::default());
        let counters = (Arc::clone(&lost_calls), Arc::clone(&lost_replies), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || carry(&socket, server, counters));
        Self { address, lost_calls, lost_replies, is_over, thread: Some(thread) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the relay works");
        }
    }
}

fn carry(
    socket: &UdpSocket,
    server: SocketAddr,
    (lost_calls, lost_replies, is_over): (Arc<AtomicUsize>, Arc<AtomicUsize>, Arc<AtomicBool>),
) {
    // Each client's socket to the server, and the calls so far with the number of their replies.
    let mut sockets: HashMap<SocketAddr, UdpSocket> = HashMap::new();
    let mut calls: HashMap<Vec<u8>, (usize, usize)> = HashMap::new();
    let mut buffer = vec![0; 65_507];
    while !is_over.load(Relaxed) {
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let number = calls.len();
            let is_new = !calls.contains_key(&buffer[..4]);
            calls.entry(buffer[..4].to_vec()).or_insert((number, 0));
            if is_new && number.is_multiple_of(2) {
                lost_calls.fetch_add(1, Relaxed);
                continue;
            }
            let to_server = sockets.entry(client).or_insert_with(|| {
                let own = UdpSocket::bind("127.0.0.1:0").expect("a free port");
                own.connect(server).expect("an address");
                own.set_nonblocking(true).expect("an option");
                own
            });
            to_server.send(&buffer[..length]).expect("the server listens");
        }
        for (client, to_server) in &sockets {
            while let Ok(length) = to_server.recv(&mut buffer) {
                let (number, replies) = calls.get_mut(&buffer[..4]).expect("the call of the reply");
                *replies += 1;
                if *replies == 1 && !number.is_multiple_of(2) {
                    lost_replies.fetch_add(1, Relaxed);
                    continue;
                }
                socket.send_to(&buffer[..length], client).expect("the client listens");
            }
        }
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn locks_over_udp_exclude_each_other_though_every_call_or_its_reply_is_lost() {
    let dir = TestDir::new();
    let arguments = ["serve", "--memory", "--udp", "--insecure", "--squash", "none"];
    let places = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"];
    let mut server = Server::start(&dir, &[&arguments[..], &places].concat());
    let metrics = server.metrics_address();
    let relay = Relay::start(server.address);
    let connect = |nlm_port: u16| {
        let port = server.address.port();
        let options = format!("port={port}&mountport={port}&nlmport={nlm_port}&timeo=3");
        let url = format!("nfs://127.0.0.1/export?version=3&proto=udp&{options}");
        Connection::to(&url.parse().expect("a URL")).expect("the server answers")
    };
    let (one, files) = connect(relay.address.port());
    let (two, others) = connect(server.address.port());
    let options = OpenOptions { mode: OpenMode::BOTH, create: true, ..OpenOptions::READ };
    let first = files.open(b"file", &options).unwrap();
    let second = others.open(b"file", &options).unwrap();
    let owner = LockOwner::Process(1);
    let range = LockRange::new(0, 10).unwrap();

    first.lock(owner, range, Exclusive).unwrap();
    let refused = second.try_lock(owner, range, Exclusive).unwrap_err();
    assert_eq!(refused.errno(), Errno::EAGAIN);
    assert_eq!(scrape(metrics)["enfys_connections"], 0.0, "no call uses TCP");
    first.unlock(owner, LockRange::WHOLE).unwrap();
    second.try_lock(owner, range, Exclusive).unwrap();
    let lost = [&relay.lost_calls, &relay.lost_replies].map(|count| count.load(Relaxed));
    assert!(lost.iter().all(|count| *count >= 2), "{lost:?}");

    first.close().unwrap();
    second.close().unwrap();
    one.close().unwrap();
    two.close().unwrap();
    // Repeated calls get the reply of the first.
    let values = scrape(metrics);
    let executed = |operation: &str| {
        values[&format!("enfys_operations_total{{program=\"nlm\",operation=\"{operation}\"}}")]
    };
    assert_eq!((executed("LOCK"), executed("UNLOCK")), (3.0, 2.0));
    server.stop();
}
