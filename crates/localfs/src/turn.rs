//! Operations in place, or where that would mean to wait, on the pool.
//!
//! # What counts as in memory
//! - An object that the cache of objects has: its descriptor keeps inode and name in memory, so that statx(2) does not
//!   wait. Opening another one by its handle may read from the disk.
//! - A name that was found here within the last minute ([`Names`]), or that openat2(2) finds with `RESOLVE_CACHED`.
//! - A directory for *changes* of its entries, if an entry was looked for on the disk within the last minute: nothing
//!   tells whether a name that is not there yet can be made without reading.
//! - A file for *writing* as [`crate::dirty`] says.
//!
//! # What nobody can know
//! A change may wait for the journal, for a bitmap that is not cached, for memory of its control group. So the clock
//! is looked at around each change that is made in place. One that waited makes the volume **wary**: changes go to
//! the pool until [`WARY_CHANGES`] of them went through there without waiting.
//!
//! # Order
//! An operation that runs on the pool holds its objects' locks while it waits for the disk. Another one that needs such a lock gives
//! up, in place and on the pool alike, waits in the [queue of the lock](crate::lock) without a thread, and runs from the start.
//! So changes of one object stay one after the other, each with its attributes before and after. What takes long by itself
//! is done in steps, between which lock and thread are given back, or at least by few threads ([`Lane::Long`]).

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::oneshot;
use vfs::{Error, Op, Peer, Result};

use crate::lock::{End, Guard, Waiter};
use crate::object::Object;
use crate::patience::{self, InPlace, Obstacle, OnPool, STALL_NS};
use crate::pool::Lane;
use crate::volume::Volume;

/// Changes on the pool without waiting after which they are made in place again.
const WARY_CHANGES: u32 = 32;
/// How often a request gives up for a lock that is held before it waits for locks with a thread of the pool.
pub(crate) const MAX_TRIES: u32 = 8;
/// Names that are remembered. Eight bytes each.
const NAMES: usize = 16 * 1024;
/// Places of which a mark may have any: with one, some thirty pairs of a directory's thousand names would push each other out.
const WAYS: usize = 4;

/// Whether changes of a volume have lately made somebody wait.
#[derive(Debug, Default)]
pub(crate) struct Wariness(AtomicU32);

