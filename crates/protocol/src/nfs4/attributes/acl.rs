//! Access control lists (RFC 8881 §6.2).

use xdr::{Decode, Encode, List};

use crate::nfs4::macros::flags;
use crate::nfs4::types::Utf8;

/// Maximum number of entries in an ACL. The RFCs set none. A POSIX ACL on ext4 or XFS has at most a few hundred; this
/// many fill the 64 KiB that Linux stores as one extended attribute.
pub const MAX_ACES: usize = 4096;

xdr::constants! {
    /// `acetype4`.
    pub struct AceType: u32 {
        /// `ACE4_ACCESS_ALLOWED_ACE_TYPE`.
        ALLOWED = 0,
        /// `ACE4_ACCESS_DENIED_ACE_TYPE`.
        DENIED = 1,
        /// `ACE4_SYSTEM_AUDIT_ACE_TYPE`: log the access.
        AUDIT = 2,
        /// `ACE4_SYSTEM_ALARM_ACE_TYPE`: raise an alarm.
        ALARM = 3,
    }
}

flags! {
    /// `fattr4_aclsupport`: types of entries that the file system supports.
    pub struct AclSupport {
        /// `ACL4_SUPPORT_ALLOW_ACL`.
        ALLOW = 1,
        /// `ACL4_SUPPORT_DENY_ACL`.
        DENY = 2,
        /// `ACL4_SUPPORT_AUDIT_ACL`.
        AUDIT = 4,
        /// `ACL4_SUPPORT_ALARM_ACL`.
        ALARM = 8,
    }
}

flags! {
    /// `aceflag4`.
    pub struct AceFlags {
        /// New files inherit the entry.
        FILE_INHERIT = 0x01,
        /// New directories inherit the entry.
        DIRECTORY_INHERIT = 0x02,
        /// Objects that inherit the entry do not pass it on.
        NO_PROPAGATE_INHERIT = 0x04,
        /// The entry applies only to objects that inherit it.
        INHERIT_ONLY = 0x08,
        /// Audit or alarm on success.
        SUCCESSFUL_ACCESS = 0x10,
        /// Audit or alarm on failure.
        FAILED_ACCESS = 0x20,
        /// `who` is a group.
        IDENTIFIER_GROUP = 0x40,
        /// The entry was inherited.
        INHERITED = 0x80,
    }
}

flags! {
    /// `acemask4`: the accesses that an entry allows or denies.
    pub struct AceMask {
        /// Read a file's data.
        READ_DATA = 0x0000_0001,
        /// List a directory (the same bit).
        LIST_DIRECTORY = 0x0000_0001,
        /// Write a file's data.
        WRITE_DATA = 0x0000_0002,
        /// Add a file to a directory (the same bit).
        ADD_FILE = 0x0000_0002,
        /// Append to a file.
        APPEND_DATA = 0x0000_0004,
        /// Add a directory to a directory (the same bit).
        ADD_SUBDIRECTORY = 0x0000_0004,
        /// Read named attributes.
        READ_NAMED_ATTRS = 0x0000_0008,
        /// Write named attributes.
        WRITE_NAMED_ATTRS = 0x0000_0010,
        /// Execute a file, traverse a directory.
        EXECUTE = 0x0000_0020,
        /// Delete from a directory.
        DELETE_CHILD = 0x0000_0040,
        /// Read basic attributes.
        READ_ATTRIBUTES = 0x0000_0080,
        /// Change times.
        WRITE_ATTRIBUTES = 0x0000_0100,
        /// Change retention.
        WRITE_RETENTION = 0x0000_0200,
        /// Change retention holds.
        WRITE_RETENTION_HOLD = 0x0000_0400,
        /// Delete the object.
        DELETE = 0x0001_0000,
        /// Read the ACL.
        READ_ACL = 0x0002_0000,
        /// Change ACL and mode.
        WRITE_ACL = 0x0004_0000,
        /// Change owner and group.
        WRITE_OWNER = 0x0008_0000,
        /// Use the object synchronously on the server's host.
        SYNCHRONIZE = 0x0010_0000,
        /// `ACE4_GENERIC_READ`.
        GENERIC_READ = 0x0012_0081,
        /// `ACE4_GENERIC_WRITE`.
        GENERIC_WRITE = 0x0016_0106,
        /// `ACE4_GENERIC_EXECUTE`.
        GENERIC_EXECUTE = 0x0012_00a0,
    }
}

/// `nfsace4`: one entry.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Ace {
    /// Allow, deny, audit or alarm.
    pub ace_type: AceType,
    /// Flags, such as inheritance.
    pub flags: AceFlags,
    /// The accesses.
    pub mask: AceMask,
    /// `user@domain`, or a special name such as `OWNER@`.
    pub who: Utf8,
}

/// `fattr4_acl`.
pub type Acl = List<Ace, MAX_ACES>;

flags! {
    /// `aclflag4`.
    pub struct AclFlags {
        /// `ACL4_AUTO_INHERIT`.
        AUTO_INHERIT = 1,
        /// `ACL4_PROTECTED`.
        PROTECTED = 2,
        /// `ACL4_DEFAULTED`.
        DEFAULTED = 4,
    }
}

/// `nfsacl41`: the value of `dacl` and `sacl`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct Acl41 {
    /// Flags of the whole list.
    pub flags: AclFlags,
    /// Its entries.
    pub aces: Acl,
}
