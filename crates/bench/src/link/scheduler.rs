//! One direction of a link: losses, and times of arrival of all other packets.
//!
//! The scheduler has no clock and no socket. A caller passes packets to [`Direction::offer`], queries the next time
//! at which one is due, and takes it with [`Direction::take_due`]; each call gets the time since the link's start.
//!
//! A packet passes these stages, in this order: an outage, the queue in front of the line, the line with its rate, loss,
//! then delay and jitter. A lost packet has used the line. Packets stay in order, unless the link reorders on purpose: a
//! reordered packet skips the delay, as in netem.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use serde::Serialize;

use super::settings::{Outage, Settings};

/// Maximum bytes on their way in one direction: 10 Gbit/s for 200 ms. Packets beyond are dropped and counted.
pub const IN_FLIGHT_BYTES_MAX: usize = 256 << 20;

/// The outcome of a packet that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It will arrive.
    Accepted,
    /// It was lost on the line.
    Lost,
    /// The queue in front of the line was full.
    QueueFull,
    /// The link was down.
    Down,
    /// More than [`IN_FLIGHT_BYTES_MAX`] were on their way.
    Overrun,
}

/// Counts of one direction so far. Packets are counted as on the wire: a large one that the system will segment counts as several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Packets that were offered.
    pub offered: u64,
    /// Packets that arrived.
    pub delivered: u64,
    /// Bytes that arrived, with the headers of IP and above.
    pub delivered_bytes: u64,
    /// Packets lost at random.
    pub lost: u64,
    /// Packets dropped because the queue was full.
    pub queue_full: u64,
    /// Packets offered during an outage.
    pub down: u64,
    /// Packets beyond [`IN_FLIGHT_BYTES_MAX`].
    pub overrun: u64,
    /// Packets that overtook others on purpose.
    pub reordered: u64,
    /// Maximum number of packets that have waited for the line at once.
    pub queue_max: u64,
}

/// A packet on the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Packets on the wire.
    pub packets: u32,
    /// Their bytes, headers included.
    pub bytes: u32,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Direction<P> {
    delay: Duration,
    jitter: Duration,
    bits_per_second: Option<u64>,
    loss: f64,
    reorder: f64,
    queue_packets: u64,
    outages: Vec<Outage>,
    random: fastrand::Rng,
    /// When the line has sent every accepted packet.
    line_free: Duration,
    /// Packets that wait for the line: when each begins, and how many it is.
    waiting: VecDeque<(Duration, u32)>,
    /// The sum of those packets.
    waiting_packets: u64,
    /// When the last packet in order arrives.
    last_due: Duration,
    /// Packets on their way, the earliest first.
    in_flight: BinaryHeap<Reverse<InFlight<P>>>,
    in_flight_bytes: usize,
    sequence: u64,
    counters: Counters,
}

#[derive(Debug)]
struct InFlight<P> {
    due: Duration,
    /// Order of packets that are due at the same time.
    sequence: u64,
    size: Size,
    packet: P,
}

impl<P> Direction<P> {
    /// Creates one direction of a link; `seed` should differ from that of the other.
    #[must_use]
    pub fn new(settings: &Settings, seed: u64) -> Self {
        Self {
            delay: settings.delay / 2,
            jitter: settings.jitter / 2,
            bits_per_second: settings.bits_per_second,
            loss: settings.loss,
            reorder: settings.reorder,
            queue_packets: u64::from(settings.queue_packets),
            outages: settings.outages.clone(),
            random: fastrand::Rng::with_seed(seed),
            line_free: Duration::ZERO,
            waiting: VecDeque::new(),
            waiting_packets: 0,
            last_due: Duration::ZERO,
            in_flight: BinaryHeap::new(),
            in_flight_bytes: 0,
            sequence: 0,
            counters: Counters::default(),
        }
    }

    /// Takes a packet that enters the link at `now`, which never decreases.
    pub fn offer(&mut self, now: Duration, size: Size, packet: P) -> Verdict {
        let packets = u64::from(size.packets);
        self.counters.offered += packets;
        if self.outages.iter().any(|outage| outage.covers(now)) {
            self.counters.down += packets;
            return Verdict::Down;
        }
        if self.waiting_at(now) >= self.queue_packets {
            self.counters.queue_full += packets;
            return Verdict::QueueFull;
        }
        if self.in_flight_bytes + size.bytes as usize > IN_FLIGHT_BYTES_MAX {
            self.counters.overrun += packets;
            return Verdict::Overrun;
        }
        let sent = self.send(now, size);
        if self.happens(self.loss) {
            self.counters.lost += packets;
            return Verdict::Lost;
        }
        let due = self.due(sent, packets);
        self.in_flight_bytes += size.bytes as usize;
        self.in_flight.push(Reverse(InFlight { due, sequence: self.sequence, size, packet }));
        self.sequence += 1;
        Verdict::Accepted
    }

