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
    /// Whether after the server's restart.
    pub reclaim: bool,
    /// The layout.
    pub stateid: Stateid,
    /// `newoffset4`: last byte written, where the file may have grown.
    pub last_write_offset: Option<u64>,
    /// `newtime4`: time of the last write.
    pub time_modify: Option<Time>,
    /// What the layout type has to say.
    pub update: LayoutUpdate,
}

/// `LAYOUTCOMMIT4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct LayoutCommitOk {
    /// `newsize4`: the file's size in bytes, where it changed.
    pub new_size: Option<u64>,
}

/// `LAYOUTCOMMIT4res`.
pub type LayoutCommitResult = Outcome<LayoutCommitOk>;

/// `LAYOUTGET4args`. Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct LayoutGetArgs {
    /// Ask to be called where it can be had later.
    pub signal_available: bool,
    /// Layout type.
    pub layout_type: LayoutType,
    /// For what I/O.
    pub iomode: LayoutIoMode,
    /// First byte.
    pub offset: u64,
    /// Bytes wanted.
    pub length: u64,
    /// Bytes needed.
    pub min_length: u64,
    /// Open, delegation or layout.
    pub stateid: Stateid,
    /// Greatest size of the layouts, in bytes.
    pub maxcount: u32,
}

/// `LAYOUTGET4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LayoutGetOk {
    /// Whether CLOSE returns it.
    pub return_on_close: bool,
    /// The layout.
    pub stateid: Stateid,
    /// Its segments.
    pub layouts: List<Layout, MAX_CONFIGURED>,
}

/// `LAYOUTGET4res`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutGetResult {
    /// Granted.
    Ok(LayoutGetOk),
    /// `NFS4ERR_LAYOUTTRYLATER`: whether a callback will tell when.
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
    /// Whether after the server's restart.
    pub reclaim: bool,
    /// Layout type.
    pub layout_type: LayoutType,
    /// Of what I/O.
    pub iomode: LayoutIoMode,
    /// What is returned.
    pub layout_return: LayoutReturn,
}

/// `LAYOUTRETURN4res`: `layoutreturn_stateid`, where some of the layout is left.
pub type LayoutReturnResult = Outcome<Option<Stateid>>;
