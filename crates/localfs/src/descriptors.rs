//! The file descriptors that all volumes of a process share.
//!
//! A process has one limit (`RLIMIT_NOFILE`) for files, connections and everything else. [`Descriptors`] is the part
//! of it that files may use. Each volume gets an equal share, which bounds its cache of open files. Files that
//! clients hold open (NFSv4 OPEN) may pin half of a share. Beyond that, descriptors of idle files are closed, and the
//! next request opens the file again by its handle ([`Objects::close_pinned`](crate::object::Objects::close_pinned)).
//!
//! An open beyond the budget, or one for which the kernel returns `EMFILE`, first closes cached descriptors
//! ([`Descriptors::open`]). If that does not help, the operation fails with `EMFILE`, and clients try again later.
//! So the part for connections and the control socket stays free.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::nonblocking;

/// Minimum number of objects that a volume keeps open, even with a low limit.
pub(crate) const MIN_OBJECTS: usize = 16;
/// Descriptors of a volume that are not files of clients: its root, the index of handles, the fanotify(7) group.
const FIXED: usize = 4;
/// Part of a limit that is closed at once, so that searches are rare.
const BATCH: usize = 16;
/// Nanoseconds before the next search after one that could close nothing.
const RETRY_NS: u64 = 10_000_000;
/// Descriptors that connections and everything else have by default.
const OTHER_DESCRIPTORS: u64 = 256;

/// A user of a budget: a volume.
pub(crate) trait User: Send + Sync {
    /// Adjusts the cache of open files to the share.
    fn take_share(&self);

    /// Closes the directory streams that wait for the next READDIR.
    fn close_streams(&self);

    /// Returns the number of cached open files.
    fn open_files(&self) -> usize;

    /// Closes up to `wanted` descriptors that no request uses at the moment.
    fn close_unused(&self, wanted: usize);
}

/// The budget of descriptors for files.
pub struct Descriptors {
    limit: usize,
    open: AtomicUsize,
    /// The limit of each volume.
    share: AtomicUsize,
    volumes: Mutex<Vec<Weak<dyn User>>>,
    /// Held while descriptors are closed.
    closing: Mutex<()>,
    /// When a search could close nothing, by the coarse clock.
    failed_ns: AtomicU64,
}

/// Counts an open descriptor until it is dropped.
pub(crate) struct Counted(&'static Descriptors);

/// A volume's membership in the budget.
pub(crate) struct Member(&'static Descriptors);

impl Descriptors {
    /// Creates a budget of `limit` descriptors that lives as long as the process.
    #[must_use]
    pub fn new(limit: usize) -> &'static Self {
        Box::leak(Box::new(Self {
            limit,
            open: AtomicUsize::new(0),
            share: AtomicUsize::new(limit),
            volumes: Mutex::default(),
            closing: Mutex::default(),
            failed_ns: AtomicU64::new(0),
        }))
    }

    /// Returns the default budget: half of `RLIMIT_NOFILE`.
    pub(crate) fn of_process() -> &'static Self {
        static PROCESS: LazyLock<&Descriptors> = LazyLock::new(|| {
            use rustix::process::{Resource, getrlimit};
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            let files = usize::try_from(limit.saturating_sub(OTHER_DESCRIPTORS) / 2).unwrap_or(usize::MAX);
            Descriptors::new(files.max(MIN_OBJECTS))
        });
        *PROCESS
    }

    /// Returns the number of open descriptors.
    pub fn open_now(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of descriptors that may be open.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns whether the budget is used up.
    pub(crate) fn is_used_up(&self) -> bool {
        self.open_now() >= self.limit
    }

    /// Returns the number of descriptors that each volume may have.
    pub(crate) fn share(&self) -> usize {
        self.share.load(Ordering::Relaxed)
    }

    /// Returns the number of files of a volume that may be open only because clients hold them open.
    pub(crate) fn max_pinned(&self) -> usize {
        (self.share() / 2).max(1)
    }

    /// Counts an open descriptor.
    pub(crate) fn count(&'static self) -> Counted {
        self.open.fetch_add(1, Ordering::Relaxed);
        Counted(self)
    }

    /// Calls `call`, which opens a descriptor and has no effect if it fails. Beyond the budget, or when the kernel
    /// has none left, cached descriptors are closed first, and the call is repeated.
    ///
    /// # Errors
    /// The error of `call`; `EMFILE` if the budget is used up and nothing can be closed.
    pub(crate) fn open<T>(&self, mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
        if self.is_used_up() {
            self.close_idle();
            if self.is_used_up() {
                return Err(Errno::MFILE);
            }
        }
        match call() {
            Err(Errno::MFILE | Errno::NFILE) => {
                self.close_idle();
                call()
            }
            other => other,
        }
    }

    /// Adds a volume, which counts for the shares of all until the membership is dropped.
    pub(crate) fn join(&'static self, volume: Weak<dyn User>) -> Member {
        self.open.fetch_add(FIXED, Ordering::Relaxed);
        self.volumes.lock().push(volume);
        self.divide();
        Member(self)
    }

    /// Gives every volume its share.
    pub(crate) fn divide(&self) {
        let volumes = {
            let mut volumes = self.volumes.lock();
            volumes.retain(|volume| volume.strong_count() > 0);
            // The volume that is being opened cannot be upgraded yet.
            self.share.store((self.limit / volumes.len().max(1)).max(MIN_OBJECTS), Ordering::Relaxed);
            volumes.iter().filter_map(Weak::upgrade).collect::<Vec<_>>()
        };
        // After the lock is released: one of these may be the last reference to its volume.
        volumes.iter().for_each(|volume| volume.take_share());
    }

    /// Closes some descriptors that no request uses at the moment, of the volumes that have the most first.
    #[cold]
    fn close_idle(&self) {
        let now_ns = nonblocking::coarse_now_ns();
        if now_ns.saturating_sub(self.failed_ns.load(Ordering::Relaxed)) < RETRY_NS {
            return;
        }
        let _making_room = self.closing.lock();
        let before = self.open_now();
        let wanted = (self.limit / BATCH).max(1);
        let mut volumes: Vec<Arc<dyn User>> = self.volumes.lock().iter().filter_map(Weak::upgrade).collect();
        volumes.iter().for_each(|volume| volume.close_streams());
        volumes.sort_by_cached_key(|volume| std::cmp::Reverse(volume.open_files()));
        for volume in &volumes {
            let closed = before.saturating_sub(self.open_now());
            if closed >= wanted {
                return;
            }
            volume.close_unused(wanted - closed);
        }
        if self.open_now() >= before {
            self.failed_ns.store(now_ns, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptors")
            .field("limit", &self.limit)
            .field("open", &self.open_now())
            .finish_non_exhaustive()
    }
}

impl Counted {
    /// Counts a descriptor in the process's own budget, for tests of other things.
    #[cfg(test)]
    pub(crate) fn apart() -> Self {
        Descriptors::of_process().count()
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.open.fetch_sub(FIXED, Ordering::Relaxed);
        self.0.divide();
    }
}
