//! An interval tree: finds a lock that excludes another, in logarithmic time.
//!
//! Shared locks overlap, so an ordered map is not enough: a long range may start far before the requested bytes. Buckets by length
//! fail if many ranges end just before those bytes. So this is a treap ordered by (start, owner). Each subtree knows its
//! greatest end and whether all its ranges belong to one owner, since own ranges do not conflict; and the same of its exclusive
//! ranges, since a shared lock conflicts only with those. Priorities come from a keyed sequence that clients do not see, so no
//! order of requests degrades the tree. All nodes are in one vector, so 100,000 ranges do not need 100,000 allocations.

use super::held::{HeldLock, LockKind};
use super::owners::LockOwner;
use super::range::LockRange;

const NIL: u32 = u32::MAX;

/// The owners of a subtree's ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owners {
    /// The subtree is empty.
    None,
    One(LockOwner),
    Many,
}

/// The summary of a subtree's ranges, or of its exclusive ones, for queries.
#[derive(Debug, Clone, Copy)]
struct Summary {
    /// The greatest end.
    reach: u64,
    owners: Owners,
}

impl Summary {
    const EMPTY: Self = Self { reach: 0, owners: Owners::None };

    fn of(lock: &HeldLock) -> Self {
        Self { reach: lock.range.end, owners: Owners::One(lock.owner) }
    }

    fn joined(self, other: Self) -> Self {
        let owners = match (self.owners, other.owners) {
            (Owners::None, owners) | (owners, Owners::None) => owners,
            (one, another) if one == another => one,
            _ => Owners::Many,
        };
        Self { reach: self.reach.max(other.reach), owners }
    }

    /// Returns whether a range of another owner than `except` may end at `start` or after it.
    fn may_reach(self, start: u64, except: Option<LockOwner>) -> bool {
        let others = match self.owners {
            Owners::None => false,
            Owners::One(owner) => Some(owner) != except,
            Owners::Many => true,
        };
        others && self.reach >= start
    }
}

/// Free nodes that are always kept.
const FREE_MIN: usize = 64;

#[derive(Debug)]
struct Node {
    lock: HeldLock,
    priority: u64,
    left: u32,
    right: u32,
    /// Of all ranges of the subtree.
    all: Summary,
    /// Of its exclusive ranges.
    exclusive: Summary,
}

/// A requested lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query {
    pub(super) range: LockRange,
    pub(super) kind: LockKind,
    /// The owner, whose own ranges do not conflict.
    pub(super) except: Option<LockOwner>,
}

/// An interval tree of locked ranges; see the module's documentation.
#[derive(Debug)]
pub(super) struct IntervalTree {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
    random: u64,
    /// Nodes that queries visited.
    #[cfg(test)]
    pub(super) visited: std::cell::Cell<usize>,
}

