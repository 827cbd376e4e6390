//! Measures a link, with its own programs at both ends, to check that it has the requested properties.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use statrs::distribution::{Binomial, DiscreteCDF as _};

use super::carrier::{Carrier, Lateness};
use super::namespace::{CLIENT, Ends, SERVER};
use super::scheduler::Counters;
use super::settings::Settings;
use super::system;
use crate::statistics::median;

/// Round trips that are measured.
const ROUND_TRIPS: usize = 200;
/// Pause before each round trip.
const ROUND_TRIP_PAUSE: Duration = Duration::from_millis(5);
/// Datagrams that are sent to count losses.
const LOSS_PACKETS: u64 = 20_000;
/// Receive buffer of their receiver in bytes, including the kernel's overhead.
const LOSS_BUFFER_BYTES: usize = 64 << 20;
/// Datagrams between two pauses, so that no queue fills.
const LOSS_BATCH: u64 = 50;
/// Time of sending at full rate, after [`RATE_WARM_UP`].
const RATE_TIME: Duration = Duration::from_secs(3);
/// Time in which TCP finds its rate.
const RATE_WARM_UP: Duration = Duration::from_secs(2);
/// Allowed error of a round trip, if it is more than that of [`TOLERANCE`].
const ROUND_TRIP_TOLERANCE: Duration = Duration::from_micros(100);
/// Allowed relative error of a round trip and of a rate.
const TOLERANCE: f64 = 0.02;
/// Probability that a correct loss is reported as wrong, on either side.
const LOSS_DOUBT: f64 = 0.0005;
/// Port of the measuring server.
const PORT: u16 = 7;

/// The measurements of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The requested link.
    pub settings: Settings,
    /// Median round trip of a small UDP packet, in seconds.
    pub round_trip: f64,
    /// Shortest and longest round trip.
    pub round_trip_range: (f64, f64),
    /// Round trip of the same packet over a link without delay: the system's own time.
    pub overhead: f64,
    /// The link's own delay meanwhile.
    pub lateness: Lateness,
    /// Bits a second that the line carried from server to client, with all headers, while TCP sent as fast as it could;
    /// without delay and losses, which TCP would slow down for.
    pub bits_per_second: f64,
    /// Bits a second of data that one TCP connection delivered over the unmodified link.
    pub goodput: f64,
    /// Packets sent from client to server to count losses, and those that arrived.
    pub counted: (u64, u64),
}

impl Measured {
    /// Returns whether the link adds the requested round trip, as in the papers, whose delay of n ms is a round trip of
    /// 0.2 + n ms. Reordered packets skip the delay.
    #[must_use]
    pub fn round_trip_is_right(&self) -> bool {
        let asked = self.settings.delay.as_secs_f64();
        let allowed = (asked * TOLERANCE).max(ROUND_TRIP_TOLERANCE.as_secs_f64());
        (self.round_trip - self.overhead - asked).abs() <= allowed
    }

    /// Returns whether the rate is the requested one; `None` if none was requested.
    #[must_use]
    pub fn rate_is_right(&self) -> Option<bool> {
        let asked = self.settings.bits_per_second? as f64;
        Some((self.bits_per_second / asked - 1.0).abs() <= TOLERANCE)
    }

    /// Returns whether losses are within the binomial interval.
    #[must_use]
    pub fn loss_is_right(&self) -> bool {
        let (sent, arrived) = self.counted;
        let Ok(distribution) = Binomial::new(self.settings.loss, sent) else { return false };
        let lost = sent - arrived;
        let at_least = 1.0 - if lost == 0 { 0.0 } else { distribution.cdf(lost - 1) };
        distribution.cdf(lost) > LOSS_DOUBT && at_least > LOSS_DOUBT
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |seconds: f64| seconds * 1e3;
        let verdict = |right: bool| if right { "as requested" } else { "NOT AS REQUESTED" };
        let settings = &self.settings;
        writeln!(f, "link:        {settings}")?;
        writeln!(
            f,
            "round trip:  {:.3} ms (median of {ROUND_TRIPS}; {:.3} to {:.3})",
            ms(self.round_trip),
            ms(self.round_trip_range.0),
            ms(self.round_trip_range.1),
        )?;
        writeln!(
            f,
            "             {:.3} ms without delay; the link adds {:.3} ms, asked {:.3}: {}",
            ms(self.overhead),
            ms(self.round_trip - self.overhead),
            ms(settings.delay.as_secs_f64()),
            verdict(self.round_trip_is_right())
        )?;
        writeln!(
            f,
            "             packets late by {:.0} µs, 99 % within {:.0} µs",
            self.lateness.p50_us, self.lateness.p99_us
        )?;
        write!(f, "rate:        {:.1} Mbit/s on the line", self.bits_per_second / 1e6)?;
        match (settings.bits_per_second, self.rate_is_right()) {
            (Some(asked), Some(right)) => {
                writeln!(f, ", asked {:.1}: {}", asked as f64 / 1e6, verdict(right))?
            }
            _ => writeln!(f)?,
        }
        writeln!(f, "             {:.1} Mbit/s of data by one TCP connection", self.goodput / 1e6)?;
        let (sent, arrived) = self.counted;
        write!(
            f,
            "loss:        {} of {sent} packets, asked {:.3} %: {}",
            sent - arrived,
            settings.loss * 100.0,
            verdict(self.loss_is_right())
        )
    }
}

