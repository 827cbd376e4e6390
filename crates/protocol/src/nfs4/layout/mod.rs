//! Types common to all layout types (RFC 8881 §12, §3.3.13 and following).

use xdr::{Decode, Encode, Opaque};

use super::types::{MAX_LAYOUT_BODY, Stateid};

pub mod files;
pub mod flex_files;

xdr::constants! {
    /// `layouttype4` in the IANA registry.
    pub struct LayoutType: u32 {
        /// `LAYOUT4_NFSV4_1_FILES`: see [`files`].
        NFSV4_1_FILES = 1,
        /// `LAYOUT4_OSD2_OBJECTS`.
        OSD2_OBJECTS = 2,
        /// `LAYOUT4_BLOCK_VOLUME`.
        BLOCK_VOLUME = 3,
        /// `LAYOUT4_FLEX_FILES`: see [`flex_files`].
        FLEX_FILES = 4,
        /// `LAYOUT4_SCSI`.
        SCSI = 5,
    }
}

xdr::constants! {
    /// `layoutiomode4`. Unknown values are kept, so that the server can reject them with BADIOMODE.
    pub struct LayoutIoMode: u32 {
        /// For reads.
        READ = 1,
        /// For reads and writes.
        RW = 2,
        /// Both modes; only for returns and recalls.
        ANY = 3,
    }
}

/// A layout type and its body: `layout_content4`, `layouthint4`, `layoutupdate4` or `device_addr4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LayoutBody {
    /// The layout type, which defines the body.
    pub layout_type: LayoutType,
    /// XDR of a type that the layout type defines.
    pub body: Opaque<MAX_LAYOUT_BODY>,
}

/// `layout_content4`.
pub type LayoutContent = LayoutBody;
/// `layouthint4`.
pub type LayoutHint = LayoutBody;
/// `layoutupdate4`.
pub type LayoutUpdate = LayoutBody;
/// `device_addr4`.
pub type DeviceAddress = LayoutBody;

/// `layout4`: one segment.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Layout {
    /// First byte.
    pub offset: u64,
    /// Bytes; [`super::types::TO_END_OF_FILE`] for all.
    pub length: u64,
    /// The I/O mode.
    pub iomode: LayoutIoMode,
    /// The layout's content.
    pub content: LayoutContent,
}

/// `layoutreturn_file4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LayoutReturnFile {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The layout's stateid.
    pub stateid: Stateid,
    /// XDR of a type that the layout type defines.
    pub body: Opaque<MAX_LAYOUT_BODY>,
}

/// `layoutreturn4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum LayoutReturn {
    /// `LAYOUTRETURN4_FILE`: a range of the current file.
    #[xdr(case = 1)]
    File(LayoutReturnFile),
    /// `LAYOUTRETURN4_FSID`: all of the current file system.
    #[xdr(case = 2)]
    Fsid,
    /// `LAYOUTRETURN4_ALL`: all of the client.
    #[xdr(case = 3)]
    All,
}
