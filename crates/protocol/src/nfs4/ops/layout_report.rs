//! LAYOUTERROR and LAYOUTSTATS (RFC 7862 §15.6, §15.7).

use xdr::{Decode, Encode, List};

use crate::nfs4::layout::LayoutUpdate;
use crate::nfs4::types::{DeviceId, MAX_CONFIGURED, OpNum, Outcome, Stateid, Status};

/// `device_error4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct DeviceError {
    /// The device.
    pub device_id: DeviceId,
    /// The device's status.
    pub status: Status,
    /// The failed operation.
    pub op: OpNum,
}

/// `LAYOUTERROR4args`. Current handle: the file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LayoutErrorArgs {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The layout.
    pub stateid: Stateid,
    /// The errors.
    pub errors: List<DeviceError, MAX_CONFIGURED>,
}

/// `LAYOUTERROR4res`.
pub type LayoutErrorResult = Outcome<()>;

/// `io_info4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct IoInfo {
    /// Operations.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

/// `LAYOUTSTATS4args`. Current handle: the file.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LayoutStatsArgs {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The layout.
    pub stateid: Stateid,
    /// Reads.
    pub read: IoInfo,
    /// Writes.
    pub write: IoInfo,
    /// The device.
    pub device_id: DeviceId,
    /// Data of the layout type.
    pub update: LayoutUpdate,
}

/// `LAYOUTSTATS4res`.
pub type LayoutStatsResult = Outcome<()>;
