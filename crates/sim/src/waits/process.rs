//! A process: opens a file, takes or waits for locks one after the other, releases them, and closes it.

use std::time::Duration;

use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::fh::PutFhArgs;
use protocol::nfs4::ops::lock::{
    ExistingLockOwner, LockArgs, LockOutcome, LockType, LockUArgs, Locker, OpenToLockOwner,
};
use protocol::nfs4::ops::open::{
    CreateHow, DelegationType, DelegationWant, OpenArgs, OpenClaim, OpenHow, OpenResultFlags, ShareAccess,
    ShareDeny,
};
use protocol::nfs4::ops::open_state::{OpenConfirmArgs, OpenDowngradeArgs};
use protocol::nfs4::types::{Handle, Outcome, StateOwner, Stateid, Status};
use xdr::Opaque;

use super::cells::{Cells, Locked};
use super::lock_model::{LockCall, LockModel, LockOp, ProcessId};
use super::{FILES, name};
use crate::client::{component, export};
use crate::cluster::SECOND;
use crate::rng::Rng;

/// The retry interval of Linux's client with callbacks (NFS4_LOCK_MAXTIMEOUT). Without them it starts with a second and doubles up to
/// this.
pub(super) const POLL_SECONDS: u32 = 30;
/// Maximum number of retries of a process that holds locks: others may wait for them.
const RETRIES_MAX: u64 = 3;

/// Maximum time that it has a file open only for reading.
const REDUCED_SECONDS: u64 = 40;

/// The purpose of a call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Purpose {
    Open,
    Reopen,
    Confirm(Stateid, Handle),
    Lock {
        cells: Cells,
        write: bool,
        waits: bool,
        reclaims: bool,
    },
    Unlock(Cells),
    /// Opens the file only for reading as well, to downgrade then, as if one of two programs were killed.
    Share,
    Downgrade,
    Close,
}

/// A lock that the process requests.
#[derive(Debug, Clone, Copy)]
struct WantedLock {
    cells: Cells,
    write: bool,
    /// Whether it waits for the lock.
    waits: bool,
    /// Time of the next attempt.
    at: Duration,
    denials: u32,
    /// Maximum number of attempts, if there is one.
    most: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Opened {
    stateid: Stateid,
    handle: Handle,
    may_hear: bool,
}

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) who: ProcessId,
    minor: u32,
    /// Remaining locks.
    left: u32,
    file: usize,
    opened: Option<Opened>,
    lock: Option<Stateid>,
    held: Locked,
    /// Locks to reclaim, and the file's handle.
    former: Vec<(Cells, bool)>,
    handle: Option<Handle>,
    wanted: Option<WantedLock>,
    /// A lock that it stopped waiting for without a call.
    dropped: Option<(Cells, bool)>,
    doing: Option<Purpose>,
    next: Option<Purpose>,
    /// Whether it was notified during an attempt.
    is_called: bool,
    /// Whether it closes the file after the loss of a lock.
    has_lost: bool,
    /// Whether it closes the file after a downgrade to reading.
    is_reduced: bool,
    rests_until: Duration,
    /// Seqids of the open-owner and lock-owner (version 4.0).
    seqid: u32,
    lock_seqid: u32,
}

impl Process {
    pub(super) fn new(who: ProcessId, minor: u32, left: u32) -> Self {
        Self {
            who,
            minor,
            left,
            file: 0,
            opened: None,
            lock: None,
            held: Locked::default(),
            former: Vec::new(),
            handle: None,
            wanted: None,
            dropped: None,
            doing: None,
            next: None,
            is_called: false,
            has_lost: false,
            is_reduced: false,
            rests_until: Duration::ZERO,
            seqid: 0,
            lock_seqid: 0,
        }
    }

    /// Returns whether it has ended.
    pub(super) fn is_done(&self, model: &LockModel) -> bool {
        let is_idle = self.doing.is_none() && self.next.is_none() && self.opened.is_none();
        is_idle && self.wanted.is_none() && self.former.is_empty() && (self.left == 0 || model.is_quiet)
    }

    /// Returns whether it has locks to reclaim.
    pub(super) fn is_reclaiming(&self) -> bool {
        !self.former.is_empty()
    }

    /// Prepares to reclaim its locks, after the server has forgotten the client.
    pub(super) fn loses_server(&mut self) {
        self.former = self.held.parts();
        (self.opened, self.lock, self.doing, self.next) = (None, None, None, None);
        (self.is_called, self.has_lost, self.is_reduced) = (false, false, false);
    }

