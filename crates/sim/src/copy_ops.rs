//! Operations of clients that copy files, within a server or between servers.

use bytes::Bytes;
use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::callback::offload::CbOffloadArgs;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::backchannel::{BindConnToSessionArgs, DirFromClient};
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::open::{CreateHow, OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny};
use protocol::nfs4::types::{ClientId, Handle, Outcome, SessionId, StateOwner, Stateid, Status};
use xdr::Opaque;

use crate::backchannel::BackChannel;
use crate::client::{component, export};

/// Returns OPEN of a file, which creates it if needed, and GETFH.
pub(crate) fn open(client_id: ClientId, name: &str) -> Vec<Op> {
    let owner = StateOwner { client_id, owner: Opaque::from_static(b"owner") };
    let open = Op::Open(OpenArgs {
        seqid: 0,
        share_access: ShareAccess::BOTH,
        share_deny: ShareDeny::empty(),
        owner,
        how: OpenHow::Create(CreateHow::Unchecked(FileAttributes::default())),
        claim: OpenClaim::Null(component(name)),
    });
    export().into_iter().chain([open, Op::GetFh]).collect()
}

/// Returns the handle and the stateid from the results of [`open`].
///
/// # Errors
/// Returns the results if it failed.
pub(crate) fn opened(results: &[OpResult]) -> Result<(Handle, Stateid), String> {
    match results {
        [.., OpResult::Open(Outcome::Ok(open)), OpResult::GetFh(Outcome::Ok(handle))] => {
            Ok((*handle, open.stateid))
        }
        other => Err(format!("{other:?}")),
    }
}

/// Returns the results of a successful compound.
///
/// # Errors
/// Returns the status and results if it failed.
pub(crate) fn succeeded((results, status): (Vec<OpResult>, Status)) -> Result<Vec<OpResult>, String> {
    if status == Status::OK { Ok(results) } else { Err(format!("{status:?}: {results:?}")) }
}

/// Returns BIND_CONN_TO_SESSION for both directions.
pub(crate) fn bind(session_id: SessionId) -> Op {
    let direction = DirFromClient::FORE_OR_BOTH;
    Op::BindConnToSession(BindConnToSessionArgs { session_id, direction, use_rdma: false })
}

pub(crate) fn putfh(handle: Handle) -> Op {
    Op::PutFh(PutFhArgs { handle })
}

/// Returns the reply to a callback, which must be CB_OFFLOAD; `handle` handles it once.
///
/// # Errors
/// Returns the error in the callback.
pub(crate) fn called(
    back: &mut BackChannel,
    bytes: Bytes,
    handle: impl FnOnce(&CbOffloadArgs) -> Result<(), String>,
) -> Result<Option<Bytes>, String> {
    back.called(bytes, |op| {
        let CbOp::Offload(offload) = op else { return Err(format!("{op:?}")) };
        handle(offload)?;
        Ok(Some(CbOpResult::Offload(Outcome::Ok(()))))
    })
}
