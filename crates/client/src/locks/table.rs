//! The locks of a client at its server, with the information to reclaim them after a restart of the server.
//!
//! Locks under a delegation are *local*: only this table has them. All locks of one file are local, or none is: the server
//! decides about conflicts with the locks that it has.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use futures_util::lock::{Mutex as AsyncMutex, MutexGuard, OwnedMutexGuard};
use parking_lot::Mutex;
use protocol::nfs4::types::{Handle, Stateid};

use super::ranges::{HeldRange, HeldRanges};
use super::{LockConflict, LockKind, LockOwner, LockRange, Waiters};
use crate::errno::Errno;
use crate::error::OpError;
use crate::hand_over::LockerState;
use crate::opens::{OpenFile, OpenFiles, restored_stateid, saved_stateid};
use crate::owner::Seqid;

/// Losses of locks that are remembered; of earlier ones every file may be.
const LOSSES_MAX: usize = 64;

/// All lock owners of the client.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// Whether this is version 4.0, in which owners have seqids.
    is_v40: bool,
    lockers: Mutex<HashMap<Handle, BTreeMap<LockOwner, Arc<Locker>>>>,
    last_number: AtomicU64,
    /// The files of the last losses, and the number of all.
    losses: Mutex<(VecDeque<Handle>, u64)>,
    pub(crate) waiters: Waiters,
}

/// One lock owner on one file. The server knows it by its number.
///
/// An owner that locks one file through several opens has a lock stateid for each open.
#[derive(Debug)]
pub(crate) struct Locker {
    /// Replaced with a lock-owner whose seqid is not known.
    number: AtomicU64,
    pub(crate) file: Handle,
    pub(crate) owner: LockOwner,
    /// Held by the LOCK or LOCKU of this owner that is under way, so that the table has the server's order.
    turn: Arc<AsyncMutex<()>>,
    /// Locked during each request that has it.
    seqid: AsyncMutex<Seqid>,
    /// Number of LOCKs under way, which the server may grant any time.
    asking: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of reclaims of the locks.
    epoch: u64,
    is_reclaiming: bool,
    held: HeldRanges,
    /// Ranges that the server dropped, until their owner unlocks them.
    lost: HeldRanges,
    /// The range of a LOCKU under way, which the server may have executed.
    unlocking: Option<LockRange>,
    opens: BTreeMap<u32, OfOpen>,
}

/// The locks of an owner through one open.
#[derive(Debug)]
struct OfOpen {
    file: Arc<OpenFile>,
    stateid: Option<Stateid>,
    /// Whether some of its ranges are lost.
    is_lost: bool,
    /// Whether the server does not know its locks.
    is_local: bool,
    /// Whether its locks were local until the server granted them, perhaps after it had revoked the delegation.
    is_unproven: bool,
}

/// A LOCK under way. No lock of its file becomes local before its end.
#[derive(Debug)]
pub(crate) struct Asking {
    locker: Arc<Locker>,
    /// Whether locks of the file are local. The server must know them before.
    pub(crate) has_local: bool,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.locker.asking.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The outcome of a lock under a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalLock {
    Granted,
    /// Another owner has it.
    Denied,
    /// The server has locks of this file, or is asked for one: it must decide.
    AskServer,
}

/// The state for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Snapshot {
    epoch: u64,
    /// The lock stateid; `None` before the first lock through this open.
    pub(crate) stateid: Option<Stateid>,
}

/// The ranges to unlock through one open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unlocking {
    pub(crate) open: u32,
    pub(crate) snapshot: Snapshot,
    /// Whether nothing will be locked through this open afterwards.
    pub(crate) is_last: bool,
    /// Whether the owner will have no locks afterwards.
    pub(crate) is_last_of_owner: bool,
}

/// A [`Locker`] in use. It is forgotten when it is unused and has no locks.
#[derive(Debug)]
pub(crate) struct LockerUse {
    locks: Arc<Locks>,
    locker: Arc<Locker>,
}

impl Locks {
    /// Creates a table without locks.
    pub(crate) fn new(is_v40: bool) -> Arc<Self> {
        Arc::new(Self { is_v40, ..Self::default() })
    }

    fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the owner on this file, which may have no locks yet.
    pub(crate) fn locker(self: &Arc<Self>, file: Handle, owner: LockOwner) -> LockerUse {
        let mut lockers = self.lockers.lock();
        let locker = lockers.entry(file).or_default().entry(owner).or_insert_with(|| {
            let (number, seqid) = (AtomicU64::new(self.next_number()), Seqid::new(self.is_v40).into());
            let (turn, state, asking) = (Arc::default(), Mutex::default(), AtomicUsize::new(0));
            Arc::new(Locker { number, file, owner, turn, seqid, asking, state })
        });
        LockerUse { locks: Arc::clone(self), locker: Arc::clone(locker) }
    }

