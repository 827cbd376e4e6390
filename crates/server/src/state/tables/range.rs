//! Byte-range locks of one file by POSIX rules (RFC 8881 §9.2, §9.3, §18.10): a lock-owner's ranges replace, split and merge
//! with each other; those of others are in the way or not.

use std::collections::BTreeMap;

use super::tree::{Interval, IntervalTree, Query};
use super::wire::Status;
use crate::state::tables::audit::same;

/// A valid range of bytes (RFC 8881 §18.10.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    start: u64,
    /// Last byte.
    end: u64,
}

impl LockRange {
    /// `offset` and `length` of LOCK, LOCKT and LOCKU; a length of 2^64 - 1 is "to the end of the file".
    ///
    /// # Errors
    /// "The server MUST return NFS4ERR_INVAL under the following combinations of length and offset: …
    /// Length is equal to zero. … Length is not equal to NFS4_UINT64_MAX, and the sum of length and offset exceeds NFS4_UINT64_MAX."
    pub fn new(offset: u64, length: u64) -> Result<Self, Status> {
        let end = match length {
            0 => return Err(Status::INVAL),
            u64::MAX => u64::MAX,
            _ => offset.checked_add(length).ok_or(Status::INVAL)? - 1,
        };
        Ok(Self { start: offset, end })
    }

    /// Whether both have a byte in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// First byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.start
    }

    /// Bytes, as the protocol says them.
    #[must_use]
    pub fn length(&self) -> u64 {
        // A range to the last byte goes to the end of the file, wherever that will be.
        if self.end == u64::MAX { u64::MAX } else { self.end - self.start + 1 }
    }
}

/// A range that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) range: LockRange,
    pub(crate) write: bool,
    pub(crate) holder: u32,
}

/// An owner's ranges by first byte; they do not overlap. Value: last byte, exclusive, entry of the lock stateid.
type OwnRanges = BTreeMap<u64, (u64, bool, u32)>;

/// All locks of a file.
#[derive(Debug)]
pub(crate) struct Ranges {
    tree: IntervalTree,
    owners: BTreeMap<u32, OwnRanges>,
    count: usize,
}

impl Ranges {
    pub(crate) fn new(seed: u64) -> Self {
        Self { tree: IntervalTree::new(seed), owners: BTreeMap::new(), count: 0 }
    }

    /// Ranges held.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The first lock of anyone but `owner` that excludes this one, and that `counts` (told its holder).
    pub(crate) fn conflict(
        &self,
        range: LockRange,
        write: bool,
        owner: Option<u32>,
        mut counts: impl FnMut(u32) -> bool,
    ) -> Option<Held> {
        let query = Query { start: range.start, end: range.end, write, but: owner };
        let found = self.tree.find(&query, &mut |other| counts(other.holder))?;
        let range = LockRange { start: found.start, end: found.end };
        Some(Held { range, write: found.write, holder: found.holder })
    }

    /// Locks a range that nothing is in the way of. §9.5: the locking status of each byte "MUST reflect the last LOCK or LOCKU
    /// operation done for the lock-owner in question, independent of the stateid".
    pub(crate) fn lock(&mut self, owner: u32, range: LockRange, write: bool, holder: u32) {
        let LockRange { mut start, mut end } = range;
        // One byte further on both sides, so that neighbours of the same kind merge.
        let near = LockRange { start: start.saturating_sub(1), end: end.saturating_add(1) };
        for old in self.take_overlapping(owner, near) {
            if (old.write, old.holder) == (write, holder) {
                start = start.min(old.range.start);
                end = end.max(old.range.end);
            } else {
                self.put_back_outside(owner, old, range);
            }
        }
        self.put(owner, Held { range: LockRange { start, end }, write, holder });
    }

    /// Whether unlocking `range` leaves two ranges where one was.
    pub(crate) fn is_split_by(&self, owner: u32, range: LockRange) -> bool {
        let before = self.owners.get(&owner).and_then(|own| own.range(..range.start).next_back());
        before.is_some_and(|(_, (end, _, _))| *end > range.end)
    }

