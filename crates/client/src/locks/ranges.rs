//! The locked ranges of one owner on one file (fcntl(2)): a lock replaces the owner's locks there, and equal neighbors merge.

use super::{LockKind, LockRange};
use crate::hand_over::RangeState;

/// Maximum number of ranges that an owner has on one file. More are refused with ENOLCK.
pub(crate) const RANGES_MAX: usize = 16 << 10;

/// A range that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldRange {
    pub(crate) range: LockRange,
    pub(crate) kind: LockKind,
    /// The number of the open that it was locked through; in version 3 the epoch in which the server granted it; 0 for locks that
    /// are kept on this machine.
    pub(crate) open: u32,
}

impl HeldRange {
    fn save(&self) -> RangeState {
        let (LockRange { first, last }, open) = (self.range, self.open);
        RangeState { first, last, is_exclusive: self.kind == LockKind::Exclusive, open }
    }

    fn restored(saved: &RangeState) -> Self {
        let kind = if saved.is_exclusive { LockKind::Exclusive } else { LockKind::Shared };
        Self { range: LockRange { first: saved.first, last: saved.last }, kind, open: saved.open }
    }
}

/// Ranges in the order of their offsets. They do not overlap.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct HeldRanges {
    ranges: Vec<HeldRange>,
}

