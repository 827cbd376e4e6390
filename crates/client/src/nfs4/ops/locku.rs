//! LOCKU (RFC 8881 §18.12), with FREE_STATEID (§18.38) when an owner's last lock on a file is removed.

use std::sync::Arc;
use std::time::Duration;

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::lock::{LockType, LockUArgs};
use protocol::nfs4::ops::stateid::FreeStateidArgs;
use protocol::nfs4::types::Stateid;

use super::super::Nfs4;
use super::super::statuses::{Recovery, recovery};
use super::super::wire::{put, take};
use crate::config::Caller;
use crate::error::OpError;
use crate::locks::{LockOwner, LockRange, LockerUse, Unlocking};
use crate::results::FileHandle;

/// How often a LOCKU is repeated because state was replaced, before the caller gets the error.
const TRIES_MAX: usize = 8;
/// The pause before another look whether the locks of an owner are reclaimed.
const RECLAIM_PAUSE: Duration = Duration::from_millis(50);

impl Nfs4 {
    /// Unlocks a range, which need not be locked. If the caller drops the future, the range is unlocked anyway.
    pub(crate) async fn unlock(
        self: &Arc<Self>,
        caller: &Caller,
        handle: FileHandle,
        owner: LockOwner,
        range: LockRange,
    ) -> Result<(), OpError> {
        let Some(locker) = self.locks.find(handle, owner) else { return Ok(()) };
        let (nfs4, caller) = (Arc::clone(self), caller.clone());
        let operation = async move {
            let _turn = locker.turn().await;
            let unlocked = nfs4.unlock_in_turn(&caller, &locker, range).await;
            nfs4.locks.waiters.unlocked(&locker.file);
            unlocked
        };
        self.background.guard(operation, async |_| ()).await
    }

    async fn unlock_in_turn(
        &self,
        caller: &Caller,
        locker: &LockerUse,
        range: LockRange,
    ) -> Result<(), OpError> {
        // Through each open with locks in the range; again if they were reclaimed meanwhile.
        for _ in 0..locker.unlocking(range).len() + TRIES_MAX {
            self.reclaim_over(locker).await?;
            let Some(part) = locker.unlocking(range).first().copied() else { return Ok(()) };
            self.unlock_part(caller, locker, range, part).await?;
        }
        Err(OpError::BadReply("it loses the state of every lock"))
    }

    /// Waits until the locks of an owner are not being reclaimed.
    pub(super) async fn reclaim_over(&self, locker: &LockerUse) -> Result<(), OpError> {
        while locker.is_reclaiming() {
            // With a persistent session (RFC 8881 §18.36.3) the session exists meanwhile.
            self.session().await?;
            self.engine.sleep(RECLAIM_PAUSE).await;
        }
        Ok(())
    }

    async fn unlock_part(
        &self,
        caller: &Caller,
        locker: &LockerUse,
        range: LockRange,
        part: Unlocking,
    ) -> Result<(), OpError> {
        let Some(stateid) = part.snapshot.stateid else {
            // The server has dropped the lock.
            locker.unlocked(part, range, None);
            return Ok(());
        };
        let lock_stateid = Stateid { seqid: 0, ..stateid };
        let unlock = LockUArgs {
            lock_type: LockType::Write,
            seqid: 0,
            lock_stateid,
            offset: range.offset(),
            length: range.wire_length(),
        };
        let mut ops = vec![put(locker.file), Op::LockU(unlock)];
        if part.is_last {
            // Whether the server has freed the stateid does not matter: it finds it again by the owner's name.
            ops.push(Op::FreeStateid(FreeStateidArgs { stateid: lock_stateid }));
        }
        let mut results = self.change(caller, &ops).await?;
        results.skip()?;
        match take!(results, LockU) {
            Ok(stateid) => {
                locker.unlocked(part, range, (!part.is_last).then_some(stateid));
            }
            Err(OpError::Status(status)) => match recovery(status) {
                Recovery::Retry => {}
                // The server does not know the lock, unless it was reclaimed meanwhile.
                Recovery::Reopen => {
                    locker.unlocked(part, range, None);
                }
                _ => return Err(OpError::Status(status)),
            },
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
