//! The locked ranges of a file. An owner's ranges replace, split and merge with each other; those of others may conflict.
//!
//! The backend may lock the same bytes against local processes ([`LocalLocks`]): each byte with the strongest lock that any
//! owner has.

use std::collections::BTreeMap;
use std::sync::Arc;

use vfs::{LocalLock, LocalLocks};

use super::held::{HeldLock, LockKind, LockSet};
use super::interval_tree::{IntervalTree, Query};
use super::owners::LockOwner;
use super::range::LockRange;

/// One owner's ranges by first byte; they do not overlap. Value: last byte, kind, set.
type OwnRanges = BTreeMap<u64, (u64, LockKind, LockSet)>;

/// All locks of a file.
#[derive(Debug)]
pub(crate) struct LockedRanges {
    tree: IntervalTree,
    owners: BTreeMap<LockOwner, OwnRanges>,
    count: usize,
    /// The same locks against local processes.
    local: Option<Arc<dyn LocalLocks>>,
}

impl LockedRanges {
    /// Returns an empty table; only this server may know the seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { tree: IntervalTree::new(seed), owners: BTreeMap::new(), count: 0, local: None }
    }

    /// Returns the number of locked ranges.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the first lock that excludes a lock of `kind` by `owner`, of those whose set `counts`. `owner` is `None` for an
    /// owner that has no lock in this file.
    pub(crate) fn conflict(
        &self,
        range: LockRange,
        kind: LockKind,
        owner: Option<LockOwner>,
        mut counts: impl FnMut(LockSet) -> bool,
    ) -> Option<HeldLock> {
        let query = Query { range, kind, except: owner };
        self.tree.find(&query, &mut |other| counts(other.set))
    }

    /// Returns the locks against local processes.
    pub(crate) fn local(&self) -> Option<&Arc<dyn LocalLocks>> {
        self.local.as_ref()
    }

    /// Locks all ranges against local processes too, from now on. Does nothing if that is so already.
    pub(crate) fn set_local(&mut self, local: &Arc<dyn LocalLocks>) {
        if self.local.is_none() {
            for held in self.iter() {
                // A local process that has locked the same bytes keeps its lock.
                let _ = local.lock(held.range.local(held.kind));
            }
            self.local = Some(Arc::clone(local));
        }
    }

    /// Locks a range against local processes. The caller then calls [`Self::lock`], which leaves this to it.
    ///
    /// # Errors
    /// The lock of a local process that conflicts.
    pub(crate) fn lock_locally(&self, range: LockRange, kind: LockKind) -> Result<(), LocalLock> {
        self.local.as_ref().map_or(Ok(()), |local| local.lock(range.local(kind)))
    }

    /// Locks a range that no other owner's lock conflicts with. RFC 8881 §9.5: the locking status of each byte "MUST reflect
    /// the last LOCK or LOCKU operation done for the lock-owner in question, independent of the stateid".
    pub(crate) fn lock(&mut self, lock: HeldLock) {
        let HeldLock { range, kind, owner, set } = lock;
        let LockRange { mut start, mut end } = range;
        // One byte more on both sides, so that neighbors of the same kind merge.
        let near = LockRange { start: start.saturating_sub(1), end: end.saturating_add(1) };
        for old in self.take_overlapping(owner, near) {
            if (old.kind, old.set) == (kind, set) {
                start = start.min(old.range.start);
                end = end.max(old.range.end);
            } else {
                self.put_back_outside(old, range);
            }
        }
        self.insert(HeldLock { range: LockRange { start, end }, kind, owner, set });
    }

    /// Returns whether unlocking `range` splits a range in two.
    pub(crate) fn is_split_by(&self, owner: LockOwner, range: LockRange) -> bool {
        let before = self.owners.get(&owner).and_then(|own| own.range(..range.start).next_back());
        before.is_some_and(|(_, (end, _, _))| *end > range.end)
    }

    /// Unlocks a range. Other bytes are unchanged.
    pub(crate) fn unlock(&mut self, owner: LockOwner, range: LockRange) {
        for old in self.take_overlapping(owner, range) {
            self.put_back_outside(old, range);
            self.unlock_locally(old.range.within(range));
        }
        self.drop_if_empty(owner);
    }

    /// Unlocks all ranges of one set.
    pub(crate) fn unlock_set(&mut self, owner: LockOwner, set: LockSet) {
        let Some(own) = self.owners.get_mut(&owner) else { return };
        let mut ended = Vec::new();
        own.retain(|start, (end, _, of)| {
            let is_of_set = *of == set;
            if is_of_set {
                ended.push(LockRange { start: *start, end: *end });
            }
            !is_of_set
        });
        self.count -= ended.len();
        for range in ended {
            self.tree.remove(range.start, owner);
            self.unlock_locally(range);
        }
        self.drop_if_empty(owner);
    }

    /// Unlocks the bytes of a range that no owner has locked any more against local processes.
    fn unlock_locally(&self, range: LockRange) {
        let Some(local) = &self.local else { return };
        let mut rest = range;
        while let Some(held) = self.conflict(rest, LockKind::Exclusive, None, |_| true) {
            if held.range.start > rest.start {
                local.unlock(rest.start, held.range.start - 1);
            }
            if held.range.end >= rest.end {
                return;
            }
            rest.start = held.range.end + 1;
        }
        local.unlock(rest.start, rest.end);
    }

    /// Returns whether a set has any range.
    pub(crate) fn has_set(&self, owner: LockOwner, set: LockSet) -> bool {
        self.owners.get(&owner).is_some_and(|own| own.values().any(|(_, _, of)| *of == set))
    }

    /// Removes and returns the owner's ranges that share a byte with `range`.
    fn take_overlapping(&mut self, owner: LockOwner, range: LockRange) -> Vec<HeldLock> {
        let Some(own) = self.owners.get_mut(&owner) else { return Vec::new() };
        // They do not overlap, so their ends have the order of their starts.
        let found: Vec<HeldLock> = own
            .range(..=range.end)
            .rev()
            .take_while(|(_, (end, _, _))| *end >= range.start)
            .map(|(start, (end, kind, set))| HeldLock {
                range: LockRange { start: *start, end: *end },
                kind: *kind,
                owner,
                set: *set,
            })
            .collect();
        for held in &found {
            own.remove(&held.range.start);
            self.tree.remove(held.range.start, owner);
        }
        self.count -= found.len();
        found
    }

    /// Restores the parts of an old range that lie before and after a new one.
    fn put_back_outside(&mut self, old: HeldLock, new: LockRange) {
        let LockRange { start, end } = old.range;
        if start < new.start {
            self.insert(HeldLock { range: LockRange { start, end: end.min(new.start - 1) }, ..old });
        }
        if end > new.end {
            self.insert(HeldLock { range: LockRange { start: start.max(new.end + 1), end }, ..old });
        }
    }

    fn insert(&mut self, lock: HeldLock) {
        let HeldLock { range, kind, owner, set } = lock;
        self.owners.entry(owner).or_default().insert(range.start, (range.end, kind, set));
        self.tree.insert(lock);
        self.count += 1;
    }

    /// Returns all locks, owner by owner.
    pub(crate) fn iter(&self) -> impl Iterator<Item = HeldLock> {
        self.owners.iter().flat_map(|(owner, own)| {
            own.iter().map(|(start, (end, kind, set))| HeldLock {
                range: LockRange { start: *start, end: *end },
                kind: *kind,
                owner: *owner,
                set: *set,
            })
        })
    }

    /// Checks that no lock excludes another, that all are counted and that queries find them.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(crate) fn audit(&self) -> Result<(), String> {
        let all: Vec<HeldLock> = self.iter().collect();
        if self.count != all.len() {
            return Err(format!("{} ranges counted, and {} listed", self.count, all.len()));
        }
        for (at, one) in all.iter().enumerate() {
            for other in &all[at + 1..] {
                let is_excluded = one.owner == other.owner || one.kind.excludes(other.kind);
                if is_excluded && one.range.overlaps(other.range) {
                    return Err(format!("{one:?} excludes {other:?}"));
                }
            }
            // An exclusive lock of its last byte conflicts with it, or with another lock of that byte.
            let last = LockRange { start: one.range.end, end: one.range.end };
            if self.conflict(last, LockKind::Exclusive, None, |_| true).is_none() {
                return Err(format!("{one:?} conflicts with no other"));
            }
        }
        Ok(())
    }

    fn drop_if_empty(&mut self, owner: LockOwner) {
        if self.owners.get(&owner).is_some_and(BTreeMap::is_empty) {
            self.owners.remove(&owner);
        }
    }
}

