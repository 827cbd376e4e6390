//! The attributes' own types, where they are not basic ones.

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
    /// `fs_charset_cap4`: which names the file system has.
    pub struct FsCharsetCap {
        /// `FSCHARSET_CAP4_CONTAINS_NON_UTF8`.
        CONTAINS_NON_UTF8 = 1,
        /// `FSCHARSET_CAP4_ALLOWS_ONLY_UTF8`.
        ALLOWS_ONLY_UTF8 = 2,
    }
}

/// `settime4`: what to set a time to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum SetTime {
    /// `SET_TO_SERVER_TIME4`: the server's clock.
    #[xdr(case = 0)]
    ServerTime,
    /// `SET_TO_CLIENT_TIME4`: this time.
    #[xdr(case = 1)]
    ClientTime(Time),
}

/// `mode_masked4`: change some bits of the mode (v4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ModeMasked {
    /// The bits' new values.
    pub value: Mode,
    /// The bits to change.
    pub mask: Mode,
}

/// `mode_umask4`: the mode of a new object before and the umask to apply where no ACL is inherited (RFC 8275).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ModeUmask {
    /// The mode asked for.
    pub mode: Mode,
    /// Bits to take away.
    pub umask: Mode,
}

/// `change_policy4`: differs whenever the file system's configuration changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ChangePolicy {
    /// The greater part.
    pub major: u64,
    /// The lesser part.
    pub minor: u64,
}

xdr::constants! {
    /// `fs4_status_type`.
    pub struct FsStatusType: u32 {
        /// Does not change.
        FIXED = 1,
        /// Is updated from elsewhere.
        UPDATED = 2,
        /// Is updated in whole versions.
        VERSIONED = 3,
        /// Clients may write.
        WRITABLE = 4,
        /// Is somewhere else.
        REFERRAL = 5,
    }
}

/// `fs4_status`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct FsStatus {
    /// Not here.
    pub absent: bool,
    /// How it changes.
    pub status_type: FsStatusType,
    /// Where the master is.
    pub source: Utf8,
    /// Name of the version.
    pub current: Utf8,
    /// Seconds since it was known to be current; negative where unknown.
    pub age: i32,
    /// Time of the version.
    pub version: Time,
}

/// Bits of [`ThresholdItem::hint_set`].
pub mod threshold {
    /// `TH4_READ_SIZE`: reads of files smaller than this go to the metadata server.
    pub const READ_SIZE: u32 = 0;
    /// `TH4_WRITE_SIZE`: writes to files smaller than this do.
    pub const WRITE_SIZE: u32 = 1;
    /// `TH4_READ_IOSIZE`: reads smaller than this do.
    pub const READ_IOSIZE: u32 = 2;
    /// `TH4_WRITE_IOSIZE`: writes smaller than this do.
    pub const WRITE_IOSIZE: u32 = 3;
}

/// Greatest length of `thi_hintlist`, in bytes: [`Bitmap::LIMIT`] hints of eight bytes.
pub const MAX_HINT_LIST: usize = Bitmap::LIMIT as usize * 8;

/// `threshold_item4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ThresholdItem {
    /// The layout type it is for.
    pub layout_type: LayoutType,
    /// Which of [`threshold`] follow.
    pub hint_set: Bitmap,
    /// One `length4` for each bit of the set, ascending.
    pub hint_list: Opaque<MAX_HINT_LIST>,
}

/// `mdsthreshold4`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct MdsThreshold {
    /// One item a layout type.
    pub hints: List<ThresholdItem, MAX_CONFIGURED>,
}

/// `RET4_DURATION_INFINITE`: retained for ever.
pub const RETENTION_INFINITE: u64 = u64::MAX;

/// `retention_get4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RetentionGet {
    /// Seconds, or [`RETENTION_INFINITE`].
    pub duration: u64,
    /// When retention began, where it has.
    pub begin_time: List<Time, 1>,
}

/// `retention_set4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RetentionSet {
    /// Whether to begin retention.
    pub enable: bool,
    /// Seconds, or [`RETENTION_INFINITE`].
    pub duration: List<u64, 1>,
}

xdr::constants! {
    /// `change_attr_type4`: what a client may conclude from the change attribute (v4.2).
    pub struct ChangeAttrType: u32 {
        /// It only grows.
        MONOTONIC_INCR = 0,
        /// It grows by one a change.
        VERSION_COUNTER = 1,
        /// It grows by one a change where no layout is held.
        VERSION_COUNTER_NOPNFS = 2,
        /// It is `time_metadata`.
        TIME_METADATA = 3,
        /// It differs, no more.
        UNDEFINED = 4,
    }
}

/// Greatest length of a security label, in bytes: what Linux allows (`NFS4_MAXLABELLEN`).
pub const MAX_LABEL: usize = 2048;

/// `sec_label4`: a label for mandatory access control (v4.2).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SecLabel {
    /// `lfs_lfs`: label format, as IANA registers them.
    pub format: u32,
    /// `lfs_pi`: policy, whose meaning the format defines.
    pub policy: u32,
    /// The label.
    pub label: Opaque<MAX_LABEL>,
}

/// `open_arguments4`: which arguments of OPEN the server knows, as sets of the values or bit numbers of
/// [`open_args`] (RFC 9754).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct OpenArguments {
    /// Values of share access.
    pub share_access: Bitmap,
    /// Values of share deny.
    pub share_deny: Bitmap,
    /// Wants in share access.
    pub share_access_want: Bitmap,
    /// Claims.
    pub open_claim: Bitmap,
    /// Modes of creation.
    pub create_mode: Bitmap,
}

/// Numbers of [`OpenArguments`] that are not the value itself: for `share_access_want`, by RFC 9754.
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