    /// Handles CB_NOTIFY_LOCK. Sometimes its program was killed meanwhile.
    pub(super) fn notified(&mut self, handle: Handle, now: Duration, rng: &mut Rng) {
        if self.opened.is_none_or(|opened| opened.handle != handle) {
            return;
        }
        if self.wanted.is_some() && self.doing.is_none() && rng.chance(15) {
            let leaves = if rng.chance(50) { Purpose::Close } else { Purpose::Share };
            (self.wanted, self.next) = (None, Some(leaves));
            return;
        }
        self.is_called = self.doing.is_some();
        if let Some(wanted) = &mut self.wanted {
            wanted.at = now;
        }
    }

    /// Returns its next call, if any.
    pub(super) fn next(&mut self, now: Duration, model: &LockModel, rng: &mut Rng) -> Option<Purpose> {
        if self.doing.is_some() {
            return None;
        }
        if let Some(op) = self.next.take() {
            return Some(op);
        }
        if let Some((cells, write)) = self.former.first().copied() {
            let lock = Purpose::Lock { cells, write, waits: false, reclaims: true };
            return Some(if self.opened.is_some() { lock } else { Purpose::Reopen });
        }
        // In the final phase all locks are released at once.
        let keeps_resting = !model.is_quiet || self.held.is_empty();
        if now < self.rests_until && keeps_resting || self.is_done(model) {
            return None;
        }
        if self.opened.is_none() {
            if self.wanted.is_none() {
                self.file = rng.below(FILES as u64) as usize;
            }
            return Some(Purpose::Open);
        }
        if self.has_lost || self.is_reduced {
            return Some(Purpose::Close);
        }
        if model.is_quiet && !self.held.is_empty() {
            // Others may wait for the lock.
            self.wanted = None;
        }
        match self.wanted {
            Some(WantedLock { at, cells, write, waits, .. }) => {
                (at <= now).then_some(Purpose::Lock { cells, write, waits, reclaims: false })
            }
            None if self.left == 0 || model.is_quiet => Some(Purpose::Close),
            None => self.choose(now, rng),
        }
    }

    fn choose(&mut self, now: Duration, rng: &mut Rng) -> Option<Purpose> {
        if !self.held.is_empty() {
            match rng.below(100) {
                0..40 => return Some(Purpose::Unlock(Cells::some(rng))),
                40..60 => return Some(Purpose::Unlock(Cells::ALL)),
                60..70 => return Some(Purpose::Close),
                _ => {}
            }
        }
        self.left -= 1;
        let (write, waits) = (rng.chance(60), rng.chance(80));
        let most = (!self.held.is_empty()).then(|| 1 + rng.below(RETRIES_MAX));
        // Sometimes a program is killed while it waits.
        let most = most.or_else(|| rng.chance(10).then(|| 1 + rng.below(RETRIES_MAX)));
        let (cells, write) = match self.dropped.take() {
            // The same bytes in the other mode.
            Some((cells, write)) if rng.chance(40) => (cells, !write),
            _ => (Cells::some(rng), write),
        };
        self.wanted = Some(WantedLock { cells, write, waits, at: now, denials: 0, most });
        None
    }

    /// Returns a call's operations, and the model's description of it.
    pub(super) fn operations(&mut self, op: Purpose, client_id: u64) -> (Vec<Op>, Option<LockCall>) {
        self.doing = Some(op);
        let ask = |op| Some(LockCall { who: self.who, file: self.file, op });
        match op {
            Purpose::Open => (self.open_named(client_id, ShareAccess::BOTH), None),
            Purpose::Share => (self.open_named(client_id, ShareAccess::READ), None),
            Purpose::Reopen => {
                let claim = OpenClaim::Previous(DelegationType::NONE);
                (self.open(client_id, claim, ShareAccess::BOTH), None)
            }
            Purpose::Confirm(open_stateid, handle) => {
                let args = OpenConfirmArgs { open_stateid, seqid: next(&mut self.seqid) };
                (at(handle, Op::OpenConfirm(args)), None)
            }
            Purpose::Lock { cells, write, waits, reclaims } => {
                if !write {
                    self.held.share(cells);
                }
                let ask = ask(LockOp::Lock { cells, write, waits, reclaims });
                (self.lock_operations(client_id, cells, (write, waits), reclaims), ask)
            }
            Purpose::Unlock(cells) => {
                let ask = ask(LockOp::Unlock(cells));
                // The lock counts as released when the request is sent.
                self.held.unlock(cells);
                let ((offset, length), lock_type) = (cells.range(), LockType::Write);
                let seqid = next(&mut self.lock_seqid);
                let lock_stateid = self.lock.expect("it has locks");
                let args = LockUArgs { lock_type, seqid, lock_stateid, offset, length };
                (self.at_file(Op::LockU(args)), ask)
            }
            Purpose::Downgrade => {
                let ask = ask(LockOp::Downgrade);
                let open_stateid = self.opened.expect("it has the file open").stateid;
                let (share_access, share_deny) = (ShareAccess::READ, ShareDeny::empty());
                let seqid = next(&mut self.seqid);
                let args = OpenDowngradeArgs { open_stateid, seqid, share_access, share_deny };
                (self.at_file(Op::OpenDowngrade(args)), ask)
            }
            Purpose::Close => {
                let ask = ask(LockOp::Close);
                self.held = Locked::default();
                let open_stateid = self.opened.expect("it has the file open").stateid;
                let args = CloseArgs { seqid: next(&mut self.seqid), open_stateid };
                (self.at_file(Op::Close(args)), ask)
            }
        }
    }

