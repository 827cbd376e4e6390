//! The arguments and results of LOCK and LOCKT.

use std::sync::Arc;

use protocol::nfs4::types::Handle;

use crate::state::sessions::sequence::SlotRequest;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::locks::{LockKind, LockRange, OwnerName};
use crate::state::tables::wire::{LockDenied, LockType, Stateid, Status};

/// The owner of a lock in LOCK.
#[derive(Debug, Clone, Copy)]
pub enum Locker<'a> {
    /// `open_to_lock_owner4`.
    New {
        /// The open.
        open_stateid: Stateid,
        /// The lock-owner's bytes; in version 4.0, as [`OwnerRequest::owner`](crate::state::OwnerRequest::owner) gives them.
        owner: &'a Arc<[u8]>,
    },
    /// `exist_lock_owner4`: the lock stateid.
    Existing(Stateid),
}

/// The arguments of LOCK.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    /// The file.
    pub file: FileKey,
    /// `locktype`.
    pub lock_type: LockType,
    /// The bytes.
    pub range: LockRange,
    /// Whether it reclaims.
    pub reclaim: bool,
    /// The owner.
    pub locker: Locker<'a>,
    /// The data to notify the client when a lock that it waits for is free; `None` if it only polls.
    pub notice: Option<LockNotice<'a>>,
}

/// The arguments of LOCKT.
#[derive(Debug, Clone, Copy)]
pub struct LockTest<'a> {
    /// The file.
    pub file: FileKey,
    /// `locktype`.
    pub lock_type: LockType,
    /// The bytes.
    pub range: LockRange,
    /// The lock-owner's bytes.
    pub owner: &'a [u8],
}

/// Why a lock is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockError {
    /// DENIED, because of this lock.
    Denied(Box<LockDenied>),
    /// Any other status.
    Status(Status),
}

impl From<Status> for LockError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// The data to notify a client that waits for a lock.
#[derive(Debug, Clone, Copy)]
pub struct LockNotice<'a> {
    /// The file's handle at the client.
    pub handle: Handle,
    /// The request for the lock.
    pub asked_by: Option<&'a SlotRequest>,
}

/// The open and the owner of a LOCK.
pub(super) struct FoundLocker {
    /// The open that the lock belongs to.
    pub(super) open: u32,
    pub(super) name: OwnerName,
}

/// Returns the kind of lock of a type.
pub(super) fn kind_of(lock_type: LockType) -> LockKind {
    if lock_type.is_write() { LockKind::Exclusive } else { LockKind::Shared }
}
