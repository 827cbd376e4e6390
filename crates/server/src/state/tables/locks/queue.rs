//! The owners that wait for locks of a file.
//!
//! Nothing is granted here: a waiter was denied a lock, and is notified when it may have it. NFSv4 clients then repeat the request; for NLM
//! hosts the caller grants it at once. A waiter that repeats its request without a notification
//! can be forgotten at any time. Waiters are notified in the order of arrival, and never two at once whose locks
//! exclude each other: one writer, or all readers. A notified waiter keeps its turn until it has repeated its request or its time is over.

use std::time::Duration;

use super::held::LockKind;
use super::owners::OwnerName;
use super::range::LockRange;

/// An owner that waits for a lock; `N` has the data to notify it.
#[derive(Debug)]
pub(crate) struct LockWaiter<N> {
    pub(crate) owner: OwnerName,
    pub(crate) range: LockRange,
    pub(crate) kind: LockKind,
    /// When it asked last.
    pub(crate) asked_at: Duration,
    /// When it was notified, if it has its turn.
    pub(crate) notified_at: Option<Duration>,
    pub(crate) notify: N,
}

impl<N> LockWaiter<N> {
    /// Returns whether this is the given owner's wait for the given bytes.
    pub(crate) fn is_for(&self, owner: &OwnerName, range: LockRange) -> bool {
        self.range == range && self.owner == *owner
    }

    fn excludes(&self, other: &Self) -> bool {
        self.kind.excludes(other.kind) && self.range.overlaps(other.range) && self.owner != other.owner
    }
}

/// The waiters of one file, in the order of arrival.
#[derive(Debug)]
pub(crate) struct LockQueue<N>(Vec<LockWaiter<N>>);

impl<N> Default for LockQueue<N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<N> LockQueue<N> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &LockWaiter<N>> {
        self.0.iter()
    }

    /// Adds a waiter at the end. Its owner must not wait for the same bytes yet.
    pub(crate) fn push(&mut self, waiter: LockWaiter<N>) {
        self.0.push(waiter);
    }

    /// Returns the wait of an owner for these bytes.
    pub(crate) fn find_mut(&mut self, owner: &OwnerName, range: LockRange) -> Option<&mut LockWaiter<N>> {
        self.0.iter_mut().find(|waiter| waiter.is_for(owner, range))
    }

    /// Removes the waiters for which `is_over` is true.
    pub(crate) fn remove(&mut self, mut is_over: impl FnMut(&LockWaiter<N>) -> bool) {
        self.0.retain(|waiter| !is_over(waiter));
    }

    /// Removes and returns the waiters for which `is_taken` is true.
    pub(crate) fn take(&mut self, is_taken: impl Fn(&LockWaiter<N>) -> bool) -> Vec<LockWaiter<N>> {
        self.0.extract_if(.., |waiter| is_taken(waiter)).collect()
    }

    /// Gives turns to waiters that have none, and returns the result of `notify` for each. A waiter gets its turn if `is_free`
    /// returns that it could have its lock, and no lock whose waiter has its turn excludes that.
    pub(crate) fn give_turns<C>(
        &mut self,
        now: Duration,
        is_free: impl Fn(&LockWaiter<N>) -> bool,
        notify: impl Fn(&LockWaiter<N>) -> C,
    ) -> Vec<C> {
        let has_turn = |at: &usize| self.0[*at].notified_at.is_some();
        let mut notified: Vec<usize> = (0..self.0.len()).filter(has_turn).collect();
        let mut calls = Vec::new();
        for at in 0..self.0.len() {
            let waiter = &self.0[at];
            let is_excluded = || notified.iter().any(|other| waiter.excludes(&self.0[*other]));
            if waiter.notified_at.is_some() || is_excluded() || !is_free(waiter) {
                continue;
            }
            calls.push(notify(waiter));
            self.0[at].notified_at = Some(now);
            notified.push(at);
        }
        calls
    }

    /// Checks that no waiter is listed twice, and that no two have their turn whose locks exclude each other; `check` checks
    /// each by itself.
    ///
    /// # Errors
    /// The first inconsistency.
    pub(crate) fn audit(
        &self,
        mut check: impl FnMut(&LockWaiter<N>) -> Result<(), String>,
    ) -> Result<(), String>
    where
        N: std::fmt::Debug,
    {
        if self.0.is_empty() {
            return Err("an empty queue of waiters".into());
        }
        for (at, one) in self.0.iter().enumerate() {
            check(one)?;
            for other in &self.0[..at] {
                if other.is_for(&one.owner, one.range) {
                    return Err(format!("{one:?} waits twice"));
                }
                if one.notified_at.is_some() && other.notified_at.is_some() && one.excludes(other) {
                    return Err(format!("{one:?} and {other:?} have their turn at once"));
                }
            }
        }
        Ok(())
    }

    /// Gives all waiters their turn at once, for a test of [`Self::audit`].
    #[cfg(test)]
    pub(crate) fn give_all_turns(&mut self) {
        self.0.iter_mut().for_each(|waiter| waiter.notified_at = Some(Duration::ZERO));
    }
}

