//! The work that waits for a volume's cleanup thread.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use vfs::Handle;

/// Wakes the cleanup thread.
#[derive(Debug, Default)]
pub(crate) struct CleanupQueue {
    pub(crate) state: Arc<(Mutex<State>, Condvar)>,
    pub(crate) closed: Mutex<Closed>,
}

/// Files whose last open was closed.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    /// By handle: a weak reference would keep the memory of each removed object allocated.
    pub(crate) files: VecDeque<Handle>,
    /// Whether the cleanup thread was woken for them.
    pub(crate) is_notified: bool,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) has_work: bool,
    pub(crate) has_closed: bool,
    pub(crate) is_over: bool,
}

impl CleanupQueue {
    /// Wakes the thread for a writable descriptor, or for work in the index.
    pub(crate) fn wake(&self) {
        let mut state = self.state.0.lock();
        if !std::mem::replace(&mut state.has_work, true) {
            self.state.1.notify_one();
        }
    }

    /// Wakes the thread for files that were closed.
    pub(crate) fn wake_for_closed(&self) {
        let mut state = self.state.0.lock();
        if !std::mem::replace(&mut state.has_closed, true) {
            self.state.1.notify_one();
        }
    }
}

impl Drop for CleanupQueue {
    fn drop(&mut self) {
        self.state.0.lock().is_over = true;
        self.state.1.notify_one();
    }
}
