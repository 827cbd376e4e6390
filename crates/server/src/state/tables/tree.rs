//! An interval tree: which locked range lies in the way of another, in logarithmic time.
//!
//! Criteria. Ranges of several owners may overlap (shared locks), so a map by first byte does not do: a long range may start
//! far before those that it overlaps. Buckets by length answer most queries, but not those where many ranges end just
//! before the one asked. Hence a treap ordered by (start, owner), each subtree knowing its greatest end and whether all of it is
//! one owner's, since nobody's own ranges are in the way; and the same of its exclusive ranges, since a shared lock
//! looks at those alone. Priorities are a keyed sequence that clients do not
//! see, so that no order of requests degrades the tree. Nodes live in one vector: a tree of 100,000 ranges is no
//! 100,000 allocations.

/// A locked range and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    /// First byte.
    pub(crate) start: u64,
    /// Last byte.
    pub(crate) end: u64,
    /// Whether it is exclusive.
    pub(crate) write: bool,
    /// Number of the lock-owner within the file. An owner's ranges do not overlap.
    pub(crate) owner: u32,
    /// The lock stateid's entry.
    pub(crate) holder: u32,
}

const NIL: u32 = u32::MAX;

/// Whose some ranges are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owners {
    /// There are none.
    None,
    /// All are this owner's.
    One(u32),
    Many,
}

/// What a query has to know of a subtree, or of its exclusive ranges.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Greatest end.
    reach: u64,
    owners: Owners,
}

impl Extent {
    const EMPTY: Self = Self { reach: 0, owners: Owners::None };

    fn of(interval: &Interval) -> Self {
        Self { reach: interval.end, owners: Owners::One(interval.owner) }
    }

    fn joined(self, other: Self) -> Self {
        let owners = match (self.owners, other.owners) {
            (Owners::None, owners) | (owners, Owners::None) => owners,
            (one, another) if one == another => one,
            _ => Owners::Many,
        };
        Self { reach: self.reach.max(other.reach), owners }
    }

    /// Whether a range of anyone but `but` may end at `start` or behind it.
    fn may_reach(self, start: u64, but: Option<u32>) -> bool {
        let others = match self.owners {
            Owners::None => false,
            Owners::One(owner) => Some(owner) != but,
            Owners::Many => true,
        };
        others && self.reach >= start
    }
}

/// Free nodes that are kept in any case.
const FREE_MIN: usize = 64;

#[derive(Debug)]
struct Node {
    interval: Interval,
    priority: u64,
    left: u32,
    right: u32,
    /// Of the subtree.
    all: Extent,
    /// Of its exclusive ranges.
    exclusive: Extent,
}

/// What is asked of the tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query {
    /// First byte.
    pub(crate) start: u64,
    /// Last byte.
    pub(crate) end: u64,
    /// Whether for an exclusive lock.
    pub(crate) write: bool,
    /// Whose ranges do not count.
    pub(crate) but: Option<u32>,
}

/// The tree.
#[derive(Debug)]
pub(crate) struct IntervalTree {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
    random: u64,
    /// Nodes looked at by queries.
    #[cfg(test)]
    pub(crate) visited: std::cell::Cell<usize>,
}

