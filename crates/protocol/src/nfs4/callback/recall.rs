//! Recalls: CB_GETATTR, CB_RECALL, CB_LAYOUTRECALL, CB_RECALL_ANY, CB_RECALLABLE_OBJ_AVAIL, CB_RECALL_SLOT,
//! CB_PUSH_DELEG, CB_WANTS_CANCELLED, CB_NOTIFY_LOCK (RFC 8881 §20).

use xdr::{Decode, Encode};

use crate::nfs4::attributes::FileAttributes;
use crate::nfs4::layout::{LayoutIoMode, LayoutType};
use crate::nfs4::ops::open::OpenDelegation;
use crate::nfs4::types::{Bitmap, Fsid, Handle, Outcome, StateOwner, Stateid};

/// `CB_GETATTR4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbGetAttrArgs {
    /// The file.
    pub handle: Handle,
    /// Requested attributes: `size`, `change` and delegated times.
    pub attributes: Bitmap,
}

/// `CB_GETATTR4res`.
pub type CbGetAttrResult = Outcome<FileAttributes>;

/// `CB_RECALL4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbRecallArgs {
    /// The delegation.
    pub stateid: Stateid,
    /// Whether the file will be truncated, so that dirty data can be discarded.
    pub truncate: bool,
    /// The file.
    pub handle: Handle,
}

/// `CB_RECALL4res`.
pub type CbRecallResult = Outcome<()>;

/// `layoutrecall_file4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct LayoutRecallFile {
    /// The file.
    pub handle: Handle,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The layout.
    pub stateid: Stateid,
}

/// `layoutrecall4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
#[allow(clippy::large_enum_variant)]
pub enum LayoutRecall {
    /// `LAYOUTRECALL4_FILE`: a range of a file.
    #[xdr(case = 1)]
    File(LayoutRecallFile),
    /// `LAYOUTRECALL4_FSID`: a file system.
    #[xdr(case = 2)]
    Fsid(Fsid),
    /// `LAYOUTRECALL4_ALL`: all layouts.
    #[xdr(case = 3)]
    All,
}

/// `CB_LAYOUTRECALL4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbLayoutRecallArgs {
    /// Layout type.
    pub layout_type: LayoutType,
    /// The I/O mode.
    pub iomode: LayoutIoMode,
    /// Whether the layout changed, so that dirty data must not be written with it.
    pub changed: bool,
    /// The layouts to return.
    pub recall: LayoutRecall,
}

/// `CB_LAYOUTRECALL4res`.
pub type CbLayoutRecallResult = Outcome<()>;

/// `CB_PUSH_DELEG4args`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbPushDelegArgs {
    /// The file.
    pub handle: Handle,
    /// The delegation.
    pub delegation: OpenDelegation,
}

/// `CB_PUSH_DELEG4res`.
pub type CbPushDelegResult = Outcome<()>;

/// `RCA4_TYPE_MASK_*`: bits of [`CbRecallAnyArgs::type_mask`].
pub mod recallable {
    /// Delegations for reading.
    pub const RDATA_DLG: u32 = 0;
    /// Delegations for writing.
    pub const WDATA_DLG: u32 = 1;
    /// Directory delegations.
    pub const DIR_DLG: u32 = 2;
    /// File layouts.
    pub const FILE_LAYOUT: u32 = 3;
    /// Block layouts.
    pub const BLK_LAYOUT: u32 = 4;
    /// First of object layouts.
    pub const OBJ_LAYOUT_MIN: u32 = 8;
    /// Last of object layouts.
    pub const OBJ_LAYOUT_MAX: u32 = 9;
    /// First experimental type.
    pub const OTHER_LAYOUT_MIN: u32 = 12;
    /// Last experimental type.
    pub const OTHER_LAYOUT_MAX: u32 = 15;
    /// Flexible file layouts for reading (RFC 8435).
    pub const FF_LAYOUT_READ: u32 = 16;
    /// Flexible file layouts for reading and writing (RFC 8435).
    pub const FF_LAYOUT_RW: u32 = 17;
}

/// `CB_RECALL_ANY4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbRecallAnyArgs {
    /// Maximum number of objects that the client may keep.
    pub objects_to_keep: u32,
    /// The kinds of objects, by [`recallable`].
    pub type_mask: Bitmap,
}

/// `CB_RECALL_ANY4res`.
pub type CbRecallAnyResult = Outcome<()>;

/// `CB_RECALLABLE_OBJ_AVAIL4args`.
pub type CbRecallableObjAvailArgs = CbRecallAnyArgs;

/// `CB_RECALLABLE_OBJ_AVAIL4res`.
pub type CbRecallableObjAvailResult = Outcome<()>;

/// `CB_RECALL_SLOT4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbRecallSlotArgs {
    /// Highest slot that the client should use.
    pub target_highest_slot_id: u32,
}

/// `CB_RECALL_SLOT4res`.
pub type CbRecallSlotResult = Outcome<()>;

/// `CB_WANTS_CANCELLED4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbWantsCancelledArgs {
    /// Whether wants that wait for the end of contention are cancelled.
    pub contended: bool,
    /// Whether wants that wait for resources are cancelled.
    pub resourced: bool,
}

/// `CB_WANTS_CANCELLED4res`.
pub type CbWantsCancelledResult = Outcome<()>;

/// `CB_NOTIFY_LOCK4args`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbNotifyLockArgs {
    /// The file.
    pub handle: Handle,
    /// The lock owner that waits.
    pub lock_owner: StateOwner,
}

/// `CB_NOTIFY_LOCK4res`.
pub type CbNotifyLockResult = Outcome<()>;