impl Wariness {
    fn is_wary(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// A change took that long.
    fn took(&self, ns: u64) {
        if ns >= STALL_NS {
            self.0.store(WARY_CHANGES, Ordering::Relaxed);
        } else if self.is_wary() {
            let less = |left: u32| left.checked_sub(1);
            // Nothing left to take from: another thread was faster.
            let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

/// Names that were found in memory lately: each a mark made of directory, name and minute, in a set given by the
/// same, the newest first. A mark that is pushed out costs an openat2(2) the next time; so does one that is lost because two threads
/// remembered at once.
#[derive(Debug)]
pub(crate) struct Names {
    sets: Box<[[AtomicU64; WAYS]]>,
    hasher: quick_cache::DefaultHashBuilder,
}

impl Default for Names {
    fn default() -> Self {
        Self { sets: (0..NAMES / WAYS).map(|_| Default::default()).collect(), hasher: Default::default() }
    }
}

/// The mark of a name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(u64);

/// Makes the marks of a directory's names.
pub(crate) struct Marker(NameHasher);

type NameHasher = <quick_cache::DefaultHashBuilder as BuildHasher>::Hasher;

impl Marker {
    /// The mark of a name.
    pub(crate) fn mark(&self, name: &[u8]) -> Mark {
        let mut hasher = self.0.clone();
        name.hash(&mut hasher);
        Mark(hasher.finish() | 1)
    }
}

impl Names {
    /// For the names in `directory`, for this minute.
    pub(crate) fn marker(&self, directory: &Object) -> Marker {
        let mut hasher = self.hasher.build_hasher();
        (directory.key, patience::era()).hash(&mut hasher);
        Marker(hasher)
    }

    fn set(&self, mark: Mark) -> &[AtomicU64; WAYS] {
        &self.sets[(mark.0 >> 32) as usize % (NAMES / WAYS)]
    }

    pub(crate) fn knows(&self, mark: Mark) -> bool {
        self.set(mark).iter().any(|place| place.load(Ordering::Relaxed) == mark.0)
    }

    pub(crate) fn remember(&self, mark: Mark) {
        let mut pushed = mark.0;
        for place in self.set(mark) {
            let here = place.load(Ordering::Relaxed);
            place.store(pushed, Ordering::Relaxed);
            if here == mark.0 {
                return;
            }
            pushed = here;
        }
    }
}

/// What an operation does to the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing.
    Look,
    /// Something: it may have to wait where nobody can know it.
    Change,
}

impl Volume {
    /// Does `now` in place, or where that would mean to wait, what `later` makes of the same, on the pool. Then `answer`.
    #[inline]
    pub(crate) fn take_turn<'a, D, T, J>(
        self: &'a Arc<Self>,
        (turn, peer): (Turn, Peer),
        now: impl FnOnce() -> Result<D>,
        later: impl FnOnce() -> J,
        answer: impl FnOnce(D) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T>
    where
        D: Send + 'static,
        T: Send + 'a,
        J: FnMut(&Arc<Self>) -> Result<D> + Send + 'static,
    {
        let mut obstacle = Obstacle::Disk;
        if turn == Turn::Look || self.is_in_memory {
            let stretch = InPlace::begin(0);
            let done = now();
            match stretch.end_with() {
                None => return answer_all(done, answer),
                Some(met) => obstacle = met,
            }
        } else if !self.wariness.is_wary() {
            let began_ns = patience::ticks_ns();
            let stretch = InPlace::begin(began_ns);
            let done = now();
            let met = stretch.end_with();
            let took_ns = patience::ticks_ns() - began_ns;
            if took_ns >= STALL_NS {
                self.wariness.took(took_ns);
            }
            match met {
                None => return answer_all(done, answer),
                Some(met) => obstacle = met,
            }
        }
        let job = later();
        Op::pending(async move { answer(self.run_on_pool((turn, peer), obstacle, job).await?).await })
    }

    /// The same for what is answered as it is.
    pub(crate) fn look<'a, T, J>(
        self: &'a Arc<Self>,
        peer: Peer,
        now: impl FnOnce() -> Result<T>,
        later: impl FnOnce() -> J,
    ) -> Op<'a, T>
    where
        T: Send + 'static,
        J: FnMut(&Arc<Self>) -> Result<T> + Send + 'static,
    {
        let stretch = InPlace::begin(0);
        let answer = Op::from(now());
        if stretch.end() {
            return answer;
        }
        let job = later();
        Op::pending(self.run_on_pool((Turn::Look, peer), Obstacle::Disk, job))
    }

    /// Does a look that takes no lock on the pool.
    pub(crate) async fn look_on_pool<T: Send + 'static>(
        self: &Arc<Self>,
        peer: Peer,
        job: impl FnOnce(&Arc<Self>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut job = Some(job);
        // Without a lock it is run once.
        let once = move |volume: &Arc<Self>| job.take().map_or(Err(Error::ServerFault), |job| job(volume));
        self.run_on_pool((Turn::Look, peer), Obstacle::Disk, once).await
    }

    /// Has `job` run on the pool once what a request has met is out of the way, and again from the start wherever it meets
    /// something.
    pub(crate) async fn run_on_pool<T: Send + 'static>(
        self: &Arc<Self>,
        (turn, peer): (Turn, Peer),
        obstacle: Obstacle,
        job: impl FnMut(&Arc<Self>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, answer) = oneshot::channel();
        let work = Work { job, turn, answer: sender, done: None };
        let (volume, lane, work) = (Arc::clone(self), Lane::Work, Box::new(work));
        let resumed_by = Resumed(None);
        let request = PoolRequest { volume, peer, lane, tries: 0, waits_for: None, resumed_by, work };
        Box::new(request).overcome(obstacle);
        answer.await.unwrap_or(Err(Error::ServerFault))
    }

    /// Has `job` done on the pool, whose outcome is waited for.
    pub(crate) async fn do_on_pool<T: Send + 'static>(
        self: &Arc<Self>,
        lane: Lane,
        job: impl FnOnce(&Arc<Self>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (volume, (sender, outcome)) = (Arc::clone(self), oneshot::channel());
        self.pool.submit(lane, Peer::default(), move || {
            let done = job(&volume);
            // Whoever is answered may open the directory anew.
            drop(volume);
            let _ = sender.send(done);
        });
        outcome.await.unwrap_or(Err(Error::ServerFault))
    }

    /// Locks one object against changes through this volume.
    ///
    /// # Errors
    /// See [`patience::wait_for_lock`].
    pub(crate) fn lock<'a>(&self, object: &'a Arc<Object>) -> Result<Locks<'a>> {
        Ok(Locks { _first: take_lock(object)?, _second: None })
    }

    /// Locks two objects, which may be one: in the order of their addresses.
    ///
    /// # Errors
    /// See [`patience::wait_for_lock`].
    pub(crate) fn lock_both<'a>(&self, one: &'a Arc<Object>, other: &'a Arc<Object>) -> Result<Locks<'a>> {
        if Arc::ptr_eq(one, other) {
            return self.lock(one);
        }
        let is_ordered = Arc::as_ptr(one) < Arc::as_ptr(other);
        let (low, high) = if is_ordered { (one, other) } else { (other, one) };
        Ok(Locks { _first: take_lock(low)?, _second: Some(take_lock(high)?) })
    }

    /// Entries of `directory` are about to be changed.
    ///
    /// # Errors
    /// See [`patience::wait`].
    pub(crate) fn require_visited(&self, directory: &Object) -> Result<()> {
        let now = patience::era();
        if self.is_in_memory || patience::is_recent(directory.visited.load(Ordering::Relaxed), now) {
            return Ok(());
        }
        patience::wait()?;
        directory.visited.store(now, Ordering::Relaxed);
        Ok(())
    }
}

