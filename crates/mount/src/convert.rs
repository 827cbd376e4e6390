//! Values of the client as values of the FUSE protocol.

use client::attributes::{Attributes, FileKind, FsId, SetAttributes, SetTime, Timestamp};
use client::error::OpError;
use client::results::{FsInfo, FsStat, access};
use fuse::{Errno, Setattr, Statistics};

use crate::ids::IdMap;

/// Maximum `st_blksize` in bytes.
const BLOCK_SIZE_MAX: u32 = 1 << 20;
/// Unit in which free space is reported, in bytes.
const FRAGMENT: u32 = 4096;

/// Masks of access(2).
const R_OK: u32 = 4;
const W_OK: u32 = 2;
const X_OK: u32 = 1;

/// Returns the error number of a failure.
pub(crate) fn errno(error: &OpError) -> Errno {
    Errno::from_raw_os_error(error.errno().0)
}

/// The conversion of attributes for programs.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) users: IdMap,
    pub(crate) groups: IdMap,
    /// The file system of the mount's root.
    pub(crate) fsid: FsId,
    pub(crate) block_size: u32,
}

impl View {
    pub(crate) fn new(users: IdMap, groups: IdMap, fsid: FsId, info: &FsInfo) -> Self {
        let block_size = info.read_max.clamp(FRAGMENT, BLOCK_SIZE_MAX);
        Self { users, groups, fsid, block_size }
    }

    /// Returns attributes as programs see them.
    pub(crate) fn attributes(&self, of: &Attributes) -> fuse::Attributes {
        fuse::Attributes {
            inode: self.inode(of.fsid, of.fileid),
            size: of.size,
            blocks: of.used.div_ceil(512),
            atime: time(of.atime),
            mtime: time(of.mtime),
            ctime: time(of.ctime),
            mode: kind_bits(of.kind) | of.mode & 0o7777,
            links: of.nlink,
            uid: self.users.local(of.uid),
            gid: self.groups.local(of.gid),
            device: device(of.device),
            block_size: self.block_size,
        }
    }

    /// Returns the number that programs see. Files of several file systems of the server share one device number here, so that those of
    /// others than the root's get numbers from both values.
    pub(crate) fn inode(&self, fsid: FsId, fileid: u64) -> u64 {
        if fsid == self.fsid {
            return fileid;
        }
        // Multiplication by an odd number is a permutation: numbers stay distinct in each file system.
        let other = fsid.major.rotate_left(32) ^ fsid.minor;
        fileid ^ other.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63
    }

    /// Returns the attributes that a request sets.
    pub(crate) fn set_attributes(&self, request: &Setattr) -> SetAttributes {
        let set_time = |time: Option<fuse::SetTime>| match time {
            None => SetTime::Keep,
            Some(fuse::SetTime::Now) => SetTime::Now,
            Some(fuse::SetTime::To(fuse::Timestamp { seconds, nanoseconds })) => {
                SetTime::To(Timestamp { seconds, nanoseconds })
            }
        };
        SetAttributes {
            mode: request.mode.map(|mode| mode & 0o7777),
            uid: request.uid.map(|uid| self.users.remote(uid)),
            gid: request.gid.map(|gid| self.groups.remote(gid)),
            size: request.size,
            atime: set_time(request.atime),
            mtime: set_time(request.mtime),
        }
    }
}

fn time(time: Timestamp) -> fuse::Timestamp {
    fuse::Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

/// Returns the type bits of `st_mode`.
pub(crate) fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharacterDevice => 0o020_000,
        FileKind::Directory => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::Regular => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    }
}

/// Returns the type that `st_mode` has.
pub(crate) fn kind_of(mode: u32) -> Option<FileKind> {
    Some(match mode & 0o170_000 {
        0o010_000 => FileKind::Fifo,
        0o020_000 => FileKind::CharacterDevice,
        0o040_000 => FileKind::Directory,
        0o060_000 => FileKind::BlockDevice,
        0 | 0o100_000 => FileKind::Regular,
        0o120_000 => FileKind::Symlink,
        0o140_000 => FileKind::Socket,
        _ => return None,
    })
}

/// Returns the kernel's number of a device (`new_encode_dev`): twelve bits of major, twenty of minor number.
fn device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// Returns major and minor number of a kernel's number.
pub(crate) fn device_numbers(device: u32) -> (u32, u32) {
    ((device >> 8) & 0xfff, (device & 0xff) | (device >> 12) & !0xff)
}

/// Returns the permissions to ask the server for, as Linux's client does.
pub(crate) fn access_bits(kind: FileKind, mask: u32) -> u32 {
    let is_directory = kind == FileKind::Directory;
    let mut bits = 0;
    if mask & R_OK != 0 {
        bits |= access::READ;
    }
    if mask & W_OK != 0 {
        bits |= access::MODIFY | access::EXTEND | if is_directory { access::DELETE } else { 0 };
    }
    if mask & X_OK != 0 {
        bits |= if is_directory { access::LOOKUP } else { access::EXECUTE };
    }
    bits
}

pub(crate) fn statistics(space: &FsStat, info: &FsInfo) -> Statistics {
    let fragments = |bytes: u64| bytes / u64::from(FRAGMENT);
    Statistics {
        blocks: fragments(space.total_bytes),
        blocks_free: fragments(space.free_bytes),
        blocks_available: fragments(space.available_bytes),
        files: space.total_files,
        files_free: space.free_files,
        block_size: info.write_max.clamp(FRAGMENT, BLOCK_SIZE_MAX),
        fragment_size: FRAGMENT,
        name_max: info.name_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive() {
        for numbers in [(0, 0), (8, 1), (259, 300_000), (4095, 0xf_ffff)] {
            assert_eq!(device_numbers(device(numbers)), numbers);
        }
        // /dev/sda1 and /dev/null, as stat(1) shows them.
        assert_eq!((device((8, 1)), device((1, 3))), (0x801, 0x103));
    }

    #[test]
    fn kinds_are_those_of_stat() {
        for kind in [
            FileKind::Regular,
            FileKind::Directory,
            FileKind::Symlink,
            FileKind::BlockDevice,
            FileKind::CharacterDevice,
            FileKind::Socket,
            FileKind::Fifo,
        ] {
            assert_eq!(kind_of(kind_bits(kind) | 0o644), Some(kind));
        }
        assert_eq!(kind_of(0o644), Some(FileKind::Regular), "mknod(2): type 0 is a regular file");
        assert_eq!(kind_of(0o170_000), None);
    }

    #[test]
    fn writing_to_a_directory_means_to_change_its_names() {
        assert_eq!(access_bits(FileKind::Regular, W_OK), access::MODIFY | access::EXTEND);
        let names = access::MODIFY | access::EXTEND | access::DELETE;
        assert_eq!(access_bits(FileKind::Directory, W_OK), names);
        assert_eq!(access_bits(FileKind::Directory, X_OK), access::LOOKUP);
        assert_eq!(access_bits(FileKind::Regular, X_OK | R_OK), access::EXECUTE | access::READ);
    }
}
