//! One direction of the link, shared by all connections: rate, queue, jitter and losses.

use std::collections::VecDeque;
use std::time::Duration;

use super::link::{LOSSES_MAX, Link, MILLION, SEGMENT};
use super::statistics::DirectionCounts;

/// Overhead in bytes of each portion in the queue, about the headers of a packet. It bounds the number of portions.
const PIECE_OVERHEAD: usize = 64;

/// Burst of an idle link, as a time of sending, so that late timers do not lower the rate.
const BURST: Duration = Duration::from_millis(2);

/// Sending time of the longest portion: in a longer one the first bytes would be late.
const PIECE_TIME: Duration = Duration::from_millis(1);

/// One direction of a link.
///
/// The methods take the time since the start of the proxy, which must not go backwards.
#[derive(Debug)]
pub struct Direction {
    link: Link,
    random: Random,
    /// The time at which the last portion has left the sending end.
    free_at: Duration,
    /// Portions that have not left yet, with their times and their counted bytes.
    queue: VecDeque<(Duration, usize)>,
    /// The sum of their counted bytes.
    queued: usize,
    pub(super) counts: DirectionCounts,
}

/// Bytes that arrive together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) length: usize,
    pub(super) arrives: Duration,
}

impl Direction {
    /// Creates an idle direction. Jitter and losses follow from `seed`.
    #[must_use]
    pub fn new(link: Link, seed: u64) -> Self {
        let random = Random(seed);
        let counts = DirectionCounts::default();
        Self { link, random, free_at: Duration::ZERO, queue: VecDeque::new(), queued: 0, counts }
    }

    /// Returns the link.
    pub(super) fn link(&self) -> &Link {
        &self.link
    }

    /// Returns the number of bytes that the queue takes now: none, or at least a segment.
    pub(super) fn room(&mut self, now: Duration) -> usize {
        while self.queue.front().is_some_and(|(departs, _)| *departs <= now) {
            let (_, counted) = self.queue.pop_front().expect("the queue is not empty");
            self.queued -= counted;
        }
        let free = self.link.queue_bytes.saturating_sub(self.queued);
        if free < SEGMENT && !self.queue.is_empty() { 0 } else { free.max(1) }
    }

    /// Returns the time at which half of the queue will be free.
    pub(super) fn half_free_at(&self) -> Duration {
        let mut left = self.queued;
        for (departs, counted) in &self.queue {
            left -= counted;
            if left <= self.link.queue_bytes / 2 {
                return *departs;
            }
        }
        self.free_at
    }

    /// Sends up to `length` bytes that arrived from the sender at `now`, as portions for `deliver`. `last` is the time at which the
    /// connection's previous bytes arrive; no byte overtakes them.
    pub(super) fn send(
        &mut self,
        now: Duration,
        length: usize,
        last: Duration,
        mut deliver: impl FnMut(Piece),
    ) {
        let (mut left, mut last) = (length, last);
        let transit = self.transit();
        while left > 0 {
            let (length, losses) = self.next_piece(left);
            let departs = self.depart(now, length);
            let arrives = (departs + transit + self.stall(losses)).max(last);
            deliver(Piece { length, arrives });
            (left, last) = (left - length, arrives);
        }
        self.counts.bytes += length as u64;
    }

    /// Returns the time of arrival of the end of a stream that the sender closes at `now`.
    pub(super) fn end(&mut self, now: Duration, last: Duration) -> Duration {
        let departs = self.link.after_outages(now.max(self.free_at));
        (departs + self.transit()).max(last)
    }

    /// Returns the length of the next portion of `left` bytes, and the number of its failed transmissions.
    fn next_piece(&mut self, left: usize) -> (usize, u32) {
        let of_rate = self.link.rate.map_or(usize::MAX, |rate| bytes_in(rate.get(), PIECE_TIME));
        let longest = left.min(of_rate.max(SEGMENT));
        if self.link.lost_per_million == 0 {
            return (longest, 0);
        }
        let mut length = 0;
        while length < longest {
            let segment = SEGMENT.min(longest - length);
            if self.is_lost() {
                // Data before a lost segment are a separate portion: it arrives in time.
                if length > 0 {
                    self.random.repeat();
                    return (length, 0);
                }
                return (segment, self.further_losses());
            }
            length += segment;
        }
        (length, 0)
    }

    /// Returns the losses of a segment that was lost once.
    fn further_losses(&mut self) -> u32 {
        let mut losses = 1;
        while losses < LOSSES_MAX && self.is_lost() {
            losses += 1;
        }
        losses
    }

    fn is_lost(&mut self) -> bool {
        self.random.next() % MILLION < u64::from(self.link.lost_per_million)
    }

    /// Returns the stall of a segment that was lost `losses` times.
    fn stall(&mut self, losses: u32) -> Duration {
        let stall = self.link.retransmission_timeout() * ((1 << losses) - 1);
        self.counts.lost_segments += u64::from(losses);
        self.counts.stalled += stall;
        stall
    }

    /// Returns the time at which `length` bytes have left the sending end, and queues them until then.
    fn depart(&mut self, now: Duration, length: usize) -> Duration {
        // A generic cell rate algorithm: an idle link accumulates at most the time of a burst.
        let begins = self.link.after_outages(self.free_at.max(now.saturating_sub(BURST)));
        let takes = self.link.rate.map_or(Duration::ZERO, |rate| time_of(length, rate.get()));
        self.free_at = begins + takes;
        let departs = self.link.after_outages(now).max(self.free_at);
        if departs > now {
            let counted = length + PIECE_OVERHEAD;
            self.queue.push_back((departs, counted));
            self.queued += counted;
            self.counts.queue_bytes_max = self.counts.queue_bytes_max.max(self.queued as u64);
        }
        departs
    }

    /// Returns the time from one end to the other, with jitter.
    fn transit(&mut self) -> Duration {
        let (half, spread) = (self.link.delay / 2, self.link.jitter / 2);
        let nanoseconds = u64::try_from(spread.as_nanos()).unwrap_or(u64::MAX / 2);
        if nanoseconds == 0 {
            return half;
        }
        let drawn = self.random.next() % (2 * nanoseconds + 1);
        (half + Duration::from_nanos(drawn)).saturating_sub(spread)
    }
}

/// Returns the bytes that `rate` sends in `time`.
fn bytes_in(rate: u64, time: Duration) -> usize {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Returns the time in which `rate` sends `length` bytes.
fn time_of(length: usize, rate: u64) -> Duration {
    Duration::from_nanos_u128(length as u128 * 1_000_000_000 / u128::from(rate))
}

/// SplitMix64 (Steele, Lea and Flood 2014), which can return its last number again.
#[derive(Debug)]
struct Random(u64);

impl Random {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Makes the next number the last one again.
    fn repeat(&mut self) {
        self.0 = self.0.wrapping_sub(Self::STEP);
    }
}
