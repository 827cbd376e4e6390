//! VERIFY and NVERIFY: continue only if attributes are equal or differ (RFC 8881 §18.31, §18.15).

use xdr::{Decode, Encode};

use crate::nfs4::attributes::FileAttributes;
use crate::nfs4::types::Outcome;

/// `VERIFY4args` and `NVERIFY4args`. Current handle: the object.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct VerifyArgs {
    /// The attributes to compare with.
    pub attributes: FileAttributes,
}

/// `NVERIFY4args`.
pub type NVerifyArgs = VerifyArgs;

/// `VERIFY4res`.
pub type VerifyResult = Outcome<()>;

/// `NVERIFY4res`.
pub type NVerifyResult = Outcome<()>;
