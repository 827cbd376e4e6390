//! LOOKUP and LOOKUPP (RFC 8881 §18.13, §18.14).

use xdr::{Decode, Encode};

use crate::nfs4::types::{Component, Outcome};

/// `LOOKUP4args`. Current handle: the directory; afterwards the object.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LookupArgs {
    /// The name.
    pub name: Component,
}

/// `LOOKUP4res`.
pub type LookupResult = Outcome<()>;

/// `LOOKUPP4res`. No arguments. Current handle afterwards: the parent directory.
pub type LookupParentResult = Outcome<()>;
