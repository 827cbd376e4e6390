//! Group commit: few threads sync the objects that many operations wait for, in rounds, and wake these operations
//! together.
//!
//! A sync of a directory or a new file is short, and mostly one commit of the file system's journal serves all syncs
//! of the moment. One pool job per object, and one wake-up per synced object, took several times the processor time
//! of the syncs themselves. So directories and new files gather in the volume's group. One job leads: it takes the
//! gathered objects as a round, syncs them, and wakes all operations that waited for any of them. Objects that arrive
//! meanwhile belong to the next round.
//!
//! - Each object is synced by itself, once a round, by the rules of [`crate::durable`]: its sync begins after all
//!   changes that it covers, and its error reaches every request whose change had begun, and no other.
//! - Several threads share a round, because most syncs end with a flush of the device, and concurrent syncs share one
//!   flush. With a single thread at depth 64, a fifth of the rate was left.
//! - A file with content may take long to sync, so a thread of its own does that: a COMMIT of a gigabyte must not
//!   delay a CREATE. The same holds for objects that only syncfs(2) reaches.
//! - Rejected: one syncfs(2) for the whole round. It would write everything that others have in the page cache.
//!
//! A group holds at most as many objects as calls wait, which `net` limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use vfs::{FileKind, Peer};

use super::sync::SyncOutcome;
use crate::object::Object;
use crate::pool::{Lane, NAMES_THREADS};
use crate::volume::Volume;

impl Volume {
    /// Queues an object that is not being synced for a sync.
    pub(super) fn join_group(self: &Arc<Self>, object: &Arc<Object>) {
        if self.sync_group.join(object) {
            let core = Handle::current();
            let leader = Leader::new(self, &core);
            // Runs when this thread has nothing else to do, so that operations of the same read join the first round.
            core.spawn(async move {
                let volume = Arc::clone(&leader.volume);
                volume.pool.submit(Lane::Names, Peer::default(), move || lead(Some(leader)));
            });
        }
    }
}

/// Leads rounds as long as this thread is the one that ends them.
fn lead(mut leader: Option<Leader>) {
    while let Some(current) = leader {
        leader = current.lead_round();
    }
}

/// The duty to begin the next round. If it is dropped, as by a pool that ends, waiting operations fail.
pub(super) struct Leader {
    volume: Arc<Volume>,
    /// The runtime of a thread that answers calls.
    core: Handle,
    /// Objects of the last round, which are synced again if operations began to wait for them meanwhile.
    objects: Vec<Arc<Object>>,
    is_done: bool,
}

impl Leader {
    pub(super) fn new(volume: &Arc<Volume>, core: &Handle) -> Self {
        Self { volume: Arc::clone(volume), core: core.clone(), objects: Vec::new(), is_done: false }
    }

    /// Syncs the gathered objects. Returns the next leader if this thread ended the round.
    fn lead_round(mut self) -> Option<Self> {
        self.objects.retain(|object| object.sync_state.needs_another_sync());
        self.is_done = !self.volume.sync_group.begin_round(&mut self.objects);
        if self.is_done {
            return None;
        }
        let round = Arc::new(Round::of(&self.volume, &self.core, std::mem::take(&mut self.objects)));
        self.is_done = true;
        for _ in 1..round.objects.len().min(NAMES_THREADS) {
            let round = Arc::clone(&round);
            // A job that starts late finds no objects left.
            self.volume.pool.submit(Lane::Names, Peer::default(), move || lead(round.work()));
        }
        round.work()
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        while !self.is_done && self.volume.sync_group.begin_round(&mut self.objects) {
            self.objects.drain(..).for_each(|object| object.sync_state.abandon_sync());
        }
    }
}

/// Objects that are synced together.
pub(super) struct Round {
    volume: Arc<Volume>,
    core: Handle,
    /// Directories first: their journal commit includes the new files, whose own syncs are then short.
    objects: Vec<Arc<Object>>,
    /// Index of the first object that no thread has taken.
    next: AtomicUsize,
    ended: Mutex<Ended>,
}

/// The results of a round so far.
#[derive(Default)]
struct Ended {
    objects: usize,
    synced: Vec<SyncOutcome>,
    /// The objects that were synced.
    again: Vec<Arc<Object>>,
}

impl Round {
    pub(super) fn of(volume: &Arc<Volume>, core: &Handle, mut objects: Vec<Arc<Object>>) -> Self {
        objects.sort_by_key(|object| object.kind != FileKind::Directory);
        let (volume, next, ended) = (Arc::clone(volume), AtomicUsize::new(0), Mutex::default());
        Self { volume, core: core.clone(), objects, next, ended }
    }

    /// Syncs objects that no other thread has taken. The thread that ends the last one notifies all waiting
    /// operations at once: one wake-up, one batch of replies, and one batch of further requests. It leads the next
    /// round.
    fn work(&self) -> Option<Leader> {
        let mut leader = None;
        while let Some(object) = self.objects.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            leader = RoundPart::new(self, object).sync();
        }
        leader
    }

    /// Notes that one more object is done.
    fn ended(&self, object: &Arc<Object>, synced: Option<SyncOutcome>) -> Option<Leader> {
        let mut ended = self.ended.lock();
        ended.objects += 1;
        if let Some(synced) = synced {
            ended.synced.push(synced);
            ended.again.push(Arc::clone(object));
        }
        if ended.objects < self.objects.len() {
            return None;
        }
        let Ended { synced, again, .. } = std::mem::take(&mut *ended);
        drop(ended);
        let answers = RoundAnswers(synced);
        // On a thread that answers calls: most waiting operations are its own, and it would otherwise wake for the
        // first of them and take this thread's core.
        self.core.spawn(async move { drop(answers) });
        let (volume, core) = (Arc::clone(&self.volume), self.core.clone());
        Some(Leader { volume, core, objects: again, is_done: false })
    }
}

/// Notifies the operations that wait for a round when it is dropped, also by a runtime that ends.
struct RoundAnswers(Vec<SyncOutcome>);

impl Drop for RoundAnswers {
    fn drop(&mut self) {
        self.0.drain(..).for_each(SyncOutcome::notify);
    }
}

/// An object of a round that a thread has taken.
pub(super) struct RoundPart<'r> {
    round: &'r Round,
    object: &'r Arc<Object>,
    is_ended: bool,
}

impl<'r> RoundPart<'r> {
    pub(super) fn new(round: &'r Round, object: &'r Arc<Object>) -> Self {
        Self { round, object, is_ended: false }
    }

    fn sync(mut self) -> Option<Leader> {
        let synced = self.round.volume.sync_little(self.object);
        self.is_ended = true;
        self.round.ended(self.object, synced)
    }
}

/// After a panic the round ends anyway, and operations that wait for this object fail.
impl Drop for RoundPart<'_> {
    fn drop(&mut self) {
        if !self.is_ended {
            self.object.sync_state.abandon_sync();
            drop(self.round.ended(self.object, None));
        }
    }
}