impl IntervalTree {
    pub(crate) fn new(seed: u64) -> Self {
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
    pub(crate) fn insert(&mut self, interval: Interval) {
        let node = self.make(interval);
        let (before, behind) = self.split(self.root, key(&interval));
        let front = self.merge(before, node);
        self.root = self.merge(front, behind);
    }

    /// Takes out the range of `owner` that starts at `start`.
    pub(crate) fn remove(&mut self, start: u64, owner: u32) {
        let (before, rest) = self.split(self.root, (start, owner));
        let next = owner.checked_add(1).map_or((start.saturating_add(1), 0), |owner| (start, owner));
        let (found, behind) = self.split(rest, next);
        debug_assert!(found != NIL, "only what is there is removed");
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

    /// Gives the memory of free nodes back. Three times as many ranges have gone since the last time as are left.
    fn shrink(&mut self) {
        let mut is_free = vec![false; self.nodes.len()];
        self.free.drain(..).for_each(|index| is_free[index as usize] = true);
        let nodes = std::mem::take(&mut self.nodes);
        self.nodes.reserve_exact(is_free.iter().filter(|is_free| !**is_free).count());
        (self.free, self.root) = (Vec::new(), NIL);
        for (node, is_free) in nodes.into_iter().zip(is_free) {
            if !is_free {
                self.insert(node.interval);
            }
        }
    }

    /// The first range, by its start, that overlaps what is asked, is exclusive or opposed to an exclusive one, is not of the
    /// owner that does not count, and of which `counts` says so.
    pub(crate) fn find(&self, query: &Query, counts: &mut dyn FnMut(&Interval) -> bool) -> Option<Interval> {
        self.find_below(self.root, query, counts)
    }

    fn find_below(
        &self,
        at: u32,
        query: &Query,
        counts: &mut dyn FnMut(&Interval) -> bool,
    ) -> Option<Interval> {
        let node = self.nodes.get(at as usize)?;
        #[cfg(test)]
        self.visited.set(self.visited.get() + 1);
        let extent = if query.write { node.all } else { node.exclusive };
        if !extent.may_reach(query.start, query.but) {
            return None;
        }
        if let Some(found) = self.find_below(node.left, query, counts) {
            return Some(found);
        }
        let here = &node.interval;
        // What lies to the right starts later still.
        if here.start > query.end {
            return None;
        }
        let is_opposed = (query.write || here.write) && Some(here.owner) != query.but;
        if here.end >= query.start && is_opposed && counts(here) {
            return Some(*here);
        }
        self.find_below(node.right, query, counts)
    }

    fn make(&mut self, interval: Interval) -> u32 {
        // SplitMix64: the sequence is fixed by its seed.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut priority = self.random;
        priority = (priority ^ (priority >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        priority = (priority ^ (priority >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        priority ^= priority >> 31;
        let all = Extent::of(&interval);
        let exclusive = if interval.write { all } else { Extent::EMPTY };
        let node = Node { interval, priority, left: NIL, right: NIL, all, exclusive };
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

    /// Parts a subtree into what comes before `at` and the rest.
    fn split(&mut self, tree: u32, at: (u64, u32)) -> (u32, u32) {
        if tree == NIL {
            return (NIL, NIL);
        }
        let index = tree as usize;
        if key(&self.nodes[index].interval) < at {
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

    /// Joins two subtrees; all of `before` comes before all of `behind`.
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
        let Node { interval, left, right, .. } = self.nodes[index];
        let mut all = Extent::of(&interval);
        let mut exclusive = if interval.write { all } else { Extent::EMPTY };
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

fn key(interval: &Interval) -> (u64, u32) {
    (interval.start, interval.owner)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn interval(start: u64, end: u64, write: bool, owner: u32) -> Interval {
        Interval { start, end, write, owner, holder: 0 }
    }

    fn query(start: u64, end: u64, write: bool, but: Option<u32>) -> Query {
        Query { start, end, write, but }
    }

    #[test]
    fn memory_of_ranges_that_are_gone_is_given_back_and_the_rest_is_found() {
        const MANY: u64 = 10_000;
        let mut tree = IntervalTree::new(7);
        (0..MANY).for_each(|start| tree.insert(interval(start * 2, start * 2, true, 1)));
        // The most that there ever were, then as many as are left, and free ones beside.
        let gone = |start: &u64| !start.is_multiple_of(1000);
        (0..MANY).filter(gone).for_each(|start| tree.remove(start * 2, 1));
        assert!(tree.nodes.capacity() <= 4 * FREE_MIN, "room for {}", tree.nodes.capacity());
        for start in 0..MANY {
            let found = tree.find(&query(start * 2, start * 2, false, None), &mut |_| true);
            assert_eq!(found.is_some(), !gone(&start), "{start}");
        }
    }

    proptest! {
        /// Against a plain list: insertions, removals and queries in any order.
        #[test]
        fn finds_what_a_list_finds(
            steps in prop::collection::vec((0u8..3, 0u64..64, 0u64..32, any::<bool>(), 0u32..6), 1..120),
        ) {
            let mut tree = IntervalTree::new(7);
            let mut list: Vec<Interval> = Vec::new();
            for (what, start, length, write, owner) in steps {
                let asked = interval(start, start + length, write, owner);
                match what {
                    0 if !list.iter().any(|other| key(other) == key(&asked)) => {
                        tree.insert(asked);
                        list.push(asked);
                    }
                    1 if !list.is_empty() => {
                        let gone = list.swap_remove(start as usize % list.len());
                        tree.remove(gone.start, gone.owner);
                    }
                    _ => {
                        list.sort_by_key(key);
                        let expected = list.iter().find(|other| {
                            other.start <= asked.end && other.end >= asked.start
                                && (write || other.write) && other.owner != owner
                        });
                        let query = query(asked.start, asked.end, write, Some(owner));
                        let found = tree.find(&query, &mut |_| true);
                        prop_assert_eq!(found.as_ref(), expected);
                    }
                }
            }
        }
    }

    #[test]
    fn an_empty_tree_gives_its_memory_back() {
        let mut tree = IntervalTree::new(1);
        for start in 0..1000 {
            tree.insert(interval(start, start, true, 0));
        }
        for start in 0..1000 {
            tree.remove(start, 0);
        }
        assert_eq!((tree.root, tree.nodes.capacity(), tree.free.capacity()), (NIL, 0, 0));
    }

    #[test]
    fn the_ends_of_the_number_range_are_bytes_like_others() {
        let mut tree = IntervalTree::new(1);
        tree.insert(interval(0, u64::MAX, false, u32::MAX));
        tree.insert(interval(u64::MAX, u64::MAX, false, 3));
        assert!(tree.find(&query(u64::MAX, u64::MAX, true, Some(u32::MAX)), &mut |_| true).is_some());
        tree.remove(0, u32::MAX);
        assert!(tree.find(&query(0, u64::MAX - 1, true, None), &mut |_| true).is_none());
        assert!(tree.find(&query(0, u64::MAX, true, None), &mut |_| true).is_some());
    }

    #[test]
    fn queries_among_a_hundred_thousand_ranges_look_at_few() {
        let mut tree = IntervalTree::new(9);
        let count = 100_000;
        // Shared ranges of as many owners that all end just before what is asked: the worst case of buckets by length.
        for owner in 0..count {
            tree.insert(interval(u64::from(owner), 1_000_000, false, owner));
        }
        tree.insert(interval(2_000_000, 2_000_009, true, 1));
        for start in [1_000_001, 1_999_999, 2_000_005, 3_000_000] {
            tree.visited.set(0);
            let found = tree.find(&query(start, start + 5, true, None), &mut |_| true);
            assert_eq!(found.is_some(), (1_999_995..=2_000_009).contains(&start));
            // A treap of n nodes is about 2 ln n = 23 deep on average; four times that is never seen.
            assert!(tree.visited.get() < 100, "looked at {}", tree.visited.get());
        }
        tree.visited.set(0);
        assert!(
            tree.find(&query(0, 999_999, false, None), &mut |_| true).is_none(),
            "shared ranges admit a shared one"
        );
        assert!(tree.visited.get() < 100, "looked at {}", tree.visited.get());
    }

    #[test]
    fn an_owner_s_query_passes_by_its_own_hundred_thousand_ranges() {
        let (own, other) = (7, 8);
        let mut tree = IntervalTree::new(9);
        // Own exclusive ranges with another's shared ones between them, and one exclusive one of the other at the end.
        for number in 0..50_000 {
            tree.insert(interval(40 * number, 40 * number + 9, true, own));
            tree.insert(interval(40 * number + 20, 40 * number + 29, false, other));
        }
        let find = |tree: &IntervalTree, end, write| {
            tree.visited.set(0);
            let found = tree.find(&query(0, end, write, Some(own)), &mut |_| true);
            assert!(tree.visited.get() < 200, "looked at {}", tree.visited.get());
            found.map(|found| found.start)
        };
        assert_eq!(find(&tree, u64::MAX, false), None, "nothing that excludes is another's");
        assert_eq!(find(&tree, u64::MAX, true), Some(20), "the first that is another's");
        assert_eq!(find(&tree, 15, true), None);
        tree.insert(interval(3_000_000, 3_000_009, true, other));
        assert_eq!(find(&tree, u64::MAX, false), Some(3_000_000));
        for number in 0..50_000 {
            tree.remove(40 * number + 20, other);
        }
        tree.remove(3_000_000, other);
        assert_eq!(find(&tree, u64::MAX, true), None, "all are its own");
    }
}
