//! The MOUNT protocol, version 3 (RFC 1813 §5) and version 1 (RFC 1094 appendix A), which differ only in the results of MNT.

use xdr::{Chain, Decode, DecodeError, Encode, List, Opaque, Reader, Writer};

use crate::nfs3::FileHandle;
use crate::procedure::{Effect, Procedure, ProgramVersion};

/// The program's number (RFC 1813 §5.1.2).
pub const PROGRAM: u32 = 100_005;
/// The version that goes with NFS version 2.
pub const VERSION_1: u32 = 1;
/// The version that goes with NFS version 3.
pub const VERSION_3: u32 = 3;

/// The maximum length in bytes of a path (RFC 1813 §5.1.4, `MNTPATHLEN`).
pub const MNTPATHLEN: usize = 1024;
/// The maximum length in bytes of a host's or group's name (`MNTNAMLEN`).
pub const MNTNAMLEN: usize = 255;
/// Bytes of a version 1 file handle (RFC 1094 appendix A.3, `FHSIZE`).
pub const FHSIZE: usize = 32;

/// The maximum number of mounts that DUMP lists.
pub const MAX_MOUNTS: usize = 65_536;
/// The maximum number of exports that EXPORT lists.
pub const MAX_EXPORTS: usize = 65_536;
/// The maximum number of groups of one export.
pub const MAX_EXPORT_GROUPS: usize = 4096;
/// The maximum number of flavors of one export; the registry of RFC 5531 §13.4.2 has fewer than this.
pub const MAX_AUTH_FLAVORS: usize = 64;

/// A directory of the server (`dirpath`).
pub type DirPath = Opaque<MNTPATHLEN>;
/// A host or a group of hosts (`name`).
pub type Name = Opaque<MNTNAMLEN>;
/// A version 1 file handle (`fhandle`).
pub type FileHandle1 = [u8; FHSIZE];

xdr::constants! {
    /// The procedures of both versions.
    pub struct Proc: u32 {
        /// Does nothing.
        NULL = 0,
        /// Gets the handle of a directory. Arguments: [`DirPath`].
        MNT = 1,
        /// Lists the mounts of all clients. Results: [`MountList`].
        DUMP = 2,
        /// Removes the caller's mount of a directory from the list. Arguments: [`DirPath`].
        UMNT = 3,
        /// Removes all mounts of the caller from the list.
        UMNTALL = 4,
        /// Lists the exports. Results: [`Exports`].
        EXPORT = 5,
    }
}

xdr::constants! {
    /// The status of MNT (RFC 1813 §5.1.5, `mountstat3`).
    pub struct MountStat: u32 {
        /// No error.
        OK = 0,
        /// Not owner.
        PERM = 1,
        /// No such file or directory.
        NOENT = 2,
        /// A hard error occurred.
        IO = 5,
        /// Permission denied.
        ACCES = 13,
        /// Not a directory.
        NOTDIR = 20,
        /// Invalid argument.
        INVAL = 22,
        /// The path is too long.
        NAMETOOLONG = 63,
        /// The operation is not supported.
        NOTSUPP = 10004,
        /// The server failed.
        SERVERFAULT = 10006,
    }
}

/// Results of a version 3 MNT on success (`mountres3_ok`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct MountOk {
    /// The directory's handle, for NFS version 3.
    pub fhandle: FileHandle,
    /// The RPC flavors that may be used with it, the server's preference first.
    pub auth_flavors: List<u32, MAX_AUTH_FLAVORS>,
}

/// Results of a version 3 MNT (`mountres3`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountResult {
    /// The handle.
    Ok(MountOk),
    /// The error.
    Fail(MountStat),
}

impl Encode for MountResult {
    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Ok(ok) => {
                MountStat::OK.encode(writer);
                ok.encode(writer);
            }
            Self::Fail(status) => {
                debug_assert_ne!(*status, MountStat::OK, "OK is not a failure");
                status.encode(writer);
            }
        }
    }
}

impl Decode for MountResult {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        match MountStat::decode(reader)? {
            MountStat::OK => MountOk::decode(reader).map(Self::Ok),
            status => Ok(Self::Fail(status)),
        }
    }
}

/// Results of a version 1 MNT (RFC 1094 appendix A.4, `fhstatus`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum FhStatus {
    /// The directory's handle, for NFS version 2.
    #[xdr(case = 0)]
    Ok(FileHandle1),
    /// The error, a UNIX errno.
    #[xdr(default)]
    Fail(u32),
}

/// A mount (`mountbody`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct MountBody {
    /// The client.
    pub hostname: Name,
    /// The directory.
    pub directory: DirPath,
}

/// Results of DUMP (`mountlist`).
pub type MountList = Chain<MountBody, MAX_MOUNTS>;

/// An export (`exportnode`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ExportNode {
    /// The directory.
    pub dir: DirPath,
    /// The groups that may mount it; empty if all may.
    pub groups: Chain<Name, MAX_EXPORT_GROUPS>,
}

/// Results of EXPORT (`exports`).
pub type Exports = Chain<ExportNode, MAX_EXPORTS>;

const PROCEDURES: &[Procedure] = &[
    Procedure::new(0, "NULL", Effect::None),
    Procedure::new(1, "MNT", Effect::Repeatable),
    Procedure::new(2, "DUMP", Effect::None),
    Procedure::new(3, "UMNT", Effect::Repeatable),
    Procedure::new(4, "UMNTALL", Effect::Repeatable),
    Procedure::new(5, "EXPORT", Effect::None),
];

/// The procedures of version 1.
pub static TABLE_1: ProgramVersion =
    ProgramVersion { program: PROGRAM, version: VERSION_1, name: "mount1", procedures: PROCEDURES };

/// The procedures of version 3.
pub static TABLE_3: ProgramVersion =
    ProgramVersion { program: PROGRAM, version: VERSION_3, name: "mount3", procedures: PROCEDURES };
