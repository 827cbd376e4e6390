//! A barrier that wakes its tasks in the order of their arrival, so that a simulation repeats itself. Tokio's has a random order.

use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

/// Lets tasks of any threads wait for each other, repeatedly.
pub(super) struct Barrier {
    /// Number of tasks that wait for each other.
    size: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    arrived: usize,
    /// Times that all have arrived.
    rounds: u64,
    waiting: Vec<Waker>,
}

impl Barrier {
    pub(super) fn new(size: usize) -> Self {
        Self { size, state: Mutex::default() }
    }

    /// Waits until all have arrived.
    pub(super) async fn wait(&self) {
        let Some(round) = self.arrive() else { return };
        let mut place = None;
        poll_fn(|context| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.rounds != round {
                return Poll::Ready(());
            }
            match place {
                Some(place) => state.waiting[place] = context.waker().clone(),
                None => {
                    place = Some(state.waiting.len());
                    state.waiting.push(context.waker().clone());
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Counts a task; returns the round for which it waits, or none if it is the last.
    fn arrive(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrived += 1;
        if state.arrived < self.size {
            return Some(state.rounds);
        }
        state.arrived = 0;
        state.rounds += 1;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn all_wait_for_each_other_in_each_round() {
        let (barrier, log) = (Barrier::new(40), RefCell::new(Vec::new()));
        let task = |number: usize| {
            let (barrier, log) = (&barrier, &log);
            async move {
                for round in 0..3 {
                    log.borrow_mut().push((round, number));
                    barrier.wait().await;
                }
            }
        };
        join_all((0..40).map(task)).await;
        let log = log.into_inner();
        assert!(log.is_sorted_by_key(|(round, _)| *round), "nobody is ahead: {log:?}");
        assert_eq!(log.len(), 120);
    }
}