    /// Returns the owner on this file if it has or wants locks there.
    pub(crate) fn find(self: &Arc<Self>, file: Handle, owner: LockOwner) -> Option<LockerUse> {
        let lockers = self.lockers.lock();
        let locker = lockers.get(&file)?.get(&owner)?;
        Some(LockerUse { locks: Arc::clone(self), locker: Arc::clone(locker) })
    }

    /// Returns all owners, in the order of their numbers.
    pub(crate) fn all(self: &Arc<Self>) -> Vec<LockerUse> {
        let lockers = self.lockers.lock();
        let in_use = |locker: &Arc<Locker>| LockerUse { locks: Arc::clone(self), locker: Arc::clone(locker) };
        let mut all: Vec<_> = lockers.values().flat_map(BTreeMap::values).map(in_use).collect();
        all.sort_unstable_by_key(|locker| locker.number());
        all
    }

    /// Returns the owners that have locked through an open.
    pub(crate) fn of_open(self: &Arc<Self>, file: &OpenFile) -> Vec<LockerUse> {
        if !file.has_been_locked() {
            return Vec::new();
        }
        let mut owners = self.of_file(&file.handle);
        owners.retain(|locker| locker.state.lock().opens.contains_key(&file.owner));
        owners
    }

    /// Returns the owners on a file.
    fn of_file(self: &Arc<Self>, file: &Handle) -> Vec<LockerUse> {
        let lockers = self.lockers.lock();
        let owners = lockers.get(file).into_iter().flat_map(BTreeMap::values);
        owners.map(|locker| LockerUse { locks: Arc::clone(self), locker: Arc::clone(locker) }).collect()
    }

    /// Returns the owner with this number.
    pub(crate) fn owner_of(&self, number: u64) -> Option<LockOwner> {
        let lockers = self.lockers.lock();
        let mut all = lockers.values().flat_map(BTreeMap::values);
        all.find(|locker| locker.number() == number).map(|locker| locker.owner)
    }

    /// Notes that the server has given up all locks through an open. Returns whether there were any.
    pub(crate) fn lose_of_open(self: &Arc<Self>, file: &OpenFile) -> bool {
        let mut has_lost = false;
        for locker in self.of_open(file) {
            has_lost |= locker.lose_of_open(file.owner);
        }
        has_lost
    }

    /// Notes that locks of a file are lost.
    pub(crate) fn note_loss(&self, file: &Handle) {
        let (files, count) = &mut *self.losses.lock();
        if files.len() == LOSSES_MAX {
            files.pop_front();
        }
        files.push_back(*file);
        *count += 1;
    }

    /// Returns the number of losses so far.
    pub(crate) fn losses(&self) -> u64 {
        self.losses.lock().1
    }

    /// Returns whether locks of a file may be lost since there were `losses`.
    pub(crate) fn has_lost_since(&self, file: &Handle, losses: u64) -> bool {
        let (files, count) = &*self.losses.lock();
        let since = usize::try_from(count - losses).unwrap_or(usize::MAX);
        since > files.len() || files.iter().rev().take(since).any(|lost| lost == file)
    }

    /// Returns an owner with an exclusive lock on a file that the server knows, with the open that it locked through and the lock's
    /// stateid. A lock through `open` comes first.
    pub(crate) fn exclusive_of(
        self: &Arc<Self>,
        file: &Handle,
        open: u32,
    ) -> Option<(LockerUse, u32, Stateid)> {
        let mut found = None;
        for locker in self.of_file(file) {
            let exclusive = locker.state.lock().exclusive();
            for (through, stateid) in exclusive {
                if through == open {
                    return Some((locker, through, stateid));
                }
                if found.is_none() {
                    let again = LockerUse { locks: Arc::clone(self), locker: Arc::clone(&locker.locker) };
                    found = Some((again, through, stateid));
                }
            }
        }
        found
    }

    /// Returns the locks of other owners at the server that conflict with one that it has just granted, each with its open and its
    /// stateid. Those with a LOCK or LOCKU under way are not among them: the server may have replaced or unlocked them first.
    pub(crate) fn conflicting(
        self: &Arc<Self>,
        locker: &Locker,
        granted: HeldRange,
    ) -> Vec<(LockerUse, u32, Stateid)> {
        let mut found = Vec::new();
        for other in self.of_file(&locker.file) {
            if other.owner == locker.owner || other.turn.try_lock().is_none() {
                continue;
            }
            let conflict = {
                let state = other.state.lock();
                let held = state.held.conflict(granted.range, granted.kind).map(|held| held.open);
                let known = held.filter(|_| !state.is_reclaiming);
                known.and_then(|open| Some((open, state.snapshot(open).stateid?)))
            };
            found.extend(conflict.map(|(open, stateid)| (other, open, stateid)));
        }
        found
    }
}