    /// Unlocks a range; what is not locked stays so.
    pub(crate) fn unlock(&mut self, owner: u32, range: LockRange) {
        for old in self.take_overlapping(owner, range) {
            self.put_back_outside(owner, old, range);
        }
        self.drop_if_empty(owner);
    }

    /// Unlocks all that an owner has through one stateid.
    pub(crate) fn unlock_holder(&mut self, owner: u32, holder: u32) {
        let Some(own) = self.owners.get_mut(&owner) else { return };
        let mut starts = Vec::new();
        own.retain(|start, (_, _, by)| {
            let goes = *by == holder;
            if goes {
                starts.push(*start);
            }
            !goes
        });
        self.count -= starts.len();
        for start in starts {
            self.tree.remove(start, owner);
        }
        self.drop_if_empty(owner);
    }

    /// Whether an owner has anything through one stateid.
    pub(crate) fn holds(&self, owner: u32, holder: u32) -> bool {
        self.owners.get(&owner).is_some_and(|own| own.values().any(|(_, _, by)| *by == holder))
    }

    /// Takes out the owner's ranges that share a byte with `range`.
    fn take_overlapping(&mut self, owner: u32, range: LockRange) -> Vec<Held> {
        let Some(own) = self.owners.get_mut(&owner) else { return Vec::new() };
        // They do not overlap, so that their ends are in the order of their starts.
        let found: Vec<Held> = own
            .range(..=range.end)
            .rev()
            .take_while(|(_, (end, _, _))| *end >= range.start)
            .map(|(start, (end, write, holder))| Held {
                range: LockRange { start: *start, end: *end },
                write: *write,
                holder: *holder,
            })
            .collect();
        for held in &found {
            own.remove(&held.range.start);
            self.tree.remove(held.range.start, owner);
        }
        self.count -= found.len();
        found
    }

    /// What of an old range lies before and behind a new one stays as it was.
    fn put_back_outside(&mut self, owner: u32, old: Held, new: LockRange) {
        let LockRange { start, end } = old.range;
        if start < new.start {
            self.put(owner, Held { range: LockRange { start, end: end.min(new.start - 1) }, ..old });
        }
        if end > new.end {
            self.put(owner, Held { range: LockRange { start: start.max(new.end + 1), end }, ..old });
        }
    }

    fn put(&mut self, owner: u32, held: Held) {
        let Held { range: LockRange { start, end }, write, holder } = held;
        self.owners.entry(owner).or_default().insert(start, (end, write, holder));
        self.tree.insert(Interval { start, end, write, owner, holder });
        self.count += 1;
    }