#[cfg(test)]
mod tests {
    use super::LockKind::{Exclusive, Shared};
    use super::*;

    fn waiter(name: &'static str, offset: u64, kind: LockKind) -> LockWaiter<&'static str> {
        let owner = OwnerName { client: 1, owner: name.as_bytes().into() };
        let range = LockRange::new(offset, 10).unwrap();
        LockWaiter { owner, range, kind, asked_at: Duration::ZERO, notified_at: None, notify: name }
    }

    fn queue(waiters: impl IntoIterator<Item = LockWaiter<&'static str>>) -> LockQueue<&'static str> {
        let mut queue = LockQueue::default();
        waiters.into_iter().for_each(|waiter| queue.push(waiter));
        queue
    }

    fn turns(queue: &mut LockQueue<&'static str>) -> Vec<&'static str> {
        let calls = queue.give_turns(Duration::ZERO, |_| true, |waiter| waiter.notify);
        queue.audit(|_| Ok(())).unwrap();
        calls
    }

    #[test]
    fn notifies_one_writer_at_a_time_in_order() {
        let mut queue = queue([waiter("a", 0, Exclusive), waiter("b", 0, Exclusive)]);
        assert_eq!(turns(&mut queue), ["a"]);
        assert_eq!(turns(&mut queue), [""; 0], "it is a's turn");
        queue.remove(|waiter| waiter.notify == "a");
        assert_eq!(turns(&mut queue), ["b"]);
    }

    #[test]
    fn notifies_all_readers_and_writers_of_other_bytes_at_once() {
        let mut queue = queue([
            waiter("a", 0, Shared),
            waiter("b", 5, Shared),
            waiter("c", 0, Exclusive),
            waiter("d", 30, Exclusive),
        ]);
        assert_eq!(turns(&mut queue), ["a", "b", "d"]);
    }

    #[test]
    fn skips_waiters_whose_lock_is_not_free() {
        let mut queue = queue([waiter("a", 0, Exclusive), waiter("b", 0, Exclusive)]);
        let calls = queue.give_turns(Duration::ZERO, |waiter| waiter.notify == "b", |waiter| waiter.notify);
        assert_eq!(calls, ["b"]);
    }

    #[test]
    fn waits_of_one_owner_do_not_exclude_each_other() {
        let mut queue = queue([waiter("a", 0, Exclusive), waiter("a", 5, Exclusive)]);
        assert_eq!(turns(&mut queue), ["a", "a"]);
    }

    #[test]
    fn audit_reports_two_turns_that_exclude_each_other_and_double_waits() {
        let mut both = queue([waiter("a", 0, Exclusive), waiter("b", 0, Exclusive)]);
        both.give_all_turns();
        assert!(both.audit(|_| Ok(())).unwrap_err().contains("at once"));
        let twice = queue([waiter("a", 0, Exclusive), waiter("a", 0, Shared)]);
        assert!(twice.audit(|_| Ok(())).unwrap_err().contains("twice"));
    }
}