    /// Returns when the next packet arrives.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.in_flight.peek().map(|Reverse(next)| next.due)
    }

    /// Returns a packet that has arrived by `now`, with the time at which it was due; one at each call, in order of time.
    pub fn take_due(&mut self, now: Duration) -> Option<(Duration, P)> {
        self.next_due().filter(|due| *due <= now)?;
        let Reverse(InFlight { due, size, packet, .. }) = self.in_flight.pop()?;
        self.in_flight_bytes -= size.bytes as usize;
        self.counters.delivered += u64::from(size.packets);
        self.counters.delivered_bytes += u64::from(size.bytes);
        Some((due, packet))
    }

    /// Returns the counts of this direction so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of packets that wait for the line.
    fn waiting_at(&mut self, now: Duration) -> u64 {
        while let Some((_, packets)) = self.waiting.pop_front_if(|(begins, _)| *begins <= now) {
            self.waiting_packets -= u64::from(packets);
        }
        self.waiting_packets
    }

    /// Sends a packet over the line. Returns when its last bit has left.
    fn send(&mut self, now: Duration, size: Size) -> Duration {
        let Some(bits_per_second) = self.bits_per_second else { return now };
        let begins = self.line_free.max(now);
        // At most 2³⁵ bits · 10⁹ fits u128.
        let nanoseconds = u128::from(size.bytes) * 8 * 1_000_000_000 / u128::from(bits_per_second);
        self.line_free = begins + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        if begins > now {
            self.waiting.push_back((begins, size.packets));
            self.waiting_packets += u64::from(size.packets);
            self.counters.queue_max = self.counters.queue_max.max(self.waiting_packets);
        }
        self.line_free
    }

    /// Returns when a packet arrives that left the line at `sent`.
    fn due(&mut self, sent: Duration, packets: u64) -> Duration {
        if self.happens(self.reorder) {
            self.counters.reordered += packets;
            return sent;
        }
        let swing = if self.jitter.is_zero() { 0.0 } else { self.random.f64() * 2.0 };
        let delay = (self.delay + self.jitter.mul_f64(swing)).saturating_sub(self.jitter);
        self.last_due = self.last_due.max(sent + delay);
        self.last_due
    }

    /// Draws no random number for impossible events: the other numbers then do not depend on them.
    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.f64() < probability
    }
}

impl<P> Ord for InFlight<P> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

