//! LOCK (RFC 1813 §6.3.2; XNFS) and CANCEL: locks a byte range, and waits for it.

use std::sync::Arc;
use std::time::Duration;

use protocol::nfs4::types::Status;
use protocol::nlm::{CancelArgs, LockArgs, Proc, Res, Stats};

use super::Nlm;
use super::calls::{Replied, check_cookie, refused};
use super::table::{Locker, LockerUse, Waiting, waiter_number};
use crate::config::Caller;
use crate::engine::CallError;
use crate::errno::Errno;
use crate::error::OpError;
use crate::locks::{HeldRange, LockKind, LockOwner, LockRange};
use crate::results::FileHandle;

/// The pause before the second LOCK of a task that waits; each further one is twice as long. GRANTED ends it.
const POLL_FIRST: Duration = Duration::from_millis(100);
/// The longest pause. Servers remember a waiter much longer.
const POLL_MAX: Duration = Duration::from_secs(10);
/// The pause before another request in the server's grace period, as in Linux.
pub(super) const GRACE_PAUSE: Duration = Duration::from_secs(5);
/// Number of times that a LOCK is repeated because the connection changed, before the caller gets an error.
const TRIES_MAX: u32 = 8;

/// The arguments of a LOCK.
#[derive(Clone)]
struct Asked {
    caller: Caller,
    range: LockRange,
    kind: LockKind,
    wait: bool,
}

/// The outcome of a LOCK.
enum Attempt {
    /// With what the owner had in the range before.
    Granted(Vec<HeldRange>),
    /// Another owner has it.
    Denied,
    /// Only locks from before the server's restart are granted now.
    Grace,
}

/// A LOCK that the server may grant later. Dropping it cancels the request, unless it was granted.
struct Blocked<'a> {
    nlm: &'a Arc<Nlm>,
    asked: &'a Asked,
    waiting: Option<Waiting>,
    locker: &'a LockerUse,
    is_blocked: bool,
}

impl Nlm {
    /// Locks a range of a file.
    ///
    /// # Errors
    /// DENIED if another owner has it and the caller does not `wait`; ENOLCK.
    pub(crate) async fn lock(
        self: &Arc<Self>,
        caller: &Caller,
        handle: FileHandle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
        wait: bool,
    ) -> Result<(), OpError> {
        self.want_calls();
        let asked = Asked { caller: caller.clone(), range, kind, wait };
        let locker = self.table.locker(handle, owner);
        let too_many = OpError::Invalid(Errno::ENOLCK, "too many tasks wait for locks");
        let waiter = match wait {
            true => Some(self.table.waiters.join(handle, waiter_number(locker.svid)).ok_or(too_many)?),
            false => None,
        };
        // Before the first LOCK: GRANTED may come before its reply.
        let waiting = wait.then(|| locker.wait(range, kind));
        let mut blocked = Blocked { nlm: self, asked: &asked, waiting, locker: &locker, is_blocked: false };
        let mut pause = POLL_FIRST;
        loop {
            if let Some(waiter) = &waiter {
                waiter.reset();
            }
            match self.try_lock(&locker, &asked).await? {
                Attempt::Granted(_) => {
                    blocked.is_blocked = false;
                    return Ok(());
                }
                Attempt::Denied => {
                    let Some(waiter) = &waiter else { return Err(OpError::Status(Status::DENIED)) };
                    blocked.is_blocked = true;
                    waiter.notified(self.engine.sleep(pause)).await;
                    pause = (pause * 2).min(POLL_MAX);
                }
                // fcntl(2) has no error for it; as in Linux, callers that do not wait for locks wait for the end of the period.
                Attempt::Grace => self.engine.sleep(GRACE_PAUSE).await,
            }
            if self.engine.is_shut_down() {
                return Err(OpError::Call(CallError::Closed));
            }
        }
    }

    /// Sends one LOCK. If the caller drops the future, the lock is released again.
    async fn try_lock(self: &Arc<Self>, locker: &LockerUse, asked: &Asked) -> Result<Attempt, OpError> {
        let turn = locker.turn().await;
        let (nlm, used, asked) = (Arc::clone(self), locker.again(), asked.clone());
        let (undo_nlm, undo_locker, undo_asked) = (Arc::clone(self), locker.again(), asked.clone());
        let operation = async move {
            let mut may_be_held = false;
            let outcome = nlm.lock_in_turn(&used, &asked, &mut may_be_held).await;
            drop(turn);
            if may_be_held && outcome.is_err() {
                nlm.restore_later(&asked.caller, &used, asked.range);
            }
            outcome
        };
        let guarded = self.abandoned.guard(operation, async move |outcome| match outcome {
            Ok(Attempt::Granted(before)) => {
                undo_locker.put_back(undo_asked.range, &before);
                undo_nlm.restore(&undo_asked.caller, &undo_locker, undo_asked.range).await;
            }
            Ok(Attempt::Denied) if undo_asked.wait => undo_nlm.cancel(&undo_asked, &undo_locker).await,
            _ => {}
        });
        guarded.await
    }

