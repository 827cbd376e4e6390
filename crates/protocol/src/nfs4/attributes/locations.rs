//! Locations of a file system: `fs_locations` and `fs_locations_info` (RFC 8881 §11.16, §11.17).

use xdr::{Decode, Encode, List, Opaque};

use crate::nfs4::macros::flags;
use crate::nfs4::types::{MAX_CONFIGURED, Pathname, Utf8};

/// `fs_location4`: servers with one root path.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FsLocation {
    /// Names or addresses.
    pub servers: List<Utf8, MAX_CONFIGURED>,
    /// The path of the file system on these servers.
    pub root_path: Pathname,
}

/// `fs_locations4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FsLocations {
    /// The path of the file system on this server.
    pub fs_root: Pathname,
    /// Its other locations.
    pub locations: List<FsLocation, MAX_CONFIGURED>,
}

flags! {
    /// `fli_flags`.
    pub struct LocationsFlags {
        /// `FSLI4IF_VAR_SUB`: the client must substitute variables in paths.
        VARIABLE_SUBSTITUTION = 1,
    }
}

/// Maximum length of `fls_info`, in bytes: 12 are defined ([`info_byte`]), and extensions can add more.
pub const MAX_LOCATION_INFO: usize = 255;

/// Indices of the bytes in `fls_info` (RFC 8881 §11.17.1), and the bits of the first two.
pub mod info_byte {
    /// `FSLI4BX_GFLAGS`: general flags.
    pub const GENERAL_FLAGS: usize = 0;
    /// `FSLI4BX_TFLAGS`: transport flags.
    pub const TRANSPORT_FLAGS: usize = 1;
    /// `FSLI4BX_CLSIMUL`: class of simultaneous use.
    pub const CLASS_SIMULTANEOUS: usize = 2;
    /// `FSLI4BX_CLHANDLE`: class of equal handles.
    pub const CLASS_HANDLE: usize = 3;
    /// `FSLI4BX_CLFILEID`: class of equal file ids.
    pub const CLASS_FILEID: usize = 4;
    /// `FSLI4BX_CLWRITEVER`: class of equal write verifiers.
    pub const CLASS_WRITE_VERIFIER: usize = 5;
    /// `FSLI4BX_CLCHANGE`: class of equal change attributes.
    pub const CLASS_CHANGE: usize = 6;
    /// `FSLI4BX_CLREADDIR`: class of equal READDIR cookies.
    pub const CLASS_READDIR: usize = 7;
    /// `FSLI4BX_READRANK`.
    pub const READ_RANK: usize = 8;
    /// `FSLI4BX_WRITERANK`.
    pub const WRITE_RANK: usize = 9;
    /// `FSLI4BX_READORDER`.
    pub const READ_ORDER: usize = 10;
    /// `FSLI4BX_WRITEORDER`.
    pub const WRITE_ORDER: usize = 11;

    /// `FSLI4GF_WRITABLE`.
    pub const WRITABLE: u8 = 0x01;
    /// `FSLI4GF_CUR_REQ`: this location served the request.
    pub const CURRENT_REQUEST: u8 = 0x02;
    /// `FSLI4GF_ABSENT`.
    pub const ABSENT: u8 = 0x04;
    /// `FSLI4GF_GOING`: will soon be absent.
    pub const GOING: u8 = 0x08;
    /// `FSLI4GF_SPLIT`.
    pub const SPLIT: u8 = 0x10;
    /// `FSLI4TF_RDMA`.
    pub const RDMA: u8 = 0x01;
}

/// `fs_locations_server4`: one replica.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LocationServer {
    /// Age of its data in seconds; negative if unknown.
    pub currency: i32,
    /// Properties, by [`info_byte`].
    pub info: Opaque<MAX_LOCATION_INFO>,
    /// Name or address.
    pub server: Utf8,
}

/// `fs_locations_item4`: replicas with one root path.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LocationItem {
    /// The replicas.
    pub entries: List<LocationServer, MAX_CONFIGURED>,
    /// The path of the file system on these servers.
    pub root_path: Pathname,
}

/// `fs_locations_info4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FsLocationsInfo {
    /// Flags of all locations.
    pub flags: LocationsFlags,
    /// Seconds for which a client may cache this.
    pub valid_for: i32,
    /// The path of the file system on this server.
    pub fs_root: Pathname,
    /// The replicas.
    pub items: List<LocationItem, MAX_CONFIGURED>,
}
