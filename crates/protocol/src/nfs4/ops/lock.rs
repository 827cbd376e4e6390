//! Byte-range locks: LOCK, LOCKT, LOCKU (RFC 8881 §18.10 to §18.12) and RELEASE_LOCKOWNER (RFC 7530 §16.37).

use xdr::{Decode, DecodeError, Encode, Reader, Writer};

use crate::nfs4::types::{HasStatus, Outcome, StateOwner, Stateid, Status};

/// `nfs_lock_type4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum LockType {
    /// `READ_LT`: shared.
    Read = 1,
    /// `WRITE_LT`: exclusive.
    Write = 2,
    /// `READW_LT`: shared, and the client waits.
    ReadWait = 3,
    /// `WRITEW_LT`: exclusive, and the client waits.
    WriteWait = 4,
}

impl LockType {
    /// Returns whether the lock is exclusive.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteWait)
    }

    /// Returns whether the client waits for the lock.
    #[must_use]
    pub const fn waits(self) -> bool {
        matches!(self, Self::ReadWait | Self::WriteWait)
    }
}

/// `open_to_lock_owner4`: the first lock of an owner on an open.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct OpenToLockOwner {
    /// v4.0: seqid of the open owner. v4.1: ignored.
    pub open_seqid: u32,
    /// The open.
    pub open_stateid: Stateid,
    /// v4.0: seqid of the lock owner. v4.1: ignored.
    pub lock_seqid: u32,
    /// The lock owner.
    pub lock_owner: StateOwner,
}

/// `exist_lock_owner4`: a further lock of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ExistingLockOwner {
    /// The lock state.
    pub lock_stateid: Stateid,
    /// v4.0: seqid of the lock owner. v4.1: ignored.
    pub lock_seqid: u32,
}

/// `locker4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum Locker {
    /// `new_lock_owner` is true.
    #[xdr(case = 1)]
    New(OpenToLockOwner),
    /// `new_lock_owner` is false.
    #[xdr(case = 0)]
    Existing(ExistingLockOwner),
}

/// `LOCK4args`. Current handle: the file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LockArgs {
    /// Shared or exclusive.
    pub lock_type: LockType,
    /// Whether the client held it before the server's restart.
    pub reclaim: bool,
    /// First byte.
    pub offset: u64,
    /// Bytes; [`crate::nfs4::types::TO_END_OF_FILE`] for all that follow.
    pub length: u64,
    /// The lock owner.
    pub locker: Locker,
}

/// `LOCK4denied`: the conflicting lock.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LockDenied {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Shared or exclusive.
    pub lock_type: LockType,
    /// The owner that holds it.
    pub owner: StateOwner,
}

/// Result of LOCK (`T` is the lock state) and of LOCKT (`T` is nothing).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockOutcome<T> {
    /// The lock is granted (LOCK) or available (LOCKT).
    Ok(T),
    /// `NFS4ERR_DENIED`: the conflicting lock.
    Denied(LockDenied),
    /// Any other status.
    Error(Status),
}

/// `LOCK4res`.
pub type LockResult = LockOutcome<Stateid>;

/// `LOCKT4res`.
pub type LockTResult = LockOutcome<()>;

impl<T: Decode> Decode for LockOutcome<T> {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match Status::decode(reader)? {
            Status::OK => Self::Ok(T::decode(reader)?),
            Status::DENIED => Self::Denied(LockDenied::decode(reader)?),
            status => Self::Error(status),
        })
    }
}

impl<T: Encode> Encode for LockOutcome<T> {
    fn encode(&self, writer: &mut Writer) {
        self.status().encode(writer);
        match self {
            Self::Ok(value) => value.encode(writer),
            Self::Denied(denied) => denied.encode(writer),
            Self::Error(_) => {}
        }
    }
}

impl<T> HasStatus for LockOutcome<T> {
    fn status(&self) -> Status {
        match self {
            Self::Ok(_) => Status::OK,
            Self::Denied(_) => Status::DENIED,
            Self::Error(status) => *status,
        }
    }
}

/// `LOCKT4args`. Current handle: the file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LockTArgs {
    /// Shared or exclusive.
    pub lock_type: LockType,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The lock owner; its own locks do not conflict.
    pub owner: StateOwner,
}

/// `LOCKU4args`. Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct LockUArgs {
    /// RFC 8881 §18.12.3: "Any legal value for locktype has no effect on the success or failure of the LOCKU operation."
    pub lock_type: LockType,
    /// v4.0: seqid of the lock owner. v4.1: ignored.
    pub seqid: u32,
    /// The lock state.
    pub lock_stateid: Stateid,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// `LOCKU4res`: the lock state with the next seqid.
pub type LockUResult = Outcome<Stateid>;

/// `RELEASE_LOCKOWNER4args` (v4.0).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReleaseLockOwnerArgs {
    /// An owner without locks.
    pub lock_owner: StateOwner,
}

/// `RELEASE_LOCKOWNER4res` (v4.0).
pub type ReleaseLockOwnerResult = Outcome<()>;
