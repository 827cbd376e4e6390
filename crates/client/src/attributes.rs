//! Attributes of files that all versions of the protocol have.

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC; negative before.
    pub seconds: i64,
    /// Nanoseconds of the second, below 10^9.
    pub nanoseconds: u32,
}

/// A file system on its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FsId {
    /// The first part; version 3 has only this.
    pub major: u64,
    /// The second part.
    pub minor: u64,
}

/// Attributes of a file. Values that a server does not supply get defaults that POSIX programs handle well: one link, and the
/// anonymous user and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// The type.
    pub kind: FileKind,
    /// The lower twelve mode bits.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// The owner; [`NOBODY`] if the server names one that is unknown here.
    pub uid: u32,
    /// The owning group; [`NOBODY`] as above.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage used.
    pub used: u64,
    /// Major and minor number of a device file.
    pub device: (u32, u32),
    /// The file system.
    pub fsid: FsId,
    /// The file's number, unique in its file system.
    pub fileid: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the attributes.
    pub ctime: Timestamp,
    /// The change attribute of version 4, which differs after every change.
    pub change: Option<u64>,
}

/// The user and the group of files whose owner is unknown here.
pub const NOBODY: u32 = 65534;

/// A file's attributes before an operation, by which a client detects changes by others in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// Version 3's weak cache consistency data (RFC 1813 §2.6).
    Weak {
        /// Size in bytes.
        size: u64,
        /// Last change of the data.
        mtime: Timestamp,
        /// Last change of the attributes.
        ctime: Timestamp,
    },
    /// The change attribute before, taken atomically with the operation (RFC 8881 §3.3.3, `change_info4`).
    Change(u64),
    /// Those that the client knows. Version 2 reports none, so that its clients take their own WRITE as the only change.
    Assumed,
}

/// An operation's report about an object that it changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changed {
    /// Before the operation, if the server took it atomically.
    pub before: Option<Before>,
    /// The change attribute after the operation.
    pub change_after: Option<u64>,
    /// All attributes after the operation.
    pub after: Option<Attributes>,
}

/// A change of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SetTime {
    /// None.
    #[default]
    Keep,
    /// To the server's time.
    Now,
    /// To this time.
    To(Timestamp),
}

/// The mode bits that change the user or group of a program: `S_ISUID` and `S_ISGID`.
const SET_ID: u32 = 0o6000;

/// Attributes to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// The lower twelve mode bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The owning group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: SetTime,
    /// Last change of the data.
    pub mtime: SetTime,
}

impl SetAttributes {
    /// Returns attributes that set the mode of a new object.
    #[must_use]
    pub fn with_mode(mode: u32) -> Self {
        Self { mode: Some(mode), ..Self::default() }
    }

    /// Returns the attributes to set by one request, and those to set by a second one. Linux's server and NFS-Ganesha clear the set-ID bits of a mode
    /// that comes with an owner, as chown(2) does; so such a mode is set after the owner.
    pub(crate) fn steps(&self) -> (Self, Option<Self>) {
        match self.mode {
            Some(mode) if mode & SET_ID != 0 && (self.uid.is_some() || self.gid.is_some()) => {
                (Self { mode: None, ..*self }, Some(Self::with_mode(mode)))
            }
            _ => (*self, None),
        }
    }

    /// Returns whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_are_set_after_the_owner() {
        let owner = SetAttributes { uid: Some(7), mtime: SetTime::Now, ..SetAttributes::default() };
        let both = |mode| SetAttributes { mode: Some(mode), ..owner };
        assert_eq!(both(0o4755).steps(), (owner, Some(SetAttributes::with_mode(0o4755))));
        assert_eq!(both(0o1755).steps(), (both(0o1755), None));
        let mode = SetAttributes::with_mode(0o6755);
        assert_eq!(mode.steps(), (mode, None));
    }
}