/// For another process that continues the client.
impl Locks {
    /// Returns all owners, and the last number of one.
    ///
    /// # Errors
    /// An owner has a request under way, or locks under a delegation.
    pub(crate) fn save(&self) -> Result<(Vec<LockerState>, u64), OpError> {
        let lockers = self.lockers.lock();
        let all = lockers.values().flat_map(BTreeMap::values).map(|locker| locker.save());
        Ok((all.collect::<Result<_, _>>()?, self.last_number.load(Ordering::Relaxed)))
    }

    /// Takes the owners of another process, whose opens are `opens`.
    ///
    /// # Errors
    /// An owner names an open that does not exist, or a file handle that is too long.
    pub(crate) fn restore(
        &self,
        lockers: Vec<LockerState>,
        last: u64,
        opens: &OpenFiles,
    ) -> Result<(), OpError> {
        self.last_number.store(last, Ordering::Relaxed);
        for saved in lockers {
            let locker = Arc::new(Locker::restored(&saved, opens)?);
            self.lockers.lock().entry(locker.file).or_default().insert(locker.owner, locker);
        }
        Ok(())
    }
}

impl Locker {
    fn save(&self) -> Result<LockerState, OpError> {
        let busy = |why| OpError::Invalid(Errno::EBUSY, why);
        let under_way = busy("a lock has a request under way");
        let _turn = self.turn.try_lock().ok_or(under_way.clone())?;
        let seqid = *self.seqid.try_lock().ok_or(under_way.clone())?;
        let state = self.state.lock();
        if state.has_local() {
            return Err(busy("a lock is under a delegation"));
        }
        if state.is_reclaiming || self.asking.load(Ordering::Relaxed) > 0 || !seqid.is_known() {
            return Err(under_way);
        }
        let stateid = |(open, of_open): (&u32, &OfOpen)| Some((*open, saved_stateid(of_open.stateid?)));
        Ok(LockerState {
            handle: self.file.to_vec(),
            owner: self.owner.save(),
            number: self.number(),
            seqid: seqid.next(),
            caller: None,
            held: state.held.save(),
            lost: state.lost.save(),
            stateids: state.opens.iter().filter_map(stateid).collect(),
        })
    }

    fn restored(saved: &LockerState, opens: &OpenFiles) -> Result<Self, OpError> {
        let invalid = OpError::Invalid(Errno::EINVAL, "a lock through an open that does not exist");
        let (held, lost) = (HeldRanges::restored(&saved.held), HeldRanges::restored(&saved.lost));
        let stateids: BTreeMap<u32, Stateid> =
            saved.stateids.iter().map(|(open, stateid)| (*open, restored_stateid(*stateid))).collect();
        let through = held.iter().chain(lost.iter()).map(|held| held.open).chain(stateids.keys().copied());
        let mut of_opens = BTreeMap::new();
        for open in through.collect::<std::collections::BTreeSet<u32>>() {
            let file = opens.find(open).ok_or(invalid.clone())?;
            let stateid = stateids.get(&open).copied();
            of_opens
                .insert(open, OfOpen { file, stateid, is_lost: false, is_local: false, is_unproven: false });
        }
        let mut state = State { held, lost, opens: of_opens, ..State::default() };
        state.refresh_lost();
        Ok(Self {
            number: AtomicU64::new(saved.number),
            file: Handle::new(&saved.handle).map_err(|_| invalid)?,
            owner: LockOwner::restored(saved.owner),
            turn: Arc::default(),
            seqid: Seqid::from_next(saved.seqid).into(),
            asking: AtomicUsize::new(0),
            state: Mutex::new(state),
        })
    }
}

/// Locks under delegations.
impl Locks {
    /// Locks a range of a file that is delegated, so that no other client has a lock that conflicts.
    pub(crate) fn lock_local(&self, locker: &Locker, file: &Arc<OpenFile>, held: HeldRange) -> LocalLock {
        let lockers = self.lockers.lock();
        let owners = || lockers.get(&locker.file).into_iter().flat_map(BTreeMap::values);
        if owners().any(|other| other.is_known_to_server()) {
            return LocalLock::AskServer;
        }
        let mut others = owners().filter(|other| other.owner != locker.owner);
        if others.any(|other| other.state.lock().held.conflict(held.range, held.kind).is_some()) {
            return LocalLock::Denied;
        }
        file.note_locked();
        let mut state = locker.state.lock();
        let of_open = OfOpen {
            file: Arc::clone(file),
            stateid: None,
            is_lost: false,
            is_local: true,
            is_unproven: false,
        };
        state.opens.entry(file.owner).or_insert(of_open).is_local = true;
        state.held.lock(held);
        LocalLock::Granted
    }