impl<P> PartialOrd for InFlight<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for InFlight<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P> Eq for InFlight<P> {}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const US: fn(u64) -> Duration = Duration::from_micros;
    const SMALL: Size = Size { packets: 1, bytes: 100 };
    const FULL: Size = Size { packets: 1, bytes: 1500 };

    /// Takes all packets, with the times at which they were due.
    fn drain<P>(link: &mut Direction<P>) -> Vec<(Duration, P)> {
        std::iter::from_fn(|| link.take_due(Duration::MAX)).collect()
    }

    fn link(settings: Settings) -> Direction<u32> {
        Direction::new(&settings, 1)
    }

    #[test]
    fn both_directions_together_have_the_round_trip() {
        let settings = Settings { delay: MS(10), ..Settings::default() };
        let (mut there, mut back) = (link(settings.clone()), link(settings));
        assert_eq!(there.offer(MS(3), SMALL, 1), Verdict::Accepted);
        assert_eq!(there.next_due(), Some(MS(8)));
        assert_eq!(there.take_due(MS(8) - Duration::from_nanos(1)), None);
        assert_eq!(there.take_due(MS(8)), Some((MS(8), 1)));
        back.offer(MS(8), SMALL, 2);
        assert_eq!(back.take_due(MS(13)), Some((MS(13), 2)));
        assert_eq!(back.next_due(), None);
    }

    /// 1,500 bytes at 12 Mbit/s take one millisecond.
    #[test]
    fn packets_leave_at_the_rate_of_the_line() {
        let settings = Settings { bits_per_second: Some(12_000_000), ..Settings::default() };
        let mut link = link(settings);
        for number in 0..3 {
            link.offer(MS(0), FULL, number);
        }
        assert_eq!(drain(&mut link), [(MS(1), 0), (MS(2), 1), (MS(3), 2)]);
        // The line was idle after 3 ms.
        link.offer(MS(10), FULL, 3);
        assert_eq!(drain(&mut link), [(MS(11), 3)]);
        assert_eq!(link.counters().delivered_bytes, 6000);
    }

    #[test]
    fn full_queue_drops_until_the_line_has_taken_some() {
        let settings =
            Settings { bits_per_second: Some(12_000_000), queue_packets: 2, ..Settings::default() };
        let mut link = link(settings);
        // One is sent, two wait, the fourth is too many.
        let verdicts: Vec<_> = (0..4).map(|number| link.offer(MS(0), FULL, number)).collect();
        assert_eq!(verdicts[..3], [Verdict::Accepted; 3]);
        assert_eq!(verdicts[3], Verdict::QueueFull);
        assert_eq!(link.offer(US(999), FULL, 4), Verdict::QueueFull);
        assert_eq!(link.offer(MS(1), FULL, 5), Verdict::Accepted);
        let Counters { queue_full, queue_max, offered, .. } = link.counters();
        assert_eq!((queue_full, queue_max, offered), (2, 2, 6));
    }

    #[test]
    fn outage_drops_only_packets_that_enter_during_it() {
        let outages = vec![Outage { start: MS(10), length: MS(5) }];
        let mut link = link(Settings { delay: MS(8), outages, ..Settings::default() });
        let verdicts = [9, 10, 14, 15].map(|at| link.offer(MS(at), SMALL, at as u32));
        assert_eq!(verdicts, [Verdict::Accepted, Verdict::Down, Verdict::Down, Verdict::Accepted]);
        assert_eq!(drain(&mut link), [(MS(13), 9), (MS(19), 15)]);
        assert_eq!(link.counters().down, 2);
    }

    /// Five deviations of a binomial around the expected losses: the seeds are fixed, so the test cannot fail by chance.
    #[test]
    fn losses_are_within_the_binomial_interval() {
        for (loss, seed) in [(0.001, 1), (0.01, 2), (0.1, 3), (0.5, 4)] {
            let count = 100_000;
            let mut link = Direction::new(&Settings { loss, ..Settings::default() }, seed);
            let lost = (0..count).filter(|n| link.offer(US(*n), SMALL, ()) == Verdict::Lost).count() as f64;
            let expected = count as f64 * loss;
            let deviation = (expected * (1.0 - loss)).sqrt();
            assert!((lost - expected).abs() < 5.0 * deviation, "{loss}: {lost} of {count}");
            assert_eq!(link.counters().lost as f64, lost);
            assert_eq!(drain(&mut link).len() as f64, count as f64 - lost);
        }
    }

    #[test]
    fn jitter_moves_packets_within_its_bounds_and_keeps_their_order() {
        let settings = Settings { delay: MS(20), jitter: MS(4), ..Settings::default() };
        let mut spaced = link(settings.clone());
        // Further apart than the jitter, so that none waits for another.
        for number in 0..200 {
            spaced.offer(MS(10) * number, SMALL, number);
        }
        let delays: Vec<Duration> =
            drain(&mut spaced).into_iter().map(|(due, number)| due - MS(10) * number).collect();
        assert!(delays.iter().all(|delay| (MS(8)..=MS(12)).contains(delay)), "{delays:?}");
        assert!(delays.iter().any(|delay| *delay < MS(9)) && delays.iter().any(|delay| *delay > MS(11)));
        let mut close = link(settings);
        for number in 0..200 {
            close.offer(US(10) * number, SMALL, number);
        }
        let order: Vec<u32> = drain(&mut close).into_iter().map(|(_, number)| number).collect();
        assert!(order.is_sorted());
    }

    #[test]
    fn reordered_packets_overtake_those_in_flight() {
        let mut link = link(Settings { delay: MS(20), reorder: 0.1, ..Settings::default() });
        for number in 0..1000 {
            link.offer(US(u64::from(number) * 100), SMALL, number);
        }
        let arrived = drain(&mut link);
        let overtaking = link.counters().reordered;
        // Five deviations around 100 of 1,000.
        assert!((52..=148).contains(&overtaking), "{overtaking}");
        let at_once = arrived.iter().filter(|(due, number)| *due == US(u64::from(*number) * 100)).count();
        assert_eq!(at_once as u64, overtaking);
        assert!(!arrived.iter().map(|(_, number)| *number).collect::<Vec<_>>().is_sorted());
    }

    #[test]
    fn a_seed_decides_which_packets_are_lost() {
        let lost = |seed| {
            let mut link = Direction::new(&Settings { loss: 0.2, ..Settings::default() }, seed);
            (0..100).map(|n| link.offer(US(n), SMALL, ()) == Verdict::Lost).collect::<Vec<_>>()
        };
        assert_eq!(lost(5), lost(5));
        assert_ne!(lost(5), lost(6));
    }

    #[test]
    fn memory_on_the_way_is_bounded() {
        let mut link = link(Settings { delay: MS(1000), ..Settings::default() });
        let large = Size { packets: 45, bytes: 64 << 20 };
        let verdicts = [0; 5].map(|_| link.offer(MS(0), large, 0));
        assert_eq!(verdicts[..4], [Verdict::Accepted; 4]);
        assert_eq!((verdicts[4], link.counters().overrun), (Verdict::Overrun, 45));
        drain(&mut link);
        assert_eq!(link.offer(MS(2000), large, 0), Verdict::Accepted);
    }
}
