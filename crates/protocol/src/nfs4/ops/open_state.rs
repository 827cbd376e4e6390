//! OPENATTR, OPEN_CONFIRM and OPEN_DOWNGRADE (RFC 8881 §18.17, RFC 7530 §16.18, RFC 8881 §18.18).

use xdr::{Decode, Encode};

use super::open::{ShareAccess, ShareDeny};
use crate::nfs4::types::{Outcome, Stateid};

/// `OPENATTR4args`. Current handle: the object; afterwards its directory of named attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OpenAttrArgs {
    /// Whether to create a missing directory.
    pub create_directory: bool,
}

/// `OPENATTR4res`.
pub type OpenAttrResult = Outcome<()>;

/// `OPEN_CONFIRM4args` (v4.0). Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OpenConfirmArgs {
    /// The open.
    pub open_stateid: Stateid,
    /// Seqid of the open owner.
    pub seqid: u32,
}

/// `OPEN_CONFIRM4res` (v4.0): the open with the next seqid.
pub type OpenConfirmResult = Outcome<Stateid>;

/// `OPEN_DOWNGRADE4args`. Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OpenDowngradeArgs {
    /// The open.
    pub open_stateid: Stateid,
    /// v4.0: seqid of the open owner. v4.1: ignored.
    pub seqid: u32,
    /// The remaining access.
    pub share_access: ShareAccess,
    /// The remaining access denied to others.
    pub share_deny: ShareDeny,
}

/// `OPEN_DOWNGRADE4res`: the open with the next seqid.
pub type OpenDowngradeResult = Outcome<Stateid>;
