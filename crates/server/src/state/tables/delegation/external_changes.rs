//! Changes of delegated objects by local processes, which a backend reports ([`Backend::watch`](vfs::Backend::watch)).
//!
//! A local process does not wait for a recall, so the holder learns of its change afterwards: the change recalls as another
//! client's would. The holder must learn of every change. So the watch begins before the server reads the attributes for the
//! grant, and a change between the two is noticed at the grant.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use parking_lot::Mutex;
use vfs::{ChangeListener, Watch};

use super::super::file_key::FileKey;
use super::super::wire::ClientId;
use crate::work_signal::WorkSignal;

/// A change of a delegated object that did not come through this server.
#[derive(Debug, PartialEq, Eq)]
pub struct ExternalChange {
    pub(crate) file: FileKey,
    pub(crate) holder: ClientId,
    /// The number of the notifier.
    notifier: u64,
}

/// Changes that wait for the driver.
#[derive(Debug)]
pub(crate) struct ExternalChanges {
    /// Notifiers made so far.
    notifiers: AtomicU64,
    /// At most one entry for each notifier. There is one for each delegation and for each operation that may grant one.
    queue: Mutex<VecDeque<ExternalChange>>,
    work_signal: Arc<WorkSignal>,
}

impl ExternalChanges {
    pub(crate) fn new(work_signal: Arc<WorkSignal>) -> Self {
        Self { notifiers: AtomicU64::new(0), queue: Mutex::default(), work_signal }
    }

    /// Creates a notifier for a delegation that may be granted.
    pub(crate) fn notifier(self: &Arc<Self>, holder: ClientId, file: FileKey) -> Arc<ChangeNotifier> {
        let number = self.notifiers.fetch_add(1, Relaxed);
        let changes = Arc::clone(self);
        Arc::new(ChangeNotifier { changes, file, holder, number, is_notified: AtomicBool::new(false) })
    }

    /// Takes the next change.
    pub(crate) fn next(&self) -> Option<ExternalChange> {
        self.queue.lock().pop_front()
    }
}

/// Queues one change of an object that is delegated or may be. A backend's watch calls it.
#[derive(Debug)]
pub struct ChangeNotifier {
    changes: Arc<ExternalChanges>,
    file: FileKey,
    holder: ClientId,
    number: u64,
    is_notified: AtomicBool,
}

impl ChangeListener for ChangeNotifier {
    fn notify(&self) {
        if self.is_notified.swap(true, SeqCst) {
            return;
        }
        let change = ExternalChange { file: self.file, holder: self.holder, notifier: self.number };
        self.changes.queue.lock().push_back(change);
        self.changes.work_signal.notify();
    }
}

/// A watch over a delegated object.
#[derive(Debug)]
pub struct DelegationWatch {
    notifier: Arc<ChangeNotifier>,
    /// Ends when it is dropped, which takes a system call.
    _watch: Box<dyn Watch>,
}

impl DelegationWatch {
    /// Combines a backend's watch with the notifier that it calls.
    #[must_use]
    pub fn new(notifier: Arc<ChangeNotifier>, watch: Box<dyn Watch>) -> Self {
        Self { notifier, _watch: watch }
    }

    /// Returns whether the object changed since the watch began.
    pub(crate) fn is_notified(&self) -> bool {
        self.notifier.is_notified.load(SeqCst)
    }

    /// Returns whether this watch reported a change.
    pub(crate) fn has_reported(&self, change: &ExternalChange) -> bool {
        self.notifier.number == change.notifier
    }
}
