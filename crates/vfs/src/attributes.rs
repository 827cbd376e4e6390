use bitflags::bitflags;

/// A time with nanoseconds since the Unix epoch; negative seconds are before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Nanoseconds in that second, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// The kind of a file-system object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Block device.
    BlockDevice,
    /// Character device.
    CharDevice,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// Device numbers of a special file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// All attributes of an object at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attributes {
    /// Kind of object.
    pub kind: FileKind,
    /// Permission bits with set-user-ID, set-group-ID and sticky: the low 12 bits of `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Owning group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of storage used.
    pub used: u64,
    /// Device numbers, zero for other kinds.
    pub device: Device,
    /// The file system inside the backend; the same across restarts and reboots.
    pub fsid: u64,
    /// Inode number, unique in its file system while the object exists.
    pub fileid: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Last change of content or attributes.
    pub changed: Timestamp,
    /// Creation, if the backend knows it.
    pub created: Option<Timestamp>,
    /// A number that differs whenever content or attributes differ (RFC 8881 §5.8.1.4), and grows.
    pub change: u64,
}

impl Attributes {
    /// Returns the part that weak cache consistency data contain.
    #[must_use]
    pub fn before(&self) -> Before {
        Before { size: self.size, modified: self.modified, changed: self.changed, change: self.change }
    }
}

/// Attributes before an operation: RFC 1813's `wcc_attr`, and the change attribute for `change_info4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Before {
    /// Size in bytes.
    pub size: u64,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Last change of content or attributes.
    pub changed: Timestamp,
    /// Change attribute.
    pub change: u64,
}

/// The attributes of an object before and after an operation that changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Before.
    pub before: Before,
    /// After.
    pub after: Attributes,
    /// Whether no other operation through this backend came between the two.
    pub atomic: bool,
}

/// How to set a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// To the server's time; allowed for callers that may write.
    Now,
    /// To this time; allowed for the owner only.
    To(Timestamp),
    /// To this time, at which a client changed the file under a delegation; allowed for callers that may write. If
    /// nothing else is set, and as far as the backend supports it, the change time moves to that of a modification at
    /// most, and not for an access (RFC 9754 §5).
    Kept(Timestamp),
}

/// Attributes to set; `None` leaves one unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAttributes {
    /// Permission bits, low 12 bits.
    pub mode: Option<u32>,
    /// Bits to remove from the mode of a new object, low 9 bits, unless its directory has an ACL that new objects
    /// inherit (RFC 8275 §5). Ignored for existing objects.
    pub umask: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Owning group.
    pub gid: Option<u32>,
    /// Size in bytes: truncates or extends with zeros.
    pub size: Option<u64>,
    /// Last access.
    pub accessed: Option<SetTime>,
    /// Last change of the content.
    pub modified: Option<SetTime>,
}

impl SetAttributes {
    /// Returns whether nothing is to be set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the attributes that an object of this kind takes. Linux file systems keep no mode for symbolic links.
    /// A client that walks a tree sets one anyway, and no version has an error for it (RFC 1813 §3.3.2 and RFC
    /// 8881 §15.2 do not list NOTSUPP), so it is ignored, as in other servers.
    #[must_use]
    pub fn for_kind(&self, kind: FileKind) -> Self {
        Self { mode: self.mode.filter(|_| kind != FileKind::Symlink), ..*self }
    }
}

bitflags! {
    /// Kinds of access that a caller can ask about (RFC 1813 §3.3.4, RFC 8276 §8.2; the same bits on the wire).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Read a file, list a directory.
        const READ = 0x01;
        /// Look a name up in a directory.
        const LOOKUP = 0x02;
        /// Rewrite existing data or entries.
        const MODIFY = 0x04;
        /// Write new data or add entries.
        const EXTEND = 0x08;
        /// Delete an entry of a directory.
        const DELETE = 0x10;
        /// Execute a file.
        const EXECUTE = 0x20;
        /// Read extended attributes.
        const XAREAD = 0x40;
        /// Write extended attributes.
        const XAWRITE = 0x80;
        /// List extended attributes.
        const XALIST = 0x100;
    }
}

/// The space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsStat {
    /// Size in bytes.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Free bytes for this caller.
    pub available_bytes: u64,
    /// File slots.
    pub total_files: u64,
    /// Free file slots.
    pub free_files: u64,
    /// Free file slots for this caller.
    pub available_files: u64,
}

/// Constant properties of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Properties {
    /// Greatest file size in bytes.
    pub max_file_size: u64,
    /// Longest name of an entry in bytes.
    pub max_name: u32,
    /// Maximum number of hard links of a file.
    pub max_links: u32,
    /// Granularity of times in nanoseconds.
    pub time_delta_ns: u32,
    /// Whether only root may give a file away.
    pub chown_restricted: bool,
    /// Whether names that differ in case only are the same.
    pub case_insensitive: bool,
    /// Whether a name keeps its case.
    pub case_preserving: bool,
    /// Whether there are extended attributes.
    pub xattrs: bool,
    /// Whether there are access control lists.
    pub acls: bool,
    /// Offsets and lengths of clones are multiples of this, in bytes; 0 if clones are not known to work.
    pub clone_block_bytes: u32,
    /// Whether files may share storage, so that [`Attributes::used`] is more than removing one would free.
    pub shares_storage: bool,
    /// Whether it may have quotas of users.
    pub quotas: bool,
    /// Whether the backend accepts no changes.
    pub read_only: bool,
}
