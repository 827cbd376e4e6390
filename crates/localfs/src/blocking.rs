//! Runs operations in place, or on the pool if they would block.
//!
//! # Cached objects
//! - An object in the cache of objects: its descriptor keeps inode and name in memory, so that statx(2) does not
//!   block. Opening another object by its handle may read from the disk.
//! - A name that was found here within the last minute ([`crate::cached_names`]), or that openat2(2) finds with
//!   `RESOLVE_CACHED`.
//! - A directory whose entries will *change*, if an entry was looked up on the disk within the last minute: no call
//!   tells whether a new name can be made without reading.
//! - A file to *write*, by the rules of [`crate::dirty_memory`].
//!
//! # Unknown waits
//! A change may wait for the journal, for a bitmap that is not cached, or for memory of its control group. So each
//! change in place is timed. After one that blocked, changes go to the pool until [`crate::stall_detector`] has seen
//! enough that did not block.
//!
//! # Order
//! An operation on the pool holds its objects' locks while it waits for the disk. Another operation that needs such a
//! lock stops, in place and on the pool, waits in the [queue of the lock](crate::lock) without a thread, and
//! runs again from the start. So changes of one object happen one after the other, each with its attributes before
//! and after. Long work is done in steps, between which lock and thread are released, or at least by few threads
//! ([`Lane::Long`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::oneshot;
use vfs::{Error, Op, Peer, Result};

use crate::lock::{End, Guard, Lockable, Waiter};
use crate::nonblocking::{self, InPlace, OnPool, STALL_NS, WouldBlock};
use crate::object::Object;
use crate::pool::Lane;
use crate::volume::Volume;

/// A request that finds a lock held this number of times then blocks on locks with a thread of the pool.
pub(crate) const MAX_TRIES: u32 = 8;

/// The effect of an operation on the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpKind {
    /// It changes nothing.
    Read,
    /// It changes something, and so may block, and no call can tell that before.
    Change,
}

impl Volume {
    /// Runs `in_place` on this thread, or if that would block, the job of `make_job` on the pool; then `answer`.
    #[inline]
    pub(crate) fn run_op<'a, D, T, J>(
        self: &'a Arc<Self>,
        (kind, peer): (OpKind, Peer),
        in_place: impl FnOnce() -> Result<D>,
        make_job: impl FnOnce() -> J,
        answer: impl FnOnce(D) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T>
    where
        D: Send + 'static,
        T: Send + 'a,
        J: FnMut(&Arc<Self>) -> Result<D> + Send + 'static,
    {
        let mut cause = WouldBlock::Disk;
        if kind == OpKind::Read || self.is_in_memory {
            let section = InPlace::begin(0);
            let done = in_place();
            match section.end_with() {
                None => return answer_all(done, answer),
                Some(met) => cause = met,
            }
        } else if !self.stall_detector.is_stalling() {
            let began_ns = nonblocking::coarse_now_ns();
            let section = InPlace::begin(began_ns);
            let done = in_place();
            let met = section.end_with();
            let took_ns = nonblocking::coarse_now_ns() - began_ns;
            if took_ns >= STALL_NS {
                self.stall_detector.took(took_ns);
            }
            match met {
                None => return answer_all(done, answer),
                Some(met) => cause = met,
            }
        }
        let job = make_job();
        Op::pending(async move { answer(self.run_on_pool((kind, peer), cause, job).await?).await })
    }

