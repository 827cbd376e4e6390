//! What wakes the thread that closes idle files.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use vfs::Handle;

/// Wakes the janitor.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    pub(crate) state: Arc<(Mutex<State>, Condvar)>,
    pub(crate) closed: Mutex<Closed>,
}

/// Files whose last open was closed.
#[derive(Debug, Default)]
pub(crate) struct Closed {
    /// By handle: held weakly, the memory of each that is removed meanwhile would stay taken, and that of the next one come from far.
    pub(crate) files: VecDeque<Handle>,
    /// The janitor was told of them.
    pub(crate) is_told: bool,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) has_work: bool,
    pub(crate) has_closed: bool,
    pub(crate) is_over: bool,
}

impl Alarm {
    /// There is a descriptor open for writing, or something to do in the index.
    pub(crate) fn ring(&self) {
        let mut state = self.state.0.lock();
        if !std::mem::replace(&mut state.has_work, true) {
            self.state.1.notify_one();
        }
    }

    /// There are files that were closed.
    pub(crate) fn ring_for_closed(&self) {
        let mut state = self.state.0.lock();
        if !std::mem::replace(&mut state.has_closed, true) {
            self.state.1.notify_one();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.state.0.lock().is_over = true;
        self.state.1.notify_one();
    }
}
