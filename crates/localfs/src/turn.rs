//! Operations in place, or where that would mean to wait, on the pool.
//!
//! # What counts as in memory
//! - An object that the cache of objects has: its descriptor keeps inode and name in memory, so that statx(2) does not
//!   wait. Opening another one by its handle may read from the disk.
//! - A name that was found here within the last minute ([`crate::cached_names`]), or that openat2(2) finds with `RESOLVE_CACHED`.
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

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::oneshot;
use vfs::{Error, Op, Peer, Result};

use crate::lock::{End, Guard, Lockable, Waiter};
use crate::object::Object;
use crate::patience::{self, InPlace, Obstacle, OnPool, STALL_NS};
use crate::pool::Lane;
use crate::volume::Volume;

/// How often a request gives up for a lock that is held before it waits for locks with a thread of the pool.
pub(crate) const MAX_TRIES: u32 = 8;

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
        None => return patience::wait_for_lock(Arc::clone(object) as _),
    };
    // Giving it back resumes the next request.
    patience::has_locked(&object.lock);
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
    waits_for: Option<Arc<dyn Lockable>>,
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
                let Some(request) = object.object_lock().enqueue(self, end) else { return };
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
        let resumed_by = self.resumed_by.0.as_deref().map(Lockable::object_lock);
        let stretch = OnPool::begin(self.lane == Lane::Long, self.tries >= MAX_TRIES, resumed_by);
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
struct Resumed(Option<Arc<dyn Lockable>>);

impl Drop for Resumed {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            object.object_lock().resume_next();
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
