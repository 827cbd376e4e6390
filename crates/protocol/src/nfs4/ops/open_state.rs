//! OPENATTR, OPEN_CONFIRM and OPEN_DOWNGRADE (RFC 8881 §18.17, RFC 7530 §16.18, RFC 8881 §18.18).

use xdr::{Decode, Encode};

use super::open::{ShareAccess, ShareDeny};
use crate::nfs4::types::{Outcome, Stateid};

/// `OPENATTR4args`. Current handle: the object; afterwards its directory of named attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OpenAttrArgs {
    /// Whether to make the directory where there is none.
    pub create_directory: bool,
}

/// `OPENATTR4res`.
pub type OpenAttrResult = Outcome<()>;

/// `OPEN_CONFIRM4args` (v4.0). Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OpenConfirmArgs {
    /// The open.
    pub open_stateid: Stateid,
    /// Sequence of the open owner.
    pub seqid: u32,
}

/// `OPEN_CONFIRM4res` (v4.0): the open, one change later.
pub type OpenConfirmResult = Outcome<Stateid>;

/// `OPEN_DOWNGRADE4args`. Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct OpenDowngradeArgs {
    /// The open.
    pub open_stateid: Stateid,
    /// v4.0: sequence of the open owner. v4.1: ignored.
    pub seqid: u32,
    /// What the opener will still do.
    pub share_access: ShareAccess,
    /// What others still shall not do.
    pub share_deny: ShareDeny,
}

/// `OPEN_DOWNGRADE4res`: the open, one change later.
pub type OpenDowngradeResult = Outcome<Stateid>;
