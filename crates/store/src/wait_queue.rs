//! Tasks that wait until changes up to some number are on stable storage.

use std::collections::HashMap;
use std::task::Waker;

/// Tasks that wait, each for a number. One that stops waiting stays until its number is reached.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    /// By ticket.
    waiting: HashMap<u64, (u64, Waker)>,
    last_ticket: u64,
}

impl WaitQueue {
    /// Registers `waker` for the number `wanted`, or replaces the waker registered with this ticket. The first call sets the ticket.
    pub(crate) fn register(&mut self, ticket: &mut Option<u64>, wanted: u64, waker: &Waker) {
        let last = &mut self.last_ticket;
        let ticket = *ticket.get_or_insert_with(|| {
            *last += 1;
            *last
        });
        self.waiting.insert(ticket, (wanted, waker.clone()));
    }

    /// Removes the tasks whose numbers are reached. Their wakers are to be called when no lock is held.
    pub(crate) fn take(&mut self, is_reached: impl Fn(u64) -> bool) -> Vec<Waker> {
        let reached = self.waiting.extract_if(|_, (wanted, _)| is_reached(*wanted));
        reached.map(|(_, (_, waker))| waker).collect()
    }

    /// Returns whether no task waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the number of waiting tasks.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_waits_once_and_leaves_when_its_number_is_reached() {
        let mut queue = WaitQueue::default();
        let (mut first, mut second) = (None, None);
        queue.register(&mut first, 1, Waker::noop());
        queue.register(&mut second, 2, Waker::noop());
        queue.register(&mut first, 1, Waker::noop());
        assert_eq!((queue.len(), first != second), (2, true));
        assert_eq!((queue.take(|wanted| wanted <= 1).len(), queue.len()), (1, 1));
        assert_eq!((queue.take(|wanted| wanted <= 1).len(), queue.take(|_| true).len()), (0, 1));
    }
}
