//! ALLOCATE, DEALLOCATE, CLONE, SEEK and IO_ADVISE (RFC 7862 §15.1, §15.4, §15.13, §15.11, §15.5).

use xdr::{Decode, Encode};

use crate::nfs4::types::{Bitmap, Outcome, Stateid};

/// `ALLOCATE4args`. Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct AllocateArgs {
    /// Stateid to write.
    pub stateid: Stateid,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// `ALLOCATE4res`.
pub type AllocateResult = Outcome<()>;

/// `DEALLOCATE4args`. Current handle: the file.
pub type DeallocateArgs = AllocateArgs;

/// `DEALLOCATE4res`.
pub type DeallocateResult = Outcome<()>;

/// `CLONE4args`. Saved handle: the source file; current handle: the destination file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CloneArgs {
    /// Stateid to read the source.
    pub source_stateid: Stateid,
    /// Stateid to write the destination.
    pub destination_stateid: Stateid,
    /// First byte in the source.
    pub source_offset: u64,
    /// First byte in the destination.
    pub destination_offset: u64,
    /// Bytes; 0 means to the end of the source.
    pub count: u64,
}

/// `CLONE4res`.
pub type CloneResult = Outcome<()>;

xdr::constants! {
    /// `data_content4`. Unknown values are kept, because the server rejects them with UNION_NOTSUPP.
    pub struct DataContent: u32 {
        /// Data.
        DATA = 0,
        /// A hole.
        HOLE = 1,
    }
}

/// `SEEK4args`. Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SeekArgs {
    /// Stateid to read.
    pub stateid: Stateid,
    /// Offset of the first byte.
    pub offset: u64,
    /// The content to find.
    pub what: DataContent,
}

/// `seek_res4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SeekOk {
    /// Whether the content was not found before the end of the file.
    pub eof: bool,
    /// Offset of the content, in bytes.
    pub offset: u64,
}

/// `SEEK4res`.
pub type SeekResult = Outcome<SeekOk>;

/// `IO_ADVISE_type4`: bits of [`IoAdviseArgs::hints`].
pub mod advice {
    /// Default access.
    pub const NORMAL: u32 = 0;
    /// Sequential access.
    pub const SEQUENTIAL: u32 = 1;
    /// Sequential access backwards.
    pub const SEQUENTIAL_BACKWARDS: u32 = 2;
    /// Random access.
    pub const RANDOM: u32 = 3;
    /// Access in the near future.
    pub const WILLNEED: u32 = 4;
    /// Possible access in the near future.
    pub const WILLNEED_OPPORTUNISTIC: u32 = 5;
    /// No access in the near future.
    pub const DONTNEED: u32 = 6;
    /// Each byte is accessed once.
    pub const NOREUSE: u32 = 7;
    /// The client will read.
    pub const READ: u32 = 8;
    /// The client will write.
    pub const WRITE: u32 = 9;
    /// Access near the current one.
    pub const INIT_PROXIMITY: u32 = 10;
}

/// `IO_ADVISE4args`. Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct IoAdviseArgs {
    /// Stateid to read or write.
    pub stateid: Stateid,
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 means to the end of the file.
    pub count: u64,
    /// Hints, by [`advice`].
    pub hints: Bitmap,
}

/// `IO_ADVISE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct IoAdviseOk {
    /// Hints that the server follows.
    pub hints: Bitmap,
}

/// `IO_ADVISE4res`.
pub type IoAdviseResult = Outcome<IoAdviseOk>;