/// The locks of the one or two objects that a request changes.
#[derive(Debug)]
#[must_use = "locks are given back when this is dropped"]
pub(crate) struct Locks<'a> {
    _first: Guard<'a>,
    _second: Option<Guard<'a>>,
}

/// Takes the lock of an object, or gives up where it is held for longer than a moment.
fn take_lock(object: &Arc<Object>) -> Result<Guard<'_>> {
    let guard = match object.lock.lock_soon(patience::may_wait()) {
        Some(guard) => guard,
        None if patience::waits_for_locks() => object.lock.wait(),
        None => return patience::wait_for_lock(object),
    };
    // Giving it back resumes the next request.
    patience::has_locked(object);
    Ok(guard)
}

/// What can be run again from the start, until it meets no obstacle.
trait Attempt: Send {
    /// Runs it; tells the obstacle, if there was one, and whether a lock that resumed it was not taken.
    fn run(&mut self, volume: &Arc<Volume>, stretch: OnPool) -> (Option<Obstacle>, bool);

    /// Whether nobody waits for the answer.
    fn is_cancelled(&self) -> bool;

    /// Answers what has been done.
    fn answer(self: Box<Self>);
}

/// A job, and where its answer goes.
struct Work<T, J> {
    job: J,
    turn: Turn,
    answer: oneshot::Sender<Result<T>>,
    done: Option<Result<T>>,
}

impl<T: Send, J: FnMut(&Arc<Volume>) -> Result<T> + Send> Attempt for Work<T, J> {
    fn run(&mut self, volume: &Arc<Volume>, stretch: OnPool) -> (Option<Obstacle>, bool) {
        let began = Instant::now();
        let done = (self.job)(volume);
        let (obstacle, owes_lock) = stretch.end();
        // The next request of this thread may be another caller's.
        volume.act_as_server();
        if obstacle.is_none() {
            if self.turn == Turn::Change {
                volume.wariness.took(began.elapsed().as_nanos() as u64);
            }
            self.done = Some(done);
        }
        (obstacle, owes_lock)
    }

    fn is_cancelled(&self) -> bool {
        self.answer.is_closed()
    }

    fn answer(self: Box<Self>) {
        if let Some(done) = self.done {
            // A call that was given up hears nothing.
            let _ = self.answer.send(done);
        }
    }
}

/// A request that waits for a thread of the pool, or for a lock.
struct PoolRequest {
    volume: Arc<Volume>,
    peer: Peer,
    lane: Lane,
    /// How often it found a lock held.
    tries: u32,
    /// It is in the queue of this object's lock.
    waits_for: Option<Arc<Object>>,
    resumed_by: Resumed,
    work: Box<dyn Attempt>,
}

impl PoolRequest {
    /// Waits for what the request has met.
    fn overcome(mut self: Box<Self>, obstacle: Obstacle) {
        match obstacle {
            Obstacle::Disk => {}
            Obstacle::Long => self.lane = Lane::Long,
            Obstacle::Lock(object) => {
                let end = if self.tries > 0 { End::Front } else { End::Back };
                self.tries += 1;
                self.waits_for = Some(Arc::clone(&object));
                let Some(request) = object.lock.enqueue(self, end) else { return };
                self = request;
                self.waits_for = None;
            }
        }
        let (volume, lane, peer) = (Arc::clone(&self.volume), self.lane, self.peer);
        volume.pool.submit(lane, peer, move || self.run());
    }

