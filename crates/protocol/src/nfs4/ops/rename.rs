//! RENAME (RFC 8881 §18.26).

use xdr::{Decode, Encode};

use crate::nfs4::types::{ChangeInfo, Component, Outcome};

/// `RENAME4args`. Saved handle: the source directory; current handle: the target directory.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RenameArgs {
    /// Name in the source directory.
    pub old_name: Component,
    /// Name in the target directory.
    pub new_name: Component,
}

/// `RENAME4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct RenameOk {
    /// The source directory's change.
    pub source: ChangeInfo,
    /// The target directory's change.
    pub target: ChangeInfo,
}

/// `RENAME4res`.
pub type RenameResult = Outcome<RenameOk>;
