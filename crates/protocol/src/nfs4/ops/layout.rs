//! LAYOUTCOMMIT, LAYOUTGET and LAYOUTRETURN (RFC 8881 §18.42 to §18.44).

use xdr::{Decode, DecodeError, Encode, List, Reader, Writer};

use crate::nfs4::layout::{Layout, LayoutIoMode, LayoutReturn, LayoutType, LayoutUpdate};
use crate::nfs4::types::{HasStatus, MAX_CONFIGURED, Outcome, Stateid, Status, Time};

/// `LAYOUTCOMMIT4args`. Current handle: the file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LayoutCommitArgs {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Whether this is a reclaim after the server's restart.
    pub reclaim: bool,
    /// The layout.
    pub stateid: Stateid,
    /// `newoffset4`: the last byte written, if the file may have grown.
    pub last_write_offset: Option<u64>,
    /// `newtime4`: time of the last write.
    pub time_modify: Option<Time>,
    /// Data of the layout type.
    pub update: LayoutUpdate,
}

/// `LAYOUTCOMMIT4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct LayoutCommitOk {
    /// `newsize4`: the file's size in bytes, if it changed.
    pub new_size: Option<u64>,
}

/// `LAYOUTCOMMIT4res`.
pub type LayoutCommitResult = Outcome<LayoutCommitOk>;

/// `LAYOUTGET4args`. Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct LayoutGetArgs {
    /// Whether to send a callback when it becomes available.
    pub signal_available: bool,
    /// Layout type.
    pub layout_type: LayoutType,
    /// The I/O mode.
    pub iomode: LayoutIoMode,
    /// First byte.
    pub offset: u64,
    /// Requested bytes.
    pub length: u64,
    /// Minimum number of bytes.
    pub min_length: u64,
    /// Stateid of an open, a delegation or a layout.
    pub stateid: Stateid,
    /// Maximum size of the layouts, in bytes.
    pub maxcount: u32,
}

/// `LAYOUTGET4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LayoutGetOk {
    /// Whether CLOSE returns the layout.
    pub return_on_close: bool,
    /// The layout.
    pub stateid: Stateid,
    /// Its segments.
    pub layouts: List<Layout, MAX_CONFIGURED>,
}

/// `LAYOUTGET4res`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutGetResult {
    /// The granted layouts.
    Ok(LayoutGetOk),
    /// `NFS4ERR_LAYOUTTRYLATER`: true if a callback will follow.
    TryLater(bool),
    /// Any other status.
    Error(Status),
}

impl Decode for LayoutGetResult {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        Ok(match Status::decode(reader)? {
            Status::OK => Self::Ok(LayoutGetOk::decode(reader)?),
            Status::LAYOUTTRYLATER => Self::TryLater(reader.bool()?),
            status => Self::Error(status),
        })
    }
}

impl Encode for LayoutGetResult {
    fn encode(&self, writer: &mut Writer) {
        self.status().encode(writer);
        match self {
            Self::Ok(ok) => ok.encode(writer),
            Self::TryLater(will_signal) => writer.bool(*will_signal),
            Self::Error(_) => {}
        }
    }
}

impl HasStatus for LayoutGetResult {
    fn status(&self) -> Status {
        match self {
            Self::Ok(_) => Status::OK,
            Self::TryLater(_) => Status::LAYOUTTRYLATER,
            Self::Error(status) => *status,
        }
    }
}

/// `LAYOUTRETURN4args`. Current handle: the file, or any object of the file system.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LayoutReturnArgs {
    /// Whether this is a reclaim after the server's restart.
    pub reclaim: bool,
    /// Layout type.
    pub layout_type: LayoutType,
    /// The I/O mode.
    pub iomode: LayoutIoMode,
    /// The layouts that are returned.
    pub layout_return: LayoutReturn,
}

/// `LAYOUTRETURN4res`: `layoutreturn_stateid`, if a part of the layout remains.
pub type LayoutReturnResult = Outcome<Option<Stateid>>;
