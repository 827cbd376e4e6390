//! The locks of a client at its server, with the information to reclaim them after a restart of the server.
//!
//! Locks under a delegation are *local*: only this table has them. All locks of one file are local, or none is: the server
//! decides about conflicts with the locks that it has.

mod hand_over;
mod local;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
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

    /// Returns the number of times that the locks were reclaimed.
    pub(crate) fn epoch(&self) -> u64 {
        self.state.lock().epoch
    }

    /// Returns whether this range is locked through an open whose locks are local.
    pub(crate) fn is_local(&self, held: HeldRange) -> bool {
        self.local().iter().any(|(local, _)| *local == held)
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

    /// Returns whether this is the stateid of an exclusive lock through an open, which is not being unlocked.
    pub(crate) fn has_exclusive(&self, open: u32, stateid: Stateid) -> bool {
        self.state.lock().exclusive().contains(&(open, stateid))
    }

    /// Returns whether this is the stateid of the locks through an open.
    pub(crate) fn has_stateid(&self, open: u32, stateid: Stateid) -> bool {
        self.snapshot(open).stateid == Some(stateid)
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

    /// Returns the opens through which ranges are locked exclusively, with their lock stateids. Ranges with a LOCKU under way do not
    /// count: the stateid may end with it.
    fn exclusive(&self) -> Vec<(u32, Stateid)> {
        let kept = match self.unlocking {
            Some(range) => {
                let mut kept = self.held.clone();
                kept.unlock(range);
                Cow::Owned(kept)
            }
            None => Cow::Borrowed(&self.held),
        };
        let is_exclusive =
            |open: &u32| kept.iter().any(|held| held.open == *open && held.kind == LockKind::Exclusive);
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
