//! Getting changes to stable storage, once for all who wait.
//!
//! Each object counts its changes. Whoever needs one on stable storage waits until a sync that *began* after that
//! change has succeeded. While a sync runs, newcomers gather and the next sync serves all of them: so a hundred
//! concurrent COMMITs of a file, or CREATEs in a directory, cost two syncs.
//!
//! Writes go through one descriptor, which stays open while there is dirt, since the kernel reports a failed
//! write-back once to each descriptor that was open at the time. So an object is dirty from *before* a change is made
//! ([`Dirt::begin`]). The number that is waited for, though, is given *after* the change was made ([`Begun::made`]): a
//! sync that began in between may have missed it, and must not cover it. A change that failed gets no number, and
//! leaves the earlier ones as they are. Changes count as durable only when a sync returned success: after a failure the
//! object stays dirty, the write verifier changes (the kernel may have dropped the pages, so that clients must send them
//! again), and everybody whose change had begun before is told. That is more than those who waited for this sync: the
//! kernel takes the error from the descriptor with it, so that the next sync succeeds though the pages are gone, and
//! nobody sends again what was answered as stable. So a change carries the count of failures as of its beginning
//! ([`Made`]), and may be durable only where none came since.
//!
//! Directories and new files are synced in rounds, by few threads for all who wait: [`group`]. Where nobody else wants the calling thread
//! and the device is fast, it syncs them itself, and little content too: [`Pace`]. What has more has a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::sync::oneshot;
use vfs::{Context, Error, FileKind, Op, Pace, Peer, Result, Thread};

use crate::config::Durability;
use crate::errno::translate;
use crate::object::{Object, OpenFile, Reach};
use crate::pool::Lane;
use crate::volume::{Handles, Volume};

pub(crate) mod group;

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
type Waiter = oneshot::Sender<Result<()>>;
type Outcome = oneshot::Receiver<Result<()>>;

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
}

impl Made {
    /// This change with those of the same object since `first`, which it covers, to be durable together: a sync that failed
    /// in between is not overlooked.
    pub(crate) fn behind(self, first: Self) -> Self {
        if first == Self::NONE {
            return self;
        }
        Self { number: self.number.max(first.number), ..first }
    }
}

/// Who waits until a change is durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    /// What the calling thread may be used for.
    thread: Thread,
    peer: Peer,
}

impl Caller {
    pub(crate) fn of(context: &Context) -> Self {
        Self { thread: context.thread, peer: context.peer }
    }

    /// The same for what may take long, for which no thread is lent.
    pub(crate) fn not_alone(context: &Context) -> Self {
        Self { thread: Thread::Shared, peer: context.peer }
    }
}

#[cfg(test)]
impl From<Thread> for Caller {
    fn from(thread: Thread) -> Self {
        Self { thread, peer: Peer::default() }
    }
}

