//! WRITE (RFC 8881 §18.32).

use xdr::{Decode, Encode, Opaque};

use crate::nfs4::types::{MAX_IO, Outcome, StableHow, Stateid, Verifier};

/// `WRITE4args`. Current handle: the file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteArgs {
    /// Stateid of an open, a lock or a delegation, or a special one.
    pub stateid: Stateid,
    /// First byte.
    pub offset: u64,
    /// The stability of the data that the reply requires.
    pub stable: StableHow,
    /// The data, sharing the record's memory.
    pub data: Opaque<MAX_IO>,
}

/// `WRITE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct WriteOk {
    /// Bytes written.
    pub count: u32,
    /// The stability of the data.
    pub committed: StableHow,
    /// Differs from an earlier one if unstable data may have been lost.
    pub verifier: Verifier,
}

/// `WRITE4res`.
pub type WriteResult = Outcome<WriteOk>;
