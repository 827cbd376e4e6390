//! The state of an exported directory tree that all operations share.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::Statx;
#[cfg(test)]
use vfs::FileKind;
use vfs::{Error, Properties, Result, SyncLatency};

use crate::attributes::device_of;
use crate::cached_names::CachedNames;
use crate::change::ChangeClock;
use crate::cleanup_queue;
use crate::config::{Durability, QuotaSource};
use crate::descriptors::{Descriptors, Member};
use crate::generations::Generations;
use crate::hidden::Hidden;
use crate::index::Index;
use crate::mounts::LoggedMounts;
use crate::object::{Object, Objects};
use crate::pool::Pool;
use crate::stall_detector::StallDetector;
use crate::streams::Streams;
use crate::sync_group::SyncGroup;
use crate::watch;
use crate::watch_limits::LimitLog;

/// The user as which the kernel sees operations.
#[derive(Debug)]
pub(crate) enum Actor {
    /// As the caller: the server has root's capabilities.
    Callers,
    /// As the server itself, for any caller.
    Itself {
        /// The user whose requests the kernel checks correctly; `u32::MAX` if the server has capabilities that its
        /// user has not.
        uid: u32,
    },
}

/// The way from handles to objects.
#[derive(Debug)]
pub(crate) enum Handles {
    /// The kernel opens them, on the mount of this id. Most handles have the root's type and length, `usual`.
    /// `generations` is set if such a handle can be made of inode number and generation.
    Kernel { mount: i32, usual: (i32, usize), generations: Option<Box<Generations>> },
    /// Through the index, which knows a parent and a name; on the mount of this id.
    Indexed { index: Index, mount: u64 },
}

/// The state of an export.
pub(crate) struct Volume {
    /// The exported directory, open for reading: handles are opened relative to its mount.
    pub(crate) root_fd: OwnedFd,
    pub(crate) root: Arc<Object>,
    pub(crate) handles: Handles,
    pub(crate) actor: Actor,
    /// Whether answers do not wait for stable storage: [`Durability::Async`].
    pub(crate) is_async: AtomicBool,
    /// Whether the changes of earlier servers are durable.
    pub(crate) is_inherited_synced: AtomicBool,
    /// Whether there is no device, so that syncs do nothing.
    pub(crate) is_in_memory: bool,
    pub(crate) identity: [u8; 16],
    pub(crate) properties: Properties,
    /// Asks for quotas, if the file system has any.
    pub(crate) quotas: Option<Arc<dyn QuotaSource>>,
    pub(crate) has_acls: bool,
    /// Whether a file without names has no links; some FUSE file systems always report 0.
    pub(crate) counts_links: bool,
    pub(crate) objects: Objects,
    /// Maximum number of objects that this volume caches, if its share of the descriptors allows it.
    pub(crate) max_objects: usize,
    /// The budget of open files, and this volume's membership in it.
    pub(crate) descriptors: &'static Descriptors,
    pub(crate) member: OnceLock<Member>,
    /// The start of the next search for descriptors to close.
    pub(crate) closed_last: AtomicUsize,
    /// Pinned files, if many of them could not be closed; 0 if unknown.
    pub(crate) pinned_in_use: AtomicUsize,
    /// The number of dirty objects.
    pub(crate) dirty_objects: Arc<AtomicUsize>,
    /// Directories and new files that wait for the next round of syncs.
    pub(crate) sync_group: SyncGroup,
    pub(crate) changes: ChangeClock,
    /// Whether RWF_NOWAIT reads work.
    pub(crate) has_nowait: AtomicBool,
    /// Whether RESOLVE_CACHED lookups work.
    pub(crate) has_cached_lookup: AtomicBool,
    pub(crate) cached_names: CachedNames,
    pub(crate) stall_detector: StallDetector,
    /// The durations of syncs of directories, new files and little content.
    pub(crate) sync_latency: SyncLatency,
    /// The number of RENAMEs so far.
    pub(crate) moves: AtomicU64,
    pub(crate) streams: Streams,
    /// The files that clients do not see.
    pub(crate) hidden: Option<Box<Hidden>>,
    pub(crate) pool: Pool,
    /// Whether byte-range locks are the kernel's alone, and never wait.
    pub(crate) locks_at_once: bool,
    /// The number of files with locks against local processes.
    pub(crate) files_with_locks: Arc<AtomicUsize>,
    /// Whether directory positions stay valid while entries come and go.
    pub(crate) has_stable_positions: bool,
    pub(crate) fsid: u64,
    pub(crate) fsids: Mutex<HashMap<u64, u64>>,
    pub(crate) verifier_seed: [u8; 8],
    pub(crate) verifier_changes: AtomicU64,
    /// The number of cleanup rounds so far.
    pub(crate) round: AtomicU32,
    /// The work of the cleanup thread, and its signal.
    pub(crate) cleanup_queue: cleanup_queue::CleanupQueue,
    /// Watches for changes by other processes.
    pub(crate) watches: watch::LazyWatches,
    /// Mount points that were refused and logged.
    pub(crate) logged_mounts: LoggedMounts,
    /// Limits that prevented watches of objects, and the times of their log lines.
    pub(crate) limit_log: LimitLog,
    /// Whether all changes of a directory's entries can be watched.
    pub(crate) has_watched_entries: bool,
    /// The error of the next sync.
    #[cfg(test)]
    pub(crate) planned_sync_failure: Mutex<Option<(FileKind, Error)>>,
    /// The threads that made the syncs so far.
    #[cfg(test)]
    pub(crate) syncs: Mutex<Vec<std::thread::ThreadId>>,
    /// How often a thread let requests gather before a sync.
    #[cfg(test)]
    pub(crate) gatherings: AtomicUsize,
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("root", &self.root.handle)
            .field("handles", &self.handles)
            .field("actor", &self.actor)
            .field("durability", &self.durability())
            .field("objects", &self.objects.len())
            .finish_non_exhaustive()
    }
}

impl Volume {
    /// Returns the current write verifier.
    pub(crate) fn verifier(&self) -> [u8; 8] {
        let changes = self.verifier_changes.load(Ordering::Acquire);
        (u64::from_be_bytes(self.verifier_seed).wrapping_add(changes)).to_be_bytes()
    }

    /// Returns the current durability.
    pub(crate) fn durability(&self) -> Durability {
        if self.is_async.load(Ordering::Acquire) { Durability::Async } else { Durability::Sync }
    }

    /// Returns whether changes must be durable before they are answered.
    pub(crate) fn must_sync(&self) -> bool {
        // Tests count syncs on any file system.
        self.durability() == Durability::Sync && (cfg!(test) || !self.is_in_memory)
    }

    /// Changes the write verifier, because unstable data may have been lost.
    pub(crate) fn change_verifier(&self) {
        self.verifier_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Fails for a read-only volume.
    pub(crate) fn require_writable(&self) -> Result<()> {
        if self.properties.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }
}

/// Returns the id of the mount, or before Linux 5.8 a number that changes with the device.
pub(crate) fn mount_of(status: &Statx, root_device: u64) -> u64 {
    if status.stx_mask & rustix::fs::StatxFlags::MNT_ID.bits() != 0 {
        status.stx_mnt_id
    } else {
        u64::from(device_of(status) != root_device)
    }
}