impl IntervalTree {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            root: NIL,
            random: seed,
            #[cfg(test)]
            visited: std::cell::Cell::new(0),
        }
    }

    /// Adds a range; its (start, owner) must be new.
    pub(super) fn insert(&mut self, lock: HeldLock) {
        let node = self.make(lock);
        let (before, behind) = self.split(self.root, key(&lock));
        let front = self.merge(before, node);
        self.root = self.merge(front, behind);
    }

    /// Removes the range of `owner` that starts at `start`.
    pub(super) fn remove(&mut self, start: u64, owner: LockOwner) {
        let (before, rest) = self.split(self.root, (start, owner));
        let next = owner
            .0
            .checked_add(1)
            .map_or((start.saturating_add(1), LockOwner(0)), |owner| (start, LockOwner(owner)));
        let (found, behind) = self.split(rest, next);
        debug_assert!(found != NIL, "the range is in the tree");
        if found != NIL {
            self.free.push(found);
        }
        self.root = self.merge(before, behind);
        if self.root == NIL {
            self.nodes = Vec::new();
            self.free = Vec::new();
        } else if self.free.len() > FREE_MIN && self.free.len() > self.nodes.len() / 4 * 3 {
            self.shrink();
        }
    }

    /// Frees the memory of free nodes. Three times as many ranges have left since the last time as remain.
    fn shrink(&mut self) {
        let mut is_free = vec![false; self.nodes.len()];
        self.free.drain(..).for_each(|index| is_free[index as usize] = true);
        let nodes = std::mem::take(&mut self.nodes);
        self.nodes.reserve_exact(is_free.iter().filter(|is_free| !**is_free).count());
        (self.free, self.root) = (Vec::new(), NIL);
        for (node, is_free) in nodes.into_iter().zip(is_free) {
            if !is_free {
                self.insert(node.lock);
            }
        }
    }

    /// Returns the first range, by its start, that excludes the requested lock and for which `counts` is true.
    pub(super) fn find(&self, query: &Query, counts: &mut dyn FnMut(&HeldLock) -> bool) -> Option<HeldLock> {
        self.find_below(self.root, query, counts)
    }

    fn find_below(
        &self,
        at: u32,
        query: &Query,
        counts: &mut dyn FnMut(&HeldLock) -> bool,
    ) -> Option<HeldLock> {
        let node = self.nodes.get(at as usize)?;
        #[cfg(test)]
        self.visited.set(self.visited.get() + 1);
        let summary = match query.kind {
            LockKind::Exclusive => node.all,
            LockKind::Shared => node.exclusive,
        };
        if !summary.may_reach(query.range.start, query.except) {
            return None;
        }
        if let Some(found) = self.find_below(node.left, query, counts) {
            return Some(found);
        }
        let here = &node.lock;
        // All ranges to the right start later still.
        if here.range.start > query.range.end {
            return None;
        }
        let is_excluded = query.kind.excludes(here.kind) && Some(here.owner) != query.except;
        if here.range.end >= query.range.start && is_excluded && counts(here) {
            return Some(*here);
        }
        self.find_below(node.right, query, counts)
    }

    fn make(&mut self, lock: HeldLock) -> u32 {
        // SplitMix64: the sequence is fixed by its seed.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut priority = self.random;
        priority = (priority ^ (priority >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        priority = (priority ^ (priority >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        priority ^= priority >> 31;
        let all = Summary::of(&lock);
        let exclusive = exclusive_part(&lock, all);
        let node = Node { lock, priority, left: NIL, right: NIL, all, exclusive };
        match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        }
    }

    /// Splits a subtree into the ranges before `at` and the rest.
    fn split(&mut self, tree: u32, at: (u64, LockOwner)) -> (u32, u32) {
        if tree == NIL {
            return (NIL, NIL);
        }
        let index = tree as usize;
        if key(&self.nodes[index].lock) < at {
            let (before, behind) = self.split(self.nodes[index].right, at);
            self.nodes[index].right = before;
            self.update(index);
            (tree, behind)
        } else {
            let (before, behind) = self.split(self.nodes[index].left, at);
            self.nodes[index].left = behind;
            self.update(index);
            (before, tree)
        }
    }

    /// Joins two subtrees; all ranges of `before` precede those of `behind`.
    fn merge(&mut self, before: u32, behind: u32) -> u32 {
        if before == NIL {
            return behind;
        }
        if behind == NIL {
            return before;
        }
        if self.nodes[before as usize].priority > self.nodes[behind as usize].priority {
            let right = self.merge(self.nodes[before as usize].right, behind);
            self.nodes[before as usize].right = right;
            self.update(before as usize);
            before
        } else {
            let left = self.merge(before, self.nodes[behind as usize].left);
            self.nodes[behind as usize].left = left;
            self.update(behind as usize);
            behind
        }
    }

    fn update(&mut self, index: usize) {
        let Node { lock, left, right, .. } = self.nodes[index];
        let mut all = Summary::of(&lock);
        let mut exclusive = exclusive_part(&lock, all);
        for child in [left, right] {
            if let Some(child) = self.nodes.get(child as usize) {
                all = all.joined(child.all);
                exclusive = exclusive.joined(child.exclusive);
            }
        }
        self.nodes[index].all = all;
        self.nodes[index].exclusive = exclusive;
    }
}

fn key(lock: &HeldLock) -> (u64, LockOwner) {
    (lock.range.start, lock.owner)
}

/// Returns a lock's part of the summary of exclusive ranges.
fn exclusive_part(lock: &HeldLock, all: Summary) -> Summary {
    match lock.kind {
        LockKind::Exclusive => all,
        LockKind::Shared => Summary::EMPTY,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::held::LockSet;
    use super::LockKind::{Exclusive, Shared};
    use super::*;

    fn lock(start: u64, end: u64, kind: LockKind, owner: u32) -> HeldLock {
        HeldLock { range: LockRange { start, end }, kind, owner: LockOwner(owner), set: LockSet(0) }
    }

    fn query(start: u64, end: u64, kind: LockKind, except: Option<u32>) -> Query {
        Query { range: LockRange { start, end }, kind, except: except.map(LockOwner) }
    }

    #[test]
    fn frees_the_memory_of_removed_ranges_and_finds_the_rest() {
        const MANY: u64 = 10_000;
        let mut tree = IntervalTree::new(7);
        (0..MANY).for_each(|start| tree.insert(lock(start * 2, start * 2, Exclusive, 1)));
        let is_removed = |start: &u64| !start.is_multiple_of(1000);
        (0..MANY).filter(is_removed).for_each(|start| tree.remove(start * 2, LockOwner(1)));
        assert!(tree.nodes.capacity() <= 4 * FREE_MIN, "room for {}", tree.nodes.capacity());
        for start in 0..MANY {
            let found = tree.find(&query(start * 2, start * 2, Shared, None), &mut |_| true);
            assert_eq!(found.is_some(), !is_removed(&start), "{start}");
        }
    }

    proptest! {
        /// Insertions, removals and queries in any order, against a list.
        #[test]
        fn matches_a_list(
            steps in prop::collection::vec((0u8..3, 0u64..64, 0u64..32, any::<bool>(), 0u32..6), 1..120),
        ) {
            let mut tree = IntervalTree::new(7);
            let mut list: Vec<HeldLock> = Vec::new();
            for (action, start, length, is_exclusive, owner) in steps {
                let kind = if is_exclusive { Exclusive } else { Shared };
                let asked = lock(start, start + length, kind, owner);
                match action {
                    0 if !list.iter().any(|other| key(other) == key(&asked)) => {
                        tree.insert(asked);
                        list.push(asked);
                    }
                    1 if !list.is_empty() => {
                        let removed = list.swap_remove(start as usize % list.len());
                        tree.remove(removed.range.start, removed.owner);
                    }
                    _ => {
                        list.sort_by_key(key);
                        let expected = list.iter().find(|other| {
                            other.range.overlaps(asked.range)
                                && kind.excludes(other.kind) && other.owner != asked.owner
                        });
                        let query = Query { range: asked.range, kind, except: Some(asked.owner) };
                        let found = tree.find(&query, &mut |_| true);
                        prop_assert_eq!(found.as_ref(), expected);
                    }
                }
            }
        }
    }

    #[test]
    fn an_empty_tree_frees_its_memory() {
        let mut tree = IntervalTree::new(1);
        for start in 0..1000 {
            tree.insert(lock(start, start, Exclusive, 0));
        }
        for start in 0..1000 {
            tree.remove(start, LockOwner(0));
        }
        assert_eq!((tree.root, tree.nodes.capacity(), tree.free.capacity()), (NIL, 0, 0));
    }

    #[test]
    fn finds_ranges_at_the_first_and_the_last_byte() {
        let mut tree = IntervalTree::new(1);
        tree.insert(lock(0, u64::MAX, Shared, u32::MAX));
        tree.insert(lock(u64::MAX, u64::MAX, Shared, 3));
        assert!(tree.find(&query(u64::MAX, u64::MAX, Exclusive, Some(u32::MAX)), &mut |_| true).is_some());
        tree.remove(0, LockOwner(u32::MAX));
        assert!(tree.find(&query(0, u64::MAX - 1, Exclusive, None), &mut |_| true).is_none());
        assert!(tree.find(&query(0, u64::MAX, Exclusive, None), &mut |_| true).is_some());
    }

    #[test]
    fn a_query_among_a_hundred_thousand_ranges_visits_few() {
        let mut tree = IntervalTree::new(9);
        let count = 100_000;
        // Shared ranges of many owners that all end just before the query: the worst case of buckets by length.
        for owner in 0..count {
            tree.insert(lock(u64::from(owner), 1_000_000, Shared, owner));
        }
        tree.insert(lock(2_000_000, 2_000_009, Exclusive, 1));
        for start in [1_000_001, 1_999_999, 2_000_005, 3_000_000] {
            tree.visited.set(0);
            let found = tree.find(&query(start, start + 5, Exclusive, None), &mut |_| true);
            assert_eq!(found.is_some(), (1_999_995..=2_000_009).contains(&start));
            // A treap of n nodes is about 2 ln n = 23 deep on average; four times that never occurs.
            assert!(tree.visited.get() < 100, "visited {}", tree.visited.get());
        }
        tree.visited.set(0);
        assert!(
            tree.find(&query(0, 999_999, Shared, None), &mut |_| true).is_none(),
            "shared locks do not exclude each other"
        );
        assert!(tree.visited.get() < 100, "visited {}", tree.visited.get());
    }

    #[test]
    fn a_query_skips_a_hundred_thousand_ranges_of_its_own_owner() {
        let (own, other) = (7, 8);
        let mut tree = IntervalTree::new(9);
        // The owner's exclusive ranges, another owner's shared ones between them, and one exclusive lock of that owner at the end.
        for number in 0..50_000 {
            tree.insert(lock(40 * number, 40 * number + 9, Exclusive, own));
            tree.insert(lock(40 * number + 20, 40 * number + 29, Shared, other));
        }
        let find = |tree: &IntervalTree, end, kind| {
            tree.visited.set(0);
            let found = tree.find(&query(0, end, kind, Some(own)), &mut |_| true);
            assert!(tree.visited.get() < 200, "visited {}", tree.visited.get());
            found.map(|found| found.range.start)
        };
        assert_eq!(find(&tree, u64::MAX, Shared), None, "the other owner has shared locks only");
        assert_eq!(find(&tree, u64::MAX, Exclusive), Some(20), "the first of the other owner");
        assert_eq!(find(&tree, 15, Exclusive), None);
        tree.insert(lock(3_000_000, 3_000_009, Exclusive, other));
        assert_eq!(find(&tree, u64::MAX, Shared), Some(3_000_000));
        for number in 0..50_000 {
            tree.remove(40 * number + 20, LockOwner(other));
        }
        tree.remove(3_000_000, LockOwner(other));
        assert_eq!(find(&tree, u64::MAX, Exclusive), None, "all ranges are its own");
    }
}
