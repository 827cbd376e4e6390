//! Converts the results of statx(2) and fstat(2) to attributes.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Stat, Statx, StatxAttributes, StatxFlags, StatxTimestamp};
use vfs::{Attributes, Device, FileKind, Timestamp};

/// The state of an object at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshot {
    /// The attributes for clients.
    pub(crate) attributes: Attributes,
    /// Whether it is immutable or append-only (`chattr +i`, `+a`), so that no user may write it, not even root.
    /// fstat(2) does not return it (`Volume::is_immutable`).
    pub(crate) immutable: Option<bool>,
    /// Whether any later change shows in the change time.
    pub(crate) settled: bool,
}

/// Calls statx(2) for the object itself.
pub(crate) fn status(fd: BorrowedFd<'_>) -> rustix::io::Result<Statx> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

/// Calls statx(2) for a name in a directory, with the id of the mount that it leads to. Symbolic links are not
/// followed.
pub(crate) fn status_of_name(directory: BorrowedFd<'_>, name: &CStr) -> rustix::io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    rustix::fs::statx(directory, name, flags, wanted)
}

/// Calls statx(2) for the object itself, with the id of its mount.
pub(crate) fn status_and_mount(fd: BorrowedFd<'_>) -> rustix::io::Result<Statx> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, wanted)
}

/// Returns the device number in one word.
pub(crate) fn device_of(status: &Statx) -> u64 {
    u64::from(status.stx_dev_major) << 32 | u64::from(status.stx_dev_minor)
}

/// Returns whether the object is immutable or append-only.
pub(crate) fn is_immutable(status: &Statx) -> bool {
    status.stx_attributes.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND)
}

/// Returns the kind of object.
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

/// Returns the time of change.
pub(crate) fn changed(status: &Statx) -> Timestamp {
    time(status.stx_ctime)
}

/// Returns the time of creation, if the file system keeps it.
pub(crate) fn created(status: &Statx) -> Option<Timestamp> {
    (status.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| time(status.stx_btime))
}

/// Returns all attributes. `fsid` and the change attribute are not the kernel's.
pub(crate) fn attributes(status: &Statx, fsid: u64, change: u64) -> Attributes {
    Attributes {
        kind: kind_of(status.stx_mode),
        mode: u32::from(status.stx_mode) & 0o7777,
        links: status.stx_nlink,
        uid: status.stx_uid,
        gid: status.stx_gid,
        size: status.stx_size,
        // statx(2) counts blocks of 512 bytes, independently of the file system's block size.
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

/// Returns all attributes from fstat(2), which takes two thirds of the time of statx(2) and does not return the time
/// of creation. The kernel's types differ between architectures.
#[allow(clippy::unnecessary_cast)]
pub(crate) fn attributes_of_stat(
    status: &Stat,
    created: Option<Timestamp>,
    fsid: u64,
    change: u64,
) -> Attributes {
    let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
    let (major, minor) = (rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev));
    Attributes {
        kind: kind_of(status.st_mode as u16),
        mode: status.st_mode as u32 & 0o7777,
        links: status.st_nlink as u32,
        uid: status.st_uid,
        gid: status.st_gid,
        size: status.st_size as u64,
        used: (status.st_blocks as u64).saturating_mul(512),
        device: Device { major, minor },
        fsid,
        fileid: status.st_ino as u64,
        accessed: time(status.st_atime as i64, status.st_atime_nsec as u32),
        modified: time(status.st_mtime as i64, status.st_mtime_nsec as u32),
        changed: changed_of_stat(status),
        created,
        change,
    }
}

/// Returns the time of change.
#[allow(clippy::unnecessary_cast)]
pub(crate) fn changed_of_stat(status: &Stat) -> Timestamp {
    Timestamp { seconds: status.st_ctime as i64, nanoseconds: status.st_ctime_nsec as u32 }
}

fn time(time: StatxTimestamp) -> Timestamp {
    Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn statx_and_fstat_agree() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let file = directory.path().join("file");
        std::fs::write(&file, [7; 5000]).expect("write");
        for path in [directory.path(), &file, std::path::Path::new("/dev/null")] {
            let fd = std::fs::File::open(path).expect("open");
            let by_statx = status(fd.as_fd()).expect("statx");
            let by_fstat = rustix::fs::fstat(&fd).expect("fstat");
            let expected = attributes(&by_statx, 3, 4);
            assert_eq!(attributes_of_stat(&by_fstat, created(&by_statx), 3, 4), expected);
            assert_eq!(changed_of_stat(&by_fstat), changed(&by_statx));
        }
    }
}