    /// All that is locked, with the number of its owner.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, Held)> {
        self.owners.iter().flat_map(|(owner, own)| {
            own.iter().map(|(start, (end, write, holder))| {
                let range = LockRange { start: *start, end: *end };
                (*owner, Held { range, write: *write, holder: *holder })
            })
        })
    }

    /// Whether no range excludes another, and all are counted and found; see [`State::audit`](crate::state::State::audit).
    ///
    /// # Errors
    /// What does not fit together.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let all: Vec<(u32, Held)> = self.iter().collect();
        same("ranges counted", self.count, all.len())?;
        for (at, (owner, held)) in all.iter().enumerate() {
            for (other, others) in &all[at + 1..] {
                let (one, two) = (held.range, others.range);
                let meets = one.start <= two.end && two.start <= one.end;
                if meets && (owner == other || held.write || others.write) {
                    return Err(format!("{held:?} of owner {owner} excludes {others:?} of owner {other}"));
                }
            }
            // Whoever else asks for its last byte finds it, or another range there.
            let last = LockRange { start: held.range.end, end: held.range.end };
            if self.conflict(last, true, None, |_| true).is_none() {
                return Err(format!("{held:?} of owner {owner} is in nobody's way"));
            }
        }
        Ok(())
    }

    fn drop_if_empty(&mut self, owner: u32) {
        if self.owners.get(&owner).is_some_and(BTreeMap::is_empty) {
            self.owners.remove(&owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: u64 = 48;

    fn range(offset: u64, length: u64) -> LockRange {
        LockRange::new(offset, length).unwrap()
    }

    #[test]
    fn ranges_are_valid_as_the_rfc_says() {
        assert_eq!(LockRange::new(5, 0), Err(Status::INVAL));
        assert_eq!(LockRange::new(2, u64::MAX - 1), Err(Status::INVAL), "the sum exceeds 2^64 - 1");
        assert_eq!(range(1, u64::MAX - 1).end, u64::MAX - 1);
        assert_eq!(range(7, u64::MAX), LockRange { start: 7, end: u64::MAX });
        assert_eq!(range(7, u64::MAX).length(), u64::MAX);
        assert_eq!((range(7, 3).offset(), range(7, 3).length()), (7, 3));
    }

    /// What each byte is to each owner: exclusive or not, and through which stateid.
    type Model = [[Option<(bool, u32)>; BYTES as usize]; 3];

    fn check_against(ranges: &Ranges, model: &Model) {
        let mut count = 0;
        for (owner, bytes) in model.iter().enumerate() {
            for (at, byte) in bytes.iter().enumerate() {
                let at = at as u64;
                let held = ranges
                    .owners
                    .get(&(owner as u32))
                    .and_then(|own| own.range(..=at).next_back().filter(|(_, (end, _, _))| *end >= at));
                assert_eq!(
                    held.map(|(_, (_, write, holder))| (*write, *holder)),
                    *byte,
                    "owner {owner} byte {at}"
                );
                // Runs of equal bytes are one range: neighbours of one kind have merged.
                count += usize::from(byte.is_some() && (at == 0 || bytes[at as usize - 1] != *byte));
            }
        }
        assert_eq!(ranges.count(), count);
    }

    proptest! {
        /// Against an array of bytes: locks, upgrades, downgrades, unlocks and lost conflicts of three owners.
        #[test]
        fn behaves_as_an_array_of_bytes(
            steps in prop::collection::vec(
                (0u8..5, 0u32..3, 0u64..BYTES, 1u64..BYTES, any::<bool>(), 0u32..2), 1..80),
        ) {
            let mut ranges = Ranges::new(3);
            let mut model: Model = [[None; BYTES as usize]; 3];
            for (what, owner, offset, length, write, holder) in steps {
                let length = length.min(BYTES - offset);
                let asked = range(offset, length);
                let bytes = offset as usize..(offset + length) as usize;
                match what {
                    0 => {
                        ranges.unlock(owner, asked);
                        model[owner as usize][bytes].fill(None);
                    }
                    1 => {
                        ranges.unlock_holder(owner, holder);
                        for byte in &mut model[owner as usize] {
                            *byte = byte.filter(|(_, by)| *by != holder);
                        }
                    }
                    _ => {
                        let in_the_way = (0..3).filter(|other| *other != owner).any(|other| {
                            model[other as usize][bytes.clone()].iter().flatten().any(|(w, _)| write || *w)
                        });
                        let found = ranges.conflict(asked, write, Some(owner), |_| true);
                        prop_assert_eq!(found.is_some(), in_the_way);
                        if !in_the_way {
                            ranges.lock(owner, asked, write, holder);
                            model[owner as usize][bytes].fill(Some((write, holder)));
                        }
                    }
                }
                check_against(&ranges, &model);
            }
        }
    }

    #[test]
    fn the_last_byte_can_be_locked_split_and_freed() {
        let mut ranges = Ranges::new(1);
        ranges.lock(0, range(0, u64::MAX), true, 0);
        ranges.unlock(0, range(100, 100));
        assert_eq!(ranges.count(), 2);
        let behind = ranges.conflict(range(250, 1), false, Some(1), |_| true).unwrap();
        assert_eq!((behind.range.offset(), behind.range.length()), (200, u64::MAX));
        ranges.lock(0, range(100, 100), true, 0);
        assert_eq!(ranges.count(), 1, "the gap closes and all is one again");
        ranges.unlock(0, range(u64::MAX, u64::MAX));
        assert!(ranges.conflict(range(u64::MAX, u64::MAX), true, None, |_| true).is_none());
        ranges.unlock(0, range(0, u64::MAX));
        assert_eq!(ranges.count(), 0);
    }
}
