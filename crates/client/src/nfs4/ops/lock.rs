//! LOCK (RFC 8881 §18.10; RFC 7530 §16.10): locks a byte range, and waits for it.

use std::sync::Arc;
use std::time::Duration;

use protocol::nfs4::compound::OpResult;
use protocol::nfs4::ops::lock::{LockOutcome, LockType};
use protocol::nfs4::types::Status;

use super::super::Nfs4;
use super::super::getattr::take_attributes;
use super::super::locking::{Locking, Sent};
use super::super::statuses::{Recovery, recovery};
use crate::attributes::Attributes;
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::locks::{
    Asking, HeldRange, LocalLock, LockKind, LockOwner, LockRange, Locked, LockerUse, Snapshot,
};
use crate::opens::OpenFile;
use crate::owner::Seqid;
use crate::results::{FileHandle, OpenState};

/// The pause before the second LOCK of a task that waits; each further one is twice as long. CB_NOTIFY_LOCK ends it.
const POLL_FIRST: Duration = Duration::from_millis(100);
/// The longest pause. Servers remember a waiter for a lease time or longer.
const POLL_MAX: Duration = Duration::from_secs(10);
/// Number of times that a LOCK is repeated because state was replaced, before the caller gets the error.
const TRIES_MAX: u32 = 8;

/// The arguments of a LOCK.
#[derive(Clone)]
struct Asked {
    caller: Caller,
    file: Arc<OpenFile>,
    range: LockRange,
    kind: LockKind,
    wait: bool,
}

/// The outcome of a LOCK.
enum Attempt {
    Granted(Attributes),
    Denied,
    /// State was replaced meanwhile.
    Again,
    /// The server expects another seqid of the lock-owner or the open-owner.
    BadSeqid,
}

impl Nfs4 {
    /// Locks a range of an open file.
    ///
    /// # Errors
    /// DENIED if another owner has it and the caller does not `wait`.
    #[allow(clippy::too_many_arguments, reason = "they are those of fcntl(2)")]
    pub(crate) async fn lock(
        self: &Arc<Self>,
        caller: &Caller,
        handle: FileHandle,
        state: &OpenState,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
        wait: bool,
    ) -> Result<Locked, OpError> {
        let file = state.file.clone().ok_or(OpError::Invalid(Errno::EBADF, "the file is not open"))?;
        let is_open_for = if kind == LockKind::Shared { file.mode.read } else { file.mode.write };
        if !is_open_for {
            return Err(OpError::Invalid(Errno::EBADF, "the file is not open for this kind of lock"));
        }
        let asked = Asked { caller: caller.clone(), file, range, kind, wait };
        // Kept while the task waits: the server knows the waiter by the number.
        let locker = self.locks.locker(handle, owner);
        let too_many = OpError::Invalid(Errno::ENOLCK, "too many tasks wait for locks");
        let waiter = match wait {
            true => Some(self.locks.waiters.join(handle, locker.number()).ok_or(too_many)?),
            false => None,
        };
        let mut pause = POLL_FIRST;
        loop {
            if let Some(waiter) = &waiter {
                waiter.reset();
            }
            match self.lock_anywhere(&locker, &asked).await? {
                Some(granted) => return Ok(granted),
                None => {
                    let Some(waiter) = &waiter else { return Err(OpError::Status(Status::DENIED)) };
                    waiter.notified(self.engine.sleep(pause)).await;
                    pause = (pause * 2).min(POLL_MAX);
                }
            }
        }
    }

    /// Locks a range if it is free, under the file's delegation or at the server; `None` if it is not.
    async fn lock_anywhere(
        self: &Arc<Self>,
        locker: &LockerUse,
        asked: &Asked,
    ) -> Result<Option<Locked>, OpError> {
        match self.lock_delegated(locker, &asked.file, asked.range, asked.kind) {
            Some(LocalLock::Granted) => return Ok(Some(Locked::Delegated)),
            Some(_) => return Ok(None),
            None => {}
        }
        let asking = locker.ask();
        if asking.has_local {
            // The server does not know them, and would grant a lock that conflicts.
            self.give_back(&locker.file).await;
        }
        // LOCK needs the stateid of an open.
        self.make_known(&asked.file).await?;
        Ok(self.try_lock(locker, asked, asking).await?.map(|attributes| Locked::AtServer(Some(attributes))))
    }

    /// Locks a range if it is free; `None` if it is not. If the caller drops the future, the range is unlocked again.
    async fn try_lock(
        self: &Arc<Self>,
        locker: &LockerUse,
        asked: &Asked,
        asking: Asking,
    ) -> Result<Option<Attributes>, OpError> {
        let turn = locker.turn().await;
        let (nfs4, locker, asked) =
            (Arc::clone(self), self.locks.locker(locker.file, locker.owner), asked.clone());
        let (undo_nfs4, undo_caller, undo_range) = (Arc::clone(self), asked.caller.clone(), asked.range);
        let (file, owner) = (locker.file, locker.owner);
        let operation = async move {
            let outcome = nfs4.lock_in_turn(&locker, &asked).await;
            drop((turn, asking));
            outcome
        };
        let guarded = self.background.guard(operation, async move |outcome| {
            if matches!(outcome, Ok(Some(_))) {
                // No caller is left to handle a failure.
                let _ = undo_nfs4.unlock(&undo_caller, file, owner, undo_range).await;
            }
        });
        guarded.await
    }

