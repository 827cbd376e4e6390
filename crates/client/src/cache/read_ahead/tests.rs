use proptest::prelude::*;

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[test]
fn first_read_requests_the_first_window() {
    let mut ahead = ReadAhead::default();
    let plan = ahead.read(0..128 * KIB, Cached::No, 1 << 40);
    assert_eq!(plan.fetch, 128 * KIB..128 * KIB + FIRST_WINDOW);
}

#[test]
fn nothing_is_requested_beyond_the_end() {
    let mut ahead = ReadAhead::default();
    assert_eq!(ahead.read(0..4 * KIB, Cached::No, 6 * KIB).fetch, 4 * KIB..6 * KIB);
    assert!(ahead.read(4 * KIB..6 * KIB, Cached::Yes, 6 * KIB).fetch.is_empty());
}

#[test]
fn window_doubles_while_the_reader_waits_and_stays_when_it_does_not() {
    let mut ahead = ReadAhead::default();
    let mut windows = Vec::new();
    for step in 0..10 {
        let range = step * 128 * KIB..(step + 1) * 128 * KIB;
        let end = range.end;
        ahead.read(range, if step < 8 { Cached::Coming } else { Cached::Yes }, 1 << 40);
        windows.push(ahead.streams[0].window);
        assert!(ahead.streams[0].end <= end + WINDOW_MAX);
    }
    let expected: Vec<u64> = [1, 2, 4, 8, 16, 32].iter().map(|factor| factor * FIRST_WINDOW).collect();
    assert_eq!(windows[..6], expected);
    assert_eq!(windows[6..], [WINDOW_MAX; 4]);
}

#[test]
fn sequential_reader_has_few_requests() {
    let mut ahead = ReadAhead::default();
    let fetches = (0..8192_u64)
        .map(|step| ahead.read(step * 8 * KIB..(step + 1) * 8 * KIB, Cached::Yes, 64 * MIB).fetch)
        .filter(|fetch| !fetch.is_empty());
    // Each but the last covers at least half a window of 1.125 MiB.
    assert!((57..=115).contains(&fetches.count()));
}

#[test]
fn random_reads_read_nothing_ahead() {
    let mut ahead = ReadAhead::default();
    let mut offset = 1_u64;
    for _ in 0..1000 {
        offset =
            offset.wrapping_mul(6_364_136_223_846_793_005_u64).wrapping_add(1_442_695_040_888_963_407) >> 20;
        let plan = ahead.read(offset * 4096..(offset + 1) * 4096, Cached::No, 1 << 60);
        assert!(plan.fetch.is_empty());
    }
}

#[test]
fn second_sequential_read_in_the_middle_reads_ahead() {
    let mut ahead = ReadAhead::default();
    assert!(ahead.read(MIB..2 * MIB, Cached::No, 1 << 40).fetch.is_empty());
    assert_eq!(ahead.read(2 * MIB..3 * MIB, Cached::No, 1 << 40).fetch, 3 * MIB..3 * MIB + FIRST_WINDOW);
}

#[test]
fn seek_back_is_served_from_the_window() {
    let mut ahead = ReadAhead::default();
    for step in 0..16 {
        ahead.read(step * 64 * KIB..(step + 1) * 64 * KIB, Cached::Yes, 1 << 40);
    }
    let end = ahead.streams[0].end;
    let plan = ahead.read(512 * KIB..576 * KIB, Cached::Yes, 1 << 40);
    assert!(plan.fetch.is_empty());
    assert_eq!((ahead.streams.len(), ahead.streams[0].end), (1, end));
    assert!(plan.keep.contains(&(512 * KIB)));
}

#[test]
fn concurrent_readers_of_one_file_keep_their_windows() {
    let mut ahead = ReadAhead::default();
    for step in 0..64 {
        for reader in 0..STREAMS_MAX as u64 {
            let start = reader * (1 << 30) + step * 128 * KIB;
            ahead.read(start..start + 128 * KIB, Cached::Yes, 1 << 40);
        }
    }
    assert_eq!(ahead.streams.len(), STREAMS_MAX);
    assert!(ahead.streams.iter().all(|stream| stream.window == FIRST_WINDOW));
}

#[test]
fn short_memory_makes_the_window_smaller() {
    let mut ahead = ReadAhead::default();
    let plan = ahead.read(0..128 * KIB, Cached::No, 1 << 40);
    ahead.refused(plan.fetch.start);
    assert_eq!(ahead.streams[0].window, FIRST_WINDOW / 2);
    let plan = ahead.read(128 * KIB..256 * KIB, Cached::Yes, 1 << 40);
    assert_eq!(plan.fetch, 256 * KIB..256 * KIB + FIRST_WINDOW / 2);
}

proptest! {
    /// With every fetch carried out, a sequential reader finds everything after its first read cached.
    #[test]
    fn sequential_reader_waits_only_for_its_first_read(sizes in prop::collection::vec(1..512 * KIB, 1..200), lead in 0..4_u64) {
        let mut ahead = ReadAhead::default();
        let (mut offset, size) = (lead * MIB, 1 << 40);
        let mut have = offset;
        for (step, len) in sizes.into_iter().enumerate() {
            let cached = if offset + len <= have { Cached::Yes } else { Cached::No };
            // On probation the second read misses too.
            prop_assert!(step < 2 || cached == Cached::Yes || lead > 0 && step < 3 || len > FIRST_WINDOW / 2);
            have = have.max(offset + len);
            let plan = ahead.read(offset..offset + len, cached, size);
            prop_assert!(plan.fetch.is_empty() || plan.fetch.start <= have, "a gap is never requested");
            have = have.max(plan.fetch.end);
            offset += len;
        }
    }

    #[test]
    fn plans_stay_in_the_file_and_within_the_window(
        reads in prop::collection::vec((0..4 * MIB, 1..256 * KIB, 0..3_u8), 1..200), size in 0..5 * MIB,
    ) {
        let mut ahead = ReadAhead::default();
        for (start, len, cached) in reads {
            let range = start.min(size)..(start + len).min(size);
            let end = range.end;
            let plan = ahead.read(range, [Cached::Yes, Cached::Coming, Cached::No][cached as usize], size);
            prop_assert!(plan.fetch.end <= size.max(end));
            prop_assert!(plan.fetch.is_empty() || plan.fetch.end <= end + WINDOW_MAX);
            prop_assert!(ahead.streams.len() <= STREAMS_MAX);
        }
    }
}
