//! Carries packets between the devices of both ends.

use std::fmt;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read as _, Write as _};
use std::num::NonZeroU64;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::namespace::Ends;
use super::scheduler::{Counters, Direction, Size};
use super::settings::Settings;
use super::system::{self, HEADER_BYTES};

/// Largest packet of a TUN device with its header.
const PACKET_BYTES_MAX: usize = HEADER_BYTES + 65_535;
/// Packets read from one device before the other is read.
const BATCH_PACKETS: usize = 64;
/// Maximum lateness that the histogram records, in nanoseconds.
const LATENESS_MAX_NS: u64 = 10_000_000_000;
/// Lateness of the 99th percentile from which the link warns.
const LATENESS_WARNING_US: f64 = 1000.0;
/// Time before a delivery in which the thread polls instead of sleeping. Waking up takes 50 to 100 µs in a virtual machine.
const AWAKE: Duration = Duration::from_micros(250);
/// Interval at which other threads see new counters.
const SHOWN_EVERY: Duration = Duration::from_millis(10);

/// Counts of packets that a link has carried so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Carried {
    /// From the client to the server.
    pub to_server: Counters,
    /// From the server to the client.
    pub to_client: Counters,
    /// Packets that the system did not take at their destination.
    pub refused: u64,
    /// Lateness of packets at their arrival.
    pub lateness: Lateness,
}

/// Lateness of deliveries: the link's own error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lateness {
    /// Half of all packets were at most this late, in microseconds.
    pub p50_us: f64,
    /// 99 % of all packets were at most this late.
    pub p99_us: f64,
    /// The latest one.
    pub max_us: f64,
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, lane) in [("to server", &self.to_server), ("to client", &self.to_client)] {
            let Counters {
                delivered,
                delivered_bytes,
                lost,
                queue_full,
                down,
                overrun,
                reordered,
                queue_max,
                ..
            } = lane;
            write!(f, "{name}: {delivered} packets, {delivered_bytes} bytes")?;
            let others = [
                (lost, "lost"),
                (queue_full, "dropped by the full queue"),
                (down, "dropped in outages"),
                (overrun, "dropped for lack of memory"),
                (reordered, "reordered"),
                (queue_max, "waiting at most"),
            ];
            for (count, what) in others.into_iter().filter(|(count, _)| **count > 0) {
                write!(f, ", {count} {what}")?;
            }
            writeln!(f)?;
        }
        if self.refused > 0 {
            writeln!(f, "{} packets refused by the receiving end", self.refused)?;
        }
        let Lateness { p50_us, p99_us, max_us } = self.lateness;
        write!(
            f,
            "lateness of deliveries: median {p50_us:.0} µs, 99 % within {p99_us:.0} µs, at most {max_us:.0} µs"
        )?;
        if p99_us > LATENESS_WARNING_US {
            write!(f, "\nwarning: the machine is too busy for this link; delays are longer than requested")?;
        }
        Ok(())
    }
}

/// A thread that carries packets until it is stopped.
#[derive(Debug)]
pub struct Carrier {
    stop: PipeWriter,
    thread: Option<JoinHandle<io::Result<Carried>>>,
    shown: Arc<Mutex<Carried>>,
}

impl Carrier {
    /// Starts to carry packets between both ends.
    ///
    /// # Errors
    /// Errors of threads and files.
    pub fn start(ends: &Ends, settings: &Settings) -> io::Result<Self> {
        let (stopped, stop) = io::pipe()?;
        let shown = Arc::new(Mutex::new(Carried::default()));
        // Two sequences of random numbers from one seed.
        let mut seeds = fastrand::Rng::with_seed(settings.seed);
        let lane = |tun: &File, seed| -> io::Result<Lane> {
            Ok(Lane { from: tun.try_clone()?, direction: Direction::new(settings, seed) })
        };
        let lanes = [lane(&ends.client.tun, seeds.u64(..))?, lane(&ends.server.tun, seeds.u64(..))?];
        let lateness = Histogram::new_with_max(LATENESS_MAX_NS, 3).map_err(io::Error::other)?;
        let work = Work { lanes, stopped, lateness, refused: 0, shown: Arc::clone(&shown) };
        let thread = thread::Builder::new().name("carrier".to_owned()).spawn(|| work.run())?;
        Ok(Self { stop, thread: Some(thread), shown })
    }