    async fn lock_in_turn(&self, locker: &LockerUse, asked: &Asked) -> Result<Option<Attributes>, OpError> {
        if !locker.has_room() {
            return Err(OpError::Invalid(Errno::ENOLCK, "too many locked ranges"));
        }
        let mut bad_seqids = 0;
        let mut tries = self.tries(TRIES_MAX);
        while tries.count() {
            match self.lock_once(locker, asked).await? {
                Attempt::Granted(attributes) => return Ok(Some(attributes)),
                Attempt::Denied => return Ok(None),
                Attempt::Again => {}
                Attempt::BadSeqid => {
                    self.replace_owner(locker, &asked.file, bad_seqids).await?;
                    bad_seqids += 1;
                }
            }
        }
        Err(OpError::BadReply("it loses the state of every lock"))
    }

    async fn lock_once(&self, locker: &LockerUse, asked: &Asked) -> Result<Attempt, OpError> {
        let Asked { caller, file, range, kind, wait } = asked;
        self.reclaim_over(locker).await?;
        let (lock_type, range) = (lock_type(*kind, *wait), *range);
        let locking = Locking { caller, file, range, lock_type, reclaim: false };
        let mut attempts = self.attempts();
        let sent = loop {
            let session = attempts.session().await?;
            match self.lock_in(&session, locker, &locking).await {
                Ok(sent) => break sent,
                Err(error) => attempts.handle(error)?,
            }
        };
        let mut sent = match sent {
            Ok(sent) => sent,
            Err(Status::BAD_SEQID) => return Ok(Attempt::BadSeqid),
            Err(status) => return Err(status.into()),
        };
        sent.results.skip()?;
        let Some(OpResult::Lock(outcome)) = sent.results.take_results(1).pop() else {
            return Err(OpError::BadReply("the result of another operation"));
        };
        match outcome {
            LockOutcome::Ok(stateid) => {
                let held = HeldRange { range, kind: *kind, open: file.owner };
                if !locker.granted(sent.snapshot, file, stateid, held) {
                    return Ok(Attempt::Again);
                }
                self.lose_conflicting(locker, held, caller).await;
                take_attributes(&mut sent.results).map(Attempt::Granted)
            }
            LockOutcome::Denied(_) => Ok(Attempt::Denied),
            LockOutcome::Error(Status::BAD_SEQID) => Ok(Attempt::BadSeqid),
            LockOutcome::Error(status) => {
                self.recover_lock(locker, asked, &sent, status).await?;
                Ok(Attempt::Again)
            }
        }
    }

    /// Makes another LOCK possible after one failed because of its stateid.
    ///
    /// # Errors
    /// The status itself, if it says something else; [`OpError::LockLost`] if the owner's earlier locks are lost.
    async fn recover_lock(
        &self,
        locker: &LockerUse,
        asked: &Asked,
        sent: &Sent,
        status: Status,
    ) -> Result<(), OpError> {
        match recovery(status) {
            Recovery::Retry => Ok(()),
            // Reclaimed meanwhile.
            Recovery::Reopen if locker.snapshot(asked.file.owner) != sent.snapshot => Ok(()),
            Recovery::Reopen if sent.snapshot.stateid.is_some() => {
                if self.is_refused(locker, asked.file.owner, sent.snapshot).await?
                    && locker.lose_of_open(asked.file.owner)
                {
                    self.locks_lost(&locker.file);
                }
                if asked.file.has_lost_lock() { Err(OpError::LockLost) } else { Ok(()) }
            }
            Recovery::Reopen => self.renew_open(&asked.file, sent.open_stateid).await,
            _ => Err(OpError::Status(status)),
        }
    }

    /// Returns whether the server refuses the stateid of a LOCK although it still knows this client. If not, the locks have been
    /// reclaimed in the next session.
    pub(in crate::nfs4) async fn is_refused(
        &self,
        locker: &LockerUse,
        open: u32,
        sent: Snapshot,
    ) -> Result<bool, OpError> {
        // The session may be the next one already, in which RENEW succeeds.
        Ok(self.is_lease_kept().await? && locker.snapshot(open) == sent)
    }

    /// Replaces an owner of version 4.0 whose seqid the server refuses: first the lock-owner, whose locks are lost, then the
    /// open-owner, with which all locks through the open are lost.
    ///
    /// # Errors
    /// BAD_SEQID if both were replaced before.
    async fn replace_owner(
        &self,
        locker: &LockerUse,
        file: &OpenFile,
        replaced_before: u32,
    ) -> Result<(), OpError> {
        let is_open_known = file.turn().await.is_known();
        match replaced_before {
            0 if is_open_known => *locker.seqid().await = Seqid::Unknown,
            0 | 1 => {
                file.turn().await.seqid = Seqid::Unknown;
                self.renew_open(file, file.io_stateid()?).await?;
            }
            _ => return Err(OpError::Status(Status::BAD_SEQID)),
        }
        Ok(())
    }
}

pub(in crate::nfs4) fn lock_type(kind: LockKind, wait: bool) -> LockType {
    match (kind, wait) {
        (LockKind::Shared, false) => LockType::Read,
        (LockKind::Shared, true) => LockType::ReadWait,
        (LockKind::Exclusive, false) => LockType::Write,
        (LockKind::Exclusive, true) => LockType::WriteWait,
    }
}
