//! The current and the saved file handle: PUTFH, PUTPUBFH, PUTROOTFH, GETFH, SAVEFH, RESTOREFH
//! (RFC 8881 §18.19 to §18.21, §18.8, §18.28, §18.27).

use xdr::{Decode, Encode};

use crate::nfs4::types::{Handle, Outcome};

/// `PUTFH4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct PutFhArgs {
    /// The new current handle.
    pub handle: Handle,
}

/// `PUTFH4res`.
pub type PutFhResult = Outcome<()>;

/// `PUTPUBFH4res`. No arguments.
pub type PutPubFhResult = Outcome<()>;

/// `PUTROOTFH4res`. No arguments.
pub type PutRootFhResult = Outcome<()>;

/// `GETFH4res`: the current handle. No arguments.
pub type GetFhResult = Outcome<Handle>;

/// `SAVEFH4res`. No arguments.
pub type SaveFhResult = Outcome<()>;

/// `RESTOREFH4res`. No arguments.
pub type RestoreFhResult = Outcome<()>;
