//! Settings of the modelled link.

use std::num::NonZeroU64;
use std::time::Duration;

/// Payload of a full TCP segment on Ethernet, with timestamps (RFC 7323 §3.2): the unit of losses.
pub(super) const SEGMENT: usize = 1448;

/// Retransmission timeout beyond the round trip: the minimum of Linux.
pub(super) const RETRANSMISSION_BASE: Duration = Duration::from_millis(200);

/// Maximum number of losses of one segment in a row; each doubles the timeout.
pub(super) const LOSSES_MAX: u32 = 6;

/// One million parts, in which losses are given.
pub(super) const MILLION: u64 = 1_000_000;

/// A link between the two ends of a proxy. Both directions are alike.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// Delay of a round trip; each direction has half of it.
    pub delay: Duration,
    /// The round trip is up to this much longer or shorter; at most `delay`.
    pub jitter: Duration,
    /// Payload per second and direction, in bytes.
    pub rate: Option<NonZeroU64>,
    /// Lost segments in a million; less than a million.
    pub lost_per_million: u32,
    /// Times without any traffic, counted from the start of the proxy.
    pub outages: Vec<Outage>,
    /// Maximum number of bytes of one direction that wait for the rate or for the end of an outage, over all connections.
    pub queue_bytes: usize,
    /// Maximum number of bytes of one connection and direction that are under way, including those in the queue.
    pub buffer_bytes: usize,
}

impl Link {
    /// Default of [`Link::queue_bytes`].
    pub const QUEUE_BYTES: usize = 256 << 10;
    /// Default of [`Link::buffer_bytes`]: 1.6 GB/s at 5 ms one way.
    pub const BUFFER_BYTES: usize = 8 << 20;

    /// Returns the retransmission timeout after the first loss of a segment.
    #[must_use]
    pub fn retransmission_timeout(&self) -> Duration {
        RETRANSMISSION_BASE + self.delay
    }

    /// Returns `time`, or the end of the outages that it is in.
    #[must_use]
    pub fn after_outages(&self, time: Duration) -> Duration {
        let mut time = time;
        // Each pass leaves an outage; adjoining outages take one pass each.
        while let Some(end) = self.outages.iter().filter_map(|outage| outage.end_at(time)).max() {
            time = end;
        }
        time
    }
}

/// A time without any traffic, once or repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outage {
    /// Its first beginning.
    pub first: Duration,
    /// From one beginning to the next; `None` if it happens once. Longer than `length`.
    pub period: Option<Duration>,
    /// Its duration; more than zero.
    pub length: Duration,
}

impl Outage {
    /// Returns the end of the outage that `time` is in.
    fn end_at(self, time: Duration) -> Option<Duration> {
        let since = time.checked_sub(self.first)?;
        let into = match self.period {
            Some(period) => Duration::from_nanos_u128(since.as_nanos() % period.as_nanos().max(1)),
            None => since,
        };
        (into < self.length).then(|| time + (self.length - into))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_repeated_outage_ends_in_every_period() {
        let outage = Outage { first: seconds(30), period: Some(seconds(30)), length: seconds(5) };
        let link = Link { outages: vec![outage], ..Link::default() };
        for (time, after) in
            [(0, 0), (29, 29), (30, 35), (34, 35), (35, 35), (59, 59), (60, 65), (3601, 3605)]
        {
            assert_eq!(link.after_outages(seconds(time)), seconds(after), "at {time} s");
        }
    }

    #[test]
    fn a_single_outage_happens_once() {
        let outage = Outage { first: seconds(10), period: None, length: seconds(5) };
        let link = Link { outages: vec![outage], ..Link::default() };
        for (time, after) in [(9, 9), (10, 15), (14, 15), (15, 15), (20, 20)] {
            assert_eq!(link.after_outages(seconds(time)), seconds(after), "at {time} s");
        }
    }

    #[test]
    fn adjoining_outages_are_left_together() {
        let once = |first, length| Outage { first: seconds(first), period: None, length: seconds(length) };
        let link = Link { outages: vec![once(12, 3), once(10, 2), once(14, 6)], ..Link::default() };
        assert_eq!(link.after_outages(seconds(11)), seconds(20));
    }
}
