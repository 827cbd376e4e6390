//! Operations that wait until delegations are back, or their holders have answered.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

/// An operation that waits until delegations are back.
#[derive(Debug)]
pub struct Waiter {
    pub(crate) deadline: Duration,
    inner: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    waker: Option<Waker>,
    /// Whether it is worth looking again; `Some(false)` where time is up.
    woken: Option<bool>,
}

impl Waiter {
    pub(crate) fn new(deadline: Duration) -> Self {
        Self { deadline, inner: Mutex::default() }
    }

    /// A delegation came back, or was revoked.
    pub(crate) fn wake(&self) {
        self.end(true);
    }

    /// Lets the operation go on, if nothing did before.
    pub(crate) fn end(&self, look_again: bool) {
        let mut inner = self.inner.lock();
        inner.woken.get_or_insert(look_again);
        let waker = inner.waker.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Ready once the operation should look again (true), or has waited for as long as it may (false).
impl Future for &Waiter {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let mut inner = self.inner.lock();
        if let Some(look_again) = inner.woken {
            return Poll::Ready(look_again);
        }
        inner.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
