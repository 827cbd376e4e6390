//! Parts of the arguments and of the result of OPEN.

use protocol::nfs4::ops::open::{DelegationType, DelegationWant, OpenDelegation, ShareAccess};
use protocol::nfs4::types::StateOwner;
use xdr::Opaque;

use crate::delegations::{Granted, Kind};
use crate::opens::OpenMode;

/// The delegation that an OPEN asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) delegation: DelegationWant,
    /// Whether the client would keep the file's times (RFC 9754 §5). The server must have announced that it knows this.
    pub(super) times: bool,
}

impl Wanted {
    /// No delegation.
    pub(super) const NONE: Self = Self { delegation: DelegationWant::NO_DELEG, times: false };
}

/// Returns the share access of a mode, with the wanted delegation. Version 4.0 has no flag for this.
pub(super) fn share_access(mode: OpenMode, minor_version: u32, want: Wanted) -> ShareAccess {
    let mut access = ShareAccess::empty();
    access.set(ShareAccess::READ, mode.read || !mode.write);
    access.set(ShareAccess::WRITE, mode.write);
    if minor_version == 0 {
        return access;
    }
    access.set(ShareAccess::WANT_DELEG_TIMESTAMPS, want.times);
    access.with_want(want.delegation)
}

/// Returns the owner of an open with this number.
pub(super) fn open_owner(client_id: u64, number: u32) -> StateOwner {
    let name = Opaque::new(format!("open {number}").into_bytes()).unwrap_or_default();
    StateOwner { client_id, owner: name }
}

/// Returns the type of a delegation for CLAIM_PREVIOUS.
pub(super) fn delegation_type(kind: Kind) -> DelegationType {
    match kind {
        // It cannot be reclaimed.
        Kind::Directory => DelegationType::NONE,
        Kind::Read => DelegationType::READ,
        Kind::Write => DelegationType::WRITE,
    }
}

/// Returns the delegation in the reply to an OPEN.
pub(super) fn granted(delegation: &OpenDelegation) -> Option<Granted> {
    match delegation {
        OpenDelegation::None | OpenDelegation::NoneExt(_) => None,
        OpenDelegation::Read(read) | OpenDelegation::ReadAttributes(read) => Some(Granted {
            kind: Kind::Read,
            stateid: read.stateid,
            is_recalled: read.recall,
            limit: None,
            keeps_times: false,
        }),
        OpenDelegation::Write(write) | OpenDelegation::WriteAttributes(write) => Some(Granted {
            kind: Kind::Write,
            stateid: write.stateid,
            is_recalled: write.recall,
            limit: Some(write.space_limit),
            keeps_times: matches!(delegation, OpenDelegation::WriteAttributes(_)),
        }),
    }
}
