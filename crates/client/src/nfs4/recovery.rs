//! What the client does about statuses that say that its state at the server is gone (RFC 8881 §8.4, §8.5).

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

/// What to do about a status of an operation with a stateid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recovery {
    /// Open the file again, then repeat the operation.
    Reopen,
    /// Repeat the operation: the stateid has been replaced meanwhile.
    Retry,
    /// Wait until the grace period is over, then repeat the operation.
    AwaitGrace,
    /// Make a new session. With it all state is reclaimed.
    NewSession,
    /// Make a new client ID and session, and reclaim all state.
    NewClient,
    /// Tell the caller.
    Fail,
}

/// Each status that concerns state, and what is done about it. Others fail.
pub(crate) const TABLE: &[(Status, Recovery)] = &[
    (Status::BADSESSION, Recovery::NewSession),
    (Status::DEADSESSION, Recovery::NewSession),
    (Status::BADSLOT, Recovery::NewSession),
    (Status::SEQ_MISORDERED, Recovery::NewSession),
    (Status::SEQ_FALSE_RETRY, Recovery::NewSession),
    (Status::BAD_HIGH_SLOT, Recovery::NewSession),
    (Status::CONN_NOT_BOUND_TO_SESSION, Recovery::NewSession),
    (Status::STALE_CLIENTID, Recovery::NewClient),
    (Status::STALE_STATEID, Recovery::Reopen),
    (Status::BAD_STATEID, Recovery::Reopen),
    (Status::EXPIRED, Recovery::Reopen),
    (Status::ADMIN_REVOKED, Recovery::Reopen),
    (Status::DELEG_REVOKED, Recovery::Reopen),
    (Status::OPENMODE, Recovery::Fail),
    (Status::OLD_STATEID, Recovery::Retry),
    (Status::GRACE, Recovery::AwaitGrace),
];

/// Returns what to do about a status.
pub(crate) fn recovery(status: Status) -> Recovery {
    TABLE.iter().find(|(listed, _)| *listed == status).map_or(Recovery::Fail, |(_, recovery)| *recovery)
}

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
const GRACE_PAUSE: Duration = Duration::from_secs(1);

/// Opens a file again in a new session. A file that cannot be opened is lost: its user gets the status. One that the server
/// does not let this client reclaim is opened anew when it is used next.
///
/// # Errors
/// If the session was lost again.
pub(super) async fn reopen(
    engine: &Arc<Engine>,
    session: &Arc<Session>,
    file: &OpenFile,
    reopening: Reopening,
) -> Result<(), OpError> {
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
            Ok(opened) => file.reclaimed(opened.stateid),
            Err(OpError::Status(Status::GRACE | Status::DELAY)) => {
                engine.sleep(GRACE_PAUSE).await;
                if session.lost().is_none() && !engine.is_shut_down() {
                    continue;
                }
                return Err(OpError::Status(Status::BADSESSION));
            }
            Err(OpError::Status(Status::NO_GRACE | Status::RECLAIM_BAD | Status::RECLAIM_CONFLICT)) => {}
            Err(OpError::Status(status)) => file.lose(status),
            Err(error) => return Err(error),
        }
        return Ok(());
    }
}

/// Frees a stateid that the server has revoked (§18.38), so that the server can forget it.
pub(super) async fn free_stateid(session: &Arc<Session>, file: &OpenFile) -> Result<(), OpError> {
    let Ok(stateid) = file.stateid() else { return Ok(()) };
    // Whether the server knew the stateid does not matter.
    run(session, file, &[Op::FreeStateid(FreeStateidArgs { stateid })]).await.map(|_| ())
}

/// Executes a compound in this session only.
async fn run(session: &Arc<Session>, file: &OpenFile, ops: &[Op]) -> Result<Results, OpError> {
    match session.compound(file.caller.credential(), ops, true).await {
        Ok(result) => Ok(Results::new(result.status, result.results.into_vec(), false)),
        Err(Unexecuted::Call(error)) => Err(OpError::Call(error)),
        Err(Unexecuted::Refused(status)) => Err(OpError::Status(status)),
        Err(Unexecuted::SessionLost { .. } | Unexecuted::ReplyLost) => {
            Err(OpError::Status(Status::BADSESSION))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_listed_once_and_says_what_is_done() {
        let mut seen = std::collections::HashSet::new();
        assert!(TABLE.iter().all(|(status, _)| seen.insert(status.0)));
        let printed: Vec<String> =
            TABLE.iter().map(|(status, recovery)| format!("{status:?}: {recovery:?}")).collect();
        // RFC 8881 §8.4.2 and §15.1: what each status tells the client to do.
        let expected = [
            "BADSESSION: NewSession",
            "DEADSESSION: NewSession",
            "BADSLOT: NewSession",
            "SEQ_MISORDERED: NewSession",
            "SEQ_FALSE_RETRY: NewSession",
            "BAD_HIGH_SLOT: NewSession",
            "CONN_NOT_BOUND_TO_SESSION: NewSession",
            "STALE_CLIENTID: NewClient",
            "STALE_STATEID: Reopen",
            "BAD_STATEID: Reopen",
            "EXPIRED: Reopen",
            "ADMIN_REVOKED: Reopen",
            "DELEG_REVOKED: Reopen",
            "OPENMODE: Fail",
            "OLD_STATEID: Retry",
            "GRACE: AwaitGrace",
        ];
        assert_eq!(printed, expected);
        assert_eq!(recovery(Status::NOENT), Recovery::Fail);
    }
}