    /// As [`Self::run_op`], for an operation that changes nothing and whose result is the answer.
    pub(crate) fn run_read<'a, T, J>(
        self: &'a Arc<Self>,
        peer: Peer,
        in_place: impl FnOnce() -> Result<T>,
        make_job: impl FnOnce() -> J,
    ) -> Op<'a, T>
    where
        T: Send + 'static,
        J: FnMut(&Arc<Self>) -> Result<T> + Send + 'static,
    {
        let section = InPlace::begin(0);
        let answer = Op::from(in_place());
        if section.end() {
            return answer;
        }
        let job = make_job();
        Op::pending(self.run_on_pool((OpKind::Read, peer), WouldBlock::Disk, job))
    }

    /// Runs a job on the pool that changes nothing and takes no lock.
    pub(crate) async fn read_on_pool<T: Send + 'static>(
        self: &Arc<Self>,
        peer: Peer,
        job: impl FnOnce(&Arc<Self>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let mut job = Some(job);
        // It takes no lock, so it runs once.
        let once = move |volume: &Arc<Self>| job.take().map_or(Err(Error::ServerFault), |job| job(volume));
        self.run_on_pool((OpKind::Read, peer), WouldBlock::Disk, once).await
    }

    /// Runs `job` on the pool once `cause` is over, and again from the start whenever it gives up.
    pub(crate) async fn run_on_pool<T: Send + 'static>(
        self: &Arc<Self>,
        (kind, peer): (OpKind, Peer),
        cause: WouldBlock,
        job: impl FnMut(&Arc<Self>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (sender, answer) = oneshot::channel();
        let work = Job { job, kind, answer: sender, done: None };
        let (volume, lane, work) = (Arc::clone(self), Lane::Work, Box::new(work));
        let resumed_by = ResumedBy(None);
        let request = PoolRequest { volume, peer, lane, tries: 0, waits_for: None, resumed_by, work };
        Box::new(request).wait_and_submit(cause);
        answer.await.unwrap_or(Err(Error::ServerFault))
    }

    /// Runs `job` once on a thread of `lane` and waits for its result.
    pub(crate) async fn do_on_pool<T: Send + 'static>(
        self: &Arc<Self>,
        lane: Lane,
        job: impl FnOnce(&Arc<Self>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (volume, (sender, outcome)) = (Arc::clone(self), oneshot::channel());
        self.pool.submit(lane, Peer::default(), move || {
            let done = job(&volume);
            // The caller may open the directory again as soon as it has the answer.
            drop(volume);
            let _ = sender.send(done);
        });
        outcome.await.unwrap_or(Err(Error::ServerFault))
    }

    /// Locks one object against changes through this volume.
    ///
    /// # Errors
    /// See [`nonblocking::block_on_lock`].
    pub(crate) fn lock<'a>(&self, object: &'a Arc<Object>) -> Result<Locks<'a>> {
        Ok(Locks { _first: take_lock(object)?, _second: None })
    }

    /// Locks two objects, which may be the same, in the order of their addresses.
    ///
    /// # Errors
    /// See [`nonblocking::block_on_lock`].
    pub(crate) fn lock_both<'a>(&self, one: &'a Arc<Object>, other: &'a Arc<Object>) -> Result<Locks<'a>> {
        if Arc::ptr_eq(one, other) {
            return self.lock(one);
        }
        let is_ordered = Arc::as_ptr(one) < Arc::as_ptr(other);
        let (low, high) = if is_ordered { (one, other) } else { (other, one) };
        Ok(Locks { _first: take_lock(low)?, _second: Some(take_lock(high)?) })
    }

    /// Fails unless `directory`, whose entries are about to change, counts as cached.
    ///
    /// # Errors
    /// See [`nonblocking::require_blocking`].
    pub(crate) fn require_cached_directory(&self, directory: &Object) -> Result<()> {
        let now = nonblocking::minute();
        if self.is_in_memory || nonblocking::is_recent(directory.cached_minute.load(Ordering::Relaxed), now) {
            return Ok(());
        }
        nonblocking::require_blocking()?;
        directory.cached_minute.store(now, Ordering::Relaxed);
        Ok(())
    }
}

/// The locks of the one or two objects that a request changes.
#[derive(Debug)]
#[must_use = "locks are released when this is dropped"]
pub(crate) struct Locks<'a> {
    _first: Guard<'a>,
    _second: Option<Guard<'a>>,
}

