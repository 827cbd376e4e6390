//! GETATTR, SETATTR, LOOKUP, ACCESS, READLINK (RFC 1813 §3.3.1–3.3.5).

use xdr::{Decode, Encode};

use super::{DirOpArgs, Fattr, FileHandle, NfsPath, NfsTime, Outcome, PostOpAttr, Sattr, WccData};

/// Arguments of GETATTR (§3.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct GetattrArgs {
    /// The file.
    pub object: FileHandle,
}

/// Results of GETATTR.
pub type GetattrResult = Outcome<Fattr, ()>;

/// Arguments of SETATTR (§3.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SetattrArgs {
    /// The file.
    pub object: FileHandle,
    /// What to set.
    pub new_attributes: Sattr,
    /// The file's expected ctime; the call fails with `NOT_SYNC` if it differs (`sattrguard3`).
    pub guard: Option<NfsTime>,
}

/// Results of SETATTR.
pub type SetattrResult = Outcome<WccData, WccData>;

/// Arguments of LOOKUP (§3.3.3).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LookupArgs {
    /// The directory and the name to look up.
    pub what: DirOpArgs,
}

/// Results of LOOKUP on success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct LookupOk {
    /// The file found.
    pub object: FileHandle,
    /// The attributes.
    pub obj_attributes: PostOpAttr,
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
}

/// Results of LOOKUP; a failure has the directory's attributes.
pub type LookupResult = Outcome<LookupOk, PostOpAttr>;

bitflags::bitflags! {
    /// Permissions that ACCESS checks (§3.3.4, `ACCESS3_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// Read a file's data or a directory's entries.
        const READ = 0x01;
        /// Look up a name in a directory.
        const LOOKUP = 0x02;
        /// Change a file's data or a directory's entries.
        const MODIFY = 0x04;
        /// Write beyond the end of a file, or add entries to a directory.
        const EXTEND = 0x08;
        /// Delete an entry of a directory.
        const DELETE = 0x10;
        /// Execute a file.
        const EXECUTE = 0x20;
    }
}
crate::flags_xdr!(Access);

/// Arguments of ACCESS (§3.3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct AccessArgs {
    /// The file.
    pub object: FileHandle,
    /// Requested permissions; unknown bits are kept.
    pub access: Access,
}

/// Results of ACCESS on success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct AccessOk {
    /// The file's attributes.
    pub obj_attributes: PostOpAttr,
    /// The requested permissions that are granted.
    pub access: Access,
}

/// Results of ACCESS; a failure has the file's attributes.
pub type AccessResult = Outcome<AccessOk, PostOpAttr>;

/// Arguments of READLINK (§3.3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReadlinkArgs {
    /// The symbolic link.
    pub symlink: FileHandle,
}

/// Results of READLINK on success.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadlinkOk {
    /// The link's attributes.
    pub symlink_attributes: PostOpAttr,
    /// The link's content.
    pub data: NfsPath,
}

/// Results of READLINK; a failure has the link's attributes.
pub type ReadlinkResult = Outcome<ReadlinkOk, PostOpAttr>;
