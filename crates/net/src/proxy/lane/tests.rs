//! Virtual-time tests of lanes over a direction.

use std::num::NonZeroU64;

use proptest::prelude::*;

use super::super::link::{Link, Outage, SEGMENT};
use super::*;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn link() -> Link {
    Link { queue_bytes: Link::QUEUE_BYTES, buffer_bytes: Link::BUFFER_BYTES, ..Link::default() }
}

/// A lane, and a direction that no other lane uses.
struct Path {
    direction: Direction,
    lane: Lane,
}

impl Path {
    fn new(link: Link) -> Self {
        Self { direction: Direction::new(link, 1), lane: Lane::new(Duration::ZERO) }
    }

    fn step(&mut self, now: Duration) -> Step {
        self.lane.step(now, &mut self.direction)
    }

    /// Sends bytes for which there is room.
    fn receive(&mut self, now: Duration, length: usize) {
        assert!(self.step(now).room >= length, "no room for {length} at {now:?}");
        self.lane.received(now, length, &mut self.direction);
    }

    fn end(&mut self, now: Duration) {
        self.lane.ended(now, &mut self.direction);
    }

    /// Writes everything as soon as it is due. Returns when each portion left, and when the stream ended.
    fn drain(&mut self, from: Duration) -> (Vec<(Duration, usize)>, Option<Duration>) {
        let (mut now, mut portions) = (from, Vec::new());
        loop {
            let step = self.step(now);
            if step.due > 0 {
                portions.push((now, step.due));
                self.lane.sent(step.due);
            } else if step.is_over {
                return (portions, Some(now));
            } else {
                match step.wake {
                    Some(wake) => now = wake,
                    None => return (portions, None),
                }
            }
        }
    }
}

#[test]
fn each_direction_has_half_of_the_delay() {
    let mut path = Path::new(Link { delay: ms(10), ..link() });
    path.receive(ms(100), 300);
    path.receive(ms(101), 200);
    path.end(ms(102));
    let (portions, end) = path.drain(ms(102));
    assert_eq!(portions, [(ms(105), 300), (ms(106), 200)]);
    assert_eq!(end, Some(ms(107)));
}

#[test]
fn a_link_without_settings_delays_nothing() {
    let mut path = Path::new(link());
    path.receive(ms(3), 70_000);
    let (portions, _) = path.drain(ms(3));
    assert_eq!(portions, [(ms(3), 70_000)]);
}

#[test]
fn nothing_is_read_before_the_handshake_is_over() {
    let mut path = Path::new(Link { delay: ms(10), ..link() });
    path.lane = Lane::new(ms(10));
    let step = path.step(ms(0));
    assert_eq!((step.room, step.wake), (0, Some(ms(10))));
    path.receive(ms(10), 100);
    assert_eq!(path.drain(ms(10)).0, [(ms(15), 100)]);
}

#[test]
fn the_rate_spaces_bytes_and_is_shared() {
    // 1 MB/s: a segment of 1,000 bytes a millisecond.
    let rate = NonZeroU64::new(1_000_000);
    let mut direction = Direction::new(Link { rate, ..link() }, 1);
    let (mut one, mut other) = (Lane::new(Duration::ZERO), Lane::new(Duration::ZERO));
    let now = ms(1000);
    assert!(one.step(now, &mut direction).room >= 10_000);
    one.received(now, 10_000, &mut direction);
    other.received(now, 10_000, &mut direction);
    // An idle link catches up 2 ms.
    assert_eq!(one.last, ms(1008));
    assert_eq!(other.last, ms(1018));
}

#[test]
fn a_sustained_transfer_has_the_rate() {
    let rate = NonZeroU64::new(125_000_000);
    let mut path = Path::new(Link { rate, delay: ms(10), ..link() });
    let (mut now, mut left) = (ms(0), 125_000_000_usize);
    let mut arrived = 0;
    while arrived < 125_000_000 {
        let step = path.step(now);
        path.lane.sent(step.due);
        arrived += step.due;
        let length = step.room.min(left).min(64 << 10);
        if length > 0 {
            path.lane.received(now, length, &mut path.direction);
            left -= length;
        } else if arrived < 125_000_000 && step.due == 0 {
            now = step.wake.expect("more bytes are expected");
        }
    }
    // One second of sending and half a round trip, less the burst.
    assert!((ms(1003)..=ms(1005)).contains(&now), "{now:?}");
    assert!(path.direction.counts.queue_bytes_max <= (256 << 10) + (64 << 10), "{:?}", path.direction.counts);
}

#[test]
fn a_full_queue_stops_reading_until_half_is_free() {
    let rate = NonZeroU64::new(1_000_000);
    let mut path = Path::new(Link { rate, queue_bytes: 100_000, ..link() });
    while path.step(ms(0)).room > 0 {
        let length = path.step(ms(0)).room.min(1000);
        path.receive(ms(0), length);
    }
    let sent = path.direction.counts.bytes;
    assert!((90_000..=100_000).contains(&sent), "{sent}");
    let half = path.direction.half_free_at();
    assert!((ms(40)..=ms(55)).contains(&half), "{half:?}");
    assert!(path.step(half).room >= 50_000 - SEGMENT);
}

#[test]
fn a_full_buffer_stops_reading_until_bytes_are_written() {
    let mut path = Path::new(Link { delay: ms(100), buffer_bytes: 5000, ..link() });
    path.receive(ms(0), 5000);
    assert_eq!(path.step(ms(1)), Step { room: 0, due: 0, is_over: false, wake: Some(ms(50)) });
    assert_eq!(path.step(ms(50)).due, 5000);
    path.lane.sent(2000);
    assert_eq!(path.step(ms(50)).room, 2000);
}

