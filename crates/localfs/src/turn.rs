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
//! An operation that runs on the pool holds its objects' locks while it waits. Whoever needs one of them in place tries for
//! [`LOCK_PATIENCE`], longer than any operation in place holds one, and then queues on the pool too. So changes of one
//! object stay one after the other, each with its attributes before and after.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use vfs::{Error, Op, Result};

use crate::object::Object;
use crate::patience::{self, InPlace, STALL_NS};
use crate::volume::Volume;

/// Changes on the pool without waiting after which they are made in place again.
const WARY_CHANGES: u32 = 32;
/// How long a lock is waited for in place.
const LOCK_PATIENCE: Duration = Duration::from_micros(100);
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
        turn: Turn,
        now: impl FnOnce() -> Result<D>,
        later: impl FnOnce() -> J,
        answer: impl FnOnce(D) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T>
    where
        D: Send + 'static,
        T: Send + 'a,
        J: FnOnce(&Arc<Self>) -> Result<D> + Send + 'static,
    {
        if turn == Turn::Look || self.is_in_memory {
            let stretch = InPlace::begin(0);
            let done = now();
            if stretch.end() {
                return answer_all(done, answer);
            }
        } else if !self.wariness.is_wary() {
            let began_ns = patience::ticks_ns();
            let stretch = InPlace::begin(began_ns);
            let done = now();
            let is_done = stretch.end();
            let took_ns = patience::ticks_ns() - began_ns;
            if took_ns >= STALL_NS {
                self.wariness.took(took_ns);
            }
            if is_done {
                return answer_all(done, answer);
            }
        }
        let job = later();
        Op::pending(async move { answer(self.on_pool(turn, job).await?).await })
    }

    /// The same for what is answered as it is.
    pub(crate) fn look<'a, T, J>(
        self: &'a Arc<Self>,
        now: impl FnOnce() -> Result<T>,
        later: impl FnOnce() -> J,
    ) -> Op<'a, T>
    where
        T: Send + 'static,
        J: FnOnce(&Arc<Self>) -> Result<T> + Send + 'static,
    {
        let stretch = InPlace::begin(0);
        let answer = Op::from(now());
        if stretch.end() {
            return answer;
        }
        let job = later();
        Op::pending(self.on_pool(Turn::Look, job))
    }

    pub(crate) async fn on_pool<T: Send + 'static>(
        self: &Arc<Self>,
        turn: Turn,
        job: impl FnOnce(&Arc<Self>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let volume = Arc::clone(self);
        let run = move || {
            let began = Instant::now();
            let done = job(&volume);
            // The pool's threads do other things too, which are not the caller's.
            volume.act_as_server();
            if turn == Turn::Change {
                volume.wariness.took(began.elapsed().as_nanos() as u64);
            }
            done
        };
        tokio::task::spawn_blocking(run).await.unwrap_or(Err(Error::ServerFault))
    }

    /// Locks `lock`, on the pool for as long as it takes.
    pub(crate) fn wait_for<'a>(&self, lock: &'a Mutex<()>) -> Result<MutexGuard<'a, ()>> {
        if let Some(guard) = lock.try_lock() {
            return Ok(guard);
        }
        if patience::may_wait() {
            return Ok(lock.lock());
        }
        if let Some(guard) = lock.try_lock_for(LOCK_PATIENCE) {
            return Ok(guard);
        }
        patience::wait()?;
        Ok(lock.lock())
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

fn answer_all<'a, D, T>(done: Result<D>, answer: impl FnOnce(D) -> Op<'a, T>) -> Op<'a, T> {
    match done {
        Ok(done) => answer(done),
        Err(error) => Op::err(error),
    }
}

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
