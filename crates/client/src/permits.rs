//! Permits for which tasks wait in order. Used for the slots of a session and the calls of version 3 in flight.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Waiting tasks, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    waiting: VecDeque<(u64, Waker)>,
    next: u64,
}

/// A task's place in a [`WaitQueue`]; none before it had to wait.
#[derive(Debug, Default)]
pub(crate) struct Ticket(Option<u64>);

impl Ticket {
    /// Returns the place, in order of arrival; `None` if the task does not wait.
    pub(crate) fn place(&self) -> Option<u64> {
        self.0
    }
}

impl WaitQueue {
    /// Returns `take()`'s result if it is this task's turn and something is available; otherwise the task waits.
    pub(crate) fn poll<T>(
        &mut self,
        ticket: &mut Ticket,
        context: &mut Context<'_>,
        take: impl FnOnce() -> Option<T>,
    ) -> Poll<T> {
        let is_first = match (ticket.0, self.waiting.front()) {
            (_, None) => true,
            (Some(number), Some((first, _))) => number == *first,
            (None, Some(_)) => false,
        };
        if is_first && let Some(taken) = take() {
            self.leave(ticket);
            // Another may be free for the next.
            self.wake_first();
            return Poll::Ready(taken);
        }
        let waker = context.waker().clone();
        match ticket.0 {
            Some(number) => {
                if let Some(entry) = self.waiting.iter_mut().find(|(other, _)| *other == number) {
                    entry.1 = waker;
                }
            }
            None => {
                self.next += 1;
                ticket.0 = Some(self.next);
                self.waiting.push_back((self.next, waker));
            }
        }
        Poll::Pending
    }

    /// Releases a place. The next task is woken if this one may have been.
    pub(crate) fn leave(&mut self, ticket: &mut Ticket) {
        let Some(number) = ticket.0.take() else { return };
        let was_first = self.waiting.front().is_some_and(|(first, _)| *first == number);
        self.waiting.retain(|(other, _)| *other != number);
        if was_first {
            self.wake_first();
        }
    }

    /// Gives a task the place again that it had when it left.
    pub(crate) fn enter_again(&mut self, ticket: &mut Ticket, place: u64, waker: Waker) {
        ticket.0 = Some(place);
        let at = self.waiting.partition_point(|(other, _)| *other < place);
        self.waiting.insert(at, (place, waker));
    }

    /// Wakes the first task, because something may be free.
    pub(crate) fn wake_first(&self) {
        if let Some((_, waker)) = self.waiting.front() {
            waker.wake_by_ref();
        }
    }

    /// Wakes all tasks, because there is nothing to wait for any longer.
    pub(crate) fn wake_all(&self) {
        for (_, waker) in &self.waiting {
            waker.wake_by_ref();
        }
    }
}

/// A limit on concurrent uses, for instance on calls in flight.
#[derive(Debug)]
pub(crate) struct Permits {
    max: usize,
    state: Mutex<PermitState>,
}

#[derive(Debug, Default)]
struct PermitState {
    in_use: usize,
    queue: WaitQueue,
    waits: usize,
}

impl Permits {
    /// Creates `max` permits, at least one.
    pub(crate) fn new(max: usize) -> Self {
        Self { max: max.max(1), state: Mutex::default() }
    }

    /// Waits for a permit.
    pub(crate) async fn take(self: &Arc<Self>) -> Permit {
        self.take_and_tell().await.0
    }

    /// As [`Self::take`]; returns whether the task had to wait, too.
    pub(crate) async fn take_and_tell(self: &Arc<Self>) -> (Permit, bool) {
        let mut place = PermitPlace { permits: self, ticket: Ticket::default(), has_waited: false };
        let permit = poll_fn(|context| place.poll(context)).await;
        (permit, place.has_waited)
    }

    /// Returns the number in use, and the number of tasks that had to wait for one so far.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.in_use, state.waits)
    }
}

/// A place in the queue for a permit.
struct PermitPlace<'a> {
    permits: &'a Arc<Permits>,
    ticket: Ticket,
    has_waited: bool,
}

