//! LINK: create a hard link (RFC 8881 §18.9).

use xdr::{Decode, Encode};

use crate::nfs4::types::{ChangeInfo, Component, Outcome};

/// `LINK4args`. Saved handle: the object; current handle: the directory.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LinkArgs {
    /// The new name.
    pub new_name: Component,
}

/// `LINK4res`: the directory's change.
pub type LinkResult = Outcome<ChangeInfo>;
