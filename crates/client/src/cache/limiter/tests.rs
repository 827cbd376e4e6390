use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

/// 64 MiB: 16 for reads, 8 for minimums; writers wait at 40, others at 56.
fn limiter() -> Limiter {
    Limiter::new(Budget::new(64 * MIB))
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll(reserve: &mut Reserve) -> Poll<Result<Permit, Refused>> {
    Pin::new(reserve).poll(&mut Context::from_waker(Waker::noop()))
}

fn granted(reserve: &mut Reserve) -> Permit {
    match poll(reserve) {
        Poll::Ready(result) => result.expect("the reservation fits the budget"),
        Poll::Pending => panic!("still waits"),
    }
}

#[test]
fn a_part_is_reserved_for_reads() {
    let limiter = limiter();
    let (writer, reader) = (limiter.user(), limiter.user());
    let _dirty = writer.try_reserve(Kind::Dirty, 40 * MIB).unwrap();
    assert_eq!(writer.try_reserve(Kind::Dirty, MIB).unwrap_err(), Refused::Full);
    let _clean = reader.try_reserve(Kind::Clean, 16 * MIB).unwrap();
    assert_eq!(reader.try_reserve(Kind::Clean, MIB).unwrap_err(), Refused::Full);
}

#[test]
fn a_user_with_little_memory_gets_more_when_others_wait() {
    let limiter = limiter();
    let (greedy, modest) = (limiter.user(), limiter.user());
    let _dirty = greedy.try_reserve(Kind::Dirty, 40 * MIB).unwrap();
    let mut waits = greedy.reserve(Kind::Dirty, MIB);
    assert!(poll(&mut waits).is_pending());
    let _modest = modest.try_reserve(Kind::Dirty, USER_MINIMUM).unwrap();
    assert_eq!(modest.try_reserve(Kind::Dirty, 1).unwrap_err(), Refused::Full);
}

#[test]
fn reservation_that_can_never_fit_is_an_error() {
    let user = limiter().user();
    assert_eq!(user.try_reserve(Kind::Dirty, 41 * MIB).unwrap_err(), Refused::TooLarge);
    assert_eq!(user.try_reserve(Kind::Clean, 57 * MIB).unwrap_err(), Refused::TooLarge);
    assert!(matches!(poll(&mut user.reserve(Kind::Dirty, 41 * MIB)), Poll::Ready(Err(Refused::TooLarge))));
}

#[test]
fn waiters_are_granted_in_order_and_woken_once() {
    let limiter = limiter();
    let user = limiter.user();
    let mut held = user.try_reserve(Kind::Dirty, 40 * MIB).unwrap();
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut first = user.reserve(Kind::Dirty, 4 * MIB);
    let mut second = user.reserve(Kind::Dirty, MIB);
    assert!(Pin::new(&mut first).poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(Pin::new(&mut second).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(held.split(2 * MIB));
    assert_eq!(count.0.load(Ordering::Relaxed), 0, "the second must not overtake the first");
    assert_eq!(user.try_reserve(Kind::Dirty, MIB).unwrap_err(), Refused::Full, "nor may a new waiter");
    drop(held.split(2 * MIB));
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    let first = granted(&mut first);
    assert!(poll(&mut second).is_pending());
    drop(first);
    assert_eq!(granted(&mut second).bytes(), MIB);
}

#[test]
fn dropping_a_waiter_passes_its_turn_and_memory_to_the_next() {
    let limiter = limiter();
    let user = limiter.user();
    let held = user.try_reserve(Kind::Dirty, 40 * MIB).unwrap();
    let mut large = user.reserve(Kind::Dirty, 40 * MIB);
    let mut small = user.reserve(Kind::Dirty, MIB);
    assert!(poll(&mut large).is_pending() && poll(&mut small).is_pending());
    drop(held);
    // The large one is granted, though its future was not polled since.
    assert!(poll(&mut small).is_pending());
    drop(large);
    assert_eq!(granted(&mut small).bytes(), MIB);
    assert_eq!(limiter.used(), Usage::default());
}

#[test]
fn evicts_clean_pages_then_read_ahead_then_metadata_then_requests_commits() {
    let limiter = limiter();
    let user = limiter.user();
    let reserve = |kind, mib: u64| user.try_reserve(kind, mib * MIB).unwrap();
    let _held = (reserve(Kind::Uncommitted, 19), reserve(Kind::Metadata, 10));
    let _more = (reserve(Kind::ReadAhead, 10), reserve(Kind::Clean, 13));
    // Reclaim starts at 52 MiB: 64 less 8 for minimums and 4 in reserve.
    assert_eq!(limiter.pressure(), Pressure::None);
    let demand = |waiting: u64| {
        let mut waits = user.reserve(Kind::Clean, waiting * MIB);
        assert!(poll(&mut waits).is_pending());
        assert_eq!(limiter.pressure(), Pressure::Wait);
        limiter.demand()
    };
    let expected = |clean: u64, read_ahead: u64, metadata: u64, commit| Demand {
        clean: clean * MIB,
        read_ahead: read_ahead * MIB,
        metadata: metadata * MIB,
        commit,
        flush: false,
    };
    assert_eq!(demand(5), expected(5, 0, 0, false));
    assert_eq!(demand(20), expected(13, 7, 0, false));
    assert_eq!(demand(30), expected(13, 10, 7, false));
    assert_eq!(demand(40), expected(13, 10, 10, true));
}

#[test]
fn uncommitted_data_request_commits_before_writers_are_slowed() {
    let limiter = limiter();
    let user = limiter.user();
    let mut held = user.try_reserve(Kind::Uncommitted, 19 * MIB).unwrap();
    assert!(!limiter.demand().commit);
    held.merge(user.try_reserve(Kind::Uncommitted, MIB).unwrap());
    assert_eq!(limiter.pressure(), Pressure::Commit);
    assert!(limiter.demand().commit);
    assert_eq!(limiter.write_delay(Duration::ZERO, MIB), Duration::ZERO);
    held.merge(user.try_reserve(Kind::Uncommitted, 11 * MIB).unwrap());
    assert_eq!(limiter.pressure(), Pressure::Slow);
    assert!(limiter.write_delay(Duration::ZERO, MIB) > Duration::ZERO);
}

#[test]
fn delay_grows_without_steps_and_is_bounded() {
    let limiter = limiter();
    let user = limiter.user();
    let mut held = user.try_reserve(Kind::Dirty, 30 * MIB).unwrap();
    let mut last = Duration::ZERO;
    while let Ok(more) = user.try_reserve(Kind::Dirty, 64 << 10) {
        held.merge(more);
        let delay = limiter.write_delay(Duration::ZERO, 64 << 10);
        assert!(delay >= last && delay <= WRITE_DELAY_MAX);
        last = delay;
    }
    assert_eq!(last, WRITE_DELAY_MAX);
}

#[test]
fn faster_server_makes_delays_shorter() {
    let delay_at = |rate_mib: u64| {
        let limiter = limiter();
        let user = limiter.user();
        let mut held = user.try_reserve(Kind::Dirty, 35 * MIB).unwrap();
        for tick in 0..20_u32 {
            limiter.write_delay(Duration::from_millis(100) * tick, MIB);
            drop(held.split(rate_mib * MIB / 10));
            held.merge(user.try_reserve(Kind::Dirty, rate_mib * MIB / 10).unwrap());
        }
        limiter.write_delay(Duration::from_secs(2), MIB)
    };
    // At 35 MiB half of the last quarter is full: x / (1 - x) is 1, so the delay is 1 MiB / rate.
    assert_eq!(delay_at(10).as_millis(), 100);
    assert_eq!(delay_at(100).as_millis(), 10);
    assert_eq!(delay_at(0), WRITE_DELAY_MAX);
}

#[test]
fn writer_settles_at_the_rate_of_the_server_and_never_waits() {
    let limiter = limiter();
    let user = limiter.user();
    let mut held = user.try_reserve(Kind::Dirty, 0).unwrap();
    let (mut now, mut written, mut stable) = (Duration::ZERO, 0_u64, 0_u64);
    while now < Duration::from_secs(60) {
        let delay = limiter.write_delay(now, 64 << 10);
        now += delay + Duration::from_micros(20);
        // The server stores 50 MiB a second.
        let target = (now.as_micros() as u64 * 50 * MIB / 1_000_000).min(written);
        drop(held.split(target - stable));
        stable = target;
        held.merge(user.try_reserve(Kind::Dirty, 64 << 10).expect("a slowed writer never waits"));
        written += 64 << 10;
    }
    let rate = stable / 60 / MIB;
    assert!((48..=50).contains(&rate), "the server is busy: {rate} MiB/s");
}

#[derive(Clone, Debug)]
enum Op {
    Try(usize, Kind, u64),
    Wait(usize, Kind, u64),
    Poll(usize),
    Cancel(usize),
    Release(usize),
    Split(usize, u64),
    Convert(usize, Kind),
    Merge(usize, usize),
}

fn op() -> impl Strategy<Value = Op> {
    let kind = || (0..KINDS).prop_map(|index| Kind::ALL[index]);
    let bytes = || prop_oneof![0..USER_MINIMUM, 0..12 * MIB];
    let any = || 0..64_usize;
    prop_oneof![
        (any(), kind(), bytes()).prop_map(|(user, kind, bytes)| Op::Try(user, kind, bytes)),
        (any(), kind(), bytes()).prop_map(|(user, kind, bytes)| Op::Wait(user, kind, bytes)),
        any().prop_map(Op::Poll),
        any().prop_map(Op::Cancel),
        any().prop_map(Op::Release),
        (any(), bytes()).prop_map(|(permit, bytes)| Op::Split(permit, bytes)),
        (any(), kind()).prop_map(|(permit, kind)| Op::Convert(permit, kind)),
        (any(), any()).prop_map(|(a, b)| Op::Merge(a, b)),
    ]
}

fn pick(index: usize, len: usize) -> Option<usize> {
    (len > 0).then(|| index % len)
}

/// Memory that permits hold, and memory granted to futures that have not been polled since.
fn check(limiter: &Limiter, permits: &[Permit], unpolled: u64) {
    let mut expected = [0; KINDS];
    permits.iter().for_each(|permit| expected[permit.kind() as usize] += permit.bytes());
    let used = limiter.used();
    assert_eq!(used.total(), expected.iter().sum::<u64>() + unpolled);
    assert!(used.total() <= limiter.budget().total);
    if unpolled == 0 {
        assert_eq!(used.0, expected);
    }
}

fn granted_bytes(limiter: &Limiter) -> u64 {
    limiter
        .0
        .state
        .lock()
        .waiting
        .values()
        .filter(|waiting| waiting.granted)
        .map(|waiting| waiting.bytes)
        .sum()
}

proptest! {
    #[test]
    fn accounting_is_exact_and_every_waiter_is_served(ops in prop::collection::vec(op(), 1..200)) {
        let limiter = limiter();
        let users: Vec<User> = (0..4).map(|_| limiter.user()).collect();
        let (mut permits, mut waiters): (Vec<Permit>, Vec<Reserve>) = Default::default();
        for op in ops {
            match op {
                Op::Try(user, kind, bytes) => permits.extend(users[user % 4].try_reserve(kind, bytes)),
                Op::Wait(user, kind, bytes) => {
                    let mut waiter = users[user % 4].reserve(kind, bytes);
                    match poll(&mut waiter) {
                        Poll::Ready(result) => permits.push(result.unwrap()),
                        Poll::Pending => waiters.push(waiter),
                    }
                }
                Op::Poll(index) => {
                    let Some(index) = pick(index, waiters.len()) else { continue };
                    if let Poll::Ready(result) = poll(&mut waiters[index]) {
                        drop(waiters.remove(index));
                        permits.push(result.unwrap());
                    }
                }
                Op::Cancel(index) => drop(pick(index, waiters.len()).map(|index| waiters.remove(index))),
                Op::Release(index) => drop(pick(index, permits.len()).map(|index| permits.remove(index))),
                Op::Split(index, bytes) => {
                    let Some(index) = pick(index, permits.len()) else { continue };
                    let part = permits[index].split(bytes);
                    permits.push(part);
                }
                // The caller decides what a conversion means; to a write kind only rewriting does it.
                Op::Convert(index, kind) => {
                    if let Some(index) = pick(index, permits.len()) { permits[index].convert(kind) }
                }
                Op::Merge(a, b) => {
                    let (Some(a), Some(b)) = (pick(a, permits.len()), pick(b, permits.len())) else { continue };
                    if a != b {
                        let other = permits.swap_remove(b);
                        let a = if a == permits.len() { b } else { a };
                        permits[a].merge(other);
                    }
                }
            }
            check(&limiter, &permits, granted_bytes(&limiter));
            limiter.demand();
        }
        permits.clear();
        for _ in 0..waiters.len() {
            waiters.retain_mut(|waiter| poll(waiter).is_pending());
        }
        prop_assert!(waiters.is_empty(), "memory is free, but a task waits");
        prop_assert_eq!(limiter.used(), Usage::default());
        prop_assert!(users.iter().all(|user| user.used() == 0));
    }
}
