//! A whole COMPOUND, for clients, tests and tools. A server decodes a compound operation by operation during execution, so that
//! an undecodable operation does not affect those before it.

use xdr::{Decode, Encode, List};

use super::macros::operations;
use super::ops::*;
use super::types::{MAX_OPERATIONS, OpNum, Outcome, Status, Utf8};

operations! {
    /// `nfs_argop4`: an operation and its arguments.
    pub enum Op;
    /// `nfs_resop4`: an operation's result.
    pub enum OpResult;
    OpNum;
    ACCESS Access(access::AccessArgs) -> access::AccessResult;
    CLOSE Close(close::CloseArgs) -> close::CloseResult;
    COMMIT Commit(commit::CommitArgs) -> commit::CommitResult;
    CREATE Create(create::CreateArgs) -> create::CreateResult;
    DELEGPURGE DelegPurge(delegation::DelegPurgeArgs) -> delegation::DelegPurgeResult;
    DELEGRETURN DelegReturn(delegation::DelegReturnArgs) -> delegation::DelegReturnResult;
    GETATTR GetAttr(getattr::GetAttrArgs) -> getattr::GetAttrResult;
    GETFH GetFh -> fh::GetFhResult;
    LINK Link(link::LinkArgs) -> link::LinkResult;
    LOCK Lock(lock::LockArgs) -> lock::LockResult;
    LOCKT LockT(lock::LockTArgs) -> lock::LockTResult;
    LOCKU LockU(lock::LockUArgs) -> lock::LockUResult;
    LOOKUP Lookup(lookup::LookupArgs) -> lookup::LookupResult;
    LOOKUPP LookupParent -> lookup::LookupParentResult;
    NVERIFY NVerify(verify::NVerifyArgs) -> verify::NVerifyResult;
    OPEN Open(open::OpenArgs) -> open::OpenResult;
    OPENATTR OpenAttr(open_state::OpenAttrArgs) -> open_state::OpenAttrResult;
    OPEN_CONFIRM OpenConfirm(open_state::OpenConfirmArgs) -> open_state::OpenConfirmResult;
    OPEN_DOWNGRADE OpenDowngrade(open_state::OpenDowngradeArgs) -> open_state::OpenDowngradeResult;
    PUTFH PutFh(fh::PutFhArgs) -> fh::PutFhResult;
    PUTPUBFH PutPubFh -> fh::PutPubFhResult;
    PUTROOTFH PutRootFh -> fh::PutRootFhResult;
    READ Read(read::ReadArgs) -> read::ReadResult;
    READDIR ReadDir(readdir::ReadDirArgs) -> readdir::ReadDirResult;
    READLINK ReadLink -> readlink::ReadLinkResult;
    REMOVE Remove(remove::RemoveArgs) -> remove::RemoveResult;
    RENAME Rename(rename::RenameArgs) -> rename::RenameResult;
    RENEW Renew(setclientid::RenewArgs) -> setclientid::RenewResult;
    RESTOREFH RestoreFh -> fh::RestoreFhResult;
    SAVEFH SaveFh -> fh::SaveFhResult;
    SECINFO SecInfo(secinfo::SecInfoArgs) -> secinfo::SecInfoResult;
    SETATTR SetAttr(setattr::SetAttrArgs) -> setattr::SetAttrResult;
    SETCLIENTID SetClientId(setclientid::SetClientIdArgs) -> setclientid::SetClientIdResult;
    SETCLIENTID_CONFIRM SetClientIdConfirm(setclientid::SetClientIdConfirmArgs) -> setclientid::SetClientIdConfirmResult;
    VERIFY Verify(verify::VerifyArgs) -> verify::VerifyResult;
    WRITE Write(write::WriteArgs) -> write::WriteResult;
    RELEASE_LOCKOWNER ReleaseLockOwner(lock::ReleaseLockOwnerArgs) -> lock::ReleaseLockOwnerResult;
    BACKCHANNEL_CTL BackchannelCtl(backchannel::BackchannelCtlArgs) -> backchannel::BackchannelCtlResult;
    BIND_CONN_TO_SESSION BindConnToSession(backchannel::BindConnToSessionArgs) -> backchannel::BindConnToSessionResult;
    EXCHANGE_ID ExchangeId(exchange_id::ExchangeIdArgs) -> exchange_id::ExchangeIdResult;
    CREATE_SESSION CreateSession(session::CreateSessionArgs) -> session::CreateSessionResult;
    DESTROY_SESSION DestroySession(session::DestroySessionArgs) -> session::DestroySessionResult;
    FREE_STATEID FreeStateid(stateid::FreeStateidArgs) -> stateid::FreeStateidResult;
    GET_DIR_DELEGATION GetDirDelegation(delegation::GetDirDelegationArgs) -> delegation::GetDirDelegationResult;
    GETDEVICEINFO GetDeviceInfo(device::GetDeviceInfoArgs) -> device::GetDeviceInfoResult;
    GETDEVICELIST GetDeviceList(device::GetDeviceListArgs) -> device::GetDeviceListResult;
    LAYOUTCOMMIT LayoutCommit(layout::LayoutCommitArgs) -> layout::LayoutCommitResult;
    LAYOUTGET LayoutGet(layout::LayoutGetArgs) -> layout::LayoutGetResult;
    LAYOUTRETURN LayoutReturn(layout::LayoutReturnArgs) -> layout::LayoutReturnResult;
    SECINFO_NO_NAME SecInfoNoName(secinfo::SecInfoNoNameArgs) -> secinfo::SecInfoNoNameResult;
    SEQUENCE Sequence(session::SequenceArgs) -> session::SequenceResult;
    SET_SSV SetSsv(ssv::SetSsvArgs) -> ssv::SetSsvResult;
    TEST_STATEID TestStateid(stateid::TestStateidArgs) -> stateid::TestStateidResult;
    WANT_DELEGATION WantDelegation(delegation::WantDelegationArgs) -> delegation::WantDelegationResult;
    DESTROY_CLIENTID DestroyClientId(exchange_id::DestroyClientIdArgs) -> exchange_id::DestroyClientIdResult;
    RECLAIM_COMPLETE ReclaimComplete(session::ReclaimCompleteArgs) -> session::ReclaimCompleteResult;
    ALLOCATE Allocate(space::AllocateArgs) -> space::AllocateResult;
    COPY Copy(copy::CopyArgs) -> copy::CopyResult;
    COPY_NOTIFY CopyNotify(copy::CopyNotifyArgs) -> copy::CopyNotifyResult;
    DEALLOCATE Deallocate(space::DeallocateArgs) -> space::DeallocateResult;
    IO_ADVISE IoAdvise(space::IoAdviseArgs) -> space::IoAdviseResult;
    LAYOUTERROR LayoutError(layout_report::LayoutErrorArgs) -> layout_report::LayoutErrorResult;
    LAYOUTSTATS LayoutStats(layout_report::LayoutStatsArgs) -> layout_report::LayoutStatsResult;
    OFFLOAD_CANCEL OffloadCancel(copy::OffloadCancelArgs) -> copy::OffloadCancelResult;
    OFFLOAD_STATUS OffloadStatus(copy::OffloadStatusArgs) -> copy::OffloadStatusResult;
    READ_PLUS ReadPlus(read_plus::ReadPlusArgs) -> read_plus::ReadPlusResult;
    SEEK Seek(space::SeekArgs) -> space::SeekResult;
    WRITE_SAME WriteSame(read_plus::WriteSameArgs) -> read_plus::WriteSameResult;
    CLONE Clone(space::CloneArgs) -> space::CloneResult;
    GETXATTR GetXattr(xattr::GetXattrArgs) -> xattr::GetXattrResult;
    SETXATTR SetXattr(xattr::SetXattrArgs) -> xattr::SetXattrResult;
    LISTXATTRS ListXattrs(xattr::ListXattrsArgs) -> xattr::ListXattrsResult;
    REMOVEXATTR RemoveXattr(xattr::RemoveXattrArgs) -> xattr::RemoveXattrResult;
    ILLEGAL Illegal -> Outcome<()>;
}

/// `COMPOUND4args`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CompoundArgs {
    /// Chosen by the client and repeated in the reply.
    pub tag: Utf8,
    /// 0, 1 or 2.
    pub minor_version: u32,
    /// The operations.
    pub ops: List<Op, MAX_OPERATIONS>,
}

/// `COMPOUND4res`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CompoundResult {
    /// The status of the last operation executed.
    pub status: Status,
    /// Repeated from the request.
    pub tag: Utf8,
    /// Results up to the first failure.
    pub results: List<OpResult, MAX_OPERATIONS>,
}