/// An object, and a change of it.
pub(crate) type Changed = (Arc<Object>, Made);

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
    fn unsynced(&self) -> u64 {
        self.state.lock().unsynced
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
    fn want(&self, change: Made, extent: Extent) -> Result<Option<(Outcome, bool)>> {
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
    fn failed(&self, error: Error) -> Vec<Waiter> {
        let mut state = self.state.lock();
        // What it covered may be to be written still.
        state.unsynced = UNKNOWN;
        state.failures = state.failures.wrapping_add(1);
        state.failure = Some(error);
        std::mem::take(&mut state.waiting).into_iter().map(|(_, waiter)| waiter).collect()
    }

    /// The sync that was about to run will not: all who wait are let go.
    fn give_up(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.is_running = false;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
    }

    /// Whether another sync is waited for; if not, whoever wants one next has to begin it.
    fn goes_on(&self) -> bool {
        let mut state = self.state.lock();
        state.is_running = !state.waiting.is_empty();
        state.is_running
    }

    /// Everything made so far, and what the running sync must do for those who wait.
    fn next_sync(&self) -> Option<(u64, Extent, Vec<Waiter>)> {
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
    fn made_for_good(self) {
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

/// How a sync ended, for those who wait.
struct Synced {
    waiting: Vec<Waiter>,
    outcome: Result<()>,
}

impl Synced {
    fn tell(self) {
        for sender in self.waiting {
            // A request that was given up waits no more.
            let _ = sender.send(self.outcome);
        }
    }
}

/// What a thread of the pool is to do for those who wait. A pool that ends drops what it did not begin.
struct Syncing {
    volume: Arc<Volume>,
    object: Arc<Object>,
    is_done: bool,
}

impl Syncing {
    fn new(volume: &Arc<Volume>, object: &Arc<Object>) -> Self {
        Self { volume: Arc::clone(volume), object: Arc::clone(object), is_done: false }
    }

    fn run(mut self) {
        self.volume.sync_while_wanted(&self.object);
        self.is_done = true;
    }

    /// On the calling thread, once: who began to wait meanwhile is served by others.
    fn run_in_place(mut self) {
        // It may have to be opened for that, which is no business of the caller's.
        self.volume.act_as_server();
        let synced = self.volume.sync_little(&self.object);
        self.is_done = true;
        let Some(synced) = synced else { return };
        synced.tell();
        if self.object.dirt.goes_on() {
            let is_short = group::is_for(&self.object, Made::NONE);
            // Others wait, who may be many clients.
            self.volume.hand_over(&self.object, is_short, Peer::default());
        }
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        if !self.is_done {
            self.object.dirt.give_up();
        }
    }
}

impl Volume {
    /// A change is made: what to wait for, which is none where answers do not wait for stable storage, so that nothing is left
    /// to be done for it.
    pub(crate) fn made(&self, begun: Begun<'_>) -> Made {
        if self.must_sync() {
            return begun.made();
        }
        begun.made_for_good();
        Made::NONE
    }

    /// As [`Self::made`], of an object that was made itself.
    pub(crate) fn made_new(&self, object: &Object) -> Made {
        if self.must_sync() { Made { is_creation: true, ..object.dirt.begin().made() } } else { Made::NONE }
    }

    /// Waits until `change` of `object` is durable.
    ///
    /// # Errors
    /// What a sync reported that ended after the change began.
    pub(crate) async fn make_durable(
        self: &Arc<Self>,
        object: &Arc<Object>,
        change: Made,
        extent: Extent,
        caller: impl Into<Caller>,
    ) -> Result<()> {
        match self.want_durable(object, change, extent, self.lend(caller.into()))? {
            Some(outcome) => outcome.await.unwrap_or(Err(Error::ServerFault)),
            None => Ok(()),
        }
    }

    /// The caller, with its thread if the next sync is taken to be short.
    fn lend(&self, caller: Caller) -> Caller {
        Caller { thread: self.pace.lend(caller.thread), ..caller }
    }

    /// Starts what [`make_durable`](Self::make_durable) waits for, and ends it where the calling thread does it itself; `None`
    /// where the change is durable already.
    fn want_durable(
        self: &Arc<Self>,
        object: &Arc<Object>,
        change: Made,
        extent: Extent,
        caller: Caller,
    ) -> Result<Option<Outcome>> {
        let Some((receiver, is_first)) = object.dirt.want(change, extent)? else { return Ok(None) };
        if !is_first {
            return Ok(Some(receiver));
        }
        let is_short = group::is_for(object, change);
        if caller.thread == Thread::Lent && (is_short || object.dirt.unsynced() <= Pace::LITTLE_BYTES) {
            Syncing::new(self, object).run_in_place();
        } else {
            self.hand_over(object, is_short, caller.peer);
        }
        Ok(Some(receiver))
    }

    /// Has threads of the pool sync an object that is not being synced: one of its own, unless it is short.
    fn hand_over(self: &Arc<Self>, object: &Arc<Object>, is_short: bool, peer: Peer) {
        if is_short {
            self.join_group(object);
        } else {
            let syncing = Syncing::new(self, object);
            self.pool.submit(Lane::Sync, peer, move || syncing.run());
        }
    }

    /// Answers `value` when the present content and entries of `objects` are durable; at once where the volume does not
    /// promise durability. `changes` are what [`Begun::made`] gave.
    pub(crate) fn when_durable<'a, T: Send + 'a>(
        self: &'a Arc<Self>,
        caller: impl Into<Caller>,
        changes: impl IntoIterator<Item = Changed>,
        value: T,
    ) -> Op<'a, T> {
        if !self.must_sync() {
            for (object, change) in changes {
                object.dirt.succeeded(change.number, Extent::All);
            }
            return Op::ok(value);
        }
        let (caller, changes) = (caller.into(), changes.into_iter().collect::<Vec<_>>());
        Op::pending(async move {
            let caller = self.lend(caller);
            // All of them at once: what a child and its directory need is mostly one commit of the file system's journal.
            let wanted: Vec<_> = changes
                .iter()
                .filter_map(|(object, change)| {
                    self.want_durable(object, *change, Extent::All, caller).transpose()
                })
                .collect();
            for outcome in wanted {
                outcome?.await.unwrap_or(Err(Error::ServerFault))?;
            }
            Ok(value)
        })
    }

    /// Whether changes have to reach a device before they are answered.
    pub(crate) fn must_sync(&self) -> bool {
        // Tests count syncs wherever they run.
        self.durability() == Durability::Sync && (cfg!(test) || !self.is_in_memory)
    }

    /// Whether records of the index have to reach a device before their handles are answered.
    pub(crate) fn must_sync_index(&self) -> bool {
        // What is exported may be in memory; the index need not be.
        self.durability() == Durability::Sync
            && !self.is_in_memory
            && matches!(&self.handles, Handles::Indexed { index, .. } if index.is_unsynced())
    }

    /// Brings the index to stable storage.
    pub(crate) fn sync_index(&self) -> Result<()> {
        match &self.handles {
            Handles::Indexed { index, .. } if index.is_unsynced() => {
                self.act_as_server();
                index.sync()
            }
            _ => Ok(()),
        }
    }

    /// Brings everything to stable storage: file by file, so that errors are told, then what has no file.
    pub(crate) fn sync_everything(&self) -> Result<()> {
        self.streams.clear();
        let objects: Vec<_> = self.objects.iter().collect();
        let mut outcome = Ok(());
        for object in objects {
            outcome = outcome.and(self.sync_now(&object));
        }
        outcome = outcome.and(self.sync_index());
        if self.durability() == Durability::Async {
            outcome = outcome.and(rustix::fs::syncfs(&self.root_fd).map_err(translate));
        }
        outcome
    }

    /// Brings to stable storage what an instance before this one changed and nobody knows here: the whole file system, once.
    pub(crate) fn settle(&self) -> Result<()> {
        if !self.must_sync() || self.is_settled.load(Ordering::Acquire) {
            return Ok(());
        }
        rustix::fs::syncfs(&self.root_fd).map_err(translate)?;
        self.sync_index()?;
        self.is_settled.store(true, Ordering::Release);
        Ok(())
    }

    /// Promises something else from now on. What was answered under [`Durability::Async`] is on stable storage before
    /// [`Durability::Sync`] is promised for it too.
    pub(crate) fn set_durability(&self, durability: Durability) -> Result<()> {
        let was_async = self.is_async.swap(durability == Durability::Async, Ordering::AcqRel);
        if !was_async || durability == Durability::Async {
            return Ok(());
        }
        // Objects that were answered so count as clean: only the whole file system has them all.
        let synced = rustix::fs::syncfs(&self.root_fd).map_err(translate).and(self.sync_index());
        if synced.is_err() {
            self.change_verifier();
        }
        synced
    }

    fn sync_while_wanted(&self, object: &Object) {
        while let Some(synced) = self.sync_if_wanted(object) {
            synced.tell();
        }
    }

    /// One sync, where anybody waits for one; whoever calls has begun the object's syncing, and goes on until nobody does.
    fn sync_if_wanted(&self, object: &Object) -> Option<Synced> {
        let (up_to, extent, mut waiting) = object.dirt.next_sync()?;
        let outcome = self.sync_object(object, extent);
        match outcome {
            Ok(()) => object.dirt.succeeded(up_to, extent),
            Err(error) => waiting.extend(self.sync_failed(object, error)),
        }
        Some(Synced { waiting, outcome })
    }

    /// The same of a directory, a new file or little content, from which the volume's pace is known.
    fn sync_little(&self, object: &Object) -> Option<Synced> {
        let began = Instant::now();
        let synced = self.sync_if_wanted(object);
        self.pace.took(began.elapsed());
        synced
    }

    /// One sync now, on this thread or on that which syncs the object already: the kernel tells a failed write-back to one
    /// of two syncs of a descriptor alone, and the other would take what was lost for durable. For threads that may wait.
    pub(crate) fn sync_now(&self, object: &Object) -> Result<()> {
        let Some(change) = object.dirt.outstanding() else { return Ok(()) };
        while let Some((outcome, is_first)) = object.dirt.want(change, Extent::Data)? {
            if is_first {
                self.sync_while_wanted(object);
            }
            // Without an answer where the other was given up.
            if let Ok(outcome) = outcome.blocking_recv() {
                return outcome;
            }
        }
        Ok(())
    }

    /// Answers who else has to be told.
    fn sync_failed(&self, object: &Object, error: Error) -> Vec<Waiter> {
        self.change_verifier();
        tracing::error!(handle = ?object.handle, error = error.to_string(), "sync failed; clients will send unstable data again");
        object.dirt.failed(error)
    }

    fn sync_object(&self, object: &Object, extent: Extent) -> Result<()> {
        let _under_way = self.pace.begin();
        #[cfg(test)]
        {
            self.syncs.lock().push(std::thread::current().id());
            // Several syncs may be under way at once: a plan is for one kind, so that it is known which one fails.
            let plan = self.planned_sync_failure.lock().take_if(|(kind, _)| *kind == object.kind);
            if let Some((_, error)) = plan {
                return Err(error);
            }
        }
        let can_open = matches!(object.kind, FileKind::Regular | FileKind::Directory);
        let present = object.file();
        let file = match present.reach {
            // fsync(2) of a descriptor that may only write is as good.
            Reach::Path if can_open => self.readable(object).ok(),
            Reach::Path => None,
            _ => Some(present),
        };
        match file {
            Some(file) => sync_file(&file, object.kind, extent),
            // Symbolic links, special files and what may not be opened cannot be synced one by one.
            None => rustix::fs::syncfs(&self.root_fd).map_err(translate),
        }
    }
}

fn sync_file(file: &OpenFile, kind: FileKind, extent: Extent) -> Result<()> {
    let synced = match extent {
        Extent::Data => rustix::fs::fdatasync(file),
        Extent::All => rustix::fs::fsync(file),
    };
    match synced {
        // Some file systems have nothing to sync a directory with, and say so.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if kind == FileKind::Directory => Ok(()),
        other => other.map_err(translate),
    }
}

#[cfg(test)]
mod in_place_tests;
#[cfg(test)]
mod tests;