impl LockRange {
    /// Returns a lock of these bytes against local processes.
    pub(crate) fn local(self, kind: LockKind) -> LocalLock {
        LocalLock { first: self.start, last: self.end, is_exclusive: kind == LockKind::Exclusive }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vfs::Pin;

    use super::LockKind::{Exclusive, Shared};
    use super::*;
    use crate::testing::local_locks::{LockedFile, LockedFilePin};

    const BYTES: u64 = 48;

    fn range(offset: u64, length: u64) -> LockRange {
        LockRange::new(offset, length).unwrap()
    }

    fn lock(owner: u32, range: LockRange, kind: LockKind, set: u32) -> HeldLock {
        HeldLock { range, kind, owner: LockOwner(owner), set: LockSet(set) }
    }

    #[test]
    fn a_conflict_names_range_kind_owner_and_set() {
        let mut ranges = LockedRanges::new(1);
        let first = lock(1, range(10, 10), Shared, 7);
        let second = lock(2, range(15, 10), Shared, 8);
        ranges.lock(first);
        ranges.lock(second);
        let conflict = |at, kind, owner| ranges.conflict(at, kind, owner, |_| true);
        assert_eq!(conflict(range(0, 100), Exclusive, None), Some(first), "the one that starts first");
        assert_eq!(conflict(range(0, 100), Exclusive, Some(LockOwner(1))), Some(second));
        assert_eq!(conflict(range(0, 100), Shared, None), None);
        assert_eq!(conflict(range(25, 1), Exclusive, None), None);
        let without_first = ranges.conflict(range(0, 100), Exclusive, None, |set| set != LockSet(7));
        assert_eq!(without_first, Some(second));
    }

    #[test]
    fn the_sets_of_one_owner_do_not_conflict_and_end_separately() {
        let mut ranges = LockedRanges::new(1);
        ranges.lock(lock(1, range(0, 100), Exclusive, 1));
        ranges.lock(lock(1, range(40, 20), Shared, 2));
        assert_eq!(ranges.count(), 3, "the second replaces a part of the first");
        ranges.unlock_set(LockOwner(1), LockSet(1));
        assert!(!ranges.has_set(LockOwner(1), LockSet(1)));
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [lock(1, range(40, 20), Shared, 2)]);
    }

