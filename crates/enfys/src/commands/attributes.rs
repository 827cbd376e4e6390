//! Attributes of files as the commands see them, whatever the version of the protocol or the local system.

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    BlockDevice,
    CharacterDevice,
    Socket,
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

impl Timestamp {
    /// Returns the nanoseconds since 1970.
    pub fn as_nanoseconds(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }
}

/// A file system on its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FsId {
    pub major: u64,
    pub minor: u64,
}

/// Attributes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    pub kind: FileKind,
    /// The lower twelve mode bits.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage used.
    pub used: u64,
    /// Major and minor number of a device file.
    pub device: (u32, u32),
    pub fsid: FsId,
    /// The file's number, unique in its file system.
    pub fileid: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the data.
    pub mtime: Timestamp,
    /// Last change of the attributes.
    pub ctime: Timestamp,
}

#[cfg(test)]
impl Attributes {
    /// Returns an empty regular file of root with mode 0644, for tests.
    pub fn of_test(kind: FileKind) -> Self {
        Self {
            kind,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 0,
            used: 0,
            device: (0, 0),
            fsid: FsId::default(),
            fileid: 1,
            atime: Timestamp::default(),
            mtime: Timestamp::default(),
            ctime: Timestamp::default(),
        }
    }
}