    /// Returns counters that are at most a few milliseconds old.
    #[must_use]
    pub fn carried(&self) -> Carried {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops. Packets on their way are dropped.
    ///
    /// # Errors
    /// The error that ended the thread before.
    pub fn stop(mut self) -> io::Result<Carried> {
        self.join()
    }

    fn join(&mut self) -> io::Result<Carried> {
        let Some(thread) = self.thread.take() else { return Ok(self.carried()) };
        // It fails if the thread has ended already.
        let _ = self.stop.write_all(&[1]);
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the carrier panicked")))
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

/// Packets in one direction: their source, and their times of arrival.
struct Lane {
    from: File,
    direction: Direction<Box<[u8]>>,
}

struct Work {
    /// Client to server, and server to client.
    lanes: [Lane; 2],
    stopped: PipeReader,
    /// In nanoseconds.
    lateness: Histogram<u64>,
    refused: u64,
    shown: Arc<Mutex<Carried>>,
}

impl Work {
    fn run(mut self) -> io::Result<Carried> {
        // A timer of the kernel fires up to 50 µs late by default; at either end that would be a tenth of a millisecond.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        // Without the privilege, other work of the machine makes the link late, which `Lateness` shows.
        let _ = system::run_first();
        let start = Instant::now();
        let mut buffer = vec![0; PACKET_BYTES_MAX];
        let mut shown_at = Duration::ZERO;
        loop {
            for lane in &mut self.lanes {
                lane.take_packets(start, &mut buffer)?;
            }
            self.deliver(start)?;
            let now = start.elapsed();
            if now >= shown_at + SHOWN_EVERY {
                shown_at = now;
                *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = self.carried();
            }
            if self.wait(start)? {
                return Ok(self.carried());
            }
        }
    }

    /// Delivers all packets that are due.
    fn deliver(&mut self, start: Instant) -> io::Result<()> {
        for lane in 0..self.lanes.len() {
            while let Some((due, packet)) = self.lanes[lane].direction.take_due(start.elapsed()) {
                let to = &self.lanes[1 - lane].from;
                let late = start.elapsed().saturating_sub(due);
                self.lateness.saturating_record(u64::try_from(late.as_nanos()).unwrap_or(u64::MAX));
                match (&*to).write(&packet) {
                    Ok(_) => {}
                    // A packet that the system does not take is lost, as on a wire.
                    Err(error) if is_refusal(&error) => self.refused += 1,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Waits for a packet, for the next one to be due, or for the end. Returns whether it is the end.
    fn wait(&mut self, start: Instant) -> io::Result<bool> {
        let due = self.lanes.iter().filter_map(|lane| lane.direction.next_due()).min();
        let timeout = due.map(|due| due.saturating_sub(start.elapsed()));
        // Without a packet on its way, other threads still see the latest counters.
        // A sleeping thread wakes up late, most of all in a virtual machine: it polls for packets instead at the end.
        let timeout = timeout.unwrap_or(SHOWN_EVERY).min(SHOWN_EVERY).saturating_sub(AWAKE);
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        let mut watched = [
            PollFd::from_borrowed_fd(self.stopped.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.lanes[0].from.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.lanes[1].from.as_fd(), PollFlags::IN),
        ];
        match poll(&mut watched, Some(&timeout)) {
            Ok(_) => Ok(!watched[0].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn carried(&self) -> Carried {
        let microseconds = |quantile| self.lateness.value_at_quantile(quantile) as f64 / 1000.0;
        let [to_server, to_client] = &self.lanes;
        Carried {
            to_server: to_server.direction.counters(),
            to_client: to_client.direction.counters(),
            refused: self.refused,
            lateness: Lateness {
                p50_us: microseconds(0.5),
                p99_us: microseconds(0.99),
                max_us: microseconds(1.0),
            },
        }
    }
}

fn is_refusal(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, OutOfMemory, WouldBlock};
    let is_kind = [InvalidInput, OutOfMemory, WouldBlock].contains(&error.kind());
    // The device is down (EIO), or the queue of the receiving side is full.
    is_kind || [Some(libc::EIO), Some(libc::ENOBUFS)].contains(&error.raw_os_error())
}

impl Lane {
    /// Takes packets from the device.
    fn take_packets(&mut self, start: Instant, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH_PACKETS {
            match (&self.from).read(buffer) {
                Ok(length) => {
                    let packet = &buffer[..length];
                    self.direction.offer(start.elapsed(), size_on_wire(packet), packet.into());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns the number of packets on the wire of a packet of the device, and their bytes.
///
/// The header in front of it is `struct virtio_net_hdr`: flags, `gso_type`, `hdr_len`, `gso_size` and two more, in the
/// machine's byte order. `hdr_len` is a hint only, so the lengths of headers are read in the packet, which is TCP over
/// IPv4: all others are cut.
fn size_on_wire(packet: &[u8]) -> Size {
    let bytes = u32::try_from(packet.len().saturating_sub(HEADER_BYTES)).unwrap_or(u32::MAX);
    let whole = Size { packets: 1, bytes };
    let is_large = packet.get(1).is_some_and(|kind| *kind != 0);
    let Some((headers, segment)) = is_large.then(|| segments(packet)).flatten() else { return whole };
    if bytes <= headers {
        return whole;
    }
    // Each segment has a copy of the headers.
    let packets = (bytes - headers).div_ceil(segment);
    Size { packets, bytes: bytes + headers * (packets - 1) }
}

/// Returns the bytes of all headers of a large packet, and the bytes of data of one segment.
fn segments(packet: &[u8]) -> Option<(u32, u32)> {
    let segment = u16::from_ne_bytes(packet.get(4..6)?.try_into().ok()?);
    // RFC 791: the header's length in words is in the low half of its first byte.
    let ip = usize::from(packet.get(HEADER_BYTES)? & 15) * 4;
    // RFC 9293 §3.1: the data offset in words is in the high half of byte 12.
    let tcp = usize::from(packet.get(HEADER_BYTES + ip + 12)? >> 4) * 4;
    let headers = u32::try_from(ip + tcp).ok()?;
    (segment > 0).then_some((headers, u32::from(segment)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a packet of TCP over IPv4 with 20 and 32 bytes of headers.
    fn packet(kind: u8, segment: u16, bytes: usize) -> Vec<u8> {
        let mut packet = vec![0; HEADER_BYTES + bytes];
        packet[1] = kind;
        packet[4..6].copy_from_slice(&segment.to_ne_bytes());
        packet[HEADER_BYTES] = 0x45;
        packet[HEADER_BYTES + 20 + 12] = 0x80;
        packet
    }

    #[test]
    fn plain_packets_count_their_own_length() {
        assert_eq!(size_on_wire(&packet(0, 0, 1500)), Size { packets: 1, bytes: 1500 });
        assert_eq!(size_on_wire(&[]), Size { packets: 1, bytes: 0 });
        assert_eq!(size_on_wire(&[0, 1, 0]), Size { packets: 1, bytes: 0 }, "cut off");
    }

    /// 52 bytes of headers and 3 · 1,448 + 100 bytes of data: four packets, with headers each.
    #[test]
    fn large_packets_count_as_their_segments() {
        let size = size_on_wire(&packet(1, 1448, 52 + 3 * 1448 + 100));
        assert_eq!(size, Size { packets: 4, bytes: 4 * 52 + 3 * 1448 + 100 });
    }
}