    #[test]
    fn unlocking_the_middle_of_a_range_splits_it() {
        let mut ranges = LockedRanges::new(1);
        ranges.lock(lock(1, range(0, 30), Exclusive, 1));
        assert!(ranges.is_split_by(LockOwner(1), range(10, 10)));
        assert!(!ranges.is_split_by(LockOwner(1), range(20, 10)));
        assert!(!ranges.is_split_by(LockOwner(2), range(10, 10)));
        ranges.unlock(LockOwner(1), range(10, 10));
        assert_eq!(ranges.count(), 2);
    }

    /// For each owner and byte: kind and set of the lock, if any.
    type Model = [[Option<(LockKind, LockSet)>; BYTES as usize]; 3];

    /// A local process sees the strongest lock of each byte.
    fn check_local(file: &LockedFile, model: &Model) {
        let of_server = file.of_server();
        for at in 0..BYTES as usize {
            let kinds = model.iter().filter_map(|bytes| bytes[at].map(|(kind, _)| kind == Exclusive));
            assert_eq!(of_server[at], kinds.max(), "byte {at}");
        }
    }

    fn check_against(ranges: &LockedRanges, model: &Model) {
        let mut count = 0;
        for (owner, bytes) in model.iter().enumerate() {
            for (at, byte) in bytes.iter().enumerate() {
                let at = at as u64;
                let held = ranges
                    .owners
                    .get(&LockOwner(owner as u32))
                    .and_then(|own| own.range(..=at).next_back().filter(|(_, (end, _, _))| *end >= at));
                let held = held.map(|(_, (_, kind, set))| (*kind, *set));
                assert_eq!(held, *byte, "owner {owner} byte {at}");
                // Adjacent bytes with equal locks are in one range.
                count += usize::from(byte.is_some() && (at == 0 || bytes[at as usize - 1] != *byte));
            }
        }
        assert_eq!(ranges.count(), count);
        ranges.audit().unwrap();
    }

