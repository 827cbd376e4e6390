//! One operation at a time on each name that an operation of an earlier process may still claim.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// The targets of running operations, each with the operations that wait for it. At most as many as calls are in progress.
#[derive(Debug, Default)]
pub(super) struct Turns {
    running: Mutex<HashMap<u64, Vec<Waker>>>,
    /// Number of running operations, so that without any nobody takes the lock.
    count: AtomicUsize,
}

/// The turn of an operation on a target. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    turns: &'t Turns,
    target: u64,
}

impl Turns {
    /// Returns whether any operation has a turn.
    pub(super) fn has_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Returns whether an operation has the turn on a target.
    pub(super) fn is_taken(&self, target: u64) -> bool {
        self.running.lock().contains_key(&target)
    }

    /// Waits until no other operation has the target.
    pub(super) async fn take(&self, target: u64) -> Turn<'_> {
        poll_fn(|context| self.poll_take(target, context)).await;
        Turn { turns: self, target }
    }

    fn poll_take(&self, target: u64, context: &Context<'_>) -> Poll<()> {
        let mut running = self.running.lock();
        let Some(waiting) = running.get_mut(&target) else {
            running.insert(target, Vec::new());
            self.count.fetch_add(1, Ordering::AcqRel);
            return Poll::Ready(());
        };
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let waiting = self.turns.running.lock().remove(&self.target);
        self.turns.count.fetch_sub(1, Ordering::AcqRel);
        // A woken operation may run at once.
        waiting.into_iter().flatten().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_target_has_one_operation_at_a_time() {
        let turns = Turns::default();
        let first = turns.take(1).now_or_never().expect("free");
        assert!(turns.take(2).now_or_never().is_some(), "another target");
        assert!(turns.has_any() && turns.is_taken(1) && !turns.is_taken(2));
        let mut second = pin!(turns.take(1));
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        let second = (&mut second).now_or_never().expect("free again");
        drop(second);
        assert!(turns.running.lock().is_empty() && !turns.has_any());
    }
}
