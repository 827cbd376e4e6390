//! The changes of an object, and how far they have reached stable storage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use vfs::{Error, Result};

/// How much of a change must be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Extent {
    /// Content and the metadata needed to find it: fdatasync(2).
    Data,
    /// All attributes too: fsync(2).
    All,
}

/// The changes of an object, and how far they are durable.
#[derive(Debug)]
pub(crate) struct SyncState {
    state: Mutex<State>,
    /// Increases with every change. Written under the lock of `state`, so that no further locked instruction is needed.
    version: AtomicU64,
    /// The number of dirty objects of the volume.
    dirty_objects: Arc<AtomicUsize>,
}

/// The size of a change that counts no bytes of content.
const UNKNOWN: u64 = u64::MAX;

/// Receives the result of a sync.
pub(crate) type Waiter = oneshot::Sender<Result<()>>;

pub(crate) type Outcome = oneshot::Receiver<Result<()>>;

/// A finished change, to wait for until it is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChangeId {
    /// Counts from 1 for each object.
    pub(crate) number: u64,
    /// Failed syncs of the object when the change began.
    failures: u32,
    /// Whether the change created the object.
    is_creation: bool,
}

impl ChangeId {
    /// No change: always durable.
    pub(crate) const NONE: Self = Self { number: 0, failures: 0, is_creation: false };

    /// Returns the same change, marked as the one that created the object.
    pub(crate) fn creation(self) -> Self {
        Self { is_creation: true, ..self }
    }

    /// Returns whether the change created the object.
    pub(crate) fn is_creation(self) -> bool {
        self.is_creation
    }

    /// Returns whether a sync that makes `later`, a later change of the object, durable, makes this one durable too: no sync
    /// failed between their beginnings.
    pub(crate) fn is_covered_by(self, later: Self) -> bool {
        self.failures == later.failures
    }

    /// Returns a change that is durable when this one and all since `first` are. It notices a sync that failed in
    /// between.
    pub(crate) fn covering(self, first: Self) -> Self {
        if first == Self::NONE {
            return self;
        }
        Self { number: self.number.max(first.number), ..first }
    }
}

#[derive(Debug, Default)]
struct State {
    /// Changes that are being made, or may be.
    in_flight: u32,
    /// Failed syncs. It may wrap, because it is only compared with its value at the start of a change.
    failures: u32,
    /// The error of the last failed sync.
    failure: Option<Error>,
    /// The number of the last finished change.
    made: u64,
    /// Changes up to these numbers are durable, as to their data and with all attributes.
    data: u64,
    all: u64,
    /// Upper bound of the bytes of content that no sync has begun to cover; [`UNKNOWN`] if they were not counted.
    unsynced: u64,
    /// Whether a sync runs, or is about to.
    is_running: bool,
    waiting: Vec<(Extent, Waiter)>,
}

impl State {
    fn is_dirty(&self) -> bool {
        self.in_flight > 0 || self.data < self.made
    }

    fn durable(&self, extent: Extent) -> u64 {
        match extent {
            Extent::Data => self.data,
            Extent::All => self.all,
        }
    }
}

impl SyncState {
    /// Creates the state of a clean object; `dirty_objects` counts the volume's dirty objects.
    pub(crate) fn new(dirty_objects: &Arc<AtomicUsize>) -> Self {
        let version = AtomicU64::default();
        Self { state: Mutex::default(), version, dirty_objects: Arc::clone(dirty_objects) }
    }

