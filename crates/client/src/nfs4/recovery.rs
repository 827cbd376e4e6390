//! Opens files again whose state at the server is gone (RFC 8881 §8.4, §8.5).

use std::sync::Arc;
use std::time::Duration;

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::open::{
    DelegationType, DelegationWant, OpenArgs, OpenClaim, OpenHow, ShareAccess, ShareDeny,
};
use protocol::nfs4::ops::stateid::FreeStateidArgs;
use protocol::nfs4::types::{StateOwner, Status};
use xdr::Opaque;

use super::session::{Session, Unexecuted};
use super::wire::{Results, put, take};
use crate::engine::Engine;
use crate::error::OpError;
use crate::opens::{OpenFile, OpenMode};

/// The share access of a mode, without a delegation.
pub(super) fn share_access(mode: OpenMode) -> ShareAccess {
    let mut access = ShareAccess::empty();
    access.set(ShareAccess::READ, mode.read || !mode.write);
    access.set(ShareAccess::WRITE, mode.write);
    access.with_want(DelegationWant::NO_DELEG)
}

/// The owner of an open with this number.
pub(super) fn open_owner(client_id: u64, number: u32) -> StateOwner {
    let name = Opaque::new(format!("open {number}").into_bytes()).unwrap_or_default();
    StateOwner { client_id, owner: name }
}

/// How a file is opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reopening {
    /// After the server restarted, before RECLAIM_COMPLETE (§8.4.2.1).
    Reclaim,
    /// At any other time, as a new open. It waits while the server is in its grace period.
    Anew,
}

/// The pause before another attempt in the server's grace period.
pub(super) const GRACE_PAUSE: Duration = Duration::from_secs(1);

/// Opens a file again. A file that is gone is lost: its user gets the status. One that the server does not let this client
/// reclaim is opened anew when it is used next. Returns whether the file is open now.
///
/// # Errors
/// If the session was lost again.
pub(super) async fn reopen(
    engine: &Arc<Engine>,
    session: &Arc<Session>,
    file: &OpenFile,
    reopening: Reopening,
) -> Result<bool, OpError> {
    let claim = match reopening {
        Reopening::Reclaim => OpenClaim::Previous(DelegationType::NONE),
        Reopening::Anew => OpenClaim::Fh,
    };
    let args = OpenArgs {
        seqid: 0,
        share_access: share_access(file.mode),
        share_deny: ShareDeny::empty(),
        owner: open_owner(session.client_id, file.owner),
        how: OpenHow::NoCreate,
        claim,
    };
    let ops = [put(file.handle), Op::Open(args)];
    loop {
        let mut results = run(session, file, &ops).await?;
        match results.skip().and_then(|()| take!(results, Open)) {
            Ok(opened) => {
                file.reclaimed(opened.stateid);
                return Ok(true);
            }
            Err(OpError::Status(Status::GRACE | Status::DELAY)) => {
                engine.sleep(GRACE_PAUSE).await;
                if session.lost().is_none() && !engine.is_shut_down() {
                    continue;
                }
                return Err(OpError::Status(Status::BADSESSION));
            }
            Err(OpError::Status(Status::NO_GRACE | Status::RECLAIM_BAD | Status::RECLAIM_CONFLICT)) => {}
            // The file is gone, or the user may not open it any longer.
            Err(OpError::Status(
                status @ (Status::STALE
                | Status::NOENT
                | Status::ACCESS
                | Status::PERM
                | Status::ROFS
                | Status::ISDIR),
            )) => file.lose(status),
            Err(error) => return Err(error),
        }
        return Ok(false);
    }
}

/// Frees a stateid that the server has revoked (§18.38), so that the server can forget it.
pub(super) async fn free_stateid(session: &Arc<Session>, file: &OpenFile) -> Result<(), OpError> {
    let Ok(stateid) = file.stateid() else { return Ok(()) };
    // Whether the server knew the stateid does not matter.
    run(session, file, &[Op::FreeStateid(FreeStateidArgs { stateid })]).await.map(|_| ())
}

/// Executes a compound in this session only.
pub(super) async fn run(session: &Arc<Session>, file: &OpenFile, ops: &[Op]) -> Result<Results, OpError> {
    match session.compound(file.caller.credential(), ops, true).await {
        Ok(result) => Ok(Results::new(result.status, result.results.into_vec(), false)),
        Err(Unexecuted::Call(error)) => Err(OpError::Call(error)),
        Err(Unexecuted::Refused(status)) => Err(OpError::Status(status)),
        Err(Unexecuted::SessionLost { .. } | Unexecuted::ReplyLost) => {
            Err(OpError::Status(Status::BADSESSION))
        }
    }
}
