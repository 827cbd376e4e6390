//! LOCK and LOCKU in a session. Version 4.0 orders them by the seqid of the lock-owner; the first LOCK through an open has that of
//! the open-owner too (RFC 7530 §9.1.7, §16.10).

use std::sync::Arc;

use futures_util::lock::MutexGuard;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::lock::{
    ExistingLockOwner, LockArgs, LockType, LockUArgs, Locker as WireLocker, OpenToLockOwner,
    ReleaseLockOwnerArgs,
};
use protocol::nfs4::ops::stateid::FreeStateidArgs;
use protocol::nfs4::types::{Stateid, Status};

use super::Nfs4;
use super::getattr::get_attributes;
use super::lock_owner::lock_owner;
use super::session::{Session, Unexecuted};
use super::wire::{Results, put};
use crate::config::Caller;
use crate::locks::{LockRange, LockerUse, Snapshot, Unlocking};
use crate::opens::OpenFile;
use crate::owner::{Owner, Seqid};

/// A LOCK without its owner.
pub(super) struct Locking<'a> {
    pub(super) caller: &'a Caller,
    pub(super) file: &'a OpenFile,
    pub(super) range: LockRange,
    pub(super) lock_type: LockType,
    pub(super) reclaim: bool,
}

/// A LOCK that was executed.
pub(super) struct Sent {
    /// The snapshot from which its request was made.
    pub(super) snapshot: Snapshot,
    pub(super) open_stateid: Stateid,
    pub(super) results: Results,
}

/// The right to send requests of owners; empty in versions that ignore seqids.
#[derive(Default)]
struct Turns<'a> {
    opener: Option<MutexGuard<'a, Owner>>,
    locker: Option<MutexGuard<'a, Seqid>>,
}

/// Returns a stateid for requests. Later versions take the current one for a seqid of zero (RFC 8881 §8.2.2), which 4.0
/// does not have.
fn in_request(session: &Session, stateid: Stateid) -> Stateid {
    if session.minor_version == 0 { stateid } else { Stateid { seqid: 0, ..stateid } }
}

impl Nfs4 {
    /// Sends LOCK and GETATTR as one compound. A lock-owner whose seqid is not known is replaced before, and its locks are lost.
    ///
    /// # Errors
    /// The inner status if the open is lost; BAD_SEQID if the seqid of its owner is not known.
    pub(super) async fn lock_in(
        &self,
        session: &Arc<Session>,
        locker: &LockerUse,
        locking: &Locking<'_>,
    ) -> Result<Result<Sent, Status>, Unexecuted> {
        let mut turns = turns(session, locker, Some(locking.file)).await;
        if turns.opener.as_ref().is_some_and(|owner| !owner.is_known()) {
            return Ok(Err(Status::BAD_SEQID));
        }
        let snapshot = locker.snapshot(locking.file.owner);
        let open_stateid = match locking.file.io_stateid() {
            Ok(stateid) => stateid,
            Err(status) => return Ok(Err(status)),
        };
        let (mut no_opener, mut no_locker) = (Seqid::Ignored, Seqid::Ignored);
        let open_seqid = turns.opener.as_mut().map_or(&mut no_opener, |owner| &mut owner.seqid);
        let lock_seqid = turns.locker.as_deref_mut().unwrap_or(&mut no_locker);
        let ops = |wire| vec![put(locker.file), lock_op(locking, wire), get_attributes()];
        let sent = match snapshot.stateid {
            Some(stateid) => {
                let lock_stateid = in_request(session, stateid);
                let existing = |[lock_seqid]: [u32; 1]| {
                    ops(WireLocker::Existing(ExistingLockOwner { lock_stateid, lock_seqid }))
                };
                self.run_as(session, locking.caller, [lock_seqid], existing).await
            }
            None => {
                let lock_owner = lock_owner(session.client_id, locker.number());
                let new = |[open_seqid, lock_seqid]: [u32; 2]| {
                    let lock_owner = lock_owner.clone();
                    ops(WireLocker::New(OpenToLockOwner { open_seqid, open_stateid, lock_seqid, lock_owner }))
                };
                self.run_as(session, locking.caller, [open_seqid, lock_seqid], new).await
            }
        };
        let (results, _) = sent?;
        Ok(Ok(Sent { snapshot, open_stateid, results }))
    }

    /// Sends LOCKU through one open; with an owner's last lock there the server forgets its stateid (FREE_STATEID, RFC 8881 §18.38).
    /// Returns `None` if the server has nothing to unlock.
    pub(super) async fn unlock_in(
        &self,
        session: &Arc<Session>,
        caller: &Caller,
        locker: &LockerUse,
        range: LockRange,
        part: Unlocking,
    ) -> Result<Option<Results>, Unexecuted> {
        let mut turns = turns(session, locker, None).await;
        if locker.snapshot(part.open) != part.snapshot {
            // Replaced meanwhile.
            return Ok(None);
        }
        let Some(stateid) = part.snapshot.stateid else { return Ok(None) };
        let lock_stateid = in_request(session, stateid);
        let forgets = session.minor_version > 0 && part.is_last;
        let forget = forgets.then(|| Op::FreeStateid(FreeStateidArgs { stateid: lock_stateid }));
        let ops = |[seqid]: [u32; 1]| {
            let (lock_type, offset, length) = (LockType::Write, range.offset(), range.wire_length());
            let unlock = Op::LockU(LockUArgs { lock_type, seqid, lock_stateid, offset, length });
            [put(locker.file), unlock].into_iter().chain(forget.clone()).collect()
        };
        let mut no_locker = Seqid::Ignored;
        let seqid = turns.locker.as_deref_mut().unwrap_or(&mut no_locker);
        self.run_as(session, caller, [seqid], ops).await.map(|(results, _)| Some(results))
    }

    /// Lets a server of 4.0 forget an owner without locks (RFC 7530 §16.37); returns whether it did. The compound is not that of the
    /// LOCKU: NFS-Ganesha 4.3 keeps the reply to LOCKU in the owner, which is freed by then, and crashes.
    pub(super) async fn release_owner(
        &self,
        session: &Arc<Session>,
        caller: &Caller,
        locker: &LockerUse,
    ) -> bool {
        let lock_owner = lock_owner(session.client_id, locker.number());
        let release = Op::ReleaseLockOwner(ReleaseLockOwnerArgs { lock_owner });
        let released = session.compound(caller.credential(), &[release], true).await;
        released.is_ok_and(|results| results.status() == Status::OK)
    }
}

/// Waits for the turns of the open-owner of `file` and of the lock-owner, in this order, in version 4.0.
async fn turns<'a>(session: &Session, locker: &'a LockerUse, file: Option<&'a OpenFile>) -> Turns<'a> {
    if session.minor_version > 0 {
        return Turns::default();
    }
    let opener = match file {
        Some(file) => Some(file.turn().await),
        None => None,
    };
    let mut seqid = locker.seqid().await;
    if !seqid.is_known() {
        locker.replace(&mut seqid);
    }
    Turns { opener, locker: Some(seqid) }
}

fn lock_op(locking: &Locking<'_>, locker: WireLocker) -> Op {
    Op::Lock(LockArgs {
        lock_type: locking.lock_type,
        reclaim: locking.reclaim,
        offset: locking.range.offset(),
        length: locking.range.wire_length(),
        locker,
    })
}
