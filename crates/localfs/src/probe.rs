//! Opens a volume, and tests the capabilities of the file system and of this process.

use std::collections::HashMap;
use std::hash::Hasher;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags, StatFs, StatVfs, StatVfsMountFlags, Statx};
use rustix::io::Errno;
use siphasher::sip128::{Hasher128, SipHasher13};
use vfs::{FileKind, Handle, Properties, QuotaKind, SyncLatency};

use crate::acl::ACCESS_ACL;
use crate::attributes::{created, device_of, status_and_mount};
use crate::cached_names::CachedNames;
use crate::change::{self, ChangeClock};
use crate::config::{Config, Durability, OpenError, QuotaSource};
use crate::descriptors::{Descriptors, MIN_OBJECTS};
use crate::handle::{from_index, from_kernel};
use crate::hidden::Hidden;
use crate::identity::{self, FILE_CAPABILITIES};
use crate::index::{FileKey, Index, ROOT};
use crate::local_locks::locks_at_once;
use crate::mounts::LoggedMounts;
use crate::name::MAX_NAME;
use crate::object::{Object, Objects, OpenFile, Reach};
use crate::ops::watch_entries::is_watched;
use crate::pool::Pool;
use crate::stall_detector::StallDetector;
use crate::streams::Streams;
use crate::sync_group::SyncGroup;
use crate::sync_state::SyncState;
use crate::sys;
use crate::volume::{Actor, Handles, Volume, mount_of};
use crate::watch;
use crate::watch_limits::LimitLog;

/// `f_type` of file systems without a device: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// `f_type` of file systems whose `f_fsid` is made of a UUID (ext2 to ext4, btrfs), not of the device number.
const FSID_FROM_UUID: [u64; 2] = [0xef53, 0x9123_683e];
/// `f_type` of file systems whose files can share extents: XFS, btrfs, bcachefs, OCFS2. (ZFS too, but in records of
/// each file's own size.)
const SHARES_STORAGE: [u64; 4] = [0x5846_5342, 0x9123_683e, 0xca45_1a4e, 0x7461_636f];
/// `f_type` of file systems whose directory positions are stable: ext2 to ext4, XFS, btrfs, F2FS, ZFS, bcachefs, NFS.
/// tmpfs has them since Linux 6.6, which multigrain timestamps (6.13) prove.
const STABLE_POSITIONS: [u64; 7] =
    [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x2fc1_2fc1, 0xca45_1a4e, 0x6969];
/// Maximum number of objects that are kept open by default, each with about a kilobyte in the kernel.
const DEFAULT_MAX_OBJECTS: usize = 32 * 1024;
/// The greatest offset on Linux.
const GREATEST_FILE: u64 = i64::MAX as u64;

/// Opens a volume.
pub(crate) fn open(config: &Config) -> Result<Arc<Volume>, OpenError> {
    open_with(config, change::probe)
}

