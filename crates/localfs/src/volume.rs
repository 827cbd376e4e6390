//! A directory tree under export: finding objects by handle or name, and their attributes.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::Statx;
#[cfg(test)]
use vfs::FileKind;
use vfs::{Error, Pace, Properties, Result};

use crate::attributes::device_of;
use crate::cached_names::Names;
use crate::change::ChangeClock;
use crate::config::Durability;
use crate::descriptors::{Descriptors, Member};
use crate::generations::Generations;
use crate::hidden::Hidden;
use crate::index::Index;
use crate::janitor_queue;
use crate::mounts::LoggedMounts;
use crate::object::{Object, Objects};
use crate::pool::Pool;
use crate::shortage::Shortages;
use crate::stall_detector::Wariness;
use crate::streams::Streams;
use crate::sync_group::Group;
use crate::watch;

/// As whom the kernel sees what callers do.
#[derive(Debug)]
pub(crate) enum Actor {
    /// As the caller: the server has root's powers.
    Callers,
    /// As the server itself, whoever calls.
    Itself {
        /// The user whose requests the kernel judges rightly; nobody's (`u32::MAX`) where the server has powers over
        /// files that its user has not.
        uid: u32,
    },
}

/// How objects are found again by handle.
#[derive(Debug)]
pub(crate) enum Handles {
    /// The kernel opens them, on the mount of this id. Handles have, as a rule, the root's type and length; what is remembered of
    /// them, where that is a form that can be made of inode number and generation.
    Kernel { mount: i32, usual: (i32, usize), generations: Option<Box<Generations>> },
    /// Through the index, which knows a parent and a name; on the mount of this id.
    Indexed { index: Index, mount: u64 },
}

/// Everything about an export that operations share.
pub(crate) struct Volume {
    /// The top, open for reading: handles are opened relative to its mount.
    pub(crate) root_fd: OwnedFd,
    pub(crate) root: Arc<Object>,
    pub(crate) handles: Handles,
    pub(crate) actor: Actor,
    /// Whether answers do not wait for stable storage: [`Durability::Async`].
    pub(crate) is_async: AtomicBool,
    /// Whether everything that an instance before this one changed is on stable storage.
    pub(crate) is_settled: AtomicBool,
    /// Whether there is no device behind, so that a sync has nothing to do.
    pub(crate) is_in_memory: bool,
    pub(crate) identity: [u8; 16],
    pub(crate) properties: Properties,
    pub(crate) has_acls: bool,
    /// Whether a file without names has no links; some FUSE file systems say 0 always.
    pub(crate) counts_links: bool,
    pub(crate) objects: Objects,
    /// The most that this volume caches of them, if its share of the descriptors allows it.
    pub(crate) max_objects: usize,
    /// The budget of open files, and this volume's part in it.
    pub(crate) descriptors: &'static Descriptors,
    pub(crate) member: OnceLock<Member>,
    /// Where the next search for descriptors to close begins.
    pub(crate) closed_last: AtomicUsize,
    /// Files that opens pin, where many of them could not be closed; 0 if unknown.
    pub(crate) pinned_in_use: AtomicUsize,
    /// How many of them are dirty.
    pub(crate) dirty_objects: Arc<AtomicUsize>,
    /// What is to be synced for many at once.
    pub(crate) group: Group,
    pub(crate) changes: ChangeClock,
    /// Whether reads can be tried without waiting.
    pub(crate) has_nowait: AtomicBool,
    /// Whether names can be looked up without waiting.
    pub(crate) has_cached_lookup: AtomicBool,
    pub(crate) names: Names,
    pub(crate) wariness: Wariness,
    /// Of syncs of names and of little content.
    pub(crate) pace: Pace,
    /// RENAMEs so far.
    pub(crate) moves: AtomicU64,
    pub(crate) streams: Streams,
    /// What clients do not see.
    pub(crate) hidden: Option<Box<Hidden>>,
    pub(crate) pool: Pool,
    /// Whether directory positions stay what they are while entries come and go.
    pub(crate) has_stable_positions: bool,
    pub(crate) fsid: u64,
    pub(crate) fsids: Mutex<HashMap<u64, u64>>,
    pub(crate) verifier_seed: [u8; 8],
    pub(crate) verifier_changes: AtomicU64,
    /// The janitor's clock, in its own rounds.
    pub(crate) round: AtomicU32,
    /// Descriptors open for writing that the janitor has to look after, and its alarm.
    pub(crate) janitor: janitor_queue::Alarm,
    /// Who is told of what other processes do.
    pub(crate) watches: watch::OnDemand,
    /// Mount points inside that were refused.
    pub(crate) logged_mounts: LoggedMounts,
    /// What could not be watched for want of something, and is in the log.
    pub(crate) shortages: Shortages,
    /// Whether all changes of a directory's entries can be watched for.
    pub(crate) has_watched_entries: bool,
    /// The error of the next sync.
    #[cfg(test)]
    pub(crate) planned_sync_failure: Mutex<Option<(FileKind, Error)>>,
    /// Who made the syncs so far.
    #[cfg(test)]
    pub(crate) syncs: Mutex<Vec<std::thread::ThreadId>>,
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
    /// The write verifier as of now.
    pub(crate) fn verifier(&self) -> [u8; 8] {
        let changes = self.verifier_changes.load(Ordering::Acquire);
        (u64::from_be_bytes(self.verifier_seed).wrapping_add(changes)).to_be_bytes()
    }

    /// What answers promise at the moment.
    pub(crate) fn durability(&self) -> Durability {
        if self.is_async.load(Ordering::Acquire) { Durability::Async } else { Durability::Sync }
    }

    /// Whether changes have to reach a device before they are answered.
    pub(crate) fn must_sync(&self) -> bool {
        // Tests count syncs wherever they run.
        self.durability() == Durability::Sync && (cfg!(test) || !self.is_in_memory)
    }

    /// Unstable data may have been lost.
    pub(crate) fn change_verifier(&self) {
        self.verifier_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Fails for changes of a volume that takes none.
    pub(crate) fn require_writable(&self) -> Result<()> {
        if self.properties.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }
}

/// The id of the mount, or where the kernel does not tell it (before Linux 5.8), a number that changes with the device.
pub(crate) fn mount_of(status: &Statx, root_device: u64) -> u64 {
    if status.stx_mask & rustix::fs::StatxFlags::MNT_ID.bits() != 0 {
        status.stx_mnt_id
    } else {
        u64::from(device_of(status) != root_device)
    }
}
