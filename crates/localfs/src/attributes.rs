//! From statx(2) to attributes.

use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Statx, StatxAttributes, StatxFlags, StatxTimestamp};
use vfs::{Attributes, Device, FileKind, Timestamp};

/// What is known of an object at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshot {
    /// As told to clients.
    pub(crate) attributes: Attributes,
    /// Whether it is immutable or append-only (`chattr +i`, `+a`): nobody may write it, root included.
    pub(crate) sealed: bool,
    /// Whether any later change shows in the change time.
    pub(crate) settled: bool,
}

/// statx(2) of the object itself.
pub(crate) fn status(fd: BorrowedFd<'_>) -> rustix::io::Result<Statx> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// statx(2) of the object itself, and the id of the mount it is on.
pub(crate) fn status_and_mount(fd: BorrowedFd<'_>) -> rustix::io::Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted)
}

/// The device number in one word.
pub(crate) fn device_of(status: &Statx) -> u64 {
    u64::from(status.stx_dev_major) << 32 | u64::from(status.stx_dev_minor)
}

/// Whether the object can no longer be written, whatever its permission bits say.
pub(crate) fn is_sealed(status: &Statx) -> bool {
    status.stx_attributes.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND)
}

/// Kind of object.
pub(crate) fn kind_of(mode: u16) -> FileKind {
    match u32::from(mode) & libc::S_IFMT {
        libc::S_IFDIR => FileKind::Directory,
        libc::S_IFLNK => FileKind::Symlink,
        libc::S_IFBLK => FileKind::BlockDevice,
        libc::S_IFCHR => FileKind::CharDevice,
        libc::S_IFIFO => FileKind::Fifo,
        libc::S_IFSOCK => FileKind::Socket,
        _ => FileKind::Regular,
    }
}

/// Time of change.
pub(crate) fn changed(status: &Statx) -> Timestamp {
    time(status.stx_ctime)
}

/// Time of creation, where the file system keeps it.
pub(crate) fn created(status: &Statx) -> Option<Timestamp> {
    (status.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| time(status.stx_btime))
}

/// All attributes; `fsid` and `change` are not the kernel's.
pub(crate) fn attributes(status: &Statx, fsid: u64, change: u64) -> Attributes {
    Attributes {
        kind: kind_of(status.stx_mode),
        mode: u32::from(status.stx_mode) & 0o7777,
        links: status.stx_nlink,
        uid: status.stx_uid,
        gid: status.stx_gid,
        size: status.stx_size,
        // statx(2) counts blocks of 512 bytes, whatever the file system's own are.
        used: status.stx_blocks.saturating_mul(512),
        device: Device { major: status.stx_rdev_major, minor: status.stx_rdev_minor },
        fsid,
        fileid: status.stx_ino,
        accessed: time(status.stx_atime),
        modified: time(status.stx_mtime),
        changed: changed(status),
        created: created(status),
        change,
    }
}

fn time(time: StatxTimestamp) -> Timestamp {
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}
