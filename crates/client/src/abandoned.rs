//! Operations that continue after their caller has dropped them.
//!
//! A program may drop the future of an OPEN or a LOCK whose request is on its way. The server may execute it anyway, and
//! would keep state that the client does not know. So the future continues in the background, and its result is undone.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;

/// Maximum number of operations that continue in the background. Further ones are dropped: the server keeps their state until the client leaves.
const BACKGROUND_MAX: usize = 4096;

/// Operations for which no caller waits any longer.
#[derive(Default)]
pub(crate) struct Abandoned {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Operations that are not polled yet.
    new: Vec<BoxFuture<'static, ()>>,
    /// Number of operations that have not ended.
    count: usize,
    runner: Option<Waker>,
    /// Tasks that wait until all have ended.
    waiting: Vec<Waker>,
}

impl Abandoned {
    /// Adds an operation for which no caller waits.
    pub(crate) fn add(&self, operation: BoxFuture<'static, ()>) {
        let mut state = self.state.lock();
        if state.count >= BACKGROUND_MAX {
            return;
        }
        state.count += 1;
        state.new.push(operation);
        if let Some(runner) = state.runner.take() {
            runner.wake();
        }
    }

    /// Polls the operations. Does not end; dropping it drops them.
    pub(crate) async fn run(&self) {
        let mut running = FuturesUnordered::new();
        poll_fn(|context: &mut Context<'_>| -> Poll<()> {
            loop {
                let new = {
                    let mut state = self.state.lock();
                    state.runner = Some(context.waker().clone());
                    std::mem::take(&mut state.new)
                };
                running.extend(new);
                let Poll::Ready(Some(())) = running.poll_next_unpin(context) else { return Poll::Pending };
                let mut state = self.state.lock();
                state.count -= 1;
                if state.count == 0 {
                    state.waiting.drain(..).for_each(Waker::wake);
                }
            }
        })
        .await;
    }

    /// Waits until all operations have ended.
    pub(crate) async fn idle(&self) {
        poll_fn(|context| {
            let mut state = self.state.lock();
            if state.count == 0 {
                return Poll::Ready(());
            }
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Returns a future that runs `operation`. If it is dropped before its end, the operation continues in the
    /// background, and `undo` handles its result.
    pub(crate) fn guard<T: 'static, U: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        operation: impl Future<Output = T> + Send + 'static,
        undo: impl FnOnce(T) -> U + Send + 'static,
    ) -> Guarded<T, impl FnOnce(BoxFuture<'static, T>) -> BoxFuture<'static, ()>> {
        let then = |operation: BoxFuture<'static, T>| -> BoxFuture<'static, ()> {
            Box::pin(async move {
                let result = operation.await;
                undo(result).await;
            })
        };
        let (background, operation) = (Arc::clone(self), Some(Box::pin(operation) as BoxFuture<'static, T>));
        Guarded { background, operation, then: Some(then) }
    }
}

/// A future that continues in the background when it is dropped before its end.
pub(crate) struct Guarded<T, F: FnOnce(BoxFuture<'static, T>) -> BoxFuture<'static, ()>> {
    background: Arc<Abandoned>,
    operation: Option<BoxFuture<'static, T>>,
    then: Option<F>,
}

impl<T, F: FnOnce(BoxFuture<'static, T>) -> BoxFuture<'static, ()> + Unpin> Future for Guarded<T, F> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(operation) = &mut self.operation else { return Poll::Pending };
        let polled = operation.as_mut().poll(context);
        if polled.is_ready() {
            self.operation = None;
        }
        polled
    }
}

impl<T, F: FnOnce(BoxFuture<'static, T>) -> BoxFuture<'static, ()>> Drop for Guarded<T, F> {
    fn drop(&mut self) {
        if let (Some(operation), Some(then)) = (self.operation.take(), self.then.take()) {
            self.background.add(then(operation));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_dropped_operation_continues_and_its_result_is_undone() {
        let background = Arc::new(Abandoned::default());
        let (result, undone) = (Arc::new(AtomicU32::new(5)), Arc::new(AtomicU32::new(0)));
        let guard = || {
            let (result, undone) = (Arc::clone(&result), Arc::clone(&undone));
            let operation = poll_fn(move |context| match result.load(Ordering::Relaxed) {
                0 => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                result => Poll::Ready(result),
            });
            background.guard(operation, async move |result| undone.store(result, Ordering::Relaxed))
        };
        assert_eq!(guard().now_or_never(), Some(5));
        assert_eq!(background.idle().now_or_never(), Some(()), "it has ended");

        result.store(0, Ordering::Relaxed);
        assert_eq!(guard().now_or_never(), None);
        assert_eq!(background.idle().now_or_never(), None);
        let mut run = Box::pin(background.run());
        assert_eq!(run.as_mut().now_or_never(), None);
        result.store(7, Ordering::Relaxed);
        assert_eq!(run.as_mut().now_or_never(), None);
        assert_eq!((undone.load(Ordering::Relaxed), background.idle().now_or_never()), (7, Some(())));
    }
}
