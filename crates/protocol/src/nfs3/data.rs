//! READ, WRITE, COMMIT (RFC 1813 §3.3.6, §3.3.7, §3.3.21).

use xdr::{Decode, Encode, Opaque, Writer};

use super::{FileHandle, MAX_TRANSFER, Outcome, PostOpAttr, WccData, WriteVerf};

/// Arguments of READ (§3.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReadArgs {
    /// The file.
    pub file: FileHandle,
    /// Offset of the first byte.
    pub offset: u64,
    /// Maximum number of bytes.
    pub count: u32,
}

/// Results of READ on success.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadOk {
    /// The file's attributes.
    pub file_attributes: PostOpAttr,
    /// Number of bytes read. The decoder does not check that it equals the length of `data`; check before use.
    pub count: u32,
    /// Whether the READ reached the end of the file.
    pub eof: bool,
    /// The bytes.
    pub data: Opaque<MAX_TRANSFER>,
}

impl ReadOk {
    /// Writes the part of a successful result before the data, with status and length. The server appends the data and their
    /// padding without a copy.
    #[inline]
    pub fn encode_head(writer: &mut Writer, file_attributes: &PostOpAttr, count: u32, eof: bool) {
        super::NfsStat::OK.encode(writer);
        file_attributes.encode(writer);
        writer.u32(count);
        writer.bool(eof);
        writer.u32(count);
    }
}

/// Results of READ; a failure has the file's attributes.
pub type ReadResult = Outcome<ReadOk, PostOpAttr>;

/// The stability of written data (§3.3.7, `stable_how`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum StableHow {
    /// The data may be lost until a COMMIT.
    Unstable = 0,
    /// The data are stable, and the metadata needed to read them.
    DataSync = 1,
    /// The data and all metadata are stable.
    FileSync = 2,
}

/// Arguments of WRITE (§3.3.7).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteArgs {
    /// The file.
    pub file: FileHandle,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes. The decoder does not check that it equals the length of `data`; check before use.
    pub count: u32,
    /// The stability of the data that the reply requires.
    pub stable: StableHow,
    /// The bytes, sharing the receive buffer.
    pub data: Opaque<MAX_TRANSFER>,
}

/// Results of WRITE on success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct WriteOk {
    /// The file's attributes before and after the call.
    pub file_wcc: WccData,
    /// Number of bytes written; may be less than requested.
    pub count: u32,
    /// The stability of the data; at least the requested one.
    pub committed: StableHow,
    /// Changes when unstable data may have been lost.
    pub verf: WriteVerf,
}

/// Results of WRITE; a failure has the file's attributes before and after the call.
pub type WriteResult = Outcome<WriteOk, WccData>;

/// Arguments of COMMIT (§3.3.21).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CommitArgs {
    /// The file.
    pub file: FileHandle,
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes; 0 means to the end of the file.
    pub count: u32,
}

/// Results of COMMIT on success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CommitOk {
    /// The file's attributes before and after the call.
    pub file_wcc: WccData,
    /// As in [`WriteOk::verf`].
    pub verf: WriteVerf,
}

/// Results of COMMIT; a failure has the file's attributes before and after the call.
pub type CommitResult = Outcome<CommitOk, WccData>;
