//! READ (RFC 8881 §18.22).

use xdr::{Decode, Encode, Opaque};

use crate::nfs4::types::{MAX_IO, Outcome, Stateid};

/// `READ4args`. Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReadArgs {
    /// Stateid of an open, a lock or a delegation, or a special one.
    pub stateid: Stateid,
    /// First byte.
    pub offset: u64,
    /// Requested bytes.
    pub count: u32,
}

/// `READ4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadOk {
    /// Whether the data end at the end of the file.
    pub eof: bool,
    /// The data, sharing the record's memory.
    pub data: Opaque<MAX_IO>,
}

/// `READ4res`.
pub type ReadResult = Outcome<ReadOk>;