    fn at_file(&self, op: Op) -> Vec<Op> {
        at(self.opened.expect("it has the file open").handle, op)
    }

    fn owner(&self, client_id: u64) -> StateOwner {
        StateOwner { client_id, owner: Opaque::new(self.who.owner()).expect("a short name") }
    }

    fn open_named(&mut self, client_id: u64, access: ShareAccess) -> Vec<Op> {
        self.open(client_id, OpenClaim::Null(component(&name(self.file))), access)
    }

    fn open(&mut self, client_id: u64, claim: OpenClaim, plain: ShareAccess) -> Vec<Op> {
        let (way, how) = match (&claim, self.handle) {
            (OpenClaim::Previous(_), Some(handle)) => {
                (vec![Op::PutFh(PutFhArgs { handle })], OpenHow::NoCreate)
            }
            _ => (export(), OpenHow::Create(CreateHow::Unchecked(FileAttributes::default()))),
        };
        let open = Op::Open(OpenArgs {
            seqid: next(&mut self.seqid),
            share_access: if self.minor > 0 { plain.with_want(DelegationWant::NO_DELEG) } else { plain },
            share_deny: ShareDeny::empty(),
            owner: self.owner(client_id),
            how,
            claim,
        });
        way.into_iter().chain([open, Op::GetFh]).collect()
    }

    fn lock_operations(
        &mut self,
        client_id: u64,
        cells: Cells,
        (write, waits): (bool, bool),
        reclaim: bool,
    ) -> Vec<Op> {
        let lock_type = match (write, waits) {
            (true, true) => LockType::WriteWait,
            (true, false) => LockType::Write,
            (false, true) => LockType::ReadWait,
            (false, false) => LockType::Read,
        };
        let lock_seqid = next(&mut self.lock_seqid);
        let locker = match self.lock {
            Some(lock_stateid) => Locker::Existing(ExistingLockOwner { lock_stateid, lock_seqid }),
            None => Locker::New(OpenToLockOwner {
                open_seqid: next(&mut self.seqid),
                open_stateid: self.opened.expect("it has the file open").stateid,
                lock_seqid,
                lock_owner: self.owner(client_id),
            }),
        };
        let (offset, length) = cells.range();
        self.at_file(Op::Lock(LockArgs { lock_type, reclaim, offset, length, locker }))
    }