    /// Returns a lock of another owner that conflicts, if all locks of the file are local. The outer value is `None` if the
    /// server has some.
    pub(crate) fn local_conflict(
        &self,
        file: &Handle,
        owner: LockOwner,
        range: LockRange,
        kind: LockKind,
    ) -> Option<Option<LockConflict>> {
        let lockers = self.lockers.lock();
        let owners = || lockers.get(file).into_iter().flat_map(BTreeMap::values);
        if owners().any(|other| other.is_known_to_server()) {
            return None;
        }
        let others = owners().filter(|other| other.owner != owner);
        let found = others.filter_map(|other| {
            let state = other.state.lock();
            let held = state.held.conflict(range, kind)?;
            let (range, kind, owner) = (held.range, held.kind, Some(other.owner));
            Some(LockConflict { range, kind, owner, name: bytes::Bytes::new() })
        });
        Some(found.into_iter().next())
    }

    /// Returns the owners that have local locks on a file.
    pub(crate) fn local_of(self: &Arc<Self>, file: &Handle) -> Vec<LockerUse> {
        let mut owners = self.of_file(file);
        owners.retain(|locker| locker.state.lock().has_local());
        owners
    }

    /// Notes that locks of a file that were local under its delegation are lost: the server has revoked it. Returns whether there were
    /// any.
    pub(crate) fn lose_local(self: &Arc<Self>, file: &Handle) -> bool {
        let mut has_lost = false;
        for locker in self.of_file(file) {
            let opens = locker.state.lock().delegated_opens();
            opens.into_iter().for_each(|open| has_lost |= locker.lose_of_open(open));
        }
        has_lost
    }
}

