//! A bounded queue between two futures of one task: one sends, one receives.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Items in their order.
pub(super) struct Queue<T> {
    max: usize,
    state: Mutex<State<T>>,
}

struct State<T> {
    items: VecDeque<T>,
    is_closed: bool,
    sender: Option<Waker>,
    receiver: Option<Waker>,
}

impl<T> Queue<T> {
    /// Creates a queue of at most `max` items, at least one.
    pub(super) fn new(max: usize) -> Self {
        let state = State { items: VecDeque::new(), is_closed: false, sender: None, receiver: None };
        Self { max: max.max(1), state: Mutex::new(state) }
    }

    /// Waits until there is room, and adds an item.
    pub(super) async fn send(&self, item: T) {
        let mut item = Some(item);
        poll_fn(|context| {
            let mut state = self.state.lock();
            if state.items.len() >= self.max {
                state.sender = Some(context.waker().clone());
                return Poll::Pending;
            }
            state.items.extend(item.take());
            state.receiver.take().inspect(Waker::wake_by_ref);
            Poll::Ready(())
        })
        .await;
    }

    /// Ends the queue: its items can still be received.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.receiver.take().inspect(Waker::wake_by_ref);
    }

    /// Returns the next item; `None` at the end.
    pub(super) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.state.lock();
        if let Some(item) = state.items.pop_front() {
            state.sender.take().inspect(Waker::wake_by_ref);
            return Poll::Ready(Some(item));
        }
        if state.is_closed {
            return Poll::Ready(None);
        }
        state.receiver = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns whether no item waits.
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use futures_util::future::join;

    use super::*;

    #[test]
    fn a_full_queue_stops_its_sender_until_an_item_is_received() {
        let queue = Queue::new(2);
        let mut sending = Box::pin(async {
            for number in 0..5 {
                queue.send(number).await;
            }
            queue.close();
        });
        assert!(sending.as_mut().now_or_never().is_none());
        assert_eq!(queue.state.lock().items, [0, 1]);
        let receiving = async {
            let mut received = Vec::new();
            while let Some(number) = poll_fn(|context| queue.poll_next(context)).await {
                received.push(number);
            }
            received
        };
        let mut both = Box::pin(join(sending, receiving));
        let ended = (0..10).find_map(|_| both.as_mut().now_or_never());
        assert_eq!(ended.unwrap().1, [0, 1, 2, 3, 4]);
        assert!(queue.is_empty());
    }
}
