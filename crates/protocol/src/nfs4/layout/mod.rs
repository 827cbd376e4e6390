//! What layouts of every type share (RFC 8881 §12, §3.3.13 and following).

use xdr::{Decode, Encode, Opaque};

use super::types::{MAX_LAYOUT_BODY, Stateid};

pub mod files;
pub mod flex_files;

xdr::constants! {
    /// `layouttype4`, as IANA registers them.
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
    /// `layoutiomode4`. Unknown values survive, since they are answered BADIOMODE.
    pub struct LayoutIoMode: u32 {
        /// For reading.
        READ = 1,
        /// For reading and writing.
        RW = 2,
        /// Both; for returns and recalls only.
        ANY = 3,
    }
}

/// A layout type and what it defines: `layout_content4`, `layouthint4`, `layoutupdate4` and `device_addr4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LayoutBody {
    /// Who defines the body.
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
    /// For what I/O.
    pub iomode: LayoutIoMode,
    /// How to do it.
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