impl Locker {
    /// Returns the number, which is part of the owner's name at the server.
    pub(crate) fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Waits until no other request with the owner's seqid is in progress. Do not wait for a session meanwhile: the task that makes
    /// sessions takes the seqid too. A task that takes an open-owner's turn as well takes that first.
    pub(crate) async fn seqid(&self) -> MutexGuard<'_, Seqid> {
        self.seqid.lock().await
    }

    /// Waits until no other request of this owner is under way.
    pub(crate) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Returns whether the server has locks of this owner, or may grant one any time.
    fn is_known_to_server(&self) -> bool {
        let state = self.state.lock();
        let has_stateid = state.opens.values().any(|of_open| of_open.stateid.is_some());
        has_stateid || state.is_reclaiming || self.asking.load(Ordering::Relaxed) > 0
    }

    /// Returns the local ranges with their opens, in the order of the opens.
    pub(crate) fn local(&self) -> Vec<(HeldRange, Arc<OpenFile>)> {
        let state = self.state.lock();
        let local = state.opens.iter().filter(|(_, of_open)| of_open.is_local);
        let ranges = local.flat_map(|(open, of_open)| {
            let held = state.held.iter().filter(move |held| held.open == *open);
            held.map(|held| (*held, Arc::clone(&of_open.file)))
        });
        ranges.collect()
    }

    /// Takes the stateid of a local lock that the server knows now. Returns false if the locks were reclaimed since the snapshot:
    /// then the server may not have this one, and the request must be repeated.
    pub(crate) fn made_known(&self, snapshot: Snapshot, open: u32, stateid: Stateid) -> bool {
        let mut state = self.state.lock();
        if state.epoch != snapshot.epoch {
            return false;
        }
        if let Some(of_open) = state.opens.get_mut(&open) {
            (of_open.stateid, of_open.is_local, of_open.is_unproven) = (Some(stateid), false, true);
        }
        true
    }

    /// Notes that the delegation was valid after the server had granted the locks that were local under it.
    pub(crate) fn proven(&self) {
        self.state.lock().opens.values_mut().for_each(|of_open| of_open.is_unproven = false);
    }

    /// Returns whether another lock fits within the bound of an owner.
    pub(crate) fn has_room(&self) -> bool {
        self.state.lock().held.has_room()
    }

    /// Returns the parts of a LOCK through `open`.
    pub(crate) fn snapshot(&self, open: u32) -> Snapshot {
        self.state.lock().snapshot(open)
    }

    /// Notes a granted lock. Returns false if the locks were reclaimed since the snapshot: then the server may not have this
    /// one, and the request must be repeated.
    pub(crate) fn granted(
        &self,
        snapshot: Snapshot,
        file: &Arc<OpenFile>,
        stateid: Stateid,
        held: HeldRange,
    ) -> bool {
        let mut state = self.state.lock();
        if state.epoch != snapshot.epoch {
            return false;
        }
        file.note_locked();
        let of_open = OfOpen {
            file: Arc::clone(file),
            stateid: None,
            is_lost: false,
            is_local: false,
            is_unproven: false,
        };
        state.opens.entry(file.owner).or_insert(of_open).stateid = Some(stateid);
        state.held.lock(held);
        true
    }

    /// Returns the locked parts of `range` through each open. Lost ranges there are forgotten.
    pub(crate) fn unlocking(&self, range: LockRange) -> Vec<Unlocking> {
        let mut state = self.state.lock();
        state.lost.unlock(range);
        state.refresh_lost();
        let mut rest = state.held.clone();
        rest.unlock(range);
        let has = |ranges: &HeldRanges, open| ranges.iter().any(|held| held.open == open);
        let overlaps = |open| state.held.iter().any(|held| held.open == open && held.range.overlaps(range));
        let opens = state.opens.keys().copied().filter(|open| overlaps(*open));
        opens
            .map(|open| Unlocking {
                open,
                snapshot: state.snapshot(open),
                is_last: !has(&rest, open),
                is_last_of_owner: rest.is_empty(),
            })
            .collect()
    }

    /// Notes that a range is being unlocked: it is not reclaimed, because the server may have unlocked it before it stopped, and have
    /// let another client lock it.
    pub(crate) fn begin_unlock(&self, range: LockRange) {
        self.state.lock().unlocking = Some(range);
    }

    /// Notes the end of [`Self::begin_unlock`].
    pub(crate) fn end_unlock(&self) {
        self.state.lock().unlocking = None;
    }

    /// Notes that the server has unlocked a range. Returns false if the locks were reclaimed since the snapshot: then the
    /// server may still have it.
    pub(crate) fn unlocked(&self, unlocking: Unlocking, range: LockRange, stateid: Option<Stateid>) -> bool {
        let mut state = self.state.lock();
        if state.epoch != unlocking.snapshot.epoch {
            return false;
        }
        state.held.unlock(range);
        if let Some(of_open) = state.opens.get_mut(&unlocking.open) {
            of_open.stateid = stateid;
        }
        state.prune();
        true
    }

    /// Notes that the server has given up all locks through an open. Returns whether there were any.
    pub(crate) fn lose_of_open(&self, open: u32) -> bool {
        let mut state = self.state.lock();
        let taken = state.held.take_of(open);
        let has_lost = !taken.is_empty();
        for held in taken {
            state.lost.lock(held);
        }
        if let Some(of_open) = state.opens.get_mut(&open) {
            (of_open.stateid, of_open.is_local, of_open.is_unproven) = (None, false, false);
        }
        state.refresh_lost();
        state.prune();
        has_lost
    }

    /// Notes that the server has forgotten the owner, which had no locks left.
    pub(crate) fn released(&self) {
        let mut state = self.state.lock();
        for of_open in state.opens.values_mut() {
            of_open.stateid = None;
        }
        state.prune();
    }

    /// Notes that the server has dropped a lock.
    pub(crate) fn lose(&self, held: HeldRange) {
        let mut state = self.state.lock();
        state.held.unlock(held.range);
        state.lost.lock(held);
        state.refresh_lost();
    }

    /// Removes the locks of an open that is closed.
    pub(crate) fn closed(&self, open: u32) {
        let mut state = self.state.lock();
        state.held.take_of(open);
        state.lost.take_of(open);
        state.refresh_lost();
        state.opens.remove(&open);
    }

    /// Begins to reclaim: no stateid is valid any longer. Returns the ranges with their opens. Local ones are not among them if
    /// the file's delegation is reclaimed (`keeps_local`).
    pub(crate) fn begin_reclaim(&self, keeps_local: bool) -> Vec<(HeldRange, Arc<OpenFile>)> {
        let mut state = self.state.lock();
        state.epoch += 1;
        state.is_reclaiming = true;
        if let Some(range) = state.unlocking {
            state.held.unlock(range);
        }
        for of_open in state.opens.values_mut() {
            (of_open.stateid, of_open.is_unproven) = (None, false);
            of_open.is_local &= keeps_local;
        }
        let file_of = |held: &HeldRange| {
            let of_open = state.opens.get(&held.open).filter(|of_open| !of_open.is_local)?;
            Some((*held, Arc::clone(&of_open.file)))
        };
        state.held.iter().filter_map(file_of).collect()
    }

    /// Takes the stateid of a reclaimed lock.
    pub(crate) fn reclaimed(&self, open: u32, stateid: Stateid) {
        if let Some(of_open) = self.state.lock().opens.get_mut(&open) {
            of_open.stateid = Some(stateid);
        }
    }

    /// Notes that all locks are reclaimed or lost.
    pub(crate) fn end_reclaim(&self) {
        let mut state = self.state.lock();
        state.is_reclaiming = false;
        state.prune();
    }

    /// Returns whether the locks are being reclaimed.
    pub(crate) fn is_reclaiming(&self) -> bool {
        self.state.lock().is_reclaiming
    }

    /// Returns the lock stateids with the numbers of their opens.
    pub(crate) fn stateids(&self) -> Vec<(u32, Stateid)> {
        let state = self.state.lock();
        state.opens.iter().filter_map(|(open, of_open)| Some((*open, of_open.stateid?))).collect()
    }
}

