//! FSSTAT, FSINFO, PATHCONF (RFC 1813 §3.3.18–3.3.20).

use xdr::{Decode, Encode};

use super::{FileHandle, NfsTime, Outcome, PostOpAttr};

/// Arguments of FSSTAT (§3.3.18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct FsstatArgs {
    /// A file in the file system.
    pub fsroot: FileHandle,
}

/// Results of FSSTAT on success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct FsstatOk {
    /// The file's attributes.
    pub obj_attributes: PostOpAttr,
    /// Total bytes.
    pub tbytes: u64,
    /// Free bytes.
    pub fbytes: u64,
    /// Free bytes for the caller.
    pub abytes: u64,
    /// Total files.
    pub tfiles: u64,
    /// Free files.
    pub ffiles: u64,
    /// Free files for the caller.
    pub afiles: u64,
    /// Seconds for which these numbers are not expected to change; 0 if they may change at any time.
    pub invarsec: u32,
}

/// Results of FSSTAT; a failure has the file's attributes.
pub type FsstatResult = Outcome<FsstatOk, PostOpAttr>;

bitflags::bitflags! {
    /// Capabilities of a file system (§3.3.19, `FSF3_*`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct FsProperties: u32 {
        /// Hard links.
        const LINK = 0x0001;
        /// Symbolic links.
        const SYMLINK = 0x0002;
        /// PATHCONF returns the same for every file.
        const HOMOGENEOUS = 0x0008;
        /// SETATTR can set times.
        const CANSETTIME = 0x0010;
    }
}
crate::flags_xdr!(FsProperties);

/// Arguments of FSINFO (§3.3.19).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct FsinfoArgs {
    /// A file in the file system.
    pub fsroot: FileHandle,
}

/// Results of FSINFO on success. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct FsinfoOk {
    /// The file's attributes.
    pub obj_attributes: PostOpAttr,
    /// Maximum READ.
    pub rtmax: u32,
    /// Preferred READ.
    pub rtpref: u32,
    /// READ sizes should be a multiple of this.
    pub rtmult: u32,
    /// Maximum WRITE.
    pub wtmax: u32,
    /// Preferred WRITE.
    pub wtpref: u32,
    /// WRITE sizes should be a multiple of this.
    pub wtmult: u32,
    /// Preferred READDIR.
    pub dtpref: u32,
    /// Maximum file size.
    pub maxfilesize: u64,
    /// Granularity of times.
    pub time_delta: NfsTime,
    /// Capabilities.
    pub properties: FsProperties,
}

/// Results of FSINFO; a failure has the file's attributes.
pub type FsinfoResult = Outcome<FsinfoOk, PostOpAttr>;

/// Arguments of PATHCONF (§3.3.20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct PathconfArgs {
    /// The file.
    pub object: FileHandle,
}

/// Results of PATHCONF on success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct PathconfOk {
    /// The file's attributes.
    pub obj_attributes: PostOpAttr,
    /// Maximum number of hard links.
    pub linkmax: u32,
    /// Maximum length of a name, in bytes.
    pub name_max: u32,
    /// Whether longer names are rejected instead of truncated.
    pub no_trunc: bool,
    /// Whether only a privileged user may change owners.
    pub chown_restricted: bool,
    /// Whether names are case-insensitive.
    pub case_insensitive: bool,
    /// Whether names keep their case.
    pub case_preserving: bool,
}

/// Results of PATHCONF; a failure has the file's attributes.
pub type PathconfResult = Outcome<PathconfOk, PostOpAttr>;
