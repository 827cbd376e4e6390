//! LOCKU (RFC 8881 §18.12; RFC 7530 §16.12): unlocks a byte range.

use std::sync::Arc;
use std::time::Duration;

use protocol::nfs4::types::Status;

use super::super::Nfs4;
use super::super::statuses::{Recovery, is_revoked, recovery};
use super::super::wire::take;
use crate::config::Caller;
use crate::error::OpError;
use crate::locks::{LockOwner, LockRange, LockerUse, Unlocking};
use crate::owner::Seqid;
use crate::results::FileHandle;

/// Number of times that a LOCKU is repeated because state was replaced, before the caller gets the error.
const TRIES_MAX: u32 = 8;
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
            locker.begin_unlock(range);
            let unlocked = nfs4.unlock_in_turn(&caller, &locker, range).await;
            locker.end_unlock();
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
        let mut tries = self.tries(locker.unlocking(range).len() as u32 + TRIES_MAX);
        while tries.count() {
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
        let mut attempts = self.attempts();
        let (session, sent) = loop {
            let session = attempts.session().await?;
            match self.unlock_in(&session, caller, locker, range, part).await {
                Ok(sent) => break (session, sent),
                Err(error) => attempts.handle(error)?,
            }
        };
        let Some(mut results) = sent else { return Ok(()) };
        results.skip()?;
        match take!(results, LockU) {
            Ok(stateid) => {
                let keeps_stateid = !part.is_last || !self.has_sessions();
                locker.unlocked(part, range, keeps_stateid.then_some(stateid));
                // A server that still finds locks remembers the owner (RFC 7530 §16.37.3).
                let is_released = !self.has_sessions() && part.is_last_of_owner;
                if is_released && self.release_owner(&session, caller, locker).await {
                    locker.released();
                }
            }
            // The owner is replaced before its next request.
            Err(OpError::Status(Status::BAD_SEQID)) => *locker.seqid().await = Seqid::Unknown,
            Err(OpError::Status(status)) => match recovery(status) {
                Recovery::Retry => {}
                // The server does not know the lock, unless it was reclaimed meanwhile.
                Recovery::Reopen => {
                    // Under a delegation, data that were written under the lock may not be at the server yet.
                    if self.has_sessions() && is_revoked(status) && locker.has_stateid(part.open, stateid) {
                        self.lock_revoked(locker, part.open, caller, stateid).await;
                    }
                    locker.unlocked(part, range, None);
                }
                _ => return Err(OpError::Status(status)),
            },
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