impl State {
    fn snapshot(&self, open: u32) -> Snapshot {
        let stateid = self.opens.get(&open).and_then(|of_open| of_open.stateid);
        Snapshot { epoch: self.epoch, stateid }
    }

    /// Notes at each open whether locks through it are lost.
    fn refresh_lost(&mut self) {
        for (open, of_open) in &mut self.opens {
            let is_lost = self.lost.iter().any(|lost| lost.open == *open);
            if std::mem::replace(&mut of_open.is_lost, is_lost) != is_lost {
                of_open.file.note_lost_lock(is_lost);
            }
        }
    }

    /// Forgets opens through which nothing is locked.
    fn prune(&mut self) {
        let Self { held, opens, .. } = self;
        opens.retain(|open, of_open| {
            of_open.stateid.is_some() || of_open.is_lost || held.iter().any(|held| held.open == *open)
        });
    }

    /// Returns the opens through which ranges are locked exclusively, with their lock stateids.
    fn exclusive(&self) -> Vec<(u32, Stateid)> {
        let is_exclusive =
            |open: &u32| self.held.iter().any(|held| held.open == *open && held.kind == LockKind::Exclusive);
        let known = self.opens.iter().filter(|(open, of_open)| is_exclusive(open) && !of_open.is_unproven);
        known.filter_map(|(open, of_open)| Some((*open, of_open.stateid?))).collect()
    }

    fn has_local(&self) -> bool {
        self.opens.values().any(|of_open| of_open.is_local)
    }

    /// Returns the opens whose locks are lost with the delegation.
    fn delegated_opens(&self) -> Vec<u32> {
        let is_delegated = |of_open: &OfOpen| of_open.is_local || of_open.is_unproven;
        self.opens.iter().filter(|(_, of_open)| is_delegated(of_open)).map(|(open, _)| *open).collect()
    }

    fn is_idle(&self) -> bool {
        self.held.is_empty() && self.lost.is_empty() && self.opens.is_empty() && !self.is_reclaiming
    }
}

impl LockerUse {
    /// Notes that a LOCK of this owner is sent.
    pub(crate) fn ask(&self) -> Asking {
        let lockers = self.locks.lockers.lock();
        self.asking.fetch_add(1, Ordering::Relaxed);
        let mut owners = lockers.get(&self.file).into_iter().flat_map(BTreeMap::values);
        let has_local = owners.any(|locker| locker.state.lock().has_local());
        Asking { locker: Arc::clone(&self.locker), has_local }
    }

    /// Replaces a lock-owner of version 4.0 whose seqid is not known. Its locks are lost: the server takes no request for them.
    pub(crate) fn replace(&self, seqid: &mut Seqid) {
        self.locker.number.store(self.locks.next_number(), Ordering::Relaxed);
        *seqid = Seqid::new(self.locks.is_v40);
        let opens: Vec<u32> = self.locker.state.lock().opens.keys().copied().collect();
        for open in opens {
            // It has no data in caches: version 4.0 has none for locked files.
            let _ = self.locker.lose_of_open(open);
        }
    }
}

impl Deref for LockerUse {
    type Target = Locker;

    fn deref(&self) -> &Locker {
        &self.locker
    }
}

