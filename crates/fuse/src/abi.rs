//! Structures and numbers of the kernel's interface, as `linux/fuse.h` defines them up to version 7.45.
//!
//! All structures have the layout of their C counterparts without hidden padding, which `zerocopy` verifies when it derives
//! `IntoBytes`. Numbers are in the machine's byte order.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// Newest minor version that this crate supports.
pub(crate) const MINOR: u32 = 45;
/// Oldest minor version that this crate accepts: Linux 5.4, whose requests have the layouts below.
pub(crate) const MINOR_MIN: u32 = 31;
/// Minor version that has `notify::PRUNE`: Linux 6.18.
pub(crate) const MINOR_OF_PRUNE: u32 = 45;
/// Minimum size of a buffer for requests that the kernel accepts.
pub(crate) const MIN_READ_BUFFER: usize = 8192;
/// Bit that the kernel adds to the number of a request that it sends again.
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;

/// Numbers of operations.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// Codes of notifications.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const RESEND: i32 = 7;
    pub(crate) const PRUNE: i32 = 9;
}

/// Bits of `SetattrIn::valid`.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const LOCKOWNER: u32 = 1 << 9;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

pub(crate) const GETATTR_FH: u32 = 1;
pub(crate) const LK_FLOCK: u32 = 1;
pub(crate) const FSYNC_FDATASYNC: u32 = 1;
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
pub(crate) const RELEASE_FLUSH: u32 = 1;
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1;
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1;
pub(crate) const EXPIRE_ONLY: u32 = 1;

/// Defines structures of the interface.
macro_rules! structures {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }
    )*};
}

structures! {
    InHeader { len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16 }
    OutHeader { len: u32, error: i32, unique: u64 }
    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    ForgetIn { nlookup: u64 }
    ForgetOne { nodeid: u64, nlookup: u64 }
    BatchForgetIn { count: u32, dummy: u32 }
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32,
        mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { newdir: u64 }
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    LinkIn { oldnodeid: u64 }
    OpenIn { flags: u32, open_flags: u32 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut { fh: u64, open_flags: u32, backing_id: u32 }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteOut { size: u32, padding: u32 }
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32, padding: u32,
        spare: [u32; 6],
    }
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    SetxattrCompatIn { size: u32, flags: u32 }
    SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetxattrIn { size: u32, padding: u32 }
    GetxattrOut { size: u32, padding: u32 }
    FileLock { start: u64, end: u64, kind: u32, pid: u32 }
    LkIn { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    LkOut { lk: FileLock }
    AccessIn { mask: u32, padding: u32 }
    InitCompatIn { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16, max_write: u32,
        time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32, request_timeout: u16,
        unused: [u16; 11],
    }
    InterruptIn { unique: u64 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut { offset: u64 }
    CopyFileRangeIn { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64 }
    CopyFileRangeOut { bytes_copied: u64 }
    SyncfsIn { padding: u64 }
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    SxTime { tv_sec: i64, tv_nsec: u32, reserved: i32 }
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16, ino: u64, size: u64,
        blocks: u64, attributes_mask: u64, atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime, rdev_major: u32,
        rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    NotifyInvalInodeOut { ino: u64, off: i64, len: i64 }
    NotifyInvalEntryOut { parent: u64, namelen: u32, flags: u32 }
    NotifyPruneOut { count: u32, padding: u32, spare: u64 }
}

impl SetattrIn {
    /// Returns whether `valid` has the bit.
    pub(crate) fn has(&self, bit: u32) -> bool {
        self.valid & bit != 0
    }
}

/// Flags of the second word of INIT follow the first 16 bytes of its arguments.
pub(crate) const INIT_FLAGS2_OFFSET: usize = size_of::<InitCompatIn>();

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes that a C compiler gives for the structures of `linux/fuse.h`.
    #[test]
    fn structures_have_the_sizes_of_the_kernel() {
        let sizes = [
            (size_of::<InHeader>(), 40),
            (size_of::<OutHeader>(), 16),
            (size_of::<Attr>(), 88),
            (size_of::<EntryOut>(), 128),
            (size_of::<AttrOut>(), 104),
            (size_of::<SetattrIn>(), 88),
            (size_of::<OpenOut>(), 16),
            (size_of::<ReadIn>(), 40),
            (size_of::<WriteIn>(), 40),
            (size_of::<StatfsOut>(), 80),
            (size_of::<LkIn>(), 48),
            (size_of::<InitOut>(), 64),
            (size_of::<FallocateIn>(), 32),
            (size_of::<Dirent>(), 24),
            (size_of::<LseekIn>(), 24),
            (size_of::<CopyFileRangeIn>(), 56),
            (size_of::<StatxIn>(), 24),
            (size_of::<Statx>(), 256),
            (size_of::<StatxOut>(), 288),
        ];
        for (index, (actual, expected)) in sizes.into_iter().enumerate() {
            assert_eq!(actual, expected, "row {index}");
        }
    }
}