    /// Handles a reply. `may_have_lost` is set for a client after a long silence.
    ///
    /// # Errors
    /// Returns the error in it.
    pub(super) fn learn(
        &mut self,
        result: &CompoundResult,
        now: Duration,
        may_have_lost: bool,
        model: &mut LockModel,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let op = self.doing.take().ok_or("no request was sent")?;
        match (op, result.status, &result.results[..]) {
            (
                Purpose::Open | Purpose::Reopen | Purpose::Share,
                Status::OK,
                [.., OpResult::Open(Outcome::Ok(open)), OpResult::GetFh(Outcome::Ok(handle))],
            ) => {
                model.is_called(self.file, *handle);
                let may_hear = open.flags.contains(OpenResultFlags::MAY_NOTIFY_LOCK);
                if open.flags.contains(OpenResultFlags::CONFIRM) {
                    self.next = Some(Purpose::Confirm(open.stateid, *handle));
                } else {
                    self.has_opened(open.stateid, *handle, may_hear);
                    self.next = matches!(op, Purpose::Share).then_some(Purpose::Downgrade);
                }
            }
            (Purpose::Downgrade, Status::OK, [.., OpResult::OpenDowngrade(Outcome::Ok(stateid))]) => {
                let opened = self.opened.as_mut().expect("it has the file open");
                (opened.stateid, self.is_reduced) = (*stateid, true);
                self.rests_until = now + SECOND * rng.below(REDUCED_SECONDS) as u32;
            }
            (Purpose::Confirm(_, handle), Status::OK, [.., OpResult::OpenConfirm(Outcome::Ok(stateid))]) => {
                self.has_opened(*stateid, handle, false);
            }
            (Purpose::Open | Purpose::Share, Status::GRACE | Status::DELAY, _) => {
                self.rests_until = now + SECOND
            }
            (Purpose::Reopen, Status::NO_GRACE | Status::RECLAIM_BAD, _) => {
                (self.held, self.former) = (Locked::default(), Vec::new());
            }
            (
                Purpose::Lock { cells, write, reclaims, .. },
                Status::OK,
                [.., OpResult::Lock(LockOutcome::Ok(stateid))],
            ) => {
                self.lock = Some(*stateid);
                self.held.lock(cells, write);
                if reclaims {
                    self.former.remove(0);
                } else {
                    self.wanted = None;
                    let most = if rng.chance(10) { 60 } else { 8 };
                    self.rests_until = now + SECOND * rng.below(most) as u32;
                }
            }
            (Purpose::Lock { reclaims: false, .. }, Status::DENIED, _) => self.is_denied(now, rng),
            (Purpose::Lock { reclaims: false, .. }, Status::GRACE | Status::DELAY, _) => {
                self.rests_until = now + SECOND;
            }
            (Purpose::Lock { cells, reclaims: true, .. }, Status::NO_GRACE | Status::RECLAIM_CONFLICT, _) => {
                self.held.unlock(cells);
                self.former.remove(0);
            }
            (Purpose::Unlock(_), Status::OK, [.., OpResult::LockU(Outcome::Ok(stateid))]) => {
                self.lock = Some(*stateid);
            }
            (Purpose::Close, Status::OK, _) => self.has_closed(),
            // The record of a version 4.0 client is gone, which it learns by EXPIRED; its stateids may be another client's now.
            (Purpose::Confirm(..) | Purpose::Downgrade | Purpose::Close, Status::BAD_STATEID, _)
                if may_have_lost && self.minor == 0 =>
            {
                self.has_closed();
            }
            (
                Purpose::Lock { .. } | Purpose::Unlock(_),
                Status::EXPIRED | Status::BAD_STATEID | Status::ADMIN_REVOKED,
                _,
            ) if may_have_lost => {
                (self.has_lost, self.held, self.wanted) = (true, Locked::default(), None);
                self.former.clear();
            }
            (op, status, results) => return Err(format!("{op:?}: {status:?}: {:?}", results.last())),
        }
        Ok(())
    }

    fn has_opened(&mut self, stateid: Stateid, handle: Handle, may_hear: bool) {
        self.handle = Some(handle);
        self.opened = Some(Opened { stateid, handle, may_hear });
    }

    fn has_closed(&mut self) {
        (self.opened, self.lock, self.dropped) = (None, None, None);
        (self.has_lost, self.is_reduced) = (false, false);
    }

    /// Retries later, or gives up: with a last attempt, or without a call.
    fn is_denied(&mut self, now: Duration, rng: &mut Rng) {
        let may_hear = self.opened.is_some_and(|opened| opened.may_hear);
        let is_called = std::mem::take(&mut self.is_called);
        let Some(wanted) = &mut self.wanted else { return };
        wanted.denials += 1;
        if !wanted.waits {
            self.wanted = None;
        } else if wanted.most.is_some_and(|most| u64::from(wanted.denials) >= most) {
            // The last attempt does not wait.
            (wanted.waits, wanted.at) = (false, now);
            if rng.chance(70) {
                self.dropped = Some((wanted.cells, wanted.write));
                self.wanted = None;
                self.next = rng.chance(30).then_some(Purpose::Share);
            }
        } else {
            let backoff = 1 << (wanted.denials - 1).min(POLL_SECONDS.ilog2() + 1);
            let interval = if may_hear { POLL_SECONDS } else { POLL_SECONDS.min(backoff) };
            wanted.at = if is_called { now } else { now + SECOND * interval };
        }
    }
}

fn at(handle: Handle, op: Op) -> Vec<Op> {
    vec![Op::PutFh(PutFhArgs { handle }), op]
}

fn next(seqid: &mut u32) -> u32 {
    *seqid += 1;
    *seqid
}
