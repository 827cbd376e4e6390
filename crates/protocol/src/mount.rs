//! The MOUNT protocol, version 3 (RFC 1813 §5), version 1 (RFC 1094 appendix A) and version 2, which X/Open specifies (XNFS, "Mount
//! Protocol Specification"). Version 3 differs from the others in the results of MNT; version 2 adds PATHCONF to version 1.

use xdr::{Chain, Decode, DecodeError, Encode, List, Opaque, Reader, Writer};

use crate::nfs3::FileHandle;
use crate::procedure::{Effect, Procedure, ProgramVersion};

/// The program's number (RFC 1813 §5.1.2).
pub const PROGRAM: u32 = 100_005;
/// The version that goes with NFS version 2.
pub const VERSION_1: u32 = 1;
/// The version that goes with NFS version 2 and has PATHCONF.
pub const VERSION_2: u32 = 2;
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
    /// The procedures of all versions.
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
        /// As EXPORT; in versions 1 and 2 only.
        EXPORTALL = 6,
        /// Gets the limits of a mounted directory; in version 2 only. Arguments: [`DirPath`]; results: [`PathConf`].
        PATHCONF = 7,
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

/// Results of PATHCONF (`ppathcnf`). The types of C that the specification uses are 32 bits long on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct PathConf {
    /// Maximum number of links of a file.
    pub link_max: u32,
    /// The longest line of a terminal in bytes.
    pub max_canon: u32,
    /// Bytes that a terminal can take at once.
    pub max_input: u32,
    /// The longest name in bytes.
    pub name_max: u32,
    /// The longest path in bytes.
    pub path_max: u32,
    /// The longest atomic write to a pipe in bytes.
    pub pipe_buf: u32,
    /// The character that turns off a special character of a terminal.
    pub vdisable: u32,
    /// Unused.
    pub unused: u32,
    /// A bit for each [`PathConfBit`], the lowest first.
    pub mask: u32,
    /// Bits of later systems.
    pub more_mask: u32,
}

xdr::constants! {
    /// A bit of [`PathConf::mask`]. Set for a number, it says that the number is not valid; for a property, that the directory has it.
    pub struct PathConfBit: u32 {
        /// Nothing is valid: the call failed.
        ERROR = 0,
        /// [`PathConf::link_max`].
        LINK_MAX = 1,
        /// [`PathConf::max_canon`].
        MAX_CANON = 2,
        /// [`PathConf::max_input`].
        MAX_INPUT = 3,
        /// [`PathConf::name_max`].
        NAME_MAX = 4,
        /// [`PathConf::path_max`].
        PATH_MAX = 5,
        /// [`PathConf::pipe_buf`].
        PIPE_BUF = 6,
        /// Longer names are refused, not truncated.
        NO_TRUNC = 7,
        /// [`PathConf::vdisable`].
        VDISABLE = 8,
        /// Only the superuser can give files away.
        CHOWN_RESTRICTED = 9,
    }
}

impl PathConf {
    /// Sets a bit.
    pub fn set(&mut self, bit: PathConfBit) {
        self.mask |= 1 << bit.0;
    }

    /// Returns whether a bit is set.
    #[must_use]
    pub fn is_set(&self, bit: PathConfBit) -> bool {
        self.mask & (1 << bit.0) != 0
    }
}

const PROCEDURES: &[Procedure] = &[
    Procedure::new(0, "NULL", Effect::None),
    Procedure::new(1, "MNT", Effect::Repeatable),
    Procedure::new(2, "DUMP", Effect::None),
    Procedure::new(3, "UMNT", Effect::Repeatable),
    Procedure::new(4, "UMNTALL", Effect::Repeatable),
    Procedure::new(5, "EXPORT", Effect::None),
];

const PROCEDURES_2: &[Procedure] = &[
    PROCEDURES[0],
    PROCEDURES[1],
    PROCEDURES[2],
    PROCEDURES[3],
    PROCEDURES[4],
    PROCEDURES[5],
    Procedure::new(6, "EXPORTALL", Effect::None),
    Procedure::new(7, "PATHCONF", Effect::None),
];

/// The procedures of version 1. Implementations serve EXPORTALL in addition to those of RFC 1094.
pub static TABLE_1: ProgramVersion = ProgramVersion {
    program: PROGRAM,
    version: VERSION_1,
    name: "mount1",
    procedures: PROCEDURES_2.split_at(7).0,
};

/// The procedures of version 2, which has all of them.
pub static TABLE_2: ProgramVersion =
    ProgramVersion { program: PROGRAM, version: VERSION_2, name: "mount2", procedures: PROCEDURES_2 };

/// The procedures of version 3.
pub static TABLE_3: ProgramVersion =
    ProgramVersion { program: PROGRAM, version: VERSION_3, name: "mount3", procedures: PROCEDURES };