/// As [`open`]; `clock` tests how change times behave in a directory, as [`change::probe`] does.
pub(crate) fn open_with(
    config: &Config,
    clock: impl FnOnce(BorrowedFd<'_>, bool) -> (ChangeClock, u32),
) -> Result<Arc<Volume>, OpenError> {
    let volume = Arc::new(volume(config, clock)?);
    volume.objects.put(Arc::clone(&volume.root));
    let _ = volume.member.set(volume.descriptors.join(Arc::downgrade(&volume) as _));
    crate::cleanup::start(&volume).map_err(|error| OpenError::Directory(config.directory.clone(), error))?;
    Ok(volume)
}

/// Creates a volume that is not registered and has no cleanup thread yet.
fn volume(
    config: &Config,
    clock: impl FnOnce(BorrowedFd<'_>, bool) -> (ChangeClock, u32),
) -> Result<Volume, OpenError> {
    let path = &config.directory;
    if rustix::process::geteuid().is_root() {
        // This thread may have acted for callers of another volume.
        identity::become_server();
    }
    let failed = |errno: Errno| OpenError::Directory(path.clone(), errno.into());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root_fd = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let status = status_and_mount(root_fd.as_fd()).map_err(failed)?;
    let statfs = rustix::fs::fstatfs(&root_fd).map_err(failed)?;
    let statvfs = rustix::fs::fstatvfs(&root_fd).map_err(failed)?;
    let f_type = statfs.f_type as u64 & 0xffff_ffff;

    let identities = Identities::of(root_fd.as_fd(), &status, f_type);
    let (handles, root_handle) = handles(config, root_fd.as_fd(), &status, &identities)?;
    let hidden = hidden(config, root_fd.as_fd())?;
    let (changes, time_delta_ns) = clock(root_fd.as_fd(), IN_MEMORY.contains(&f_type));
    let properties = properties(root_fd.as_fd(), f_type, &statfs, &statvfs, time_delta_ns);
    let quotas = config.quotas.clone().filter(|quotas| has_quotas(root_fd.as_fd(), &**quotas));
    let properties = Properties { quotas: quotas.is_some(), ..properties };
    let has_stable_positions =
        STABLE_POSITIONS.contains(&f_type) || (IN_MEMORY.contains(&f_type) && !changes.is_coarse());
    let descriptors = config.descriptors.unwrap_or_else(Descriptors::of_process);
    let max_objects =
        config.max_open_files.unwrap_or(DEFAULT_MAX_OBJECTS).min(descriptors.limit()).max(MIN_OBJECTS);
    let dirty_objects = Arc::default();
    let root_copy = root_fd.try_clone().map_err(|error| OpenError::Directory(path.clone(), error))?;
    let root_file = OpenFile::new(root_copy, Reach::Read, descriptors.count());
    let root = Object::new(
        root_handle,
        FileKind::Directory,
        identities.fsid,
        ((device_of(&status), status.stx_ino), created(&status)),
        root_file,
        SyncState::new(&dirty_objects),
    );
    Ok(Volume {
        root: Arc::new(root),
        handles,
        actor: actor(),
        is_async: AtomicBool::new(config.durability == Durability::Async),
        is_inherited_synced: AtomicBool::new(false),
        is_in_memory: IN_MEMORY.contains(&f_type),
        identity: identities.export,
        properties,
        quotas,
        has_acls: properties.acls,
        counts_links: status.stx_nlink > 0,
        objects: Objects::new(max_objects),
        max_objects,
        descriptors,
        member: OnceLock::new(),
        closed_last: AtomicUsize::new(0),
        pinned_in_use: AtomicUsize::new(0),
        dirty_objects,
        sync_group: SyncGroup::default(),
        changes,
        has_nowait: AtomicBool::new(true),
        has_cached_lookup: AtomicBool::new(true),
        cached_names: CachedNames::default(),
        stall_detector: StallDetector::default(),
        sync_latency: SyncLatency::default(),
        moves: AtomicU64::new(0),
        streams: Streams::default(),
        hidden,
        pool: Pool::default(),
        locks_at_once: locks_at_once(f_type),
        files_with_locks: Arc::default(),
        has_stable_positions,
        fsid: identities.fsid,
        fsids: Mutex::new(HashMap::new()),
        verifier_seed: config.verifier_seed,
        verifier_changes: AtomicU64::new(0),
        round: AtomicU32::new(0),
        cleanup_queue: crate::cleanup_queue::CleanupQueue::default(),
        watches: watch::LazyWatches::new(max_objects / 2),
        logged_mounts: LoggedMounts::default(),
        limit_log: LimitLog::default(),
        has_watched_entries: is_watched(f_type),
        root_fd,
        #[cfg(test)]
        planned_sync_failure: Mutex::new(None),
        #[cfg(test)]
        syncs: Default::default(),
        #[cfg(test)]
        gatherings: Default::default(),
    })
}

/// Returns the capabilities of a file system, by its type and tests in a directory.
fn properties(
    root: BorrowedFd<'_>,
    f_type: u64,
    statfs: &StatFs,
    statvfs: &StatVfs,
    time_delta_ns: u32,
) -> Properties {
    let shares_storage = SHARES_STORAGE.contains(&f_type);
    Properties {
        max_file_size: greatest_file(root),
        max_name: u32::try_from(statvfs.f_namemax).unwrap_or(u32::MAX).clamp(1, MAX_NAME as u32),
        time_delta_ns,
        read_only: statvfs.f_flag.contains(StatVfsMountFlags::RDONLY),
        max_links: sys::link_limit(root),
        // Linux restricts chown(2) everywhere.
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
        xattrs: has_xattrs(root, "user.enfys.probe"),
        acls: has_xattrs(root, ACCESS_ACL),
        clone_block_bytes: if shares_storage { u32::try_from(statfs.f_bsize).unwrap_or(0) } else { 0 },
        shares_storage,
        // Set when the volume is opened, if it can be asked.
        quotas: false,
    }
}

/// Returns whether the file system of `root` keeps quotas of users or groups.
fn has_quotas(root: BorrowedFd<'_>, quotas: &dyn QuotaSource) -> bool {
    [QuotaKind::User, QuotaKind::Group].iter().any(|kind| matches!(quotas.quota(root, *kind, 0), Ok(Some(_))))
}

/// Returns whether `path` leads to the exported directory of `volume`, on the same mount.
pub(crate) fn is_at(volume: &Volume, path: &Path) -> std::io::Result<bool> {
    if rustix::process::geteuid().is_root() {
        identity::become_server();
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let status_of = |fd: BorrowedFd<'_>| status_and_mount(fd);
    let found = status_of(rustix::fs::open(path, flags, Mode::empty())?.as_fd())?;
    if (device_of(&found), found.stx_ino) != volume.root.key {
        return Ok(false);
    }
    let served = status_of(volume.root_fd.as_fd())?;
    let mount = |status: &Statx| mount_of(status, volume.root.key.0);
    // One volume at a time uses an index: the current one continues.
    Ok(matches!(volume.handles, Handles::Indexed { .. }) || mount(&found) == mount(&served))
}

/// Identities of the file system and the export that survive restarts, moves and reboots.
struct Identities {
    /// The file system and the directory in it: two exports of one file system differ.
    export: [u8; 16],
    /// The file system alone.
    fsid: u64,
}

impl Identities {
    /// Derives them from the file system's UUID, or an `f_fsid` made of it; if there is neither, from the exported
    /// directory's own inode number and time of creation. Never from a device number or a start time.
    fn of(root: BorrowedFd<'_>, status: &Statx, f_type: u64) -> Self {
        let mut hasher = SipHasher13::new_with_keys(0x656e_6679_735f_6673, 0x5f69_6465_6e74_6974);
        hasher.write_u64(f_type);
        if let Some(uuid) = sys::file_system_uuid(root) {
            hasher.write(&uuid);
        } else if FSID_FROM_UUID.contains(&f_type) {
            hasher.write_u64(rustix::fs::fstatvfs(root).map_or(0, |statvfs| statvfs.f_fsid));
        } else {
            write_inode(&mut hasher, status);
        }
        let fsid = hasher.finish128().h1;
        write_inode(&mut hasher, status);
        Self { export: hasher.finish128().as_bytes(), fsid }
    }
}

fn write_inode(hasher: &mut SipHasher13, status: &Statx) {
    let created = created(status).unwrap_or_default();
    hasher.write_u64(status.stx_ino);
    hasher.write_i64(created.seconds);
    hasher.write_u32(created.nanoseconds);
}

/// Returns the files that clients of the export at `root` must not see.
fn hidden(config: &Config, root: BorrowedFd<'_>) -> Result<Option<Box<Hidden>>, OpenError> {
    let Some(directory) = &config.hidden_directory else { return Ok(None) };
    let hidden = Hidden::open(directory, config.hidden_socket.as_deref(), root);
    hidden.map(|hidden| hidden.map(Box::new)).map_err(|error| OpenError::State(directory.clone(), error))
}

/// Uses kernel handles if this process may open them, otherwise the index.
fn handles(
    config: &Config,
    root: BorrowedFd<'_>,
    status: &Statx,
    identities: &Identities,
) -> Result<(Handles, Handle), OpenError> {
    if !config.always_use_index
        && let Some(found) = kernel_handles(root, status.stx_ino)
    {
        return Ok(found);
    }
    let directory = config
        .state_directory
        .as_ref()
        .ok_or_else(|| OpenError::NeedsStateDirectory(config.directory.clone()))?;
    let key = FileKey {
        fsid: identities.fsid,
        inode: status.stx_ino,
        created: created(status).unwrap_or_default(),
    };
    let index =
        open_index(directory, identities, key).map_err(|error| OpenError::State(directory.clone(), error))?;
    let root = from_index(index.identity(), ROOT);
    Ok((Handles::Indexed { index, mount: mount_of(status, device_of(status)) }, root))
}

/// Returns kernel handles if they work; `inode` is the root's number.
fn kernel_handles(root: BorrowedFd<'_>, inode: u64) -> Option<(Handles, Handle)> {
    let (kernel, mount) = sys::name_to_handle_at(root, c"").ok()?;
    let flags = OFlags::PATH.bits() as i32;
    sys::open_by_handle_at(root, kernel.kind, kernel.bytes(), flags).ok()?;
    let usual = (kernel.kind, kernel.bytes().len());
    let is_made_of_inode = kernel.identity().is_some_and(|(number, _)| number == inode);
    let handles = Handles::Kernel { mount, usual, generations: is_made_of_inode.then(Box::default) };
    Some((handles, from_kernel(&kernel).ok()?))
}

fn open_index(directory: &Path, identities: &Identities, root: FileKey) -> std::io::Result<Index> {
    std::fs::create_dir_all(directory)?;
    let name: String = identities.export.iter().map(|byte| format!("{byte:02x}")).collect();
    Index::open(&directory.join(format!("handles-{name}")), root)
}

/// Determines the actor: the callers if that works, otherwise the server itself. A server with capabilities over
/// files does not act like a user.
fn actor() -> Actor {
    if identity::can_act_as_callers() {
        return Actor::Callers;
    }
    let has_powers = sys::effective_capabilities().is_ok_and(|all| all & FILE_CAPABILITIES != 0);
    Actor::Itself { uid: if has_powers { u32::MAX } else { rustix::process::geteuid().as_raw() } }
}

fn has_xattrs(root: BorrowedFd<'_>, name: &str) -> bool {
    match rustix::fs::fgetxattr(root, name, &mut [0_u8; 0]) {
        Ok(_) | Err(Errno::NODATA | Errno::RANGE | Errno::ACCESS | Errno::PERM) => true,
        Err(_) => false,
    }
}

/// Returns the greatest size of a file: lseek(2) refuses larger offsets.
fn greatest_file(root: BorrowedFd<'_>) -> u64 {
    let Some(file) = nameless_file(root) else { return GREATEST_FILE };
    let (mut possible, mut too_large) = (0, GREATEST_FILE + 1);
    while too_large - possible > 1 {
        let middle = possible + (too_large - possible) / 2;
        match rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(middle)) {
            Ok(_) => possible = middle,
            Err(_) => too_large = middle,
        }
    }
    possible
}

fn nameless_file(root: BorrowedFd<'_>) -> Option<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::openat(root, c".", flags, Mode::RUSR | Mode::WUSR).ok()
}