impl HeldRanges {
    /// Returns whether the ranges that one lock may add fit: its own, and the rest of a range that it splits.
    pub(crate) fn has_room(&self) -> bool {
        self.ranges.len() + 2 <= RANGES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the ranges as plain values.
    pub(crate) fn save(&self) -> Vec<RangeState> {
        self.ranges.iter().map(HeldRange::save).collect()
    }

    /// Returns the ranges of plain values; overlapping ones replace those before.
    pub(crate) fn restored(saved: &[RangeState]) -> Self {
        let mut ranges = Self::default();
        saved.iter().filter(|saved| saved.first <= saved.last).for_each(|saved| {
            ranges.lock(HeldRange::restored(saved));
        });
        ranges
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &HeldRange> {
        self.ranges.iter()
    }

    /// Locks a range; earlier locks in it are replaced.
    pub(crate) fn lock(&mut self, held: HeldRange) {
        self.unlock(held.range);
        let at = self.ranges.partition_point(|other| other.range.first < held.range.first);
        self.ranges.insert(at, held);
        self.merge(at);
        if at > 0 {
            self.merge(at - 1);
        }
    }

    /// Merges the range at `at` with the next one if they are adjacent and equal in kind and open.
    fn merge(&mut self, at: usize) {
        let Some(next) = self.ranges.get(at + 1).copied() else { return };
        let one = &mut self.ranges[at];
        let touches = one.range.last.checked_add(1) == Some(next.range.first);
        if touches && (one.kind, one.open) == (next.kind, next.open) {
            one.range.last = next.range.last;
            self.ranges.remove(at + 1);
        }
    }

    /// Unlocks a range; it need not contain locks.
    pub(crate) fn unlock(&mut self, range: LockRange) {
        let from = self.ranges.partition_point(|held| held.range.last < range.first);
        let to = self.ranges.partition_point(|held| held.range.first <= range.last);
        if from >= to {
            return;
        }
        let (first, last) = (self.ranges[from], self.ranges[to - 1]);
        let mut rest = Vec::new();
        if first.range.first < range.first {
            let range = LockRange { first: first.range.first, last: range.first - 1 };
            rest.push(HeldRange { range, ..first });
        }
        if last.range.last > range.last {
            let range = LockRange { first: range.last + 1, last: last.range.last };
            rest.push(HeldRange { range, ..last });
        }
        self.ranges.splice(from..to, rest);
    }

    /// Removes and returns the ranges that were locked through an open.
    pub(crate) fn take_of(&mut self, open: u32) -> Vec<HeldRange> {
        let (taken, rest) = self.ranges.iter().partition(|held| held.open == open);
        self.ranges = rest;
        taken
    }

    /// Returns the locked parts of a range.
    pub(crate) fn within(&self, range: LockRange) -> Vec<HeldRange> {
        let overlapping = self.ranges.iter().filter(|held| held.range.overlaps(range));
        let part = |held: &HeldRange| {
            let (first, last) = (held.range.first.max(range.first), held.range.last.min(range.last));
            HeldRange { range: LockRange { first, last }, ..*held }
        };
        overlapping.map(part).collect()
    }

    /// Returns the parts of a range that are not locked.
    pub(crate) fn gaps(&self, range: LockRange) -> Vec<LockRange> {
        let (mut gaps, mut next) = (Vec::new(), Some(range.first));
        for held in self.within(range) {
            if let Some(first) = next.filter(|first| *first < held.range.first) {
                gaps.push(LockRange { first, last: held.range.first - 1 });
            }
            next = held.range.last.checked_add(1);
        }
        gaps.extend(
            next.filter(|first| *first <= range.last).map(|first| LockRange { first, last: range.last }),
        );
        gaps
    }

    /// Returns the first range that another owner's lock conflicts with.
    pub(crate) fn conflict(&self, range: LockRange, kind: LockKind) -> Option<&HeldRange> {
        let is_exclusive = |held: &HeldRange| LockKind::Exclusive == kind || held.kind == LockKind::Exclusive;
        self.ranges.iter().find(|held| held.range.overlaps(range) && is_exclusive(held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(first: u64, last: u64, kind: LockKind) -> HeldRange {
        HeldRange { range: LockRange { first, last }, kind, open: 1 }
    }

    fn locked(locks: &[(u64, u64, LockKind)]) -> HeldRanges {
        let mut ranges = HeldRanges::default();
        for (first, last, kind) in locks {
            ranges.lock(held(*first, *last, *kind));
        }
        ranges
    }

    use LockKind::{Exclusive, Shared};

    #[test]
    fn a_lock_replaces_and_splits_earlier_ranges() {
        let ranges = locked(&[(0, 99, Shared), (40, 59, Exclusive)]);
        assert_eq!(ranges.ranges, [held(0, 39, Shared), held(40, 59, Exclusive), held(60, 99, Shared)]);
        let ranges = locked(&[(10, 19, Shared), (30, 39, Shared), (0, 50, Exclusive)]);
        assert_eq!(ranges.ranges, [held(0, 50, Exclusive)]);
    }

    #[test]
    fn equal_neighbors_merge_on_both_sides() {
        let ranges = locked(&[(0, 9, Shared), (20, 29, Shared), (10, 19, Shared)]);
        assert_eq!(ranges.ranges, [held(0, 29, Shared)]);
        let ranges = locked(&[(0, 9, Shared), (10, 19, Exclusive)]);
        assert_eq!(ranges.ranges.len(), 2);
        let mut ranges = locked(&[(0, 9, Shared)]);
        ranges.lock(HeldRange { open: 2, ..held(10, 19, Shared) });
        assert_eq!(ranges.ranges.len(), 2, "each is reclaimed through its own open");
    }

    #[test]
    fn locked_parts_and_gaps_fill_a_range() {
        let ranges = locked(&[(10, 19, Shared), (30, u64::MAX, Exclusive)]);
        let range = |first, last| LockRange { first, last };
        assert_eq!(ranges.within(range(15, 34)), [held(15, 19, Shared), held(30, 34, Exclusive)]);
        assert_eq!(ranges.gaps(range(15, 34)), [range(20, 29)]);
        assert_eq!(ranges.gaps(LockRange::WHOLE), [range(0, 9), range(20, 29)]);
        assert_eq!(ranges.gaps(range(12, 13)), []);
        assert_eq!(HeldRanges::default().gaps(range(3, 4)), [range(3, 4)]);
    }

    #[test]
    fn unlocking_splits_shortens_and_removes() {
        let mut ranges = locked(&[(0, u64::MAX, Exclusive)]);
        ranges.unlock(LockRange { first: 10, last: 19 });
        assert_eq!(ranges.ranges, [held(0, 9, Exclusive), held(20, u64::MAX, Exclusive)]);
        ranges.unlock(LockRange { first: 5, last: 24 });
        assert_eq!(ranges.ranges, [held(0, 4, Exclusive), held(25, u64::MAX, Exclusive)]);
        ranges.unlock(LockRange { first: 6, last: 20 });
        assert_eq!(ranges.ranges.len(), 2, "nothing is locked there");
        ranges.unlock(LockRange::WHOLE);
        assert!(ranges.is_empty());
    }

    #[test]
    fn shared_locks_do_not_conflict() {
        let ranges = locked(&[(0, 9, Shared), (10, 19, Exclusive)]);
        let range = |first, last| LockRange { first, last };
        assert_eq!(ranges.conflict(range(0, 9), Shared), None);
        assert_eq!(ranges.conflict(range(9, 9), Exclusive), Some(&held(0, 9, Shared)));
        assert_eq!(ranges.conflict(range(0, 10), Shared), Some(&held(10, 19, Exclusive)));
        assert_eq!(ranges.conflict(range(20, 30), Exclusive), None);
    }

    /// Compares with a table of bytes.
    #[test]
    fn random_locks_are_those_of_a_table_of_bytes() {
        let (mut ranges, mut bytes, mut random) = (HeldRanges::default(), [None; 64], 1u64);
        let mut draw = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        for _ in 0..5000 {
            let first = draw(64);
            let last = first + draw(64 - first);
            let kind = [None, Some(Shared), Some(Exclusive)][draw(3) as usize];
            match kind {
                Some(kind) => ranges.lock(held(first, last, kind)),
                None => ranges.unlock(LockRange { first, last }),
            }
            bytes[first as usize..=last as usize].fill(kind);
            let mut table = [None; 64];
            for held in ranges.iter() {
                table[held.range.first as usize..=held.range.last as usize].fill(Some(held.kind));
            }
            assert_eq!(table, bytes);
            let is_merged = |pair: &[HeldRange]| {
                pair[0].range.last + 1 < pair[1].range.first
                    || (pair[0].range.last + 1 == pair[1].range.first && pair[0].kind != pair[1].kind)
            };
            assert!(ranges.ranges.windows(2).all(is_merged), "{ranges:?}");
        }
    }
}