    fn run(mut self: Box<Self>) {
        // Nothing has been done for a call that was given up before.
        if self.work.is_cancelled() {
            return;
        }
        let volume = Arc::clone(&self.volume);
        let stretch =
            OnPool::begin(self.lane == Lane::Long, self.tries >= MAX_TRIES, self.resumed_by.0.as_deref());
        let (obstacle, owes_lock) = self.work.run(&volume, stretch);
        let mut resumed_by = std::mem::take(&mut self.resumed_by);
        if !owes_lock {
            resumed_by.0 = None;
        }
        match obstacle {
            Some(obstacle) => self.overcome(obstacle),
            None => {
                let work = self.work;
                // Whoever is answered may open the directory anew.
                drop((self.volume, self.waits_for, volume));
                work.answer();
            }
        }
        // If the lock is free, the next one has its turn.
        drop(resumed_by);
    }
}

/// The object whose lock resumed a request that has not taken it since. Where this is dropped, as with a request that ends
/// without the lock or never runs, the next request is resumed.
#[derive(Default)]
struct Resumed(Option<Arc<Object>>);

impl Drop for Resumed {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            object.lock.resume_next();
        }
    }
}

impl Waiter for PoolRequest {
    fn is_cancelled(&self) -> bool {
        self.work.is_cancelled()
    }

    fn resume(mut self: Box<Self>) -> bool {
        self.resumed_by = Resumed(self.waits_for.take());
        let (volume, lane, peer) = (Arc::clone(&self.volume), self.lane, self.peer);
        volume.pool.resume(lane, peer, move || self.run())
    }
}

fn answer_all<'a, D, T>(done: Result<D>, answer: impl FnOnce(D) -> Op<'a, T>) -> Op<'a, T> {
    match done {
        Ok(done) => answer(done),
        Err(error) => Op::err(error),
    }
}

#[cfg(test)]
mod starvation;

#[cfg(test)]
mod tests {
    use super::*;

    /// A mark of the first set.
    fn mark(number: u64) -> Mark {
        Mark(number << 1 | 1)
    }

    #[test]
    fn a_set_knows_its_newest_marks() {
        let names = Names::default();
        (0..WAYS as u64).for_each(|number| names.remember(mark(number)));
        // Once more: pushes nothing out.
        names.remember(mark(0));
        assert!((0..WAYS as u64).all(|number| names.knows(mark(number))));
        names.remember(mark(9));
        let known: Vec<u64> = (0..10).filter(|number| names.knows(mark(*number))).collect();
        assert_eq!(known, [0, 2, 3, 9], "1 was the oldest");
        assert!(!names.knows(Mark(1 << 32 | 1)), "another set's");
    }

    #[test]
    fn one_change_that_waits_sends_others_to_the_pool_until_enough_did_not() {
        let wariness = Wariness::default();
        wariness.took(STALL_NS - 1);
        assert!(!wariness.is_wary());
        wariness.took(STALL_NS);
        for _ in 0..WARY_CHANGES - 1 {
            wariness.took(1);
        }
        assert!(wariness.is_wary());
        wariness.took(STALL_NS);
        for _ in 0..WARY_CHANGES - 1 {
            wariness.took(1);
        }
        assert!(wariness.is_wary(), "it began anew");
        wariness.took(1);
        assert!(!wariness.is_wary());
    }
    #[test]
    fn no_object_shares_its_lock_with_another() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let top = directory.path().join("export");
        std::fs::create_dir(&top).expect("directory");
        let config = crate::Config {
            state_directory: Some(directory.path().join("state")),
            ..crate::Config::new(top.clone())
        };
        let volume = crate::probe::open(&config).expect("volume");
        let objects: Vec<_> = (0..600)
            .map(|number| {
                let name = format!("f{number}");
                std::fs::write(top.join(&name), b"").expect("written");
                let name = crate::name::Name::new(name.as_bytes()).expect("a name");
                volume.find(&volume.root, &name).expect("object")
            })
            .collect();
        // In place, so that a lock which is held already is an error and not a deadlock.
        let stretch = InPlace::begin(0);
        let locks: Result<Vec<_>> =
            objects.iter().chain([&volume.root]).map(|object| volume.lock(object)).collect();
        assert_eq!(locks.map(|locks| locks.len()), Ok(601));
        assert!(stretch.end());
    }
}
