//! Wakes the driver when something is queued for it.

use std::task::Waker;

use parking_lot::Mutex;

/// Wakes the task that registered last.
#[derive(Debug, Default)]
pub struct WorkSignal(Mutex<Option<Waker>>);

impl WorkSignal {
    /// Makes [`Self::notify`] wake `waker`. Call this before looking for work: work that is queued afterwards then wakes the task.
    pub fn register(&self, waker: &Waker) {
        self.0.lock().get_or_insert_with(|| waker.clone()).clone_from(waker);
    }

    /// Wakes the registered task, once.
    pub fn notify(&self) {
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
