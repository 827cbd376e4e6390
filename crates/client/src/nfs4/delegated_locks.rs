//! Locks of files whose delegation this client has: without requests, until the delegation ends (RFC 8881 §10.4.2).

use std::sync::Arc;

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::lock::{LockOutcome, LockUArgs};
use protocol::nfs4::ops::stateid::{FreeStateidArgs, TestStateidArgs};
use protocol::nfs4::types::{Handle, Outcome, Stateid};
use xdr::List;

use super::Nfs4;
use super::locking::Locking;
use super::ops::lock_type;
use super::statuses::{Recovery, is_revoked, recovery};
use super::wire::put;
use crate::locks::{HeldRange, LocalLock, LockConflict, LockKind, LockOwner, LockRange, LockerUse};
use crate::opens::OpenFile;
use crate::results::FileHandle;

impl Nfs4 {
    /// Locks a range without a request. `None` if the server must be asked.
    pub(super) fn lock_delegated(
        &self,
        locker: &LockerUse,
        file: &Arc<OpenFile>,
        range: LockRange,
        kind: LockKind,
    ) -> Option<LocalLock> {
        self.delegation(&locker.file)?;
        if !locker.has_room() {
            return None;
        }
        let held = HeldRange { range, kind, open: file.owner };
        let lock = || self.locks.lock_local(locker, file, held);
        let outcome =
            self.delegations.under(&locker.file, self.engine.now(), |has| has.excludes(kind), lock)?;
        (outcome != LocalLock::AskServer).then_some(outcome)
    }

    /// Returns a lock that conflicts, without a request. The outer value is `None` if the server must be asked.
    pub(super) fn test_delegated(
        &self,
        handle: &FileHandle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Option<Option<LockConflict>> {
        self.delegation(handle)?;
        let test = || self.locks.local_conflict(handle, owner, range, kind);
        match self.delegations.under(handle, self.engine.now(), |_| true, test)?? {
            // Other clients may have locks that conflict with an exclusive one.
            None => self.delegations.under(handle, self.engine.now(), |has| has.excludes(kind), || None),
            conflict => Some(conflict),
        }
    }

    /// Makes the server know the local locks of a file (§10.4.2). One that it refuses is lost.
    pub(super) async fn make_locks_known(&self, handle: &Handle) {
        let mut known = Vec::new();
        for locker in self.locks.local_of(handle) {
            let turn = locker.turn().await;
            for (held, file) in locker.local() {
                if self.make_lock_known(&locker, held, &file).await.is_none() {
                    locker.lose(held);
                    self.locks_lost(handle);
                }
            }
            let stateids = locker.stateids();
            known.push((locker, turn, stateids));
        }
        if known.is_empty() || !self.is_delegation_revoked(handle).await {
            known.iter().for_each(|(locker, ..)| locker.proven());
            return;
        }
        // The server has revoked it before it granted the locks. Others may have had them, and have changed the file.
        for (locker, _turn, stateids) in &known {
            for (open, stateid) in stateids {
                self.unlock_unused(&locker.file, *stateid).await;
                // Those that were reclaimed since were not revoked.
                if locker.stateids().contains(&(*open, *stateid)) {
                    locker.lose_of_open(*open);
                    self.locks_lost(handle);
                }
            }
        }
    }

    /// Asks the server whether it has revoked a file's delegation (§18.48). One that it does not know may be of the server before a
    /// restart.
    async fn is_delegation_revoked(&self, handle: &Handle) -> bool {
        if let Some(stateid) = self.delegations.stateid(handle).filter(|_| self.has_sessions()) {
            let stateids = List::new(vec![stateid]).unwrap_or_default();
            let test = [Op::TestStateid(TestStateidArgs { stateids })];
            let tested = self.read_only(&self.config.machine, &test).await;
            let tested = tested.and_then(|mut results| {
                results.next(|result| match result {
                    OpResult::TestStateid(Outcome::Ok(statuses)) => Some(statuses),
                    _ => None,
                })
            });
            if tested.is_ok_and(|statuses| statuses.iter().any(|status| is_revoked(*status))) {
                return true;
            }
        }
        // Found meanwhile, and perhaps freed.
        self.delegations.is_revoked(handle)
    }

    /// Unlocks what the server has locked with a stateid that nobody will use.
    async fn unlock_unused(&self, handle: &Handle, lock_stateid: Stateid) {
        let (offset, length) = (LockRange::WHOLE.offset(), LockRange::WHOLE.wire_length());
        let lock_type = lock_type(LockKind::Exclusive, false);
        let unlock = Op::LockU(LockUArgs { lock_type, seqid: 0, lock_stateid, offset, length });
        let free = Op::FreeStateid(FreeStateidArgs { stateid: lock_stateid });
        // No caller is left to handle a failure.
        let _ = self.change(&self.config.machine, &[put(*handle), unlock, free]).await;
    }

    /// Sends LOCK for a local lock, again if the server has restarted since. `None` if the server refuses.
    async fn make_lock_known(&self, locker: &LockerUse, held: HeldRange, file: &OpenFile) -> Option<()> {
        let (range, lock_type) = (held.range, lock_type(held.kind, false));
        let locking = Locking { caller: &file.caller, file, range, lock_type, reclaim: false };
        let (mut attempts, epoch) = (self.attempts(), locker.epoch());
        loop {
            let session = attempts.session().await.ok()?;
            if locker.epoch() != epoch && !locker.is_local(held) {
                // Reclaimed meanwhile, or lost.
                return Some(());
            }
            match self.lock_in(&session, locker, &locking).await {
                // PUTFH and LOCK.
                Ok(sent) => {
                    let mut sent = sent.ok()?;
                    let status = sent.results.status();
                    let Some(OpResult::Lock(LockOutcome::Ok(stateid))) = sent.results.take_results(2).pop()
                    else {
                        // A server of 4.0 that has restarted refuses the stateid of the open.
                        let is_refused = recovery(status) != Recovery::Reopen
                            || Box::pin(self.is_refused(locker, held.open, sent.snapshot)).await.ok()?;
                        if is_refused {
                            return None;
                        }
                        continue;
                    };
                    if locker.made_known(sent.snapshot, held.open, stateid) {
                        return Some(());
                    }
                }
                Err(error) => attempts.handle(error).ok()?,
            }
        }
    }
}
