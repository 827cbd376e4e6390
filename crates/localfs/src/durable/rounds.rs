//! Group commit: what many operations wait for is synced by few threads, round after round, and they are woken together.
//!
//! A sync of names is small, and mostly one commit of the file system's journal serves all that are asked for at the time.
//! With a job on a pool for each object, and a wake-up for each that is synced, the threads' coming and going took several times
//! the processor time of the syncs themselves (docs/performance.md). So directories and new files whose changes are waited for
//! gather in the volume's group. One job leads: it takes what has gathered as a round, syncs it, and wakes all who waited
//! for any of it. Who comes meanwhile is served by the next round.
//!
//! - Each object is synced by itself, once a round, and by the rules of [`crate::durable`]: its sync began after all changes that it
//!   covers, and its error reaches everybody whose change had begun, and nobody else.
//! - A round is shared by a few threads, since most syncs end with a flush of the device, and those that wait for one at the
//!   same time have it in common. One thread would wait for them one after the other: at depth 64 a fifth of the rate was left.
//! - A sync of a file that has content may take long by itself, so that it is left to a thread of its own: a COMMIT of a
//!   gigabyte holds up no CREATE. So is one of what only syncfs(2) reaches.
//! - One syncfs(2) for the whole round, the rejected alternative, would write all that others have in the page cache.
//!
//! A group holds no more than there are calls that wait, which `net` limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use vfs::{FileKind, Peer};

use super::sync::Synced;
use crate::object::Object;
use crate::pool::{Lane, NAMES_THREADS};
use crate::volume::Volume;

impl Volume {
    /// Has an object synced that is not being synced.
    pub(super) fn join_group(self: &Arc<Self>, object: &Arc<Object>) {
        if self.group.join(object) {
            let core = Handle::current();
            let leader = Leader::new(self, &core);
            // Not before this thread has nothing else to do: what came with the same read joins the first round.
            core.spawn(async move {
                let volume = Arc::clone(&leader.volume);
                volume.pool.submit(Lane::Names, Peer::default(), move || lead(Some(leader)));
            });
        }
    }
}

/// Goes on as long as this thread is the one that ends a round.
fn lead(mut leader: Option<Leader>) {
    while let Some(current) = leader {
        leader = current.lead_round();
    }
}

/// The right and the duty to begin the next round. Where it is dropped, as by a pool that ends, those who wait are let go.
pub(super) struct Leader {
    volume: Arc<Volume>,
    /// The runtime of a thread that answers calls.
    core: Handle,
    /// What was synced in the last round, and is once more where anybody began to wait meanwhile.
    objects: Vec<Arc<Object>>,
    is_done: bool,
}

impl Leader {
    pub(super) fn new(volume: &Arc<Volume>, core: &Handle) -> Self {
        Self { volume: Arc::clone(volume), core: core.clone(), objects: Vec::new(), is_done: false }
    }

    /// Syncs what has gathered. The next leader, where this thread was the last to end.
    fn lead_round(mut self) -> Option<Self> {
        self.objects.retain(|object| object.dirt.goes_on());
        self.is_done = !self.volume.group.begin_round(&mut self.objects);
        if self.is_done {
            return None;
        }
        let round = Arc::new(Round::of(&self.volume, &self.core, std::mem::take(&mut self.objects)));
        self.is_done = true;
        for _ in 1..round.objects.len().min(NAMES_THREADS) {
            let round = Arc::clone(&round);
            // One that comes late, or never, finds nothing left to do.
            self.volume.pool.submit(Lane::Names, Peer::default(), move || lead(round.work()));
        }
        round.work()
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        while !self.is_done && self.volume.group.begin_round(&mut self.objects) {
            self.objects.drain(..).for_each(|object| object.dirt.give_up());
        }
    }
}

/// What is synced together.
pub(super) struct Round {
    volume: Arc<Volume>,
    core: Handle,
    /// Directories first: their commit takes the new files along, whose own syncs find little left to do.
    objects: Vec<Arc<Object>>,
    /// Number of the first that no thread has taken.
    next: AtomicUsize,
    ended: Mutex<Ended>,
}

/// What has come of a round so far.
#[derive(Default)]
struct Ended {
    objects: usize,
    synced: Vec<Synced>,
    /// Those that were synced.
    again: Vec<Arc<Object>>,
}

impl Round {
    pub(super) fn of(volume: &Arc<Volume>, core: &Handle, mut objects: Vec<Arc<Object>>) -> Self {
        objects.sort_by_key(|object| object.kind != FileKind::Directory);
        let (volume, next, ended) = (Arc::clone(volume), AtomicUsize::new(0), Mutex::default());
        Self { volume, core: core.clone(), objects, next, ended }
    }

    /// Syncs objects that no other thread has taken. The thread that ends the last of all has those who wait told, all at
    /// once: one wake-up, one batch of replies, and one batch of requests that follow. It leads the next round.
    fn work(&self) -> Option<Leader> {
        let mut leader = None;
        while let Some(object) = self.objects.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            leader = Part::new(self, object).sync();
        }
        leader
    }

    /// One object more is done with.
    fn ended(&self, object: &Arc<Object>, synced: Option<Synced>) -> Option<Leader> {
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
        let answers = Answers(synced);
        // By a thread that answers calls: those who wait are its own for the most part, and it would wake, and take this one's
        // core, for the first of them.
        self.core.spawn(async move { drop(answers) });
        let (volume, core) = (Arc::clone(&self.volume), self.core.clone());
        Some(Leader { volume, core, objects: again, is_done: false })
    }
}

/// What those who wait for a round are told when this is dropped, as by a runtime that ends.
struct Answers(Vec<Synced>);

impl Drop for Answers {
    fn drop(&mut self) {
        self.0.drain(..).for_each(Synced::tell);
    }
}

/// An object of a round that a thread has taken.
pub(super) struct Part<'r> {
    round: &'r Round,
    object: &'r Arc<Object>,
    is_ended: bool,
}

impl<'r> Part<'r> {
    pub(super) fn new(round: &'r Round, object: &'r Arc<Object>) -> Self {
        Self { round, object, is_ended: false }
    }

    fn sync(mut self) -> Option<Leader> {
        let synced = self.round.volume.sync_little(self.object);
        self.is_ended = true;
        self.round.ended(self.object, synced)
    }
}

/// By a panic: the round ends all the same, and those who wait for this object are let go.
impl Drop for Part<'_> {
    fn drop(&mut self) {
        if !self.is_ended {
            self.object.dirt.give_up();
            drop(self.round.ended(self.object, None));
        }
    }
}
