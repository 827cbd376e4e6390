//! Values that requests and replies share.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::abi;

/// Longest name in bytes (`FUSE_NAME_MAX`); Linux passes no longer names.
pub const NAME_MAX: usize = 1024;
/// Longest target of a symbolic link in bytes (`PATH_MAX` without its end).
pub const TARGET_MAX: usize = 4095;

/// A number that the file system gave to an inode. The kernel uses it until it has forgotten as many lookups as there were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount.
    pub const ROOT: Self = Self(1);
}

/// A number that the file system gave to an open file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileHandle(pub u64);

/// The kernel's number of the owner of locks: an open file for flock, a process's table of descriptors for fcntl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockOwner(pub u64);

/// The thread that made a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// File system user id.
    pub uid: u32,
    /// File system group id.
    pub gid: u32,
    /// Thread id, in the pid namespace of the process that mounted. 0 for the kernel itself and for threads outside of that namespace.
    pub tid: u32,
    /// Whether the kernel sends the request again after a hand-over: it may have been executed.
    pub is_resent: bool,
}

/// A name, target or attribute name: bytes without NUL.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub(crate) Bytes);

impl Name {
    /// Creates a name, for example to call a file system without a kernel. `None` if it contains NUL.
    pub fn new(bytes: impl Into<Bytes>) -> Option<Self> {
        let bytes = bytes.into();
        (!bytes.contains(&0)).then_some(Self(bytes))
    }

    /// Returns the bytes; they share the request's memory.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl std::ops::Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// A point in time since 1970; negative before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds, less than 10⁹.
    pub nanoseconds: u32,
}

/// Attributes of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number that programs see.
    pub inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Used space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// Type and permissions, as `st_mode`.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device.
    pub device: u32,
    /// Preferred size of I/O in bytes.
    pub block_size: u32,
}

impl Attributes {
    pub(crate) fn to_abi(self) -> abi::Attr {
        abi::Attr {
            ino: self.inode,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.seconds.cast_unsigned(),
            mtime: self.mtime.seconds.cast_unsigned(),
            ctime: self.ctime.seconds.cast_unsigned(),
            atimensec: self.atime.nanoseconds,
            mtimensec: self.mtime.nanoseconds,
            ctimensec: self.ctime.nanoseconds,
            mode: self.mode,
            nlink: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: self.device,
            blksize: self.block_size,
            flags: 0,
        }
    }
}

/// The reply of LOOKUP and of operations that create. Each reply with a node counts as one lookup of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The inode. 0 in a reply to LOOKUP: the name does not exist, which the kernel caches for `entry_timeout`.
    pub node: NodeId,
    /// Distinguishes inodes that have had the same number.
    pub generation: u64,
    /// Attributes of the inode.
    pub attributes: Attributes,
    /// The time for which the kernel may use the name without a request.
    pub entry_timeout: Duration,
    /// The time for which the kernel may use the attributes without a request.
    pub attribute_timeout: Duration,
}

impl Entry {
    pub(crate) fn to_abi(self) -> abi::EntryOut {
        abi::EntryOut {
            nodeid: self.node.0,
            generation: self.generation,
            entry_valid: self.entry_timeout.as_secs(),
            attr_valid: self.attribute_timeout.as_secs(),
            entry_valid_nsec: self.entry_timeout.subsec_nanos(),
            attr_valid_nsec: self.attribute_timeout.subsec_nanos(),
            attr: self.attributes.to_abi(),
        }
    }
}

/// Kinds of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None: releases locks, or means that nothing conflicts.
    Unlock,
}

/// A lock on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX` for the end of the file, which may move.
    pub end: u64,
    /// Kind of lock.
    pub kind: LockKind,
    /// Process id, for fcntl's `F_GETLK`.
    pub pid: u32,
}
