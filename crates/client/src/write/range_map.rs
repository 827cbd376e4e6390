//! A map from ranges of bytes to values: disjoint ranges in order, adjacent ones with equal values joined.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges with a value each. Every operation takes logarithmic time for each range that it touches.
#[derive(Clone, Debug)]
pub(super) struct RangeMap<T> {
    /// Start to end and value.
    ranges: BTreeMap<u64, (u64, T)>,
}

/// A set of bytes.
pub(super) type RangeSet = RangeMap<()>;

impl<T> Default for RangeMap<T> {
    fn default() -> Self {
        Self { ranges: BTreeMap::new() }
    }
}

impl<T: Copy + PartialEq> RangeMap<T> {
    /// Returns the ranges that overlap `range`, whole.
    pub(super) fn overlapping(
        &self,
        range: &Range<u64>,
    ) -> impl Iterator<Item = (Range<u64>, T)> + use<'_, T> {
        let (from, to) = (range.start, range.end);
        let first = self.ranges.range(..=from).next_back().map_or(from, |(start, _)| *start).min(to);
        self.ranges
            .range(first..to)
            .filter(move |(_, (end, _))| *end > from && from < to)
            .map(|(start, (end, value))| (*start..*end, *value))
    }

    /// Returns the parts of ranges that lie in `range`.
    pub(super) fn parts(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, T)> + use<'_, T> {
        let (from, to) = (range.start, range.end);
        self.overlapping(range).map(move |(part, value)| (part.start.max(from)..part.end.min(to), value))
    }

    /// Returns the range that begins at `start`.
    pub(super) fn starting_at(&self, start: u64) -> Option<(Range<u64>, T)> {
        self.ranges.get(&start).map(|(end, value)| (start..*end, *value))
    }

    /// Returns true if there is no range.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of ranges.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Returns the end of the last range.
    pub(super) fn end(&self) -> Option<u64> {
        self.ranges.last_key_value().map(|(_, (end, _))| *end)
    }

    /// Removes the bytes of `range`. `changed` is called with each range that disappears (false) or appears (true).
    pub(super) fn remove_with(&mut self, range: &Range<u64>, changed: &mut impl FnMut(Range<u64>, T, bool)) {
        let touched: Vec<_> = self.overlapping(range).collect();
        for (old, value) in touched {
            self.ranges.remove(&old.start);
            changed(old.clone(), value, false);
            for rest in [old.start..range.start, range.end..old.end] {
                if !rest.is_empty() {
                    self.ranges.insert(rest.start, (rest.end, value));
                    changed(rest, value, true);
                }
            }
        }
    }

    /// Sets the value of `range`, and joins it with equal neighbors. Calls `changed` as [`remove_with`](Self::remove_with).
    pub(super) fn insert_with(
        &mut self,
        range: &Range<u64>,
        value: T,
        changed: &mut impl FnMut(Range<u64>, T, bool),
    ) {
        if range.is_empty() {
            return;
        }
        self.remove_with(range, changed);
        let mut joined = range.clone();
        if let Some((&start, &(end, before))) = self.ranges.range(..range.start).next_back()
            && end == range.start
            && before == value
        {
            self.ranges.remove(&start);
            changed(start..end, value, false);
            joined.start = start;
        }
        if let Some(&(end, after)) = self.ranges.get(&range.end)
            && after == value
        {
            self.ranges.remove(&range.end);
            changed(range.end..end, value, false);
            joined.end = end;
        }
        self.ranges.insert(joined.start, (joined.end, value));
        changed(joined, value, true);
    }
}

impl RangeSet {
    /// Adds the bytes of `range`.
    pub(super) fn add(&mut self, range: &Range<u64>) {
        self.insert_with(range, (), &mut |_, (), _| {});
    }

    /// Removes the bytes of `range`.
    pub(super) fn subtract(&mut self, range: &Range<u64>) {
        self.remove_with(range, &mut |_, (), _| {});
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_an_array(ops in prop::collection::vec((0..64_u64, 0..20_u64, prop::option::of(0..3_u8)), 1..60)) {
            let mut map = RangeMap::default();
            let mut array = [None; 84];
            let mut reported: BTreeMap<u64, (u64, u8)> = BTreeMap::new();
            for (start, len, value) in ops {
                let range = start..start + len;
                array[start as usize..(start + len) as usize].fill(value);
                let mut changed = |range: Range<u64>, value, appears| {
                    if appears {
                        assert_eq!(reported.insert(range.start, (range.end, value)), None);
                    } else {
                        assert_eq!(reported.remove(&range.start), Some((range.end, value)));
                    }
                };
                match value {
                    Some(value) => map.insert_with(&range, value, &mut changed),
                    None => map.remove_with(&range, &mut changed),
                }
                prop_assert_eq!(&reported, &map.ranges);
                let runs = array.chunk_by(|a, b| a == b).filter(|run| run[0].is_some()).count();
                prop_assert_eq!(map.len(), runs, "equal neighbors are joined");
                for (index, value) in array.iter().enumerate() {
                    let index = index as u64;
                    let parts: Vec<_> = map.parts(&(index..index + 1)).collect();
                    let expected: Vec<_> = value.iter().map(|value| (index..index + 1, *value)).collect();
                    prop_assert_eq!(parts, expected);
                }
            }
        }
    }
}
