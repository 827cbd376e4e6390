//! Threads that may block on the disk, shared fairly among clients.
//!
//! Each volume has its own threads, so that a device that does not answer does not block other exports. They are divided into
//! lanes by the duration of jobs, and no lane waits for another:
//!
//! - [`Lane::Work`]: reads and small changes.
//! - [`Lane::Long`]: long work, such as reserving, freeing and copying large ranges. It has few threads, because the
//!   work is bound by the processor or the journal and not by latency.
//! - [`Lane::Sync`]: fsync(2) of files that have content, and of whole file systems.
//! - [`Lane::Names`]: fsync(2) of directories and new files, in rounds ([`crate::durable`]).
//!
//! In a lane each address has at most three quarters of the threads. Addresses are served in turn, and so are the
//! connections of an address ([`fair_queue`]). So a client finds a free thread, or waits for one job of another
//! client, even if that client has sent many jobs.
//!
//! No job waits on a thread of the pool for the lock of an object, with the exception that [`crate::lock`] names.
//!
//! Rejected: the runtime's own blocking pool. It has one first-in-first-out queue, in which the requests of one
//! client delay all others.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use vfs::Peer;

use fair_queue::FairQueue;

mod fair_queue;

/// Threads of [`Lane::Work`] and [`Lane::Sync`] for each core: many wait for the disk at once.
const THREADS_PER_CORE: usize = 32;
/// Threads of [`Lane::Long`].
const LONG_THREADS: usize = 8;
/// Threads of [`Lane::Names`]: as many as share a round.
pub(crate) const NAMES_THREADS: usize = 8;
/// Time that a thread waits for its next job before it ends.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// The group of threads that a job runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Work,
    Long,
    Sync,
    Names,
}

type Job = Box<dyn FnOnce() + Send>;

/// The threads of a volume.
#[derive(Debug)]
pub(crate) struct Pool {
    work: Threads,
    long: Threads,
    sync: Threads,
    names: Threads,
}

impl Default for Pool {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let many = THREADS_PER_CORE * cores;
        Self {
            work: Threads::new("localfs-work", many, share_of(many)),
            long: Threads::new("localfs-long", LONG_THREADS, LONG_THREADS / 2),
            sync: Threads::new("localfs-sync", many, share_of(many)),
            // They serve all clients alike.
            names: Threads::new("localfs-names", NAMES_THREADS, NAMES_THREADS),
        }
    }
}

/// Returns the number of threads that one address may use at once.
fn share_of(threads: usize) -> usize {
    threads - threads / 4
}

impl Pool {
    /// Submits a job. Returns true if it starts at once.
    pub(crate) fn submit(&self, lane: Lane, peer: Peer, job: impl FnOnce() + Send + 'static) -> bool {
        self.threads(lane).submit(peer, Box::new(job), false)
    }

    /// As [`Self::submit`], for a job that has waited elsewhere: it goes before the others of its connection.
    pub(crate) fn resume(&self, lane: Lane, peer: Peer, job: impl FnOnce() + Send + 'static) -> bool {
        self.threads(lane).submit(peer, Box::new(job), true)
    }

    fn threads(&self, lane: Lane) -> &Threads {
        match lane {
            Lane::Work => &self.work,
            Lane::Long => &self.long,
            Lane::Sync => &self.sync,
            Lane::Names => &self.names,
        }
    }

    /// Returns the maximum number of threads of a lane.
    #[cfg(test)]
    pub(crate) fn max_threads(&self, lane: Lane) -> usize {
        self.threads(lane).0.max_threads
    }
}

/// The threads of a lane, started when there is work, ended when there is none.
#[derive(Debug)]
struct Threads(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    name: &'static str,
    max_threads: usize,
    state: Mutex<State>,
    has_work: Condvar,
}

struct State {
    jobs: FairQueue<Job>,
    threads: usize,
    /// Threads that wait and have not been woken.
    idle: usize,
    /// Threads that were woken and have not noticed yet.
    woken: usize,
    is_over: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("threads", &self.threads)
            .field("idle", &self.idle)
            .finish_non_exhaustive()
    }
}

impl Threads {
    fn new(name: &'static str, max_threads: usize, share: usize) -> Self {
        let state =
            State { jobs: FairQueue::new(share.max(1)), threads: 0, idle: 0, woken: 0, is_over: false };
        Self(Arc::new(Shared { name, max_threads, state: Mutex::new(state), has_work: Condvar::new() }))
    }

    fn submit(&self, peer: Peer, job: Job, is_first: bool) -> bool {
        let mut state = self.0.state.lock();
        if !state.jobs.push(peer, job, is_first) {
            return false;
        }
        if self.0.wake_one(&mut state) {
            return true;
        }
        if state.threads >= self.0.max_threads {
            return false;
        }
        state.threads += 1;
        let shared = Arc::clone(&self.0);
        let started = std::thread::Builder::new().name(self.0.name.into()).spawn(move || shared.run());
        let Err(error) = started else { return true };
        state.threads -= 1;
        tracing::warn!(%error, threads = state.threads, "cannot start a thread for work on files");
        if state.threads == 0 {
            // No thread would ever run them: their requests get a server error.
            let lost: Vec<_> = std::iter::from_fn(|| state.jobs.pop()).collect();
            for (address, _) in &lost {
                state.jobs.ended(*address);
            }
            drop(state);
            drop(lost);
        }
        false
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.has_work.notify_all();
    }
}

impl Shared {
    fn wake_one(&self, state: &mut State) -> bool {
        if state.idle == 0 {
            return false;
        }
        state.idle -= 1;
        state.woken += 1;
        self.has_work.notify_one();
        true
    }

    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            while let Some((address, job)) = state.jobs.pop() {
                MutexGuard::unlocked(&mut state, || {
                    // The panic hook reports the panic; the request sees that its sender is dropped.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                });
                state.jobs.ended(address);
            }
            if state.is_over || !self.wait(&mut state) {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Waits for work. Returns false if there was none for [`KEEP_ALIVE`].
    fn wait(&self, state: &mut MutexGuard<'_, State>) -> bool {
        state.idle += 1;
        while !state.is_over {
            let timed_out = self.has_work.wait_for(state, KEEP_ALIVE).timed_out();
            if state.woken > 0 {
                state.woken -= 1;
                return true;
            }
            if timed_out {
                state.idle -= 1;
                return state.jobs.has_next();
            }
        }
        // There may be queued jobs.
        true
    }
}

#[cfg(test)]
mod tests;
