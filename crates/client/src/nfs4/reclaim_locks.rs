//! Reclaims the locks that existed when the server restarted (RFC 8881 §8.4.2.1).

use std::collections::HashSet;
use std::sync::Arc;

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::lock::{
    ExistingLockOwner, LockArgs, LockOutcome, LockType, Locker as WireLocker, OpenToLockOwner,
};
use protocol::nfs4::types::Status;

use super::lock_owner::lock_owner;
use super::recovery::{GRACE_PAUSE, run};
use super::session::Session;
use super::wire::put;
use crate::engine::Engine;
use crate::error::OpError;
use crate::locks::{HeldRange, LockKind, LockerUse};
use crate::opens::OpenFile;

/// Reclaims the locks of one owner on one file, in the order of their offsets. `open` are the numbers of the opens that were
/// reclaimed; locks through others are lost, as are those that the server refuses.
///
/// # Errors
/// If the session was lost again.
pub(super) async fn reclaim_locks(
    engine: &Arc<Engine>,
    session: &Arc<Session>,
    locker: &LockerUse,
    open: &HashSet<u32>,
) -> Result<(), OpError> {
    for (held, file) in locker.begin_reclaim() {
        let is_open = open.contains(&held.open);
        if !is_open || !reclaim_lock(engine, session, locker, held, &file).await? {
            locker.lose(held);
        }
    }
    locker.end_reclaim();
    Ok(())
}

/// Reclaims one range. Returns false if the server refuses.
async fn reclaim_lock(
    engine: &Arc<Engine>,
    session: &Arc<Session>,
    locker: &LockerUse,
    held: HeldRange,
    file: &OpenFile,
) -> Result<bool, OpError> {
    let Ok(open_stateid) = file.io_stateid() else { return Ok(false) };
    let wire_locker = match locker.snapshot(held.open).stateid {
        Some(lock_stateid) => WireLocker::Existing(ExistingLockOwner { lock_stateid, lock_seqid: 0 }),
        None => WireLocker::New(OpenToLockOwner {
            open_seqid: 0,
            open_stateid,
            lock_seqid: 0,
            lock_owner: lock_owner(session.client_id, locker.number),
        }),
    };
    let lock = Op::Lock(LockArgs {
        lock_type: if held.kind == LockKind::Shared { LockType::Read } else { LockType::Write },
        reclaim: true,
        offset: held.range.offset(),
        length: held.range.wire_length(),
        locker: wire_locker,
    });
    let ops = [put(locker.file), lock];
    loop {
        let mut results = run(session, file, &ops).await?;
        let last = results.take_results(ops.len()).pop();
        match (results.status(), last) {
            (Status::OK, Some(OpResult::Lock(LockOutcome::Ok(stateid)))) => {
                locker.reclaimed(held.open, stateid);
                return Ok(true);
            }
            (Status::GRACE | Status::DELAY, _) => {
                engine.sleep(GRACE_PAUSE).await;
                if session.lost().is_some() || engine.is_shut_down() {
                    return Err(OpError::Status(Status::BADSESSION));
                }
            }
            _ => return Ok(false),
        }
    }
}