/// Measures a link; it takes some ten seconds, and longer with long delays.
///
/// Outages are omitted. This process must have one thread only, unless it may create network namespaces.
///
/// # Errors
/// The link cannot be created, or a packet never arrived.
pub fn measure(settings: &Settings) -> io::Result<Measured> {
    let settings = Settings { outages: Vec::new(), ..settings.clone() };
    let plain =
        Settings { bits_per_second: settings.bits_per_second, seed: settings.seed, ..Settings::default() };
    let (mut without, _) = round_trips(&plain)?;
    let (mut with, lateness) = round_trips(&settings)?;
    with.sort_by(f64::total_cmp);
    without.sort_by(f64::total_cmp);
    let (_, goodput) = rate(&settings)?;
    // Losses slow TCP down but not the line, so the rate is measured without them.
    let (bits_per_second, _) = rate(&Settings { queue_packets: settings.queue_packets, ..plain.clone() })?;
    let nothing = || io::Error::other("no packet came back");
    Ok(Measured {
        round_trip: median(with.clone()).ok_or_else(nothing)?,
        round_trip_range: (with[0], with[with.len() - 1]),
        lateness,
        overhead: median(without).ok_or_else(nothing)?,
        bits_per_second,
        goodput,
        counted: losses(&settings)?,
        settings,
    })
}

/// Returns the time to wait for a packet.
fn reply_timeout(settings: &Settings) -> Duration {
    settings.delay * 2 + Duration::from_secs(1)
}

/// Returns round trips in seconds, and the link's own delay.
fn round_trips(settings: &Settings) -> io::Result<(Vec<f64>, Lateness)> {
    let ends = Ends::new(settings)?;
    let carrier = Carrier::start(&ends, settings)?;
    let over = AtomicBool::new(false);
    let reply_timeout = reply_timeout(settings);
    let trips = thread::scope(|scope| {
        // The link is measured, not how long a program waits for a processor: both sides run before others, if they may.
        let _ = system::run_first();
        let server = ends.server.run(|| UdpSocket::bind((SERVER, PORT)))?;
        server.set_read_timeout(Some(Duration::from_millis(100)))?;
        let over = &over;
        scope.spawn(move || echo(&server, over));
        let client = ends.client.run(|| UdpSocket::bind((CLIENT, 0)))?;
        client.connect((SERVER, PORT))?;
        client.set_read_timeout(Some(reply_timeout))?;
        let trip = |number: usize| {
            // With a delay, processors sleep in each round trip; without one they must too, to be comparable.
            thread::sleep(ROUND_TRIP_PAUSE);
            let asked = Instant::now();
            client.send(&number.to_be_bytes())?;
            let mut reply = [0; 8];
            // Late replies to earlier packets are ignored.
            while client.recv(&mut reply).map(|_| usize::from_be_bytes(reply) != number)? {}
            Ok(asked.elapsed().as_secs_f64())
        };
        // A packet may be lost; the first ones find caches of the kernel empty.
        let trips = (0..ROUND_TRIPS + 10).map(trip).skip(10).filter_map(io::Result::ok).collect();
        over.store(true, Ordering::Relaxed);
        io::Result::Ok(trips)
    });
    let _ = system::run_as_others();
    Ok((trips?, carrier.stop()?.lateness))
}

fn echo(server: &UdpSocket, over: &AtomicBool) {
    let _ = system::run_first();
    let mut buffer = [0; 64];
    while !over.load(Ordering::Relaxed) {
        // Timeouts let this thread check `over`.
        if let Ok((length, from)) = server.recv_from(&mut buffer) {
            let _ = server.send_to(&buffer[..length], from);
        }
    }
}

/// Returns the bits a second on the line, and those of data, from server to client.
fn rate(settings: &Settings) -> io::Result<(f64, f64)> {
    let ends = Ends::new(settings)?;
    let carrier = Carrier::start(&ends, settings)?;
    let over = AtomicBool::new(false);
    let listener = ends.server.run(|| TcpListener::bind((SERVER, PORT)))?;
    thread::scope(|scope| {
        scope.spawn(|| {
            // The client sees an error as an end of data.
            let Ok((mut stream, _)) = listener.accept() else { return };
            let data = vec![0; 1 << 20];
            loop {
                if over.load(Ordering::Relaxed) || stream.write_all(&data).is_err() {
                    return;
                }
            }
        });
        let connected = ends.client.run(|| TcpStream::connect((SERVER, PORT)));
        if connected.is_err() {
            // The server's thread still waits for a connection.
            let _ = ends.server.run(|| TcpStream::connect((SERVER, PORT)));
        }
        let measured = connected.and_then(|stream| receive(stream, &carrier, settings));
        over.store(true, Ordering::Relaxed);
        measured
    })
}

