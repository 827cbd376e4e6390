//! DELEGPURGE, DELEGRETURN, WANT_DELEGATION and GET_DIR_DELEGATION (RFC 8881 §18.5, §18.6, §18.49, §18.39).

use xdr::{Decode, Encode};

use super::open::{DelegationType, OpenDelegation, ShareAccess};
use crate::nfs4::types::{Bitmap, ClientId, Outcome, Stateid, Time, Verifier};

/// `DELEGPURGE4args`: the client will reclaim no more delegations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct DelegPurgeArgs {
    /// v4.0: the client. v4.1: must be 0.
    pub client_id: ClientId,
}

/// `DELEGPURGE4res`.
pub type DelegPurgeResult = Outcome<()>;

/// `DELEGRETURN4args`. Current handle: the file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct DelegReturnArgs {
    /// The delegation.
    pub stateid: Stateid,
}

/// `DELEGRETURN4res`.
pub type DelegReturnResult = Outcome<()>;

/// `deleg_claim4`: the basis of a request for a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum DelegationClaim {
    /// `CLAIM_FH`: a new delegation of the current object.
    #[xdr(case = 4)]
    Fh,
    /// `CLAIM_DELEG_PREV_FH`: the client had it before its own restart.
    #[xdr(case = 6)]
    DelegatePrevFh,
    /// `CLAIM_PREVIOUS`: the client had it before the server's restart.
    #[xdr(case = 1)]
    Previous(DelegationType),
}

/// `WANT_DELEGATION4args`. Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct WantDelegationArgs {
    /// The delegation wants of OPEN's share access.
    pub want: ShareAccess,
    /// The claim.
    pub claim: DelegationClaim,
}

/// `WANT_DELEGATION4res`.
pub type WantDelegationResult = Outcome<OpenDelegation>;

/// `GET_DIR_DELEGATION4args`. Current handle: the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct GetDirDelegationArgs {
    /// Whether to send a callback when it becomes available.
    pub signal_available: bool,
    /// Requested notifications, by [`crate::nfs4::callback::notify::notify_type`].
    pub notification_types: Bitmap,
    /// Delay of notifications about entries' attributes.
    pub child_attribute_delay: Time,
    /// Delay of notifications about the directory's attributes.
    pub directory_attribute_delay: Time,
    /// Requested attributes of entries.
    pub child_attributes: Bitmap,
    /// Requested attributes of the directory.
    pub directory_attributes: Bitmap,
}

/// `GET_DIR_DELEGATION4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct GetDirDelegationOk {
    /// The current READDIR verifier.
    pub cookie_verifier: Verifier,
    /// The delegation.
    pub stateid: Stateid,
    /// Granted notifications.
    pub notification_types: Bitmap,
    /// Granted attributes of entries.
    pub child_attributes: Bitmap,
    /// Granted attributes of the directory.
    pub directory_attributes: Bitmap,
}

/// `GET_DIR_DELEGATION4res_non_fatal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum DirDelegation {
    /// `GDD4_OK`: granted.
    #[xdr(case = 0)]
    Granted(GetDirDelegationOk),
    /// `GDD4_UNAVAIL`: not available; true if a callback will follow.
    #[xdr(case = 1)]
    Unavailable(bool),
}

/// `GET_DIR_DELEGATION4res`.
pub type GetDirDelegationResult = Outcome<DirDelegation>;
