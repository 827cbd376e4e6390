//! Types of attributes, other than the basic ones.

use xdr::{Decode, Encode, List, Opaque};

use crate::nfs4::layout::LayoutType;
use crate::nfs4::macros::flags;
use crate::nfs4::types::{Bitmap, MAX_CONFIGURED, Mode, Time, Utf8};

flags! {
    /// `fattr4_fh_expire_type`: when file handles expire (RFC 8881 §4.2.3). No bit: never.
    pub struct FhExpireType {
        /// `FH4_NOEXPIRE_WITH_OPEN`: not while the file is open.
        NOEXPIRE_WITH_OPEN = 1,
        /// `FH4_VOLATILE_ANY`: at any time.
        VOLATILE_ANY = 2,
        /// `FH4_VOL_MIGRATION`: on migration.
        VOLATILE_MIGRATION = 4,
        /// `FH4_VOL_RENAME`: on rename.
        VOLATILE_RENAME = 8,
    }
}

flags! {
    /// `fs_charset_cap4`: the character sets of names.
    pub struct FsCharsetCap {
        /// `FSCHARSET_CAP4_CONTAINS_NON_UTF8`.
        CONTAINS_NON_UTF8 = 1,
        /// `FSCHARSET_CAP4_ALLOWS_ONLY_UTF8`.
        ALLOWS_ONLY_UTF8 = 2,
    }
}

/// `settime4`: the source of a new time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum SetTime {
    /// `SET_TO_SERVER_TIME4`: the server's clock.
    #[xdr(case = 0)]
    ServerTime,
    /// `SET_TO_CLIENT_TIME4`: this time.
    #[xdr(case = 1)]
    ClientTime(Time),
}

/// `mode_masked4`: a change of some mode bits (v4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ModeMasked {
    /// The bits' new values.
    pub value: Mode,
    /// The bits to change.
    pub mask: Mode,
}

/// `mode_umask4`: mode and umask of a new object; the umask applies if no ACL is inherited (RFC 8275).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ModeUmask {
    /// The requested mode.
    pub mode: Mode,
    /// The bits to clear.
    pub umask: Mode,
}

/// `change_policy4`: changes whenever the file system's configuration changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ChangePolicy {
    /// The major part.
    pub major: u64,
    /// The minor part.
    pub minor: u64,
}

xdr::constants! {
    /// `fs4_status_type`.
    pub struct FsStatusType: u32 {
        /// The file system never changes.
        FIXED = 1,
        /// The file system is updated from a source.
        UPDATED = 2,
        /// The file system is updated in whole versions.
        VERSIONED = 3,
        /// Clients may write to the file system.
        WRITABLE = 4,
        /// The file system is at another location.
        REFERRAL = 5,
    }
}

/// `fs4_status`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FsStatus {
    /// Whether the file system is absent.
    pub absent: bool,
    /// How the file system changes.
    pub status_type: FsStatusType,
    /// Location of the source.
    pub source: Utf8,
    /// The version's name.
    pub current: Utf8,
    /// Seconds since it was known to be current; negative if unknown.
    pub age: i32,
    /// Time of the version.
    pub version: Time,
}

/// Bits of [`ThresholdItem::hint_set`].
pub mod threshold {
    /// `TH4_READ_SIZE`: read files smaller than this from the metadata server.
    pub const READ_SIZE: u32 = 0;
    /// `TH4_WRITE_SIZE`: write files smaller than this to the metadata server.
    pub const WRITE_SIZE: u32 = 1;
    /// `TH4_READ_IOSIZE`: send reads smaller than this to the metadata server.
    pub const READ_IOSIZE: u32 = 2;
    /// `TH4_WRITE_IOSIZE`: send writes smaller than this to the metadata server.
    pub const WRITE_IOSIZE: u32 = 3;
}

/// Maximum length of `thi_hintlist`, in bytes: [`Bitmap::LIMIT`] hints of eight bytes.
pub const MAX_HINT_LIST: usize = Bitmap::LIMIT as usize * 8;

/// `threshold_item4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ThresholdItem {
    /// The layout type.
    pub layout_type: LayoutType,
    /// The thresholds present, by [`threshold`].
    pub hint_set: Bitmap,
    /// One `length4` per bit of the set, ascending.
    pub hint_list: Opaque<MAX_HINT_LIST>,
}

/// `mdsthreshold4`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct MdsThreshold {
    /// One item per layout type.
    pub hints: List<ThresholdItem, MAX_CONFIGURED>,
}

/// `RET4_DURATION_INFINITE`: retained forever.
pub const RETENTION_INFINITE: u64 = u64::MAX;

/// `retention_get4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RetentionGet {
    /// Seconds, or [`RETENTION_INFINITE`].
    pub duration: u64,
    /// Start of retention, if it has started.
    pub begin_time: List<Time, 1>,
}

/// `retention_set4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RetentionSet {
    /// Whether to start retention.
    pub enable: bool,
    /// Seconds, or [`RETENTION_INFINITE`].
    pub duration: List<u64, 1>,
}

xdr::constants! {
    /// `change_attr_type4`: the meaning of the change attribute (v4.2).
    pub struct ChangeAttrType: u32 {
        /// It only increases.
        MONOTONIC_INCR = 0,
        /// It increases by one per change.
        VERSION_COUNTER = 1,
        /// It increases by one per change if there is no layout.
        VERSION_COUNTER_NOPNFS = 2,
        /// It equals `time_metadata`.
        TIME_METADATA = 3,
        /// It has another value after a change.
        UNDEFINED = 4,
    }
}

/// Maximum length of a security label, in bytes, as in Linux (`NFS4_MAXLABELLEN`).
pub const MAX_LABEL: usize = 2048;

/// `sec_label4`: a label for mandatory access control (v4.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SecLabel {
    /// `lfs_lfs`: label format in the IANA registry.
    pub format: u32,
    /// `lfs_pi`: policy, defined by the format.
    pub policy: u32,
    /// The label.
    pub label: Opaque<MAX_LABEL>,
}

/// `open_arguments4`: the arguments of OPEN that the server supports, as sets of the values or bit numbers of
/// [`open_args`] (RFC 9754).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct OpenArguments {
    /// Values of share access.
    pub share_access: Bitmap,
    /// Values of share deny.
    pub share_deny: Bitmap,
    /// Delegation wants in share access.
    pub share_access_want: Bitmap,
    /// Claims.
    pub open_claim: Bitmap,
    /// Modes of creation.
    pub create_mode: Bitmap,
}

/// Bit numbers of `share_access_want` in [`OpenArguments`], which differ from the values (RFC 9754).
pub mod open_args {
    /// `OPEN_ARGS_SHARE_ACCESS_WANT_ANY_DELEG`.
    pub const WANT_ANY_DELEG: u32 = 3;
    /// `OPEN_ARGS_SHARE_ACCESS_WANT_NO_DELEG`.
    pub const WANT_NO_DELEG: u32 = 4;
    /// `OPEN_ARGS_SHARE_ACCESS_WANT_CANCEL`.
    pub const WANT_CANCEL: u32 = 5;
    /// `OPEN_ARGS_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL`.
    pub const WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL: u32 = 17;
    /// `OPEN_ARGS_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED`.
    pub const WANT_PUSH_DELEG_WHEN_UNCONTENDED: u32 = 18;
    /// `OPEN_ARGS_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS`.
    pub const WANT_DELEG_TIMESTAMPS: u32 = 20;
    /// `OPEN_ARGS_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION`.
    pub const WANT_OPEN_XOR_DELEGATION: u32 = 21;
}
