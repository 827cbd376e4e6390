//! Operations that wait until delegations are returned, or until a holder answers CB_GETATTR.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

/// An operation that waits for a delegation of a file. As a future it is ready with `true` when the operation should try
/// again, and with `false` when its time is over.
#[derive(Debug)]
pub struct DelegationWaiter {
    pub(crate) deadline: Duration,
    inner: Mutex<Outcome>,
}

#[derive(Debug, Default)]
struct Outcome {
    waker: Option<Waker>,
    /// Whether to try again; `None` while it waits.
    try_again: Option<bool>,
}

impl DelegationWaiter {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self { deadline, inner: Mutex::default() }
    }

    /// Lets the operation try again.
    pub(crate) fn wake(&self) {
        self.end(true);
    }

    /// Ends the wait, if it has not ended.
    pub(crate) fn end(&self, try_again: bool) {
        let mut inner = self.inner.lock();
        inner.try_again.get_or_insert(try_again);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for &DelegationWaiter {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let mut inner = self.inner.lock();
        if let Some(try_again) = inner.try_again {
            return Poll::Ready(try_again);
        }
        inner.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
