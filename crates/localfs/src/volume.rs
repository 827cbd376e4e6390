//! A directory tree under export: finding objects by handle or name, and their attributes.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, Stat, Statx};
use rustix::io::Errno;
use vfs::{Attributes, Error, FileKind, Handle, Pace, Peer, Properties, Result};

use crate::attributes::{
    Snapshot, attributes, attributes_of_stat, changed, changed_of_stat, created, device_of, is_sealed,
    kind_of, status, status_and_mount,
};
use crate::change::{ChangeClock, Moment, nanoseconds};
use crate::config::Durability;
use crate::descriptors::{Descriptors, Member};
use crate::durable::Dirt;
use crate::durable::group::Group;
use crate::errno::translate;
use crate::find::handle_on;
use crate::generations::Generations;
use crate::handle::{self, Meaning};
use crate::hidden::Hidden;
use crate::index::{FileKey, Index, Place};
use crate::later::drop_later;
use crate::mounts::LoggedMounts;
use crate::name::Name;
use crate::object::{Object, Objects, OpenFile, Reach};
use crate::patience;
use crate::pool::{Lane, Pool};
use crate::shortage::Shortages;
use crate::streams::Streams;
use crate::sys::{self, KernelHandle};
use crate::turn::{Names, Wariness};
use crate::watch;