    /// `may_be_held` says whether the server may have granted a lock that the table does not have.
    async fn lock_in_turn(
        &self,
        locker: &LockerUse,
        asked: &Asked,
        may_be_held: &mut bool,
    ) -> Result<Attempt, OpError> {
        if !locker.has_room() {
            return Err(OpError::Invalid(Errno::ENOLCK, "too many locked ranges"));
        }
        let Asked { caller, range, kind, wait } = asked;
        for tries_left in (0..TRIES_MAX).rev() {
            self.learn_monitor().await?;
            let known = self.epochs.current();
            let sent = self.send_lock(caller, locker, (*range, *kind), *wait, false).await;
            // Their replies are lost.
            *may_be_held |=
                matches!(sent, Err(OpError::Call(CallError::TimedOut | CallError::Unreachable(_))));
            let Replied { reply, epoch } = sent?;
            if matches!(reply, Stats::GRANTED | Stats::DENIED_GRACE_PERIOD) {
                self.note_grace(reply == Stats::DENIED_GRACE_PERIOD);
            }
            match (reply, epoch) {
                (Stats::GRANTED, Some(epoch)) if epoch == known || tries_left == 0 => {
                    let is_first = !self.table.holds_any();
                    let before =
                        locker.granted(caller, HeldRange { range: *range, kind: *kind, open: epoch });
                    if is_first {
                        self.attention.raise();
                    }
                    // A shared lock in place of an exclusive one may let others in.
                    self.table.waiters.unlocked(&locker.file);
                    return Ok(Attempt::Granted(before));
                }
                // Perhaps by a server that has restarted since.
                (Stats::GRANTED, _) => *may_be_held = true,
                (Stats::DENIED, _) => return Ok(Attempt::Denied),
                (Stats::BLOCKED, _) if *wait => return Ok(Attempt::Denied),
                (Stats::DENIED_GRACE_PERIOD, _) => return Ok(Attempt::Grace),
                (status, _) => return Err(refused(status)),
            }
        }
        Err(OpError::BadReply("it breaks the connection at every lock"))
    }

    /// Sends LOCK, and returns the status.
    pub(super) async fn send_lock(
        &self,
        caller: &Caller,
        locker: &Locker,
        (range, kind): (LockRange, LockKind),
        block: bool,
        reclaim: bool,
    ) -> Result<Replied<Stats>, OpError> {
        let arguments = LockArgs {
            cookie: self.cookie(),
            block,
            exclusive: kind == LockKind::Exclusive,
            alock: self.wire_lock(locker, range),
            reclaim,
            state: self.state,
        };
        let Replied { reply, epoch } = self.call_ranged::<Res>(caller, Proc::LOCK, &arguments).await?;
        check_cookie(&arguments.cookie, &reply.cookie)?;
        Ok(Replied { reply: reply.stat, epoch })
    }

    /// Sends CANCEL for a LOCK that waits. It may have been granted at the same time: what the owner does not hold is unlocked.
    async fn cancel(&self, asked: &Asked, locker: &LockerUse) {
        let turn = locker.turn().await;
        let arguments = CancelArgs {
            cookie: self.cookie(),
            block: true,
            exclusive: asked.kind == LockKind::Exclusive,
            alock: self.wire_lock(locker, asked.range),
        };
        // Servers differ in the status for a lock that has been granted.
        let _ = self.call_ranged::<Res>(&asked.caller, Proc::CANCEL, &arguments).await;
        drop(turn);
        self.restore(&asked.caller, locker, asked.range).await;
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        // A GRANTED that arrives from now on is refused.
        self.waiting = None;
        if self.is_blocked {
            let (nlm, asked, locker) = (Arc::clone(self.nlm), self.asked.clone(), self.locker.again());
            self.nlm.abandoned.add(Box::pin(async move { nlm.cancel(&asked, &locker).await }));
        }
    }
}
