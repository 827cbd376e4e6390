//! Tasks that wait until a lock may be free.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use protocol::nfs4::types::Handle;

/// Maximum number of tasks of a client that wait for locks.
pub(crate) const WAITERS_MAX: usize = 16 << 10;

/// All tasks of a client that wait for locks.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: Mutex<Vec<Arc<Place>>>,
}

#[derive(Debug)]
struct Place {
    file: Handle,
    /// The number of the owner.
    owner: u64,
    state: Mutex<PlaceState>,
}

#[derive(Debug, Default)]
struct PlaceState {
    is_notified: bool,
    waker: Option<Waker>,
}

/// A task's place among the waiters; dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Waiter<'a> {
    waiters: &'a Waiters,
    place: Arc<Place>,
}

impl Waiters {
    /// Joins the waiters for a lock of this file; `None` if there are too many.
    pub(crate) fn join(&self, file: Handle, owner: u64) -> Option<Waiter<'_>> {
        let place = Arc::new(Place { file, owner, state: Mutex::default() });
        let mut waiting = self.waiting.lock();
        if waiting.len() >= WAITERS_MAX {
            return None;
        }
        waiting.push(Arc::clone(&place));
        Some(Waiter { waiters: self, place })
    }

    /// Wakes an owner that the server has notified (CB_NOTIFY_LOCK).
    pub(crate) fn notify(&self, file: &Handle, owner: u64) {
        self.wake(|place| place.file == *file && place.owner == owner);
    }

    /// Wakes all waiters of this file, because this client has unlocked a part of it.
    pub(crate) fn unlocked(&self, file: &Handle) {
        self.wake(|place| place.file == *file);
    }

    fn wake(&self, is_meant: impl Fn(&Place) -> bool) {
        for place in self.waiting.lock().iter().filter(|place| is_meant(place)) {
            let mut state = place.state.lock();
            state.is_notified = true;
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Waiter<'_> {
    /// Forgets notifications: another attempt begins.
    pub(crate) fn reset(&self) {
        self.place.state.lock().is_notified = false;
    }

    /// Waits for a notification since [`Self::reset`], at most until `timeout` is over.
    pub(crate) async fn notified(&self, timeout: impl Future<Output = ()>) {
        let mut timeout = pin!(timeout);
        poll_fn(|context| {
            let mut state = self.place.state.lock();
            if state.is_notified {
                return Poll::Ready(());
            }
            state.waker = Some(context.waker().clone());
            drop(state);
            timeout.as_mut().poll(context)
        })
        .await;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.waiters.waiting.lock().retain(|place| !Arc::ptr_eq(place, &self.place));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_owner_that_is_notified_is_woken_and_no_other() {
        let waiters = Waiters::default();
        let file = Handle::new(b"file").unwrap();
        let (one, two) = (waiters.join(file, 1).unwrap(), waiters.join(file, 2).unwrap());
        waiters.notify(&file, 2);
        let is_woken = |waiter: &Waiter<'_>| waiter.notified(std::future::pending()).now_or_never().is_some();
        assert_eq!((is_woken(&one), is_woken(&two)), (false, true));
        two.reset();
        assert!(!is_woken(&two));
        waiters.unlocked(&file);
        assert!(is_woken(&one) && is_woken(&two));
        drop((one, two));
        assert!(waiters.waiting.lock().is_empty());
    }
}