impl PermitPlace<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Permit> {
        let mut state = self.permits.state.lock();
        let PermitState { in_use, queue, waits } = &mut *state;
        let take = || (*in_use < self.permits.max).then(|| *in_use += 1);
        let polled = queue.poll(&mut self.ticket, context, take);
        if polled.is_pending() && !std::mem::replace(&mut self.has_waited, true) {
            *waits += 1;
        }
        drop(state);
        polled.map(|()| Permit(Arc::clone(self.permits)))
    }
}

impl Drop for PermitPlace<'_> {
    fn drop(&mut self) {
        self.permits.state.lock().queue.leave(&mut self.ticket);
    }
}

/// A permit in use. Dropping it returns it.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Permits>);

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.in_use -= 1;
        state.queue.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::FutureExt;
    use futures_util::task::{ArcWake, waker};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl ArcWake for Count {
        fn wake_by_ref(this: &Arc<Self>) {
            this.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn tasks_are_served_in_their_order() {
        let (mut queue, mut free) = (WaitQueue::default(), 1);
        let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
        let mut tickets: Vec<Ticket> = (0..3).map(|_| Ticket::default()).collect();
        let mut poll = |queue: &mut WaitQueue, free: &mut u32, task: usize| {
            let waker = waker(counts[task].clone());
            let take = || (*free > 0).then(|| *free -= 1);
            queue.poll(&mut tickets[task], &mut Context::from_waker(&waker), take).is_ready()
        };
        assert!(poll(&mut queue, &mut free, 0));
        assert!(!poll(&mut queue, &mut free, 1) && !poll(&mut queue, &mut free, 2));
        free = 1;
        queue.wake_first();
        assert!(!poll(&mut queue, &mut free, 2), "task 1 was earlier");
        assert!(!poll(&mut queue, &mut free, 0), "a new one waits after it");
        assert!(poll(&mut queue, &mut free, 1));
        assert_eq!(counts[1].0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_task_that_stops_waiting_passes_its_turn_on() {
        let mut queue = WaitQueue::default();
        let count = Arc::new(Count::default());
        let waker = waker(count.clone());
        let (mut first, mut second) = (Ticket::default(), Ticket::default());
        let poll = |queue: &mut WaitQueue, ticket: &mut Ticket| {
            queue.poll(ticket, &mut Context::from_waker(&waker), || None::<()>)
        };
        assert!(poll(&mut queue, &mut first).is_pending() && poll(&mut queue, &mut second).is_pending());
        queue.leave(&mut first);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        queue.leave(&mut second);
        assert!(queue.waiting.is_empty());
    }

    #[test]
    fn a_task_that_enters_again_has_its_place_again() {
        let mut queue = WaitQueue::default();
        let mut tickets: Vec<Ticket> = (0..3).map(|_| Ticket::default()).collect();
        let mut context = Context::from_waker(Waker::noop());
        for ticket in &mut tickets {
            assert!(queue.poll(ticket, &mut context, || None::<()>).is_pending());
        }
        let place = tickets[1].place().unwrap();
        queue.leave(&mut tickets[1]);
        assert_eq!(tickets[1].place(), None);
        queue.enter_again(&mut tickets[1], place, Waker::noop().clone());
        for ticket in &mut tickets {
            assert!(queue.poll(ticket, &mut context, || Some(())).is_ready(), "in their order");
        }
    }

    #[test]
    fn permits_in_use_never_exceed_the_maximum() {
        let permits = Arc::new(Permits::new(2));
        let first = permits.take().now_or_never().unwrap();
        let _second = permits.take().now_or_never().unwrap();
        let mut third = Box::pin(permits.take());
        assert!(third.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        assert_eq!(permits.usage(), (2, 1));
        drop(first);
        assert!(third.as_mut().now_or_never().is_some());
        assert_eq!(permits.usage(), (1, 1), "the third was returned at once");
        assert!(permits.take_and_tell().now_or_never().is_some_and(|(_, has_waited)| !has_waited));
        drop(permits.take());
        assert_eq!(permits.usage(), (1, 1));
    }
}