/// Blocks of 512 bytes from which on a file is freed on the pool: 64 MiB.
const MANY_BLOCKS: i64 = 128 * 1024;
/// Times that an open by handle is tried again where memory is said to be short, most of them a millisecond apart.
const MAX_TRIES: u32 = 50;
/// File systems inside one export (btrfs subvolumes) whose ids are remembered; more are asked for each time.
const MAX_FSIDS: usize = 1024;

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
    pub(crate) janitor: crate::janitor::Alarm,
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
    /// The object of a handle, opened if need be.
    ///
    /// # Errors
    /// [`Error::Stale`] where it is gone, [`Error::BadHandle`] for what is no handle of this volume.
    pub(crate) fn object(&self, handle: &Handle) -> Result<Arc<Object>> {
        match self.objects.get(handle) {
            Some(object) => Ok(object),
            None => {
                if !self.is_in_memory {
                    patience::wait()?;
                }
                self.load(handle)
            }
        }
    }

    /// Attributes as of now.
    ///
    /// # Errors
    /// [`Error::Stale`] where the object has lost its last name and no open holds it.
    pub(crate) fn stat(&self, object: &Object) -> Result<Snapshot> {
        self.observe(object, false)
    }

    /// Attributes just after a change that this server made.
    pub(crate) fn stat_after(&self, object: &Object) -> Result<Snapshot> {
        self.observe(object, true)
    }

    fn observe(&self, object: &Object, own_change: bool) -> Result<Snapshot> {
        // After a change one wants to know whether a write may follow (WRITE itself asks before: `seen`); and the index wants to know of
        // creation times.
        let is_sealed_wanted = own_change && object.kind == FileKind::Regular;
        if !is_sealed_wanted && self.may_glance() {
            return self.glance(object, own_change);
        }
        self.stat_whole(object, own_change)
    }

    /// Whether the faster call tells all that this volume has to know.
    pub(crate) fn may_glance(&self) -> bool {
        matches!(self.handles, Handles::Kernel { .. }) && !self.changes.is_coarse()
    }

    /// Attributes, and whether it is sealed.
    pub(crate) fn stat_whole(&self, object: &Object, own_change: bool) -> Result<Snapshot> {
        let moment = self.changes.moment();
        let status = object.lend(status).map_err(translate)?;
        self.require_name(object, status.stx_nlink)?;
        if let Handles::Indexed { index, .. } = &self.handles {
            index.confirm(&object.handle, &self.file_key(&status, object.fsid));
        }
        Ok(self.snapshot(object, &status, moment, own_change))
    }

    /// Attributes without a word on whether it is sealed, by the faster call.
    fn glance(&self, object: &Object, own_change: bool) -> Result<Snapshot> {
        let moment = self.changes.moment();
        let status = object.lend(|fd| rustix::fs::fstat(fd)).map_err(translate)?;
        self.glanced(object, &status, moment, own_change)
    }

    /// What fstat(2), called after `moment`, says of `object`.
    #[inline]
    pub(crate) fn glanced(
        &self,
        object: &Object,
        status: &Stat,
        moment: Moment,
        own_change: bool,
    ) -> Result<Snapshot> {
        self.require_name(object, u32::from(status.st_nlink != 0))?;
        let changed = changed_of_stat(status);
        let is_directory = object.kind == FileKind::Directory;
        let change = self.changes.change_attribute(moment, (object.key, is_directory), changed, own_change);
        Ok(Snapshot {
            attributes: attributes_of_stat(status, object.created, object.fsid, change),
            sealed: None,
            settled: self.changes.is_settled(moment, changed),
        })
    }

    /// Whether nobody may write an object any more, root included. A seal cannot change without the change time.
    pub(crate) fn is_sealed(&self, object: &Object, snapshot: &Snapshot) -> Result<bool> {
        if let Some(sealed) = snapshot.sealed {
            return Ok(sealed);
        }
        let known = object.sealed.load(Ordering::Relaxed);
        if known != 0 && known & !1 == nanoseconds(snapshot.attributes.changed) << 1 {
            return Ok(known & 1 != 0);
        }
        let moment = self.changes.moment();
        let status = object.lend(status).map_err(translate)?;
        self.remember_seal(object, &status, moment);
        Ok(is_sealed(&status))
    }

    fn remember_seal(&self, object: &Object, status: &Statx, moment: Moment) {
        let changed = changed(status);
        // Directories that may share change times with files are not trusted here.
        let is_own = object.kind != FileKind::Directory || self.changes.is_steady();
        if is_own && self.changes.is_settled(moment, changed) {
            let known = nanoseconds(changed) << 1 | u64::from(is_sealed(status));
            object.sealed.store(known, Ordering::Relaxed);
        }
    }

    /// Fails for what has lost its last name while no open holds it.
    fn require_name(&self, object: &Object, links: u32) -> Result<()> {
        if links == 0 && self.counts_links && object.let_go() {
            self.forget(object);
            return Err(Error::Stale);
        }
        Ok(())
    }

    /// What `status`, taken after `moment`, says of `object`.
    fn snapshot(&self, object: &Object, status: &Statx, moment: Moment, own_change: bool) -> Snapshot {
        let changed = changed(status);
        let is_directory = object.kind == FileKind::Directory;
        let change = self.changes.change_attribute(moment, (object.key, is_directory), changed, own_change);
        self.remember_seal(object, status, moment);
        Snapshot {
            attributes: attributes(status, object.fsid, change),
            sealed: Some(is_sealed(status)),
            settled: self.changes.is_settled(moment, changed),
        }
    }

    /// Lets go of an object that is gone. Whoever uses it still has it.
    pub(crate) fn forget(&self, object: &Object) {
        self.objects.remove(&object.handle);
        if let (Handles::Indexed { index, .. }, Ok(Meaning::Indexed(_, id))) =
            (&self.handles, handle::decode(&object.handle))
            && index.forget(id)
        {
            self.janitor.ring();
        }
    }

    /// Lets go of an object if it has lost its last name and no open holds it, so that its space is freed. Freeing much
    /// takes time, which nobody here waits for.
    pub(crate) fn let_go_if_gone(&self, object: Arc<Object>) {
        if let Ok(status) = object.lend(|fd| rustix::fs::fstat(fd)) {
            self.let_go_if_nameless(object, &status);
        }
    }

    /// The same, where this was seen of it.
    pub(crate) fn let_go_if_nameless(&self, object: Arc<Object>, status: &Stat) {
        if status.st_nlink > 0 || !self.counts_links || !object.let_go() {
            return;
        }
        self.forget(&object);
        if status.st_blocks >= MANY_BLOCKS {
            self.pool.submit(Lane::Long, Peer::default(), move || drop(object));
        } else {
            // Freeing little takes time, too, but less than handing it to a thread does.
            drop_later(object);
        }
    }

    /// A name of an object was removed, replaced or moved through this volume: nobody has looked at it since.
    pub(crate) fn was_renamed(&self, object: &Object) {
        self.changes.was_changed(object.key);
        object.dirt.was_touched();
    }

    /// A name of an object was removed or replaced through this volume.
    pub(crate) fn lost_a_name(&self, object: Arc<Object>) {
        self.was_renamed(&object);
        self.let_go_if_gone(object);
    }

    /// The object behind a descriptor that was opened as `name` of `directory`.
    pub(crate) fn adopt(&self, file: OpenFile, directory: &Object, name: &Name) -> Result<Arc<Object>> {
        let (handle, status) = self.identify(file.as_fd(), directory, name)?;
        Ok(self.keep(handle, &status, file))
    }

    /// The same for one that this server has just created.
    pub(crate) fn adopt_new(
        &self,
        file: OpenFile,
        directory: &Object,
        name: &Name,
    ) -> Result<(Arc<Object>, Snapshot)> {
        let moment = self.changes.moment();
        let (handle, status) = match self.identify_new(file.as_fd())? {
            Some(new) => new,
            None => self.identify(file.as_fd(), directory, name)?,
        };
        let object = self.keep(handle, &status, file);
        let snapshot = self.snapshot(&object, &status, moment, true);
        Ok((object, snapshot))
    }

    /// As [`identify`](Self::identify), of a file that this server has made in a directory of the export: it is on no other mount. `None`
    /// where that call has to say.
    fn identify_new(&self, fd: BorrowedFd<'_>) -> Result<Option<(Handle, Statx)>> {
        let Handles::Kernel { mount, usual, generations: Some(generations) } = &self.handles else {
            return Ok(None);
        };
        let verdict = generations.trial.verdict();
        if verdict == Some(false) {
            return Ok(None);
        }
        let (told, status) = (sys::generation(fd).ok(), status(fd).map_err(translate)?);
        let made = told.and_then(|told| KernelHandle::of(*usual, status.stx_ino, told));
        let kernel = match made.filter(|_| verdict.is_some()) {
            Some(made) => made,
            None => {
                let held = handle_on(*mount, fd, c"")?.ok_or(Error::Access)?;
                if verdict.is_none() {
                    generations.trial.hear(told.filter(|_| made.is_some_and(|made| made.is(&held))));
                }
                held
            }
        };
        Ok(Some((handle::from_kernel(&kernel)?, status)))
    }

    /// Handle and attributes of what was opened as `name` of `directory`, without keeping it.
    ///
    /// # Errors
    /// [`Error::Access`] for another file system mounted there: an export ends at mount points.
    pub(crate) fn examine(
        &self,
        fd: BorrowedFd<'_>,
        directory: &Object,
        name: &Name,
    ) -> Result<(Handle, Attributes)> {
        let moment = self.changes.moment();
        let (handle, status) = self.identify(fd, directory, name)?;
        let fsid = self.fsid_of(fd, device_of(&status));
        Ok((handle, self.seen(moment, &status, fsid)))
    }

    /// Attributes of what is not kept.
    pub(crate) fn seen(&self, moment: Moment, status: &Statx, fsid: u64) -> Attributes {
        let key = (device_of(status), status.stx_ino);
        let is_directory = kind_of(status.stx_mode) == FileKind::Directory;
        let change = self.changes.change_attribute(moment, (key, is_directory), changed(status), false);
        attributes(status, fsid, change)
    }

    fn identify(&self, fd: BorrowedFd<'_>, directory: &Object, name: &Name) -> Result<(Handle, Statx)> {
        match &self.handles {
            Handles::Kernel { mount, .. } => {
                let kernel =
                    handle_on(*mount, fd, c"")?.ok_or_else(|| self.refuse_mount_in(directory, name))?;
                let status = status(fd).map_err(translate)?;
                self.require_shown(&status)?;
                Ok((handle::from_kernel(&kernel)?, status))
            }
            Handles::Indexed { index, mount } => {
                let status = status_and_mount(fd).map_err(translate)?;
                if mount_of(&status, self.root.key.0) != *mount {
                    return Err(self.refuse_mount_in(directory, name));
                }
                self.require_shown(&status)?;
                let key = self.file_key(&status, self.fsid_of(fd, device_of(&status)));
                let place = Place { parent: index.id_of(&directory.handle)?, name: name.as_bytes() };
                // Directories have one name; their links count subdirectories.
                let is_linked = status.stx_nlink > 1 && kind_of(status.stx_mode) != FileKind::Directory;
                let id = index.remember(&key, &place, is_linked)?;
                if index.is_unsynced() {
                    self.janitor.ring();
                }
                Ok((handle::from_index(index.identity(), id), status))
            }
        }
    }

    /// Puts an object into the cache, or returns the one that is there.
    pub(crate) fn keep(&self, handle: Handle, status: &Statx, file: OpenFile) -> Arc<Object> {
        let fsid = self.fsid_of(file.as_fd(), device_of(status));
        let make = |file| {
            let (key, dirt) = ((device_of(status), status.stx_ino), Dirt::new(&self.dirty_objects));
            Object::new(handle, kind_of(status.stx_mode), fsid, (key, created(status)), file, dirt)
        };
        let (present, file) = match self.objects.get_or_make(&handle, file, make) {
            Ok(made) => {
                if made.is_pinned() {
                    // Its descriptor had been closed.
                    self.bound_pinned();
                }
                return made;
            }
            Err(there) => there,
        };
        if file.reach.writes() {
            // Somebody has looked the new file up already. Nothing here fails.
            let _ = present.replace_file(|present| Ok((!present.reach.writes()).then_some(file)));
        }
        present
    }

    fn load(&self, handle: &Handle) -> Result<Arc<Object>> {
        let fd = match (&self.handles, handle::decode(handle)?) {
            (Handles::Kernel { usual, .. }, Meaning::Kernel(kind, bytes)) => self
                .open_by_kernel_handle(kind, bytes, OFlags::PATH | OFlags::NOFOLLOW)
                .map_err(|errno| match errno {
                    Errno::STALE | Errno::NOENT if *usual == (kind, bytes.len()) => Error::Stale,
                    Errno::STALE | Errno::NOENT | Errno::INVAL => Error::BadHandle,
                    other => translate(other),
                })?,
            (Handles::Indexed { index, .. }, Meaning::Indexed(identity, id))
                if identity == index.identity() =>
            {
                self.open_by_index(index, id)?
            }
            _ => return Err(Error::BadHandle),
        };
        if let Handles::Kernel { mount, .. } = self.handles {
            // The kernel overlooks some kinds of surplus; but a file has one handle.
            let (kernel, on) = sys::name_to_handle_at(fd.as_fd(), c"").map_err(translate)?;
            if on != mount || handle::from_kernel(&kernel)? != *handle {
                return Err(Error::BadHandle);
            }
        }
        let status = status(fd.as_fd()).map_err(translate)?;
        self.require_shown_by_handle(&status)?;
        Ok(self.keep(*handle, &status, self.file_of(fd, Reach::Path)))
    }

    /// Opens what the kernel's handle names, whoever calls.
    pub(crate) fn open_by_kernel_handle(
        &self,
        kind: i32,
        bytes: &[u8],
        flags: OFlags,
    ) -> rustix::io::Result<OwnedFd> {
        self.act_as_server();
        let mut tries = 0;
        loop {
            let opened = self
                .descriptors
                .open(|| sys::open_by_handle_at(self.root_fd.as_fd(), kind, bytes, flags.bits() as i32));
            if opened.as_ref().err() != Some(&Errno::NOMEM) || tries == MAX_TRIES {
                return opened;
            }
            // Not only a lack of memory: ext4 also says so while the number of a removed inode is being given to a new file,
            // and a moment later ESTALE. Rare enough to wait for in place.
            tries += 1;
            match tries {
                ..8 => std::thread::yield_now(),
                _ => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        }
    }

    /// A directory stream of its own, at the start, opened by the server.
    pub(crate) fn open_directory(&self, directory: &Object) -> Result<OwnedFd> {
        // Not by the name `.`, for which one must be allowed to search the directory, not only to read it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.reopen(directory, &directory.file(), flags).map_err(translate)
    }

    /// A descriptor that content can be read from.
    pub(crate) fn readable(&self, object: &Object) -> Result<Arc<OpenFile>> {
        object.replace_file(|present| {
            if present.reach.reads() {
                return Ok(None);
            }
            if present.reach.writes() {
                // The only descriptor that may write must stay; it could not be opened for reading too.
                return Err(Error::Access);
            }
            let fd = self.reopen(object, present, OFlags::RDONLY).map_err(translate)?;
            Ok(Some(self.file_of(fd, Reach::Read)))
        })
    }

    /// Makes the object's descriptor one that can write.
    pub(crate) fn make_writable(&self, object: &Object) -> Result<()> {
        object.replace_file(|present| {
            if present.reach.writes() {
                return Ok(None);
            }
            let (fd, reach) = match self.reopen(object, present, OFlags::RDWR) {
                Ok(fd) => (fd, Reach::ReadWrite),
                // The server's own user may write it, but not read it.
                Err(Errno::ACCESS) => {
                    let fd = self.reopen(object, present, OFlags::WRONLY).map_err(translate)?;
                    (fd, Reach::Write)
                }
                Err(errno) => return Err(translate(errno)),
            };
            self.janitor.ring();
            Ok(Some(self.file_of(fd, reach)))
        })?;
        Ok(())
    }

    /// Opens the very same object again. Only regular files and directories: opening a device or a pipe has effects.
    pub(crate) fn reopen(
        &self,
        object: &Object,
        present: &OpenFile,
        flags: OFlags,
    ) -> rustix::io::Result<OwnedFd> {
        // A local process may hold a lease; nobody waits here until it is given up.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        if let (Handles::Kernel { .. }, Ok(Meaning::Kernel(kind, bytes))) =
            (&self.handles, handle::decode(&object.handle))
        {
            match self.open_by_kernel_handle(kind, bytes, flags) {
                Err(Errno::STALE) => {}
                other => return other,
            }
        }
        self.act_as_server();
        let name = present.name_in_proc();
        self.descriptors.open(|| rustix::fs::open(&name, flags, Mode::empty()))
    }

    pub(crate) fn fsid_of(&self, fd: BorrowedFd<'_>, device: u64) -> u64 {
        if device == self.root.key.0 {
            return self.fsid;
        }
        let mut fsids = self.fsids.lock();
        if let Some(fsid) = fsids.get(&device) {
            return *fsid;
        }
        let fsid = crate::probe::nested_fsid(fd, self.fsid);
        if fsids.len() < MAX_FSIDS {
            fsids.insert(device, fsid);
        }
        fsid
    }

    pub(crate) fn file_key(&self, status: &Statx, fsid: u64) -> FileKey {
        let created = created(status).unwrap_or_default();
        FileKey { fsid, inode: status.stx_ino, created }
    }

    /// The write verifier as of now.
    pub(crate) fn verifier(&self) -> [u8; 8] {
        let changes = self.verifier_changes.load(Ordering::Acquire);
        (u64::from_be_bytes(self.verifier_seed).wrapping_add(changes)).to_be_bytes()
    }

    /// What answers promise at the moment.
    pub(crate) fn durability(&self) -> Durability {
        if self.is_async.load(Ordering::Acquire) { Durability::Async } else { Durability::Sync }
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