    /// Makes the object dirty, for a change that is about to be made.
    pub(crate) fn begin_change(&self) -> PendingChange<'_> {
        let failures = self.update(|state| {
            state.in_flight += 1;
            state.failures
        });
        PendingChange { sync_state: self, failures, bytes: UNKNOWN }
    }

    /// Returns a number that differs after each change through this server. It does not change while the object's lock is
    /// held.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Notes that the object's names changed, which does not make it dirty.
    pub(crate) fn note_change(&self) {
        let state = self.state.lock();
        self.bump_version();
        drop(state);
    }

    /// Increases the version. To be called under the lock of `state`.
    fn bump_version(&self) {
        self.version.store(self.version.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Returns an upper bound of the bytes of content that a sync would write.
    pub(crate) fn unsynced(&self) -> u64 {
        self.state.lock().unsynced
    }

    /// Returns the number of requests that wait for the next sync.
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Returns whether a sync runs, or is about to.
    #[cfg(test)]
    pub(crate) fn is_syncing(&self) -> bool {
        self.state.lock().is_running
    }

    /// Returns the number of the last change that is durable to this extent.
    #[cfg(test)]
    pub(crate) fn durable(&self, extent: Extent) -> u64 {
        self.state.lock().durable(extent)
    }

    /// Waits for the next sync, as for a change that is being made.
    #[cfg(test)]
    pub(crate) fn wait_for_next(&self, extent: Extent) -> Outcome {
        let (waiter, outcome) = oneshot::channel();
        self.state.lock().waiting.push((extent, waiter));
        outcome
    }

    /// Returns whether a crash of the machine may lose changes.
    pub(crate) fn is_dirty(&self) -> bool {
        self.state.lock().is_dirty()
    }

    /// Returns the last finished change if its data are not durable yet. Earlier failures do not count: COMMIT
    /// reports them by the write verifier.
    pub(crate) fn unsynced_change(&self) -> Option<ChangeId> {
        let state = self.state.lock();
        let last = ChangeId { number: state.made, failures: state.failures, is_creation: false };
        (state.data < state.made).then_some(last)
    }

    /// Begins to wait for a change; `None` if it is durable. The flag is true for the first waiter, which has to
    /// start the sync.
    ///
    /// # Errors
    /// The error of a sync that failed since the change began: a later success would say nothing about this change.
    pub(crate) fn request(&self, change: ChangeId, extent: Extent) -> Result<Option<(Outcome, bool)>> {
        if change == ChangeId::NONE {
            return Ok(None);
        }
        let mut state = self.state.lock();
        if state.failures != change.failures {
            return Err(state.failure.unwrap_or(Error::Io));
        }
        if state.durable(extent) >= change.number {
            return Ok(None);
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting.push((extent, sender));
        Ok(Some((receiver, !std::mem::replace(&mut state.is_running, true))))
    }

    /// Notes that a sync failed: no change that began before it counts as durable from now on. Returns the requests
    /// that meanwhile began to wait for the next sync, which would not report the error.
    pub(crate) fn mark_failed(&self, error: Error) -> Vec<Waiter> {
        let mut state = self.state.lock();
        // The content that the failed sync covered may still have to be written.
        state.unsynced = UNKNOWN;
        state.failures = state.failures.wrapping_add(1);
        state.failure = Some(error);
        std::mem::take(&mut state.waiting).into_iter().map(|(_, waiter)| waiter).collect()
    }

    /// Notes that the sync that was about to run will not. All waiting requests fail.
    pub(crate) fn abandon_sync(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.is_running = false;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
    }

    /// Returns whether requests wait for another sync. If not, the next request to wait has to start one.
    pub(crate) fn needs_another_sync(&self) -> bool {
        let mut state = self.state.lock();
        state.is_running = !state.waiting.is_empty();
        state.is_running
    }

    /// Begins a sync. Returns the number of the last finished change, the extent that the waiting requests need, and
    /// these requests; `None` if none wait.
    pub(crate) fn begin_sync(&self) -> Option<(u64, Extent, Vec<Waiter>)> {
        let mut state = self.state.lock();
        if state.waiting.is_empty() {
            state.is_running = false;
            return None;
        }
        let waiting = std::mem::take(&mut state.waiting);
        state.unsynced = 0;
        let all = waiting.iter().any(|(extent, _)| *extent == Extent::All);
        let extent = if all { Extent::All } else { Extent::Data };
        Some((state.made, extent, waiting.into_iter().map(|(_, sender)| sender).collect()))
    }

    /// Notes that changes up to this number are durable.
    pub(crate) fn mark_durable(&self, up_to: u64, extent: Extent) {
        if up_to == ChangeId::NONE.number {
            return;
        }
        self.update(|state| {
            state.data = state.data.max(up_to);
            if extent == Extent::All {
                state.all = state.all.max(up_to);
            }
        });
    }

    /// Changes the state, and the count of dirty objects with it.
    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let was_dirty = state.is_dirty();
        let result = change(&mut state);
        match (was_dirty, state.is_dirty()) {
            (false, true) => _ = self.dirty_objects.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.dirty_objects.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        result
    }
}

impl Drop for SyncState {
    fn drop(&mut self) {
        if self.state.get_mut().is_dirty() {
            self.dirty_objects.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A change that is being made. Dropping it means that nothing was changed.
#[derive(Debug)]
#[must_use = "a finished change needs a number"]
pub(crate) struct PendingChange<'a> {
    sync_state: &'a SyncState,
    /// Failed syncs so far.
    failures: u32,
    /// Bytes of content that it changes.
    bytes: u64,
}

impl PendingChange<'_> {
    /// Sets the number of bytes of content that it changes.
    pub(crate) fn of_bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes as u64;
        self
    }

    /// Finishes the change and returns its number. Only syncs that begin from now on cover it.
    pub(crate) fn finish(self) -> ChangeId {
        let (sync_state, failures, bytes) = (self.sync_state, self.failures, self.bytes);
        // Drop would do its own half of this, and the object must not look clean in between.
        std::mem::forget(self);
        let number = sync_state.update(|state| {
            state.in_flight -= 1;
            state.made += 1;
            state.unsynced = state.unsynced.saturating_add(bytes);
            sync_state.bump_version();
            state.made
        });
        ChangeId { number, failures, is_creation: false }
    }

    /// Finishes the change as durable.
    pub(crate) fn finish_durable(self) {
        let sync_state = self.sync_state;
        // As in [`Self::finish`].
        std::mem::forget(self);
        sync_state.update(|state| {
            state.in_flight -= 1;
            state.made += 1;
            (state.data, state.all) = (state.made, state.made);
            sync_state.bump_version();
        });
    }
}

impl Drop for PendingChange<'_> {
    fn drop(&mut self) {
        self.sync_state.update(|state| {
            state.in_flight -= 1;
            // A failed change may have been made in part.
            self.sync_state.bump_version();
        });
    }
}
