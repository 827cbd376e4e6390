//! Changes by other users than the server, for tests.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{ChangeListener, Handle, Interest, Watch};

/// The watches that are notified when another user than the server changes an object, or opens it.
#[derive(Debug, Default, Clone)]
pub struct Outsiders(Arc<Mutex<Watchers>>);

#[derive(Debug, Default)]
struct Watchers {
    /// The numbers assigned so far.
    numbers: u64,
    all: Vec<Watcher>,
}

#[derive(Debug)]
struct Watcher {
    number: u64,
    object: Handle,
    interest: Interest,
    listener: Arc<dyn ChangeListener>,
}

/// Ends with the watch that contains it.
#[derive(Debug)]
struct Watching {
    number: u64,
    watchers: Arc<Mutex<Watchers>>,
}

impl Watch for Watching {}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watchers.lock().all.retain(|watcher| watcher.number != self.number);
    }
}

impl Outsiders {
    /// As [`Backend::watch`](crate::Backend::watch).
    pub fn watch(
        &self,
        object: &Handle,
        interest: Interest,
        listener: &Arc<dyn ChangeListener>,
    ) -> Box<dyn Watch> {
        let mut watchers = self.0.lock();
        watchers.numbers += 1;
        let number = watchers.numbers;
        watchers.all.push(Watcher { number, object: *object, interest, listener: Arc::clone(listener) });
        Box::new(Watching { number, watchers: Arc::clone(&self.0) })
    }

    /// Changes an object, or opens it ([`Interest::Uses`]), as another user: notifies its watches.
    pub fn act(&self, object: &Handle, what: Interest) {
        let is_notified = |watcher: &&Watcher| {
            watcher.object == *object && (what == Interest::Changes || watcher.interest == what)
        };
        let notified: Vec<_> =
            self.0.lock().all.iter().filter(is_notified).map(|one| Arc::clone(&one.listener)).collect();
        notified.iter().for_each(|listener| listener.notify());
    }

    /// Returns the number of watches.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.0.lock().all.len()
    }
}
