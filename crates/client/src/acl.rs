//! Access control lists: POSIX ones, which version 3 has by an additional protocol, and those of version 4.

use bytes::Bytes;

/// The access control lists of a file, of the kind that its server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acl {
    /// POSIX lists (withdrawn IEEE 1003.1e draft 17; acl(5)).
    Posix(PosixAcl),
    /// The list of version 4 (RFC 8881 §6.2.1).
    Nfs4(Vec<Nfs4Ace>),
}

/// The POSIX lists of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PosixAcl {
    /// The access list. One that is equivalent to the mode has three entries.
    pub access: Vec<PosixEntry>,
    /// The default list of a directory, which new objects inherit; empty if there is none.
    pub default: Vec<PosixEntry>,
}

/// An entry of a POSIX list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PosixEntry {
    /// The subject of the permissions.
    pub subject: Subject,
    /// Permissions: read 4, write 2, execute 1.
    pub permissions: u8,
}

/// The subject of an entry, in the order of lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// The file's owner.
    Owner,
    /// A user.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// A group.
    Group(u32),
    /// The maximum permissions of users, groups and the file's group.
    Mask,
    /// All others.
    Other,
}

/// An entry of a version 4 list. Numbers are those of RFC 8881 §6.2.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nfs4Ace {
    /// Whether it allows, denies, audits or alarms.
    pub kind: u32,
    /// Inheritance, and whether the subject is a group.
    pub flags: u32,
    /// Permissions.
    pub mask: u32,
    /// The server's name for the subject.
    pub who: Bytes,
}
