//! READ, WRITE, COMMIT (RFC 1813 §3.3.6, §3.3.7, §3.3.21).

use xdr::{Decode, Encode, Opaque, Writer};

use super::{FileHandle, MAX_TRANSFER, Outcome, PostOpAttr, WccData, WriteVerf};

/// Arguments of READ (§3.3.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReadArgs {
    /// The file.
    pub file: FileHandle,
    /// Where to begin, in bytes.
    pub offset: u64,
    /// How many bytes at most.
    pub count: u32,
}

/// Results of READ on success.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadOk {
    /// The file's attributes.
    pub file_attributes: PostOpAttr,
    /// Bytes read. The wire does not keep it equal to the length of `data`: check it before use.
    pub count: u32,
    /// Whether the last byte read is the file's last, or none was left.
    pub eof: bool,
    /// The bytes.
    pub data: Opaque<MAX_TRANSFER>,
}

impl ReadOk {
    /// Writes all that stands before the data of a successful reply, the status and the data's length among it, for servers that put the data
    /// (and their padding) behind it without a copy.
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

/// How stable written data must be, or are (§3.3.7, `stable_how`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
pub enum StableHow {
    /// They may be lost until a COMMIT.
    Unstable = 0,
    /// The data, and as much metadata as is needed to read them.
    DataSync = 1,
    /// The data and all metadata.
    FileSync = 2,
}

/// Arguments of WRITE (§3.3.7).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteArgs {
    /// The file.
    pub file: FileHandle,
    /// Where to begin, in bytes.
    pub offset: u64,
    /// How many bytes. The wire does not keep it equal to the length of `data`: check it before use.
    pub count: u32,
    /// How stable the data must be before the reply.
    pub stable: StableHow,
    /// The bytes, sharing the receive buffer.
    pub data: Opaque<MAX_TRANSFER>,
}

/// Results of WRITE on success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct WriteOk {
    /// The file's attributes around the call.
    pub file_wcc: WccData,
    /// Bytes written, which may be fewer than asked.
    pub count: u32,
    /// How stable they are; at least what was asked.
    pub committed: StableHow,
    /// Changes when unstable data may have been lost.
    pub verf: WriteVerf,
}

/// Results of WRITE; a failure has the file's attributes around the call.
pub type WriteResult = Outcome<WriteOk, WccData>;

/// Arguments of COMMIT (§3.3.21).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CommitArgs {
    /// The file.
    pub file: FileHandle,
    /// Where to begin, in bytes.
    pub offset: u64,
    /// How many bytes; 0 means to the end of the file.
    pub count: u32,
}

/// Results of COMMIT on success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CommitOk {
    /// The file's attributes around the call.
    pub file_wcc: WccData,
    /// As in [`WriteOk::verf`].
    pub verf: WriteVerf,
}

/// Results of COMMIT; a failure has the file's attributes around the call.
pub type CommitResult = Outcome<CommitOk, WccData>;
