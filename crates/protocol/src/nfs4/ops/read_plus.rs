//! READ_PLUS and WRITE_SAME (RFC 7862 §15.10, §15.12).

use bytes::Bytes;
use xdr::{Decode, Encode, List, Opaque};

use super::read::ReadArgs;
use crate::nfs4::types::{MAX_IO, Outcome, StableHow, Stateid, WriteResponse};

/// Maximum number of pieces in a reply: alternating data and holes of 4 KiB in [`MAX_IO`].
pub const MAX_PIECES: usize = MAX_IO / 4096;

/// `READ_PLUS4args`. Current handle: the file.
pub type ReadPlusArgs = ReadArgs;

/// `data4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Data {
    /// First byte.
    pub offset: u64,
    /// The data, sharing the record's memory.
    pub data: Opaque<MAX_IO>,
}

/// `data_info4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct DataInfo {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// `read_plus_content`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum ReadPlusContent {
    /// `NFS4_CONTENT_DATA`.
    #[xdr(case = 0)]
    Data(Data),
    /// `NFS4_CONTENT_HOLE`.
    #[xdr(case = 1)]
    Hole(DataInfo),
    /// Any other `data_content4`, void.
    #[xdr(default)]
    Other(u32),
}

/// `read_plus_res4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadPlusOk {
    /// Whether the pieces end at the end of the file.
    pub eof: bool,
    /// The pieces, in order.
    pub contents: List<ReadPlusContent, MAX_PIECES>,
}

/// A run of bytes of a file, as READ and READ_PLUS return it. Not a wire type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    /// These bytes, which share the record's memory.
    Data(Bytes),
    /// This many zeros without disk space.
    Hole(u64),
}

impl Extent {
    /// Returns the length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Data(data) => data.len() as u64,
            Self::Hole(length) => *length,
        }
    }
}

/// `READ_PLUS4res`.
pub type ReadPlusResult = Outcome<ReadPlusOk>;

/// `app_data_block4`: blocks with a number and a pattern in each.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct AppDataBlock {
    /// First byte.
    pub offset: u64,
    /// Bytes per block.
    pub block_size: u64,
    /// Number of blocks.
    pub block_count: u64,
    /// Offset of the block number in a block; all ones for none.
    pub number_offset: u64,
    /// Number of the first block.
    pub block_number: u32,
    /// Offset of the pattern in a block.
    pub pattern_offset: u64,
    /// The pattern.
    pub pattern: Opaque<MAX_IO>,
}

/// `WRITE_SAME4args`. Current handle: the file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteSameArgs {
    /// Stateid to write.
    pub stateid: Stateid,
    /// The stability of the data that the reply requires.
    pub stable: StableHow,
    /// The data to write.
    pub block: AppDataBlock,
}

/// `WRITE_SAME4res`.
pub type WriteSameResult = Outcome<WriteResponse>;
