//! REMOVE (RFC 8881 §18.25).

use xdr::{Decode, Encode};

use crate::nfs4::types::{ChangeInfo, Component, Outcome};

/// `REMOVE4args`. Current handle: the directory.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RemoveArgs {
    /// The name.
    pub target: Component,
}

/// `REMOVE4res`: the directory's change.
pub type RemoveResult = Outcome<ChangeInfo>;
