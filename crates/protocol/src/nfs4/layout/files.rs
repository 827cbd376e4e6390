//! The NFSv4.1 file layout (RFC 8881 §13).

use xdr::{Decode, Encode, List};

use crate::nfs4::macros::flags;
use crate::nfs4::types::{DeviceId, Handle, MAX_CONFIGURED, NetAddress};

/// Maximum number of stripe indices, and of file handles in a layout. RFC 8881 §13.3 sets none; the Linux client stops
/// at the same number (`NFS4_PNFS_MAX_STRIPE_CNT`).
pub const MAX_STRIPES: usize = 4096;

/// `multipath_list4`: addresses of one server.
pub type MultipathList = List<NetAddress, MAX_CONFIGURED>;

flags! {
    /// `nfl_util4`: flags, and the stripe unit's size in the upper 26 bits.
    pub struct FileLayoutUtil {
        /// `NFL4_UFLG_DENSE`: data servers store stripes without holes.
        DENSE = 1,
        /// `NFL4_UFLG_COMMIT_THRU_MDS`: COMMIT goes to the metadata server.
        COMMIT_THRU_MDS = 2,
        /// `NFL42_UFLG_IO_ADVISE_THRU_MDS`: IO_ADVISE goes to the metadata server.
        IO_ADVISE_THRU_MDS = 4,
    }
}

impl FileLayoutUtil {
    /// `NFL4_UFLG_STRIPE_UNIT_SIZE_MASK`.
    pub const STRIPE_UNIT_SIZE_MASK: u32 = 0xffff_ffc0;

    /// Returns the size of a stripe unit in bytes, a multiple of 64.
    #[must_use]
    pub const fn stripe_unit_size(self) -> u32 {
        self.bits() & Self::STRIPE_UNIT_SIZE_MASK
    }
}

flags! {
    /// `filelayout_hint_care4`: the valid fields of a hint.
    pub struct FileLayoutHintCare {
        /// `NFLH4_CARE_DENSE`.
        DENSE = 0x01,
        /// `NFLH4_CARE_COMMIT_THRU_MDS`.
        COMMIT_THRU_MDS = 0x02,
        /// `NFL42_CARE_IO_ADVISE_THRU_MDS`.
        IO_ADVISE_THRU_MDS = 0x04,
        /// `NFLH4_CARE_STRIPE_UNIT_SIZE`.
        STRIPE_UNIT_SIZE = 0x40,
        /// `NFLH4_CARE_STRIPE_COUNT`.
        STRIPE_COUNT = 0x80,
    }
}

/// `nfsv4_1_file_layouthint4`: body of a layout hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct FileLayoutHint {
    /// The valid fields.
    pub care: FileLayoutHintCare,
    /// Flags and stripe unit.
    pub util: FileLayoutUtil,
    /// Number of stripes.
    pub stripe_count: u32,
}

/// `nfsv4_1_file_layout_ds_addr4`: body of a device address.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FileLayoutDeviceAddress {
    /// For each stripe, an index into `servers`.
    pub stripe_indices: List<u32, MAX_STRIPES>,
    /// The data servers.
    pub servers: List<MultipathList, MAX_CONFIGURED>,
}

/// `nfsv4_1_file_layout4`: body of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FileLayout {
    /// The device.
    pub device_id: DeviceId,
    /// Flags and stripe unit.
    pub util: FileLayoutUtil,
    /// Stripe index of the pattern's first unit.
    pub first_stripe_index: u32,
    /// Offset of the pattern's start, in bytes.
    pub pattern_offset: u64,
    /// Handles at the data servers: none, one for all, or one per stripe index.
    pub handles: List<Handle, MAX_STRIPES>,
}
