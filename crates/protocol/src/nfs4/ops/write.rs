//! WRITE (RFC 8881 §18.32).

use xdr::{Decode, Encode, Opaque};

use crate::nfs4::types::{MAX_IO, Outcome, StableHow, Stateid, Verifier};

/// `WRITE4args`. Current handle: the file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteArgs {
    /// Open, lock, delegation or special.
    pub stateid: Stateid,
    /// First byte.
    pub offset: u64,
    /// How safe the data must be before the reply.
    pub stable: StableHow,
    /// The data, sharing the record's memory.
    pub data: Opaque<MAX_IO>,
}

/// `WRITE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct WriteOk {
    /// Bytes written.
    pub count: u32,
    /// How safe they are.
    pub committed: StableHow,
    /// Differs from an earlier one where unstable data may have been lost since.
    pub verifier: Verifier,
}

/// `WRITE4res`.
pub type WriteResult = Outcome<WriteOk>;