impl Drop for LockerUse {
    fn drop(&mut self) {
        let mut lockers = self.locks.lockers.lock();
        // The table and this one.
        if Arc::strong_count(&self.locker) == 2
            && self.locker.state.lock().is_idle()
            && let Some(owners) = lockers.get_mut(&self.locker.file)
        {
            owners.remove(&self.locker.owner);
            if owners.is_empty() {
                lockers.remove(&self.locker.file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::LockKind;
    use super::*;
    use crate::config::Caller;
    use crate::opens::{NewOpen, OpenFiles, OpenMode};

    const STATEID: Stateid = Stateid { seqid: 1, other: [7; 12] };

    fn open(files: &OpenFiles) -> Arc<OpenFile> {
        let (handle, location, mode, stateid) = (Handle::default(), None, OpenMode::BOTH, STATEID);
        let new = NewOpen { handle, location, mode, stateid, is_local: false };
        files.add(files.take_owner(), &Caller::anonymous(), new)
    }

    fn held(first: u64, last: u64, file: &OpenFile) -> HeldRange {
        HeldRange { range: LockRange { first, last }, kind: LockKind::Exclusive, open: file.owner }
    }

    fn lock(locker: &Locker, file: &Arc<OpenFile>, first: u64, last: u64) {
        let snapshot = locker.snapshot(file.owner);
        assert!(locker.granted(snapshot, file, STATEID, held(first, last, file)));
    }

    #[test]
    fn an_owner_is_forgotten_with_its_last_lock() {
        let (locks, files) = (Arc::new(Locks::default()), OpenFiles::default());
        let file = open(&files);
        let locker = locks.locker(file.handle, LockOwner::Process(1));
        lock(&locker, &file, 0, 9);
        let number = locker.number();
        drop(locker);
        let locker = locks.find(file.handle, LockOwner::Process(1)).expect("it has a lock");
        assert_eq!((locker.number(), locks.owner_of(number)), (number, Some(LockOwner::Process(1))));
        let [part] = locker.unlocking(LockRange { first: 0, last: 4 })[..] else { panic!("one open") };
        assert!(!part.is_last && locker.unlocked(part, LockRange { first: 0, last: 4 }, Some(STATEID)));
        let [rest] = locker.unlocking(LockRange::WHOLE)[..] else { panic!("one open") };
        assert!(rest.is_last && locker.unlocked(rest, LockRange::WHOLE, None));
        drop(locker);
        assert!(locks.find(file.handle, LockOwner::Process(1)).is_none() && locks.all().is_empty());
    }

    #[test]
    fn all_locks_of_a_file_are_local_or_none_is() {
        let (locks, files) = (Arc::new(Locks::default()), OpenFiles::default());
        let file = open(&files);
        let [one, two] = [1, 2].map(|number| locks.locker(file.handle, LockOwner::Process(number)));
        let shared = |first, last| HeldRange { kind: LockKind::Shared, ..held(first, last, &file) };
        let conflict = || {
            locks.local_conflict(&file.handle, LockOwner::Process(2), LockRange::WHOLE, LockKind::Exclusive)
        };
        assert_eq!(conflict(), Some(None));
        assert_eq!(locks.lock_local(&one, &file, shared(0, 9)), LocalLock::Granted);
        assert_eq!(locks.lock_local(&two, &file, held(5, 5, &file)), LocalLock::Denied);
        assert_eq!(locks.lock_local(&two, &file, shared(5, 5)), LocalLock::Granted);
        assert_eq!(conflict().unwrap().unwrap().owner, Some(LockOwner::Process(1)));
        // The server may grant a lock any time.
        let asking = two.ask();
        assert!(asking.has_local && conflict().is_none());
        assert_eq!(locks.lock_local(&one, &file, shared(20, 29)), LocalLock::AskServer);
        drop(asking);
        for locker in locks.local_of(&file.handle) {
            for (range, _) in locker.local() {
                let early = locker.snapshot(range.open);
                locker.begin_reclaim(true);
                locker.end_reclaim();
                assert!(!locker.made_known(early, range.open, STATEID), "the server has restarted since");
                assert_eq!(locker.local().len(), 1);
                assert!(locker.made_known(locker.snapshot(range.open), range.open, STATEID));
            }
        }
        assert!(locks.local_of(&file.handle).is_empty() && conflict().is_none());
        assert_eq!(locks.lock_local(&one, &file, shared(20, 29)), LocalLock::AskServer);
        assert_eq!(one.unlocking(LockRange::WHOLE)[0].snapshot.stateid, Some(STATEID));
    }

    #[test]
    fn a_range_that_is_being_unlocked_is_not_reclaimed() {
        let (locks, files) = (Arc::new(Locks::default()), OpenFiles::default());
        let file = open(&files);
        let locker = locks.locker(file.handle, LockOwner::Process(1));
        lock(&locker, &file, 0, 9);
        locker.begin_unlock(LockRange { first: 5, last: 9 });
        let reclaimed: Vec<_> = locker.begin_reclaim(false).into_iter().map(|(held, _)| held).collect();
        assert_eq!(reclaimed, [held(0, 4, &file)]);
        locker.end_reclaim();
        locker.end_unlock();
        assert_eq!(locker.begin_reclaim(false).len(), 1);
    }

    #[test]
    fn local_locks_are_reclaimed_unless_the_delegation_is_and_lost_with_it() {
        let (locks, files) = (Arc::new(Locks::default()), OpenFiles::default());
        let file = open(&files);
        let locker = locks.locker(file.handle, LockOwner::Process(1));
        assert_eq!(locks.lock_local(&locker, &file, held(0, 9, &file)), LocalLock::Granted);
        assert_eq!((locker.begin_reclaim(true).len(), locker.local().len()), (0, 1));
        locker.end_reclaim();
        assert_eq!((locker.begin_reclaim(false).len(), locker.local().len()), (1, 0));
        locker.end_reclaim();
        let other = locks.locker(file.handle, LockOwner::Process(2));
        assert_eq!(locks.lock_local(&other, &file, held(20, 29, &file)), LocalLock::Granted);
        locks.lose_local(&file.handle);
        assert!(file.has_lost_lock() && other.local().is_empty());
    }

    #[test]
    fn another_process_continues_locks_through_its_opens() {
        let (locks, files) = (Locks::new(false), OpenFiles::new(false));
        let (file, other) = (open(&files), open(&files));
        let locker = locks.locker(file.handle, LockOwner::File(5));
        lock(&locker, &file, 0, 9);
        lock(&locker, &other, 20, u64::MAX);
        locker.lose(held(0, 4, &file));
        let ((opens, last_open), (saved, last)) = (files.save().unwrap(), locks.save().unwrap());
        let (again_locks, again_files) = (Locks::new(false), OpenFiles::new(false));
        assert!(again_locks.restore(saved.clone(), last, &again_files).is_err(), "without the opens");
        again_files.restore(opens, last_open).unwrap();
        again_locks.restore(saved.clone(), last, &again_files).unwrap();
        assert_eq!(again_locks.save().unwrap(), (saved, last));
        let again = again_locks.find(file.handle, LockOwner::File(5)).unwrap();
        assert_eq!(again.stateids(), [(file.owner, STATEID), (other.owner, STATEID)]);
        let file = again_files.find(file.owner).unwrap();
        assert!(file.has_lost_lock() && !again_files.find(other.owner).unwrap().has_lost_lock());
        assert_eq!(again.unlocking(LockRange::WHOLE).len(), 2);
        assert!(!file.has_lost_lock(), "the owner has unlocked it");
        assert!(again_locks.locker(file.handle, LockOwner::File(6)).number() > locker.number());
        let asking = locker.ask();
        assert!(locks.save().is_err(), "the server may grant a lock any time");
        drop(asking);
        files.all()[0].delegated(STATEID);
        assert!(files.save().is_err());
    }

    #[test]
    fn results_from_before_a_reclaim_do_not_count() {
        let (locks, files) = (Arc::new(Locks::default()), OpenFiles::default());
        let file = open(&files);
        let locker = locks.locker(file.handle, LockOwner::File(1));
        lock(&locker, &file, 0, 9);
        let before = locker.snapshot(file.owner);
        let [unlocking] = locker.unlocking(LockRange::WHOLE)[..] else { panic!("one open") };
        assert_eq!(before.stateid, Some(STATEID));
        assert_eq!(locker.begin_reclaim(false).len(), 1);
        assert_eq!(locker.snapshot(file.owner).stateid, None);
        assert!(!locker.granted(before, &file, STATEID, held(20, 29, &file)));
        assert!(!locker.unlocked(unlocking, LockRange::WHOLE, None));
        locker.reclaimed(file.owner, STATEID);
        assert!(locker.is_reclaiming());
        locker.end_reclaim();
        assert!(!locker.is_reclaiming());
        assert_eq!(locker.stateids(), [(file.owner, STATEID)]);
    }

    #[test]
    fn the_last_losses_are_remembered_by_file() {
        let locks = Locks::new(false);
        let file = |number: u8| Handle::new(&[number]).unwrap();
        let before = locks.losses();
        assert!(!locks.has_lost_since(&file(1), before));
        locks.note_loss(&file(1));
        let after = locks.losses();
        let lost = |number, since| locks.has_lost_since(&file(number), since);
        assert_eq!((lost(1, before), lost(2, before), lost(1, after)), (true, false, false));
        (0..LOSSES_MAX).for_each(|_| locks.note_loss(&file(2)));
        assert_eq!((lost(1, after), lost(3, after), lost(3, before)), (false, false, true));
    }

    #[test]
    fn a_lost_lock_is_noted_at_its_open_until_it_is_unlocked_or_closed() {
        let (locks, files) = (Arc::new(Locks::default()), OpenFiles::default());
        let (file, other) = (open(&files), open(&files));
        let locker = locks.locker(file.handle, LockOwner::Process(1));
        lock(&locker, &file, 0, 9);
        lock(&locker, &other, 10, 19);
        locks.lose_of_open(&file);
        assert_eq!((file.has_lost_lock(), other.has_lost_lock()), (true, false));
        locker.lose(held(10, 19, &other));
        assert!(other.has_lost_lock());
        assert!(locker.unlocking(LockRange { first: 0, last: 9 }).is_empty(), "the server has nothing");
        assert_eq!((file.has_lost_lock(), other.has_lost_lock()), (false, true));
        locker.closed(other.owner);
        assert!(!other.has_lost_lock());
    }
}
