//! UNLOCK (RFC 1813 §6.3.4; XNFS): unlocks a byte range.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use protocol::nlm::{Proc, Res, Stats, UnlockArgs};

use super::Nlm;
use super::calls::{check_cookie, refused};
use super::lock::GRACE_PAUSE;
use super::table::{Locker, LockerUse};
use crate::config::Caller;
use crate::error::OpError;
use crate::locks::{LockOwner, LockRange};
use crate::results::FileHandle;

impl Nlm {
    /// Unlocks a range, which need not be locked. If the caller drops the future, the range is unlocked anyway.
    pub(crate) async fn unlock(
        self: &Arc<Self>,
        caller: &Caller,
        handle: FileHandle,
        owner: LockOwner,
        range: LockRange,
    ) -> Result<(), OpError> {
        let Some(locker) = self.table.find(handle, owner) else { return Ok(()) };
        let (nlm, caller) = (Arc::clone(self), caller.clone());
        let operation = async move {
            let outcome = nlm.unlock_all_of(&caller, &locker, range).await;
            if matches!(outcome, Err(OpError::Call(_))) {
                nlm.restore_later(&caller, &locker, range);
            }
            outcome
        };
        self.abandoned.guard(operation, async |_| ()).await
    }

    async fn unlock_all_of(
        &self,
        caller: &Caller,
        locker: &LockerUse,
        range: LockRange,
    ) -> Result<(), OpError> {
        let turn = locker.turn().await;
        let before = locker.held(range);
        // From now on it is not reclaimed after a restart.
        if !locker.unlock(range) {
            return Ok(());
        }
        let mut outcome = self.unlock_range(caller, locker, range).await;
        if matches!(outcome, Ok(Stats::DENIED_NOLOCKS)) {
            // The rest of a range that is split has no room.
            locker.put_back(range, &before);
        }
        drop(turn);
        while matches!(outcome, Ok(Stats::DENIED_GRACE_PERIOD)) && !self.engine.is_shut_down() {
            // Meanwhile other ranges of the owner can be reclaimed.
            self.engine.sleep(GRACE_PAUSE).await;
            let _turn = locker.turn().await;
            outcome = self.unlock_gaps(caller, locker, range).await;
        }
        self.table.waiters.unlocked(&locker.file);
        match outcome? {
            Stats::GRANTED | Stats::DENIED_GRACE_PERIOD => Ok(()),
            status => Err(refused(status)),
        }
    }

    /// Unlocks what the table does not have in a range. Returns the last status that is not GRANTED.
    pub(super) async fn unlock_gaps(
        &self,
        caller: &Caller,
        locker: &Locker,
        range: LockRange,
    ) -> Result<Stats, OpError> {
        let mut outcome = Stats::GRANTED;
        for gap in locker.gaps(range) {
            let status = self.unlock_range(caller, locker, gap).await?;
            if status != Stats::GRANTED {
                outcome = status;
            }
        }
        Ok(outcome)
    }

    async fn unlock_range(
        &self,
        caller: &Caller,
        locker: &Locker,
        range: LockRange,
    ) -> Result<Stats, OpError> {
        let arguments = UnlockArgs { cookie: self.cookie(), alock: self.wire_lock(locker, range) };
        let reply = self.call_ranged::<Res>(caller, Proc::UNLOCK, &arguments).await?.reply;
        check_cookie(&arguments.cookie, &reply.cookie)?;
        Ok(reply.stat)
    }

    /// Releases all locks: the server keeps them otherwise, as it does not know that the client ends.
    ///
    /// # Errors
    /// The first of those that were not released.
    pub(crate) async fn leave(self: &Arc<Self>) -> Result<(), OpError> {
        self.is_ending.store(true, Ordering::Relaxed);
        let all = self.table.all();
        let unlocked = all.iter().map(|locker| {
            let caller = locker.caller();
            async move { self.unlock(&caller, locker.file, locker.owner, LockRange::WHOLE).await }
        });
        let outcomes = join_all(unlocked).await;
        drop(all);
        self.abandoned.idle().await;
        outcomes.into_iter().collect()
    }
}
