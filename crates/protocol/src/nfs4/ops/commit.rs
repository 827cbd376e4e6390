//! COMMIT: write data to stable storage (RFC 8881 §18.3).

use xdr::{Decode, Encode};

use crate::nfs4::types::{Outcome, Verifier};

/// `COMMIT4args`. Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CommitArgs {
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 means to the end of the file.
    pub count: u32,
}

/// `COMMIT4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CommitOk {
    /// Differs from the verifier of a WRITE if its data may have been lost.
    pub verifier: Verifier,
}

/// `COMMIT4res`.
pub type CommitResult = Outcome<CommitOk>;
