//! The cost of a copy over a long link: its calls are asserted, its time is printed (docs/performance.md):
//! `cargo test --release -p enfys --test serve long_link -- --nocapture`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::*;

/// Bytes of the file, at most as many as one COPY copies before its reply. Less for a debug build, since a reply comes after ten
/// seconds.
const LENGTH: usize = if cfg!(debug_assertions) { 16 << 20 } else { 64 << 20 };

/// Calls to the source: one for each MiB, and before them EXCHANGE_ID, CREATE_SESSION and RECLAIM_COMPLETE.
const CALLS: u64 = (LENGTH as u64 >> 20) + 3;

/// Relays bytes to `source` and back, each delayed by half a round trip, and counts the records to the source.
fn long_link(source: SocketAddr, round_trip: Duration) -> (SocketAddr, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.2:0").expect("a port");
    let (address, calls) = (listener.local_addr().expect("an address"), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&calls);
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let Ok(near) = near else { return };
            let far = TcpStream::connect(source).expect("the source listens");
            for stream in [&near, &far] {
                stream.set_nodelay(true).expect("an option");
            }
            let (from, to) = (near.try_clone().expect("a copy"), far.try_clone().expect("a copy"));
            let counted = Arc::clone(&counted);
            std::thread::spawn(move || delay(from, to, round_trip / 2, &counted));
            std::thread::spawn(move || delay(far, near, round_trip / 2, &AtomicU64::new(0)));
        }
    });
    (address, calls)
}

/// Writes what it reads after a delay; counts the records.
fn delay(mut from: TcpStream, mut to: TcpStream, by: Duration, records: &AtomicU64) {
    use std::io::{Read, Write};
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    let writer = std::thread::spawn(move || {
        for (due, bytes) in receiver {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
    let (mut buffer, mut header, mut left) = (vec![0; 1 << 18], Vec::new(), 0);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        for byte in &buffer[..count] {
            if left > 0 {
                left -= 1;
                continue;
            }
            header.push(*byte);
            if let Ok(mark) = <[u8; 4]>::try_from(&header[..]) {
                // RFC 5531 §11: the top bit marks the last fragment.
                left = u32::from_be_bytes(mark) & 0x7fff_ffff;
                records.fetch_add(1, Relaxed);
                header.clear();
            }
        }
        if sender.send((Instant::now() + by, buffer[..count].to_vec())).is_err() {
            break;
        }
    }
    drop(sender);
    let _ = writer.join();
}

/// A slower copy proves nothing: a reply comes after ten seconds, and a connection to the source that is idle for five seconds is
/// replaced.
const TOO_LONG: Duration = Duration::from_secs(5);
/// Maximum number of attempts on a busy machine.
const TRIALS: usize = 20;

/// Calls to the source, and the time of the copy.
fn measure(round_trip: Duration, is_sparse: bool) -> (u64, Duration) {
    let mut trials = (0..TRIALS).map(|_| measure_once(round_trip, is_sparse));
    let reported = trials.find(|(_, _, took)| *took < TOO_LONG);
    let (copied, calls, took) = reported.expect("one that is not too long");
    assert_eq!(copied, Ok(LENGTH as u64));
    (calls, took)
}

/// Returns the copied content, calls to the source, and the time of the copy.
fn measure_once(round_trip: Duration, is_sparse: bool) -> (Result<u64, Status>, u64, Duration) {
    let mut scene = scene("127.0.0.2");
    let file = std::fs::File::create(scene.places[0].path("files/source")).expect("a file");
    if is_sparse {
        file.set_len(LENGTH as u64).expect("a length");
    } else {
        std::fs::write(scene.places[0].path("files/source"), vec![7; LENGTH]).expect("a file");
    }
    let (link, calls) = long_link(scene.source.address, round_trip);
    // The address that the source sees: the copy's connections come from this test.
    let seen = SocketAddr::from(([127, 0, 0, 1], 2049));
    let promised = notify(&mut scene.reader, scene.from, seen);
    let from = (scene.from.0, promised.stateid);
    let begun = Instant::now();
    let copied = copy(&mut scene.writer, from, scene.to, vec![location(link)]);
    let took = begun.elapsed();
    (copied, calls.load(Relaxed), took)
}

#[test]
fn a_copy_over_a_long_link_takes_one_call_per_mebibyte() {
    for is_sparse in [false, true] {
        for round_trip_ms in [0, 10, 50] {
            let (calls, took) = measure(Duration::from_millis(round_trip_ms), is_sparse);
            let what = if is_sparse { "a hole" } else { "data" };
            println!("{what}, {round_trip_ms} ms: {calls} calls, {:.2} s", took.as_secs_f64());
            assert_eq!(calls, CALLS, "{what}, {round_trip_ms} ms");
        }
    }
}
