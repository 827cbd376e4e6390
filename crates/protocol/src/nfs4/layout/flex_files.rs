//! The flexible file layout (RFC 8435).

use xdr::{Decode, Encode, List};

use super::files::MultipathList;
use crate::nfs4::macros::flags;
use crate::nfs4::ops::layout_report::{DeviceError, IoInfo};
use crate::nfs4::types::{DeviceId, Handle, MAX_CONFIGURED, NetAddress, Stateid, Time, Utf8};

/// Greatest number of errors or statistics in a layout return: what a client gathers for one file.
pub const MAX_REPORTS: usize = 1024;

/// `ff_device_versions4`: a version of NFS that a data server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct FlexDeviceVersion {
    /// 3 or 4.
    pub version: u32,
    /// For 4, the minor version.
    pub minor_version: u32,
    /// Greatest READ, in bytes.
    pub rsize: u32,
    /// Greatest WRITE, in bytes.
    pub wsize: u32,
    /// Whether the metadata server's state counts at the data server.
    pub tightly_coupled: bool,
}

/// `ff_device_addr4`: body of a device address.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FlexDeviceAddress {
    /// Addresses of the data server.
    pub addresses: MultipathList,
    /// Versions it speaks.
    pub versions: List<FlexDeviceVersion, MAX_CONFIGURED>,
}

flags! {
    /// `ff_flags4`.
    pub struct FlexFlags {
        /// `FF_FLAGS_NO_LAYOUTCOMMIT`.
        NO_LAYOUTCOMMIT = 1,
        /// `FF_FLAGS_NO_IO_THRU_MDS`.
        NO_IO_THRU_MDS = 2,
        /// `FF_FLAGS_NO_READ_IO`.
        NO_READ_IO = 4,
        /// `FF_FLAGS_WRITE_ONE_MIRROR`.
        WRITE_ONE_MIRROR = 8,
    }
}

/// `ff_data_server4`: one data server of a mirror.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FlexDataServer {
    /// The device.
    pub device_id: DeviceId,
    /// How good it is for reading; more is better.
    pub efficiency: u32,
    /// Stateid for its I/O, where coupled tightly.
    pub stateid: Stateid,
    /// Handles, one a version.
    pub handles: List<Handle, MAX_CONFIGURED>,
    /// User for its I/O, where coupled loosely.
    pub user: Utf8,
    /// Group for its I/O, where coupled loosely.
    pub group: Utf8,
}

/// `ff_mirror4`: the stripes of one copy.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FlexMirror {
    /// One data server a stripe.
    pub data_servers: List<FlexDataServer, MAX_CONFIGURED>,
}

/// `ff_layout4`: body of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FlexLayout {
    /// Bytes a stripe; 0 where there is only one.
    pub stripe_unit: u64,
    /// The copies.
    pub mirrors: List<FlexMirror, MAX_CONFIGURED>,
    /// What the client must not do.
    pub flags: FlexFlags,
    /// Seconds between LAYOUTSTATS; 0 for none.
    pub stats_collect_hint: u32,
}

/// `ff_ioerr4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FlexIoError {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Stateid of the I/O.
    pub stateid: Stateid,
    /// What failed.
    pub errors: List<DeviceError, MAX_REPORTS>,
}

/// `ff_io_latency4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct FlexIoLatency {
    /// Operations that programs asked for.
    pub ops_requested: u64,
    /// Bytes that programs asked for.
    pub bytes_requested: u64,
    /// Operations completed.
    pub ops_completed: u64,
    /// Bytes completed.
    pub bytes_completed: u64,
    /// Bytes that failed.
    pub bytes_not_delivered: u64,
    /// Time with something outstanding.
    pub total_busy_time: Time,
    /// Sum of the operations' times.
    pub aggregate_completion_time: Time,
}

/// `ff_layoutupdate4`: body of a layout update in LAYOUTSTATS.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FlexLayoutUpdate {
    /// The data server.
    pub address: NetAddress,
    /// The file there.
    pub handle: Handle,
    /// Of reading.
    pub read: FlexIoLatency,
    /// Of writing.
    pub write: FlexIoLatency,
    /// Time that the statistics cover.
    pub duration: Time,
    /// Whether the data server is on the client's own host.
    pub local: bool,
}

/// `ff_iostats4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FlexIoStats {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The layout's stateid.
    pub stateid: Stateid,
    /// Reads.
    pub read: IoInfo,
    /// Writes.
    pub write: IoInfo,
    /// The device.
    pub device_id: DeviceId,
    /// Details.
    pub update: FlexLayoutUpdate,
}

/// `ff_layoutreturn4`: body of a layout return.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct FlexLayoutReturn {
    /// Errors met.
    pub io_errors: List<FlexIoError, MAX_REPORTS>,
    /// Statistics.
    pub io_stats: List<FlexIoStats, MAX_REPORTS>,
}

/// `ff_layouthint4`: body of a layout hint: how many mirrors are wished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct FlexLayoutHint {
    /// Number of mirrors, where the client has a wish.
    pub mirrors: Option<u32>,
}