/// Takes the lock of an object, or fails.
fn take_lock(object: &Arc<Object>) -> Result<Guard<'_>> {
    let guard = match object.lock.lock_or_spin(nonblocking::may_block()) {
        Some(guard) => guard,
        None if nonblocking::waits_for_locks() => object.lock.wait(),
        None => return nonblocking::block_on_lock(Arc::clone(object) as _),
    };
    // From now on, releasing the lock resumes the next request.
    nonblocking::lock_taken(&object.lock);
    Ok(guard)
}

/// A job that can run again from the start until nothing blocks it.
trait Attempt: Send {
    /// Runs the job. Returns why it gave up, if it did, and whether the lock that resumed it has not been taken.
    fn run(&mut self, volume: &Arc<Volume>, section: OnPool) -> (Option<WouldBlock>, bool);

    /// Returns whether no caller waits for the answer.
    fn is_cancelled(&self) -> bool;

    /// Sends the result.
    fn answer(self: Box<Self>);
}

/// A job, and the receiver of its result.
struct Job<T, J> {
    job: J,
    kind: OpKind,
    answer: oneshot::Sender<Result<T>>,
    done: Option<Result<T>>,
}

impl<T: Send, J: FnMut(&Arc<Volume>) -> Result<T> + Send> Attempt for Job<T, J> {
    fn run(&mut self, volume: &Arc<Volume>, section: OnPool) -> (Option<WouldBlock>, bool) {
        let began = Instant::now();
        let done = (self.job)(volume);
        let (cause, owes_lock) = section.end();
        // The next request of this thread may be another caller's.
        volume.act_as_server();
        if cause.is_none() {
            if self.kind == OpKind::Change {
                volume.stall_detector.took(began.elapsed().as_nanos() as u64);
            }
            self.done = Some(done);
        }
        (cause, owes_lock)
    }

    fn is_cancelled(&self) -> bool {
        self.answer.is_closed()
    }

    fn answer(self: Box<Self>) {
        if let Some(done) = self.done {
            // A cancelled call receives nothing.
            let _ = self.answer.send(done);
        }
    }
}

/// A request that waits for a thread of the pool, or for a lock.
struct PoolRequest {
    volume: Arc<Volume>,
    peer: Peer,
    lane: Lane,
    /// Number of times that it found a lock held.
    tries: u32,
    /// The object whose lock it waits for.
    waits_for: Option<Arc<dyn Lockable>>,
    resumed_by: ResumedBy,
    work: Box<dyn Attempt>,
}

impl PoolRequest {
    /// Waits until the cause is over, then submits the request to the pool.
    fn wait_and_submit(mut self: Box<Self>, cause: WouldBlock) {
        match cause {
            WouldBlock::Disk => {}
            WouldBlock::Long => self.lane = Lane::Long,
            WouldBlock::Lock(object) => {
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
        // A cancelled call has had no effect so far.
        if self.work.is_cancelled() {
            return;
        }
        let volume = Arc::clone(&self.volume);
        let resumed_by = self.resumed_by.0.as_deref().map(Lockable::object_lock);
        let section = OnPool::begin(self.lane == Lane::Long, self.tries >= MAX_TRIES, resumed_by);
        let (cause, owes_lock) = self.work.run(&volume, section);
        let mut resumed_by = std::mem::take(&mut self.resumed_by);
        if !owes_lock {
            resumed_by.0 = None;
        }
        match cause {
            Some(cause) => self.wait_and_submit(cause),
            None => {
                let work = self.work;
                // The caller may open the directory again as soon as it has the answer.
                drop((self.volume, self.waits_for, volume));
                work.answer();
            }
        }
        // Resumes the next request, if the lock is free.
        drop(resumed_by);
    }
}

/// The object whose lock resumed a request that has not taken the lock since. Dropping it resumes the next request,
/// also when the request ends without the lock or never runs.
#[derive(Default)]
struct ResumedBy(Option<Arc<dyn Lockable>>);

impl Drop for ResumedBy {
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
        self.resumed_by = ResumedBy(self.waits_for.take());
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
mod tests;