/// Reads for some seconds, and returns the rates on the line and of data after the warm-up.
fn receive(mut stream: TcpStream, carrier: &Carrier, settings: &Settings) -> io::Result<(f64, f64)> {
    let warm_up = RATE_WARM_UP + settings.delay * 20;
    stream.set_read_timeout(Some(reply_timeout(settings) + Duration::from_secs(5)))?;
    let mut buffer = vec![0; 1 << 20];
    let start = Instant::now();
    let line = |carrier: &Carrier| -> Counters { carrier.carried().to_client };
    let (mut before, mut data, mut since) = (None, 0, start);
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Err(io::Error::other("the server ended the connection"));
        }
        match &before {
            None if start.elapsed() >= warm_up => {
                before = Some(line(carrier));
                since = Instant::now();
            }
            None => {}
            Some(before) => {
                data += length;
                if since.elapsed() >= RATE_TIME {
                    let seconds = since.elapsed().as_secs_f64();
                    let bytes = line(carrier).delivered_bytes - before.delivered_bytes;
                    return Ok((bytes as f64 * 8.0 / seconds, data as f64 * 8.0 / seconds));
                }
            }
        }
    }
}

/// Sends packets from client to server, and returns the numbers of sent and arrived packets.
fn losses(settings: &Settings) -> io::Result<(u64, u64)> {
    // No more at once than the line takes.
    let settings = Settings { bits_per_second: None, ..settings.clone() };
    let ends = Ends::new(&settings)?;
    let carrier = Carrier::start(&ends, &settings)?;
    let server = ends.server.run(|| UdpSocket::bind((SERVER, PORT)))?;
    // A receiver that is late must not lose what the link delivered.
    if rustix::net::sockopt::set_socket_recv_buffer_size_force(&server, LOSS_BUFFER_BYTES).is_err() {
        // Without the privilege, the system's limit applies.
        rustix::net::sockopt::set_socket_recv_buffer_size(&server, LOSS_BUFFER_BYTES)?;
    }
    let client = ends.client.run(|| UdpSocket::bind((CLIENT, 0)))?;
    client.connect((SERVER, PORT))?;
    let before = carrier.carried().to_server.offered;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            server.set_read_timeout(Some(reply_timeout(&settings)))?;
            let mut buffer = [0; 64];
            let mut arrived = 0;
            while server.recv(&mut buffer).is_ok() {
                arrived += 1;
            }
            io::Result::Ok(arrived)
        });
        for number in 0..LOSS_PACKETS {
            client.send(&number.to_be_bytes())?;
            if number % LOSS_BATCH == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        let arrived = receiver.join().unwrap_or_else(|_| Err(io::Error::other("the receiver panicked")))?;
        let entered = carrier.carried().to_server.offered - before;
        if entered != LOSS_PACKETS {
            return Err(io::Error::other(format!(
                "only {entered} of {LOSS_PACKETS} packets reached the link"
            )));
        }
        Ok((LOSS_PACKETS, arrived))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(settings: Settings) -> Measured {
        Measured {
            settings,
            round_trip: 0.01009,
            round_trip_range: (0.01, 0.011),
            overhead: 0.0001,
            lateness: Lateness::default(),
            bits_per_second: 99e6,
            goodput: 95e6,
            counted: (20_000, 19_800),
        }
    }

    #[test]
    fn tolerances_are_the_promised_ones() {
        let settings = Settings {
            delay: Duration::from_millis(10),
            bits_per_second: Some(100_000_000),
            loss: 0.01,
            ..Settings::default()
        };
        let good = measured(settings);
        assert!(good.round_trip_is_right() && good.rate_is_right() == Some(true) && good.loss_is_right());
        // 0.2 ms is 2 % of 10 ms.
        assert!(!Measured { round_trip: 0.010_301, ..good.clone() }.round_trip_is_right());
        assert_eq!(Measured { bits_per_second: 97.9e6, ..good.clone() }.rate_is_right(), Some(false));
        // Deviation √(20,000 · 0.01 · 0.99) = 14: 260 lost instead of 200 is no longer chance, on either side.
        for (arrived, right) in [(19_790, true), (19_740, false), (19_860, false)] {
            assert_eq!(
                Measured { counted: (20_000, arrived), ..good.clone() }.loss_is_right(),
                right,
                "{arrived}"
            );
        }
        assert!(!good.to_string().contains("NOT"), "{good}");
    }

    #[test]
    fn a_link_without_loss_loses_no_packet() {
        let plain = measured(Settings::default());
        assert!(Measured { counted: (20_000, 20_000), ..plain.clone() }.loss_is_right());
        assert!(!Measured { counted: (20_000, 19_999), ..plain }.loss_is_right());
    }
}