    proptest! {
        /// Locks, upgrades, downgrades, unlocks and conflicts of three owners, against an array of bytes.
        #[test]
        fn behaves_like_an_array_of_bytes(
            steps in prop::collection::vec(
                (0u8..5, 0u32..3, 0u64..BYTES, 1u64..BYTES, any::<bool>(), 0u32..2), 1..80),
        ) {
            let (mut ranges, pin) = (LockedRanges::new(3), LockedFilePin::default());
            let mut model: Model = [[None; BYTES as usize]; 3];
            let half = steps.len() / 2;
            for (step, (action, owner, offset, length, is_exclusive, set)) in steps.into_iter().enumerate() {
                if step == half {
                    ranges.set_local(&pin.local_locks().expect("it has locks"));
                }
                let kind = if is_exclusive { Exclusive } else { Shared };
                let length = length.min(BYTES - offset);
                let asked = lock(owner, range(offset, length), kind, set);
                let bytes = offset as usize..(offset + length) as usize;
                match action {
                    0 => {
                        ranges.unlock(asked.owner, asked.range);
                        model[owner as usize][bytes].fill(None);
                    }
                    1 => {
                        ranges.unlock_set(asked.owner, asked.set);
                        for byte in &mut model[owner as usize] {
                            *byte = byte.filter(|(_, of)| *of != asked.set);
                        }
                    }
                    _ => {
                        let is_excluded = (0..3).filter(|other| *other != owner).any(|other| {
                            let mut held = model[other as usize][bytes.clone()].iter().flatten();
                            held.any(|(other, _)| kind.excludes(*other))
                        });
                        let found = ranges.conflict(asked.range, kind, Some(asked.owner), |_| true);
                        prop_assert_eq!(found.is_some(), is_excluded);
                        if !is_excluded {
                            ranges.lock_locally(asked.range, kind).expect("no process has a lock");
                            ranges.lock(asked);
                            model[owner as usize][bytes].fill(Some((kind, asked.set)));
                        }
                    }
                }
                check_against(&ranges, &model);
                if step >= half {
                    check_local(&pin.file, &model);
                }
            }
        }
    }

    #[test]
    fn the_last_byte_can_be_locked_split_and_freed() {
        let mut ranges = LockedRanges::new(1);
        ranges.lock(lock(0, range(0, u64::MAX), Exclusive, 0));
        ranges.unlock(LockOwner(0), range(100, 100));
        assert_eq!(ranges.count(), 2);
        let behind = ranges.conflict(range(250, 1), Shared, Some(LockOwner(1)), |_| true).unwrap();
        assert_eq!((behind.range.offset(), behind.range.length()), (200, u64::MAX));
        ranges.lock(lock(0, range(100, 100), Exclusive, 0));
        assert_eq!(ranges.count(), 1, "the gap closes, and the ranges merge");
        ranges.unlock(LockOwner(0), range(u64::MAX, u64::MAX));
        assert!(ranges.conflict(range(u64::MAX, u64::MAX), Exclusive, None, |_| true).is_none());
        ranges.unlock(LockOwner(0), range(0, u64::MAX));
        assert_eq!(ranges.count(), 0);
    }
}
