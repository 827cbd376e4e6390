//! The flexible file layout (RFC 8435).

use xdr::{Decode, Encode, List};

use super::files::MultipathList;
use crate::nfs4::macros::flags;
use crate::nfs4::ops::layout_report::{DeviceError, IoInfo};
use crate::nfs4::types::{DeviceId, Handle, MAX_CONFIGURED, NetAddress, Stateid, Time, Utf8};

/// Maximum number of errors or statistics of one file in a layout return.
pub const MAX_REPORTS: usize = 1024;

/// `ff_device_versions4`: an NFS version that a data server supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct FlexDeviceVersion {
    /// 3 or 4.
    pub version: u32,
    /// For 4, the minor version.
    pub minor_version: u32,
    /// Maximum READ, in bytes.
    pub rsize: u32,
    /// Maximum WRITE, in bytes.
    pub wsize: u32,
    /// Whether the data server honors state of the metadata server (tight coupling).
    pub tightly_coupled: bool,
}

/// `ff_device_addr4`: body of a device address.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FlexDeviceAddress {
    /// Addresses of the data server.
    pub addresses: MultipathList,
    /// Supported versions.
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
    /// Efficiency for reads; higher is better.
    pub efficiency: u32,
    /// Stateid for I/O with tight coupling.
    pub stateid: Stateid,
    /// Handles, one per version.
    pub handles: List<Handle, MAX_CONFIGURED>,
    /// User for I/O with loose coupling.
    pub user: Utf8,
    /// Group for I/O with loose coupling.
    pub group: Utf8,
}

/// `ff_mirror4`: the stripes of one copy.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FlexMirror {
    /// One data server per stripe.
    pub data_servers: List<FlexDataServer, MAX_CONFIGURED>,
}

/// `ff_layout4`: body of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FlexLayout {
    /// Bytes per stripe; 0 without striping.
    pub stripe_unit: u64,
    /// The mirrors.
    pub mirrors: List<FlexMirror, MAX_CONFIGURED>,
    /// Restrictions for the client.
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
    /// The errors.
    pub errors: List<DeviceError, MAX_REPORTS>,
}

/// `ff_io_latency4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct FlexIoLatency {
    /// Operations that applications requested.
    pub ops_requested: u64,
    /// Bytes that applications requested.
    pub bytes_requested: u64,
    /// Operations completed.
    pub ops_completed: u64,
    /// Bytes completed.
    pub bytes_completed: u64,
    /// Bytes that failed.
    pub bytes_not_delivered: u64,
    /// Time with operations outstanding.
    pub total_busy_time: Time,
    /// Sum of the durations of all operations.
    pub aggregate_completion_time: Time,
}

/// `ff_layoutupdate4`: body of a layout update in LAYOUTSTATS.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FlexLayoutUpdate {
    /// The data server.
    pub address: NetAddress,
    /// The file there.
    pub handle: Handle,
    /// Latency of reads.
    pub read: FlexIoLatency,
    /// Latency of writes.
    pub write: FlexIoLatency,
    /// Period of the statistics.
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
    /// Details of the layout type.
    pub update: FlexLayoutUpdate,
}

/// `ff_layoutreturn4`: body of a layout return.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct FlexLayoutReturn {
    /// Errors.
    pub io_errors: List<FlexIoError, MAX_REPORTS>,
    /// Statistics.
    pub io_stats: List<FlexIoStats, MAX_REPORTS>,
}

/// `ff_layouthint4`: body of a layout hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct FlexLayoutHint {
    /// The number of mirrors that the client wants, if any.
    pub mirrors: Option<u32>,
}
