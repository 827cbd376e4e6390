//! The changes of an object, and how far they have reached stable storage.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use vfs::{Error, Result};

/// How much of a change must be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Content and what is needed to find it: fdatasync(2).
    Data,
    /// All attributes too: fsync(2).
    All,
}

/// Changes of an object, and how far they have got.
#[derive(Debug)]
pub(crate) struct Dirt {
    state: Mutex<State>,
    /// Moves with every change; written under the lock of `state`, so that no other instruction has to be locked for it.
    version: AtomicU64,
    /// How many objects of the volume are dirty.
    dirty_objects: Arc<AtomicUsize>,
}

/// Bytes of a change of which it is not known how much content it is.
const UNKNOWN: u64 = u64::MAX;

/// Tells one who waits how the sync ended.
pub(crate) type Waiter = oneshot::Sender<Result<()>>;

pub(crate) type Outcome = oneshot::Receiver<Result<()>>;

/// A change that was made, for those who wait until it is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    /// From 1 for each object; a later change has a greater one.
    pub(crate) number: u64,
    /// Failed syncs of the object when the change began.
    failures: u32,
    /// It is what made the object.
    is_creation: bool,
}

impl Made {
    /// No change: it is durable.
    pub(crate) const NONE: Self = Self { number: 0, failures: 0, is_creation: false };

    /// The same change, as the one that made the object.
    pub(crate) fn creation(self) -> Self {
        Self { is_creation: true, ..self }
    }

    /// Whether it made the object.
    pub(crate) fn is_creation(self) -> bool {
        self.is_creation
    }

    /// This change with those of the same object since `first`, which it covers, to be durable together: a sync that failed
    /// in between is not overlooked.
    pub(crate) fn behind(self, first: Self) -> Self {
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
    /// Syncs that failed; wraps, since it is only compared with what it was a request ago.
    failures: u32,
    /// What the last of them reported.
    failure: Option<Error>,
    /// Number of the last change made.
    made: u64,
    /// Changes up to here are durable as to their data, and with all attributes.
    data: u64,
    all: u64,
    /// Bytes of content that no sync has begun to cover, at most; [`UNKNOWN`] where nobody counted.
    unsynced: u64,
    /// A sync is running, or about to.
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

impl Dirt {
    /// Clean, of a volume that counts its dirty objects there.
    pub(crate) fn new(dirty_objects: &Arc<AtomicUsize>) -> Self {
        let version = AtomicU64::default();
        Self { state: Mutex::default(), version, dirty_objects: Arc::clone(dirty_objects) }
    }

    /// Makes the object dirty, for a change that is about to be made.
    pub(crate) fn begin(&self) -> Begun<'_> {
        let failures = self.update(|state| {
            state.in_flight += 1;
            state.failures
        });
        Begun { dirt: self, failures, bytes: UNKNOWN }
    }

    /// A number that is another one after each change through this server; under the object's lock it stands.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The object was changed by what is done to its names, which leaves it as durable as it was.
    pub(crate) fn was_touched(&self) {
        let state = self.state.lock();
        self.move_on();
        drop(state);
    }

    /// To be called under the lock of `state`.
    fn move_on(&self) {
        self.version.store(self.version.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Bytes of content that a sync would write, at most.
    pub(crate) fn unsynced(&self) -> u64 {
        self.state.lock().unsynced
    }

    /// Requests that wait for the next sync.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Whether a sync runs, or is about to.
    #[cfg(test)]
    pub(crate) fn is_syncing(&self) -> bool {
        self.state.lock().is_running
    }

    /// The number of the last change that is durable to this extent.
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

    /// Whether data may be lost by a crash of the machine.
    pub(crate) fn is_dirty(&self) -> bool {
        self.state.lock().is_dirty()
    }

    /// The last change made, where its data are not durable yet. Earlier failures do not count: COMMIT's clients are told
    /// of those by the write verifier.
    pub(crate) fn outstanding(&self) -> Option<Made> {
        let state = self.state.lock();
        let last = Made { number: state.made, failures: state.failures, is_creation: false };
        (state.data < state.made).then_some(last)
    }

    /// Waits for a change to be durable, where it is not. True for the first, who has to have it synced.
    ///
    /// # Errors
    /// What a sync reported that failed since the change began: a success after it would say nothing of this change.
    pub(crate) fn want(&self, change: Made, extent: Extent) -> Result<Option<(Outcome, bool)>> {
        if change == Made::NONE {
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

    /// A sync failed: from now on no change that began before counts as durable. Answers those who began to wait for the
    /// next sync meanwhile; it would hide from them what was lost.
    pub(crate) fn failed(&self, error: Error) -> Vec<Waiter> {
        let mut state = self.state.lock();
        // What it covered may be to be written still.
        state.unsynced = UNKNOWN;
        state.failures = state.failures.wrapping_add(1);
        state.failure = Some(error);
        std::mem::take(&mut state.waiting).into_iter().map(|(_, waiter)| waiter).collect()
    }

    /// The sync that was about to run will not: all who wait are let go.
    pub(crate) fn give_up(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.is_running = false;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
    }

    /// Whether another sync is waited for; if not, whoever wants one next has to begin it.
    pub(crate) fn goes_on(&self) -> bool {
        let mut state = self.state.lock();
        state.is_running = !state.waiting.is_empty();
        state.is_running
    }

    /// Everything made so far, and what the running sync must do for those who wait.
    pub(crate) fn next_sync(&self) -> Option<(u64, Extent, Vec<Waiter>)> {
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

    /// Changes up to this one are durable.
    pub(crate) fn succeeded(&self, up_to: u64, extent: Extent) {
        if up_to == Made::NONE.number {
            return;
        }
        self.update(|state| {
            state.data = state.data.max(up_to);
            if extent == Extent::All {
                state.all = state.all.max(up_to);
            }
        });
    }

    /// Changes the state, and with it the number of dirty objects.
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

impl Drop for Dirt {
    fn drop(&mut self) {
        if self.state.get_mut().is_dirty() {
            self.dirty_objects.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// A change that is being made. Dropped, it was not: the object is as dirty as it was before.
#[derive(Debug)]
#[must_use = "a change that was made has to be numbered"]
pub(crate) struct Begun<'a> {
    dirt: &'a Dirt,
    /// Failed syncs so far.
    failures: u32,
    /// Bytes of content that it changes.
    bytes: u64,
}

impl Begun<'_> {
    /// It changes so many bytes of content.
    pub(crate) fn of_bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes as u64;
        self
    }

    /// The change is made: its number. Only a sync that begins from now on covers it.
    pub(crate) fn made(self) -> Made {
        let (dirt, failures, bytes) = (self.dirt, self.failures, self.bytes);
        // Dropping does its own half of this; the object must not look clean in between.
        std::mem::forget(self);
        let number = dirt.update(|state| {
            state.in_flight -= 1;
            state.made += 1;
            state.unsynced = state.unsynced.saturating_add(bytes);
            dirt.move_on();
            state.made
        });
        Made { number, failures, is_creation: false }
    }

    /// The change is made, and as durable as it has to be.
    pub(crate) fn made_for_good(self) {
        let dirt = self.dirt;
        // As in [`Self::made`].
        std::mem::forget(self);
        dirt.update(|state| {
            state.in_flight -= 1;
            state.made += 1;
            (state.data, state.all) = (state.made, state.made);
            dirt.move_on();
        });
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.dirt.update(|state| {
            state.in_flight -= 1;
            // What failed may have been done in part.
            self.dirt.move_on();
        });
    }
}
