//! Callbacks: CB_COMPOUND and its operations (RFC 7530 §15, RFC 8881 §20, RFC 7862 §16).

use xdr::{Decode, Encode, List};

use super::macros::operations;
use super::types::{CallbackOpNum, MAX_OPERATIONS, Outcome, Status, Utf8};

pub mod notify;
pub mod offload;
pub mod recall;
pub mod sequence;

/// Version of the callback program (`NFS_CB`). The client chooses the program number.
pub const VERSION: u32 = 1;
/// The usual program number of callbacks (`NFS4_CALLBACK`).
pub const PROGRAM: u32 = 0x4000_0000;
/// `CB_NULL`.
pub const PROC_NULL: u32 = 0;
/// `CB_COMPOUND`.
pub const PROC_COMPOUND: u32 = 1;

operations! {
    /// `nfs_cb_argop4`: a callback operation and its arguments.
    pub enum CbOp;
    /// `nfs_cb_resop4`: a callback operation's result.
    pub enum CbOpResult;
    CallbackOpNum;
    GETATTR GetAttr(recall::CbGetAttrArgs) -> recall::CbGetAttrResult;
    RECALL Recall(recall::CbRecallArgs) -> recall::CbRecallResult;
    LAYOUTRECALL LayoutRecall(recall::CbLayoutRecallArgs) -> recall::CbLayoutRecallResult;
    NOTIFY Notify(notify::CbNotifyArgs) -> notify::CbNotifyResult;
    PUSH_DELEG PushDeleg(recall::CbPushDelegArgs) -> recall::CbPushDelegResult;
    RECALL_ANY RecallAny(recall::CbRecallAnyArgs) -> recall::CbRecallAnyResult;
    RECALLABLE_OBJ_AVAIL RecallableObjAvail(recall::CbRecallableObjAvailArgs) -> recall::CbRecallableObjAvailResult;
    RECALL_SLOT RecallSlot(recall::CbRecallSlotArgs) -> recall::CbRecallSlotResult;
    SEQUENCE Sequence(sequence::CbSequenceArgs) -> sequence::CbSequenceResult;
    WANTS_CANCELLED WantsCancelled(recall::CbWantsCancelledArgs) -> recall::CbWantsCancelledResult;
    NOTIFY_LOCK NotifyLock(recall::CbNotifyLockArgs) -> recall::CbNotifyLockResult;
    NOTIFY_DEVICEID NotifyDeviceId(notify::CbNotifyDeviceIdArgs) -> notify::CbNotifyDeviceIdResult;
    OFFLOAD Offload(offload::CbOffloadArgs) -> offload::CbOffloadResult;
    ILLEGAL Illegal -> Outcome<()>;
}

/// `CB_COMPOUND4args`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbCompoundArgs {
    /// Chosen by the server and repeated in the reply.
    pub tag: Utf8,
    /// 0, 1 or 2.
    pub minor_version: u32,
    /// v4.0: the value from SETCLIENTID. v4.1: ignored.
    pub callback_ident: u32,
    /// The operations.
    pub ops: List<CbOp, MAX_OPERATIONS>,
}

/// `CB_COMPOUND4res`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbCompoundResult {
    /// The status of the last operation executed.
    pub status: Status,
    /// Repeated from the request.
    pub tag: Utf8,
    /// Results up to the first failure.
    pub results: List<CbOpResult, MAX_OPERATIONS>,
}
