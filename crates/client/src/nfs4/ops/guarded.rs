//! Requests that change a file's data, with the stateid that ends when the right to write the data does.
//!
//! RFC 8881 §8.2.5: the stateid should be that of the file's delegation; without one, that of a byte-range lock; without one, that of
//! the open. So the server refuses a WRITE that arrives after it has revoked the delegation or the lock, even if the client does not
//! know that yet. Here a lock that the server knows comes first: only it shows that the lock is not lost. Version 4.0 ends all state of a client at once, and its open stateids do the same.

use std::future::Future;

use protocol::nfs4::types::{Stateid, Status};

use super::super::Nfs4;
use super::super::statuses::{Recovery, is_revoked, recovery};
use super::REOPENS_MAX;
use crate::config::Caller;
use crate::error::OpError;
use crate::locks::{HeldRange, LockerUse};
use crate::opens::OpenFile;
use crate::results::OpenState;

/// The state that a stateid belongs to.
enum Guard {
    Delegation,
    /// A lock through the open with this number.
    Lock(LockerUse, u32),
}

impl Nfs4 {
    /// As [`Self::with_stateid`], with the stateid of a lock or of the delegation if there is one.
    ///
    /// # Errors
    /// [`OpError::LockLost`] if the server has revoked the lock.
    pub(super) async fn with_guarded_stateid<T, F: Future<Output = Result<T, OpError>>>(
        &self,
        state: &OpenState,
        run: impl Fn(Stateid) -> F,
    ) -> Result<T, OpError> {
        let guarded = state.file.as_ref().filter(|_| self.has_sessions());
        let losses = self.locks.losses();
        for _ in 0..REOPENS_MAX {
            let Some(file) = guarded else { break };
            // After a loss the caches have dropped the data. The program may have unlocked the range since.
            if file.has_lost_lock() || self.locks.has_lost_since(&file.handle, losses) {
                return Err(OpError::LockLost);
            }
            let Some((guard, stateid)) = self.guard(file) else { break };
            let status = match run(Stateid { seqid: 0, ..stateid }).await {
                Err(OpError::Status(status)) => status,
                outcome => return outcome,
            };
            match recovery(status) {
                Recovery::Retry => {}
                Recovery::Reopen => self.refused(file, guard, stateid, status).await?,
                // The open has the mode.
                Recovery::Fail if status == Status::OPENMODE => break,
                _ => return Err(OpError::Status(status)),
            }
        }
        match guarded {
            Some(file) if self.locks.has_lost_since(&file.handle, losses) => Err(OpError::LockLost),
            _ => self.with_stateid(state, run).await,
        }
    }

    fn guard(&self, file: &OpenFile) -> Option<(Guard, Stateid)> {
        // The delegation may be newer than a lock at the server, which the server may have revoked before it granted the delegation.
        if let Some((locker, open, stateid)) = self.locks.exclusive_of(&file.handle, file.owner) {
            return Some((Guard::Lock(locker, open), stateid));
        }
        let stateid = self.delegations.stateid_of_writes(&file.handle, &file.caller)?;
        Some((Guard::Delegation, stateid))
    }

    /// Notes that the server has refused a stateid, unless it was replaced or has ended; or may end with a LOCKU under way, if the status
    /// does not say that it was revoked.
    async fn refused(
        &self,
        file: &OpenFile,
        guard: Guard,
        refused: Stateid,
        status: Status,
    ) -> Result<(), OpError> {
        match guard {
            Guard::Delegation => {
                if self.delegations.stateid_of_writes(&file.handle, &file.caller) == Some(refused) {
                    self.delegation_revoked(&file.handle, &refused);
                    self.free(&file.caller, refused).await;
                }
                Ok(())
            }
            Guard::Lock(locker, open) => {
                let is_lost = match is_revoked(status) {
                    true => locker.has_stateid(open, refused),
                    false => locker.has_exclusive(open, refused),
                };
                if !is_lost {
                    return Ok(());
                }
                self.lock_revoked(&locker, open, &file.caller, refused).await;
                Err(OpError::LockLost)
            }
        }
    }

    /// Notes that the server has revoked the locks with a stateid.
    pub(super) async fn lock_revoked(
        &self,
        locker: &LockerUse,
        open: u32,
        caller: &Caller,
        stateid: Stateid,
    ) {
        locker.lose_of_open(open);
        self.locks_lost(&locker.file);
        if self.has_sessions() {
            self.free(caller, stateid).await;
        }
    }

    /// Notes that the server has revoked the locks of other owners that conflict with one that it has just granted.
    pub(super) async fn lose_conflicting(&self, locker: &LockerUse, granted: HeldRange, caller: &Caller) {
        for (other, open, stateid) in self.locks.conflicting(locker, granted) {
            self.lock_revoked(&other, open, caller, stateid).await;
        }
    }
}
