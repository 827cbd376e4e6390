//! Remote quotas, versions 1 (`rquota.x` of Sun's ONC RPC) and 2 (which adds the kind of quota, and setting).

use xdr::{Decode, DecodeError, Encode, Opaque, Reader, Writer};

use crate::procedure::{Effect, Procedure, ProgramVersion};

/// The program's number (`RQUOTAPROG`).
pub const PROGRAM: u32 = 100_011;
/// Version 1 (`RQUOTAVERS`): users only.
pub const VERSION_1: u32 = 1;
/// Version 2 (`EXT_RQUOTAVERS`): groups too.
pub const VERSION_2: u32 = 2;

/// The maximum length in bytes of a path (`RQ_PATHLEN`).
pub const RQ_PATHLEN: usize = 1024;

/// A directory of the server.
pub type Path = Opaque<RQ_PATHLEN>;

xdr::constants! {
    /// The procedures; version 2's arguments are the extended ones.
    pub struct Proc: u32 {
        /// Does nothing.
        NULL = 0,
        /// Gets a quota. Arguments: [`GetQuotaArgs`], [`ExtGetQuotaArgs`]; results: [`QuotaResult`].
        GETQUOTA = 1,
        /// Gets a quota if it is enforced. Arguments and results as of GETQUOTA.
        GETACTIVEQUOTA = 2,
        /// Sets a quota. Arguments: [`SetQuotaArgs`], [`ExtSetQuotaArgs`]; results: [`QuotaResult`].
        SETQUOTA = 3,
        /// Sets a quota if it is enforced. Arguments and results as of SETQUOTA.
        SETACTIVEQUOTA = 4,
    }
}

xdr::constants! {
    /// The status of a procedure (`gqr_status`).
    pub struct QuotaStatus: u32 {
        /// The quota follows.
        OK = 1,
        /// There is no quota.
        NOQUOTA = 2,
        /// The caller has no permission.
        EPERM = 3,
    }
}

xdr::constants! {
    /// The kind of ID that a quota belongs to, in version 2.
    pub struct QuotaKind: u32 {
        /// A user's.
        USER = 0,
        /// A group's.
        GROUP = 1,
    }
}

/// Arguments of GETQUOTA in version 1 (`getquota_args`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct GetQuotaArgs {
    /// A directory of the file system.
    pub path: Path,
    /// The user.
    pub uid: i32,
}

/// Arguments of GETQUOTA in version 2 (`ext_getquota_args`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ExtGetQuotaArgs {
    /// A directory of the file system.
    pub path: Path,
    /// The kind of ID.
    pub kind: QuotaKind,
    /// The user or group.
    pub id: i32,
}

/// Limits and use to set (`sq_dqblk`), in blocks of 1024 bytes, in files and in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct DqBlk {
    /// Hard limit on blocks.
    pub bhardlimit: u32,
    /// Soft limit on blocks.
    pub bsoftlimit: u32,
    /// Blocks used.
    pub curblocks: u32,
    /// Hard limit on files.
    pub fhardlimit: u32,
    /// Soft limit on files.
    pub fsoftlimit: u32,
    /// Files used.
    pub curfiles: u32,
    /// Seconds left above the soft limit on blocks.
    pub btimeleft: u32,
    /// Seconds left above the soft limit on files.
    pub ftimeleft: u32,
}

/// Arguments of SETQUOTA in version 1 (`setquota_args`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SetQuotaArgs {
    /// The command of the server's `quotactl`.
    pub command: i32,
    /// A directory of the file system.
    pub path: Path,
    /// The user.
    pub id: i32,
    /// The values.
    pub dqblk: DqBlk,
}

/// Arguments of SETQUOTA in version 2 (`ext_setquota_args`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ExtSetQuotaArgs {
    /// The command of the server's `quotactl`.
    pub command: i32,
    /// A directory of the file system.
    pub path: Path,
    /// The user or group.
    pub id: i32,
    /// The kind of ID.
    pub kind: QuotaKind,
    /// The values.
    pub dqblk: DqBlk,
}

/// A quota (`rquota`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct Rquota {
    /// Bytes of the blocks that the other fields count.
    pub bsize: i32,
    /// Whether the quota is enforced.
    pub active: bool,
    /// Hard limit on blocks.
    pub bhardlimit: u32,
    /// Soft limit on blocks.
    pub bsoftlimit: u32,
    /// Blocks used.
    pub curblocks: u32,
    /// Hard limit on files.
    pub fhardlimit: u32,
    /// Soft limit on files.
    pub fsoftlimit: u32,
    /// Files used.
    pub curfiles: u32,
    /// Seconds left above the soft limit on blocks.
    pub btimeleft: u32,
    /// Seconds left above the soft limit on files.
    pub ftimeleft: u32,
}

/// Results of all procedures (`getquota_rslt`, `setquota_rslt`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaResult {
    /// The quota.
    Ok(Rquota),
    /// The error.
    Fail(QuotaStatus),
}

impl Encode for QuotaResult {
    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Ok(quota) => {
                QuotaStatus::OK.encode(writer);
                quota.encode(writer);
            }
            Self::Fail(status) => {
                debug_assert_ne!(*status, QuotaStatus::OK, "OK is not a failure");
                status.encode(writer);
            }
        }
    }
}

impl Decode for QuotaResult {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        match QuotaStatus::decode(reader)? {
            QuotaStatus::OK => Rquota::decode(reader).map(Self::Ok),
            status => Ok(Self::Fail(status)),
        }
    }
}

const PROCEDURES: &[Procedure] = &[
    Procedure::new(0, "NULL", Effect::None),
    Procedure::new(1, "GETQUOTA", Effect::None),
    Procedure::new(2, "GETACTIVEQUOTA", Effect::None),
    Procedure::new(3, "SETQUOTA", Effect::Repeatable),
    Procedure::new(4, "SETACTIVEQUOTA", Effect::Repeatable),
];

/// The procedures of version 1.
pub static TABLE_1: ProgramVersion =
    ProgramVersion { program: PROGRAM, version: VERSION_1, name: "rquota1", procedures: PROCEDURES };

/// The procedures of version 2.
pub static TABLE_2: ProgramVersion =
    ProgramVersion { program: PROGRAM, version: VERSION_2, name: "rquota2", procedures: PROCEDURES };