#[test]
fn a_lost_segment_stalls_what_follows_and_nothing_before() {
    // Half of all segments are lost.
    let mut path = Path::new(Link { delay: ms(10), lost_per_million: 500_000, ..link() });
    path.receive(ms(0), 64 * SEGMENT);
    let (portions, _) = path.drain(ms(0));
    let lost = path.direction.counts.lost_segments;
    assert!((30..=130).contains(&lost), "{lost}");
    assert_eq!(portions.iter().map(|(_, length)| length).sum::<usize>(), 64 * SEGMENT);
    // A stall is a timeout of 210 ms, or 630 ms for a segment that was lost twice, and so on.
    for (time, _) in &portions {
        let stall = time.checked_sub(ms(5)).expect("half of a round trip").as_millis();
        assert!([0, 1, 3, 7, 15, 31, 63].contains(&(stall / 210)) && stall % 210 == 0, "{time:?}");
    }
}

#[test]
fn losses_have_the_requested_rate() {
    let mut path = Path::new(Link { lost_per_million: 10_000, ..link() });
    for turn in 0..1000 {
        // Longer than all stalls.
        let now = Duration::from_secs(turn * 100);
        path.receive(now, 20 * SEGMENT);
        path.drain(now);
    }
    // 20,000 segments; the standard deviation is 14.
    let lost = path.direction.counts.lost_segments;
    assert!((130..=270).contains(&lost), "{lost}");
}

#[test]
fn an_outage_holds_bytes_back_until_it_ends() {
    let outage = Outage { first: ms(1000), period: None, length: ms(500) };
    let mut path = Path::new(Link { delay: ms(10), outages: vec![outage], ..link() });
    path.receive(ms(999), 100);
    path.receive(ms(1200), 200);
    path.end(ms(1300));
    let (portions, end) = path.drain(ms(1300));
    // Data sent before arrive.
    assert_eq!(portions, [(ms(1300), 100), (ms(1505), 200)]);
    assert_eq!(end, Some(ms(1505)));
}

#[test]
fn a_rate_holds_after_an_outage() {
    let outage = Outage { first: ms(1000), period: None, length: ms(500) };
    let rate = NonZeroU64::new(1_000_000);
    let mut path = Path::new(Link { rate, outages: vec![outage], ..link() });
    path.receive(ms(1100), 100_000);
    let (portions, _) = path.drain(ms(1100));
    assert_eq!(portions.last().map(|(time, _)| *time), Some(ms(1600)));
    assert!(portions.iter().all(|(time, _)| *time > ms(1500)));
}

#[test]
fn jitter_stays_within_its_bounds() {
    let mut path = Path::new(Link { delay: ms(10), jitter: ms(4), ..link() });
    let mut seen = Vec::new();
    for turn in 0..200 {
        let now = ms(turn * 100);
        path.receive(now, 10);
        seen.push(path.drain(now).0[0].0 - now);
    }
    assert!(seen.iter().all(|took| (ms(3)..=ms(7)).contains(took)), "{seen:?}");
    seen.sort();
    seen.dedup();
    assert!(seen.len() > 100, "{} different times", seen.len());
}

#[test]
fn the_end_comes_after_the_last_byte() {
    let mut path = Path::new(Link { delay: ms(10), ..link() });
    path.receive(ms(0), 10);
    path.end(ms(0));
    let step = path.step(ms(5));
    assert_eq!((step.due, step.is_over, step.room), (10, false, 0));
    path.lane.sent(10);
    assert!(path.step(ms(5)).is_over);
}

proptest! {
    /// On any link, every byte leaves once, in order, never early, and the end comes last.
    #[test]
    fn every_byte_leaves_once_and_never_early(
        delay in 0_u64..50,
        jitter in 0_u64..50,
        rate in proptest::option::of(1_000_u64..10_000_000),
        lost_per_million in 0_u32..200_000,
        outage in proptest::option::of((0_u64..100, 1_u64..100)),
        sends in proptest::collection::vec((0_u64..20, 1_usize..40_000), 1..20),
    ) {
        let outages = outage.map(|(first, length)| Outage { first: ms(first), period: None, length: ms(length) });
        let link = Link {
            delay: ms(delay),
            jitter: ms(jitter.min(delay)),
            rate: rate.and_then(NonZeroU64::new),
            lost_per_million,
            outages: outages.into_iter().collect(),
            ..link()
        };
        let least = ms(delay - jitter.min(delay)) / 2;
        let mut path = Path::new(link);
        let (mut now, mut given, mut taken) = (ms(0), Vec::new(), 0_usize);
        let mut sends = sends.into_iter().map(|(pause, length)| (ms(pause), length)).peekable();
        let mut next_at = sends.peek().map(|(pause, _)| *pause);
        loop {
            let step = path.step(now);
            if step.due > 0 {
                let departed: usize = given.iter().filter(|(time, _)| *time + least <= now).map(|(_, length)| length).sum();
                taken += step.due;
                prop_assert!(taken <= departed, "{taken} bytes at {now:?}, {departed} were given in time");
                path.lane.sent(step.due);
            } else if step.is_over {
                break;
            } else if next_at.is_some_and(|at| at <= now) && step.room > 0 {
                let (_, length) = sends.next().expect("one is next");
                let length = length.min(step.room);
                path.lane.received(now, length, &mut path.direction);
                given.push((now, length));
                next_at = sends.peek().map(|(pause, _)| now + *pause);
                if next_at.is_none() {
                    path.end(now);
                }
            } else {
                let next = step.wake.into_iter().chain(next_at.filter(|at| *at > now)).min();
                now = next.expect("something is expected");
            }
        }
        prop_assert_eq!(taken, given.iter().map(|(_, length)| length).sum::<usize>());
    }
}
