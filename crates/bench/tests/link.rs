//! Packets through a real link: two network namespaces with TUN devices.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use bench::link::carrier::{Carried, Carrier};
use bench::link::namespace::{CLIENT, Ends, SERVER};
use bench::link::{Outage, Settings};

/// Port of the server's end.
const PORT: u16 = 7;

/// Creates both ends; `None` if this is not allowed. Without root it needs a process of one thread, which a test is not.
fn ends(settings: &Settings) -> Option<Ends> {
    match Ends::new(settings) {
        Ok(ends) => Some(ends),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// Sends packets from client to server, and returns the number that arrived and the link's counters.
fn send_packets(settings: &Settings, count: u64) -> Option<(u64, Carried)> {
    let ends = ends(settings)?;
    let carrier = Carrier::start(&ends, settings).unwrap();
    let server = ends.server.run(|| UdpSocket::bind((SERVER, PORT))).unwrap();
    // A receiver that is late must not lose what the link delivered.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&server, 16 << 20).unwrap();
    // Silence for this time means that no packet is in flight any more.
    server.set_read_timeout(Some(settings.delay + Duration::from_secs(1))).unwrap();
    let client = ends.client.run(|| UdpSocket::bind((CLIENT, 0))).unwrap();
    client.connect((SERVER, PORT)).unwrap();
    let arrived = thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut buffer = [0; 64];
            std::iter::from_fn(|| server.recv(&mut buffer).ok()).count() as u64
        });
        for number in 0..count {
            client.send(&number.to_be_bytes()).unwrap();
            if number % 20 == 0 {
                // Fewer packets at once than the capacity of any queue.
                thread::sleep(Duration::from_millis(1));
            }
        }
        receiver.join().unwrap()
    });
    Some((arrived, carrier.stop().unwrap()))
}

/// Five deviations of a binomial around 400 of 2,000; which packets are lost follows from the seed.
#[test]
fn lost_packets_are_those_of_the_seed() {
    let settings = Settings { loss: 0.2, seed: 11, ..Settings::default() };
    let Some((arrived, carried)) = send_packets(&settings, 2000) else { return };
    let lost = carried.to_server.lost;
    assert_eq!((carried.to_server.offered, arrived), (2000, 2000 - lost));
    assert!((310..=490).contains(&lost), "{lost}");
    let (_, again) = send_packets(&settings, 2000).unwrap();
    assert_eq!(again.to_server, carried.to_server, "the same seed loses the same packets");
}

#[test]
fn link_without_loss_delivers_everything() {
    let settings = Settings { delay: Duration::from_millis(20), ..Settings::default() };
    let Some((arrived, carried)) = send_packets(&settings, 500) else { return };
    assert_eq!((arrived, carried.to_server.delivered, carried.to_server.lost), (500, 500, 0));
}

#[test]
fn link_that_is_down_delivers_nothing() {
    let outages = vec![Outage { start: Duration::ZERO, length: Duration::from_secs(3600) }];
    let settings = Settings { outages, ..Settings::default() };
    let Some((arrived, carried)) = send_packets(&settings, 100) else { return };
    assert_eq!((arrived, carried.to_server.down), (0, 100));
}

/// Sends data from client to server over TCP, and returns the received data and the link's counters.
fn send_stream(settings: &Settings, data: &[u8]) -> Option<(Vec<u8>, Carried)> {
    let ends = ends(settings)?;
    let carrier = Carrier::start(&ends, settings).unwrap();
    let listener = ends.server.run(|| TcpListener::bind((SERVER, PORT))).unwrap();
    let received = thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut received = Vec::new();
            listener.accept()?.0.read_to_end(&mut received)?;
            io::Result::Ok(received)
        });
        let mut client = ends.client.run(|| TcpStream::connect((SERVER, PORT))).unwrap();
        client.write_all(data).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        server.join().unwrap().unwrap()
    });
    Some((received, carrier.stop().unwrap()))
}

fn pattern(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

#[test]
fn large_packets_count_as_those_of_the_wire() {
    let data = pattern(8 << 20);
    let Some((received, carried)) = send_stream(&Settings::default(), &data) else { return };
    assert!(received == data, "TCP's data must arrive as they were sent");
    // 1,448 bytes of data fit a packet of 1,500 with the headers of IPv4 and TCP with timestamps.
    let least = (data.len() as u64).div_ceil(1448);
    let packets = carried.to_server.delivered;
    assert!(packets >= least && packets < least * 11 / 10, "{packets} packets, at least {least}");
    assert!(carried.to_server.delivered_bytes >= data.len() as u64 + 52 * least);
}

#[test]
fn tcp_recovers_from_loss_and_reordering() {
    let data = pattern(1 << 20);
    let settings = Settings {
        delay: Duration::from_millis(2),
        jitter: Duration::from_millis(1),
        loss: 0.02,
        reorder: 0.05,
        ..Settings::default()
    };
    let Some((received, carried)) = send_stream(&settings, &data) else { return };
    assert!(received == data, "TCP's data must arrive as they were sent");
    let lane = carried.to_server;
    assert!(lane.lost > 0 && lane.reordered > 0, "{lane:?}");
}
