//! The locks of a client at the server's lock manager, by file and owner.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::lock::{Mutex as AsyncMutex, OwnedMutexGuard};
use parking_lot::Mutex;
use protocol::nfs4::types::Handle;

use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::hand_over::LockerState;
use crate::locks::{HeldRange, HeldRanges, LockKind, LockOwner, LockRange, Waiters};

/// All lock owners of the client.
#[derive(Debug)]
pub(super) struct Table {
    owners: Mutex<Owners>,
    pub(super) waiters: Waiters,
    /// Number of lockers with lost ranges.
    lost: AtomicUsize,
}

#[derive(Debug, Default)]
struct Owners {
    lockers: BTreeMap<(Handle, LockOwner), Arc<Locker>>,
    /// The number of each owner, which is the same for all files so that the server can find deadlocks, and the number of its
    /// lockers.
    svids: BTreeMap<LockOwner, (i32, usize)>,
    last_svid: u32,
}

/// One lock owner on one file.
#[derive(Debug)]
pub(super) struct Locker {
    /// The number by which the server knows the owner.
    pub(super) svid: i32,
    pub(super) file: Handle,
    pub(super) owner: LockOwner,
    /// Held by the request of this owner that is under way, so that the table has the server's order.
    turn: Arc<AsyncMutex<()>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The caller of the last LOCK, for which ranges are reclaimed.
    caller: Option<Caller>,
    /// Ranges that the server has. Their `open` is the epoch in which it granted them.
    held: HeldRanges,
    /// Ranges that the server dropped, until their owner unlocks them.
    lost: HeldRanges,
    /// Requests that wait for GRANTED.
    waits: Vec<(LockRange, LockKind)>,
    /// Ranges in which the server may hold what the table does not.
    doubts: Vec<LockRange>,
    /// Whether a task unlocks these.
    is_restoring: bool,
}

impl State {
    fn wants_or_has(&self, range: LockRange, kind: LockKind) -> bool {
        let has = || {
            self.held.gaps(range).is_empty() && self.held.within(range).iter().all(|held| held.kind == kind)
        };
        self.waits.contains(&(range, kind)) || has()
    }
}

/// Maximum number of ranges in doubt; more are taken together.
const DOUBTS_MAX: usize = 16;

/// A [`Locker`] in use. It is forgotten when it is unused and has no locks.
#[derive(Debug)]
pub(super) struct LockerUse {
    table: Arc<Table>,
    locker: Arc<Locker>,
}

/// A request that waits for GRANTED, until it is dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    locker: LockerUse,
    what: (LockRange, LockKind),
}

impl Table {
    /// Creates a table without locks. `seed` should be random: servers that do not compare the owner's handle take two clients of one
    /// machine for the same owner if their numbers are equal.
    pub(super) fn new(seed: u32) -> Arc<Self> {
        let owners = Owners { last_svid: seed, ..Owners::default() };
        Arc::new(Self { owners: Mutex::new(owners), waiters: Waiters::default(), lost: AtomicUsize::new(0) })
    }

    /// Returns the owner on this file, which may have no locks yet.
    pub(super) fn locker(self: &Arc<Self>, file: Handle, owner: LockOwner) -> LockerUse {
        let mut owners = self.owners.lock();
        let locker = match owners.lockers.get(&(file, owner)) {
            Some(locker) => Arc::clone(locker),
            None => {
                let svid = owners.take_svid(owner);
                let (turn, state) = (Arc::default(), Mutex::default());
                let locker = Arc::new(Locker { svid, file, owner, turn, state });
                owners.lockers.insert((file, owner), Arc::clone(&locker));
                locker
            }
        };
        LockerUse { table: Arc::clone(self), locker }
    }

    /// Returns the owner on this file if it has or wants locks there.
    pub(super) fn find(self: &Arc<Self>, file: Handle, owner: LockOwner) -> Option<LockerUse> {
        let locker = Arc::clone(self.owners.lock().lockers.get(&(file, owner))?);
        Some(LockerUse { table: Arc::clone(self), locker })
    }

    /// Returns all owners on all files, in the order of their numbers.
    pub(super) fn all(self: &Arc<Self>) -> Vec<LockerUse> {
        let owners = self.owners.lock();
        let in_use = |locker: &Arc<Locker>| LockerUse { table: Arc::clone(self), locker: Arc::clone(locker) };
        let mut all: Vec<_> = owners.lockers.values().map(in_use).collect();
        drop(owners);
        all.sort_unstable_by_key(|locker| locker.svid);
        all
    }

    /// Returns the owner with this number.
    pub(super) fn owner_of(&self, svid: i32) -> Option<LockOwner> {
        let owners = self.owners.lock();
        owners.svids.iter().find(|(_, (known, _))| *known == svid).map(|(owner, _)| *owner)
    }

    /// Returns whether the server has any lock of this client.
    pub(super) fn holds_any(&self) -> bool {
        self.owners.lock().lockers.values().any(|locker| !locker.state.lock().held.is_empty())
    }

    /// Returns whether a range was granted in another epoch.
    pub(super) fn has_doubtful(&self, epoch: u32) -> bool {
        self.owners.lock().lockers.values().any(|locker| !locker.doubtful(epoch).is_empty())
    }

    /// Wakes the owner with this number that waits for this lock. Returns whether there is one, or one that has the lock: the reply to
    /// its LOCK was faster than this GRANTED. A server takes back a lock whose GRANTED is refused.
    pub(super) fn granted(&self, file: &Handle, svid: i32, range: LockRange, is_exclusive: bool) -> bool {
        let kind = if is_exclusive { LockKind::Exclusive } else { LockKind::Shared };
        let is_wanted = {
            let owners = self.owners.lock();
            let mut lockers = owners.lockers.values();
            lockers.any(|locker| {
                locker.svid == svid && locker.file == *file && locker.state.lock().wants_or_has(range, kind)
            })
        };
        if is_wanted {
            self.waiters.notify(file, waiter_number(svid));
        }
        is_wanted
    }

    /// Returns whether one of these owners has lost a lock of the file.
    pub(super) fn has_lost<'a>(
        self: &Arc<Self>,
        file: Handle,
        owners: impl IntoIterator<Item = &'a LockOwner>,
    ) -> bool {
        self.lost.load(Ordering::Relaxed) > 0
            && owners.into_iter().any(|owner| {
                self.find(file, *owner).is_some_and(|locker| !locker.state.lock().lost.is_empty())
            })
    }
}

/// For another process that continues the client.
impl Table {
    /// Returns all owners, and the last number of one.
    ///
    /// # Errors
    /// An owner has a request under way, or waits for a lock.
    pub(super) fn save(&self) -> Result<(Vec<LockerState>, u64), OpError> {
        let owners = self.owners.lock();
        let all = owners.lockers.values().map(|locker| locker.save());
        Ok((all.collect::<Result<_, _>>()?, owners.last_svid.into()))
    }

    /// Takes the owners of another process, whose locks the server granted in the epoch `epoch`.
    ///
    /// # Errors
    /// A number or a file handle is not valid.
    pub(super) fn restore(&self, lockers: Vec<LockerState>, last: u64, epoch: u32) -> Result<(), OpError> {
        let invalid = || OpError::Invalid(Errno::EINVAL, "a lock owner that is not valid");
        let mut owners = self.owners.lock();
        owners.last_svid = u32::try_from(last).map_err(|_| invalid())?;
        for mut saved in lockers {
            saved.held.iter_mut().for_each(|held| held.open = epoch);
            let (file, owner) =
                (Handle::new(&saved.handle).map_err(|_| invalid())?, LockOwner::restored(saved.owner));
            let svid = i32::try_from(saved.number).map_err(|_| invalid())?;
            let (held, lost) = (HeldRanges::restored(&saved.held), HeldRanges::restored(&saved.lost));
            self.lost.fetch_add(usize::from(!lost.is_empty()), Ordering::Relaxed);
            let caller = saved.caller.map(Caller::from_state).transpose()?;
            let state = Mutex::new(State { caller, held, lost, ..State::default() });
            let locker = Arc::new(Locker { svid, file, owner, turn: Arc::default(), state });
            owners.svids.entry(owner).or_insert((svid, 0)).1 += 1;
            owners.lockers.insert((file, owner), locker);
        }
        Ok(())
    }
}

impl Locker {
    fn save(&self) -> Result<LockerState, OpError> {
        let busy = || OpError::Invalid(Errno::EBUSY, "a lock has a request under way");
        let _turn = self.turn.try_lock().ok_or_else(busy)?;
        let state = self.state.lock();
        if !state.waits.is_empty() {
            return Err(busy());
        }
        Ok(LockerState {
            handle: self.file.to_vec(),
            owner: self.owner.save(),
            number: u64::from(self.svid.unsigned_abs()),
            seqid: None,
            caller: state.caller.as_ref().map(Caller::state),
            held: state.held.save(),
            lost: state.lost.save(),
            stateids: Vec::new(),
        })
    }
}

impl Owners {
    fn take_svid(&mut self, owner: LockOwner) -> i32 {
        if let Some((svid, users)) = self.svids.get_mut(&owner) {
            *users += 1;
            return *svid;
        }
        // Positive, like a process ID.
        let svid = loop {
            self.last_svid = self.last_svid.wrapping_add(1);
            match (self.last_svid & 0x7fff_ffff).cast_signed() {
                0 => {}
                svid => break svid,
            }
        };
        self.svids.insert(owner, (svid, 1));
        svid
    }

    fn return_svid(&mut self, owner: LockOwner) {
        let Some((_, users)) = self.svids.get_mut(&owner) else { return };
        *users -= 1;
        if *users == 0 {
            self.svids.remove(&owner);
        }
    }
}

/// Returns the number of an owner among the waiters.
pub(super) fn waiter_number(svid: i32) -> u64 {
    u64::from(svid.unsigned_abs())
}

impl Locker {
    /// Waits until no other request of this owner is under way.
    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Returns whether another lock fits within the bound of an owner.
    pub(super) fn has_room(&self) -> bool {
        self.state.lock().held.has_room()
    }

    /// Returns the caller of the last LOCK.
    pub(super) fn caller(&self) -> Caller {
        self.state.lock().caller.clone().unwrap_or_else(Caller::anonymous)
    }

    /// Notes a granted lock. Returns what the owner had in the range before.
    pub(super) fn granted(&self, caller: &Caller, held: HeldRange) -> Vec<HeldRange> {
        let mut state = self.state.lock();
        state.caller = Some(caller.clone());
        let before = state.held.within(held.range);
        state.held.lock(held);
        before
    }

    /// Puts back what the owner had in a range.
    pub(super) fn put_back(&self, range: LockRange, before: &[HeldRange]) {
        let mut state = self.state.lock();
        state.held.unlock(range);
        before.iter().for_each(|held| state.held.lock(*held));
    }

    /// Returns the locked parts of a range.
    pub(super) fn held(&self, range: LockRange) -> Vec<HeldRange> {
        self.state.lock().held.within(range)
    }

    /// Returns the parts of a range that are not locked.
    pub(super) fn gaps(&self, range: LockRange) -> Vec<LockRange> {
        self.state.lock().held.gaps(range)
    }

    /// Returns the ranges that were granted in another epoch.
    pub(super) fn doubtful(&self, epoch: u32) -> Vec<HeldRange> {
        self.state.lock().held.iter().filter(|held| held.open != epoch).copied().collect()
    }

    /// Notes that the server may hold more than the table in a range. Returns whether no task unlocks such ranges yet: the caller
    /// does, from now on.
    pub(super) fn doubt(&self, range: LockRange) -> bool {
        let mut state = self.state.lock();
        if state.doubts.len() == DOUBTS_MAX {
            state.doubts = vec![LockRange::WHOLE];
        } else if !state.doubts.contains(&range) {
            state.doubts.push(range);
        }
        !std::mem::replace(&mut state.is_restoring, true)
    }

    /// Takes the next range in doubt. Without one, the task that unlocks them ends.
    pub(super) fn next_doubt(&self) -> Option<LockRange> {
        let mut state = self.state.lock();
        let next = state.doubts.pop();
        state.is_restoring = next.is_some();
        next
    }

    /// Ends the task that unlocks ranges in doubt.
    pub(super) fn forget_doubts(&self) {
        let mut state = self.state.lock();
        state.doubts.clear();
        state.is_restoring = false;
    }

    /// Notes that the server has this range in the epoch `held.open`.
    pub(super) fn confirmed(&self, held: HeldRange) {
        self.state.lock().held.lock(held);
    }
}

impl LockerUse {
    /// Returns another use.
    pub(super) fn again(&self) -> Self {
        Self { table: Arc::clone(&self.table), locker: Arc::clone(&self.locker) }
    }

    /// Notes that the owner waits for a lock.
    pub(super) fn wait(&self, range: LockRange, kind: LockKind) -> Waiting {
        self.state.lock().waits.push((range, kind));
        Waiting { locker: self.again(), what: (range, kind) }
    }

    /// Notes that the server has dropped a lock.
    pub(super) fn lose(&self, held: HeldRange) {
        self.change_lost(|state| {
            state.held.unlock(held.range);
            state.lost.lock(held);
        });
    }

    /// Removes a range. Lost parts of it are forgotten. Returns whether the server may have a part of it.
    pub(super) fn unlock(&self, range: LockRange) -> bool {
        self.change_lost(|state| {
            state.lost.unlock(range);
            let has_any = !state.held.within(range).is_empty();
            state.held.unlock(range);
            has_any
        })
    }

    fn change_lost<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let was_lost = !state.lost.is_empty();
        let result = change(&mut state);
        match (was_lost, !state.lost.is_empty()) {
            (false, true) => _ = self.table.lost.fetch_add(1, Ordering::Relaxed),
            (true, false) => _ = self.table.lost.fetch_sub(1, Ordering::Relaxed),
            _ => {}
        }
        result
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
        let mut owners = self.table.owners.lock();
        // The table's own, and this one.
        let is_last = Arc::strong_count(&self.locker) <= 2;
        let is_empty = {
            let state = self.locker.state.lock();
            state.held.is_empty() && state.lost.is_empty()
        };
        if is_last && is_empty && owners.lockers.remove(&(self.locker.file, self.locker.owner)).is_some() {
            owners.return_svid(self.locker.owner);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.locker.state.lock();
        if let Some(at) = state.waits.iter().position(|what| *what == self.what) {
            state.waits.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use LockKind::{Exclusive, Shared};

    use super::*;

    fn held(offset: u64, length: u64, kind: LockKind, epoch: u32) -> HeldRange {
        HeldRange { range: LockRange::new(offset, length).unwrap(), kind, open: epoch }
    }

    #[test]
    fn an_owner_has_one_number_on_all_files_while_it_has_locks() {
        let table = Table::new(u32::MAX);
        let (one, two) = (Handle::new(b"one").unwrap(), Handle::new(b"two").unwrap());
        let owner = LockOwner::Process(7);
        let first = table.locker(one, owner);
        assert!(first.svid > 0);
        let other = table.locker(one, LockOwner::File(7));
        assert_ne!(other.svid, first.svid);
        first.granted(&Caller::anonymous(), held(0, 10, Shared, 1));
        let svid = first.svid;
        drop(first);
        assert_eq!((table.locker(two, owner).svid, table.owner_of(svid)), (svid, Some(owner)));
        table.find(one, owner).unwrap().unlock(LockRange::WHOLE);
        assert!(table.find(one, owner).is_none() && table.owner_of(svid).is_none());
        drop(other);
        assert!(table.owners.lock().lockers.is_empty() && table.owners.lock().svids.is_empty());
    }

    #[test]
    fn ranges_of_other_epochs_are_doubtful_until_they_are_confirmed() {
        let table = Table::new(1);
        let locker = table.locker(Handle::new(b"file").unwrap(), LockOwner::Process(1));
        locker.granted(&Caller::anonymous(), held(0, 10, Shared, 1));
        locker.granted(&Caller::anonymous(), held(10, 10, Shared, 2));
        assert_eq!(locker.doubtful(2), [held(0, 10, Shared, 1)]);
        assert!(table.has_doubtful(2));
        locker.confirmed(held(0, 10, Shared, 2));
        assert!(!table.has_doubtful(2) && table.has_doubtful(3));
    }

    #[test]
    fn an_undone_lock_leaves_what_was_there_before() {
        let table = Table::new(1);
        let locker = table.locker(Handle::new(b"file").unwrap(), LockOwner::Process(1));
        locker.granted(&Caller::anonymous(), held(0, 10, Shared, 1));
        let range = LockRange::new(5, 10).unwrap();
        let before = locker.granted(&Caller::anonymous(), held(5, 10, Exclusive, 1));
        assert_eq!(before, [held(5, 5, Shared, 1)]);
        locker.put_back(range, &before);
        assert_eq!(locker.held(LockRange::WHOLE), [held(0, 10, Shared, 1)]);
        assert_eq!(locker.gaps(range), [LockRange::new(10, 5).unwrap()]);
    }

    #[test]
    fn a_lost_lock_is_reported_until_it_is_unlocked() {
        let table = Table::new(1);
        let (file, owner) = (Handle::new(b"file").unwrap(), LockOwner::Process(1));
        let locker = table.locker(file, owner);
        locker.granted(&Caller::anonymous(), held(0, 10, Shared, 1));
        locker.lose(held(0, 10, Shared, 1));
        assert!(!table.holds_any() && table.has_lost(file, &[owner]));
        assert!(!table.has_lost(file, &[LockOwner::Process(2)]));
        drop(locker);
        assert!(!table.find(file, owner).unwrap().unlock(LockRange::WHOLE), "the server has nothing");
        assert!(!table.has_lost(file, &[owner]) && table.find(file, owner).is_none());
    }

    #[test]
    fn another_process_continues_locks_with_their_numbers() {
        let table = Table::new(7);
        let (file, owner) = (Handle::new(b"file").unwrap(), LockOwner::Process(1));
        let locker = table.locker(file, owner);
        locker.granted(&Caller::anonymous(), held(0, 10, Shared, 5));
        locker.granted(&Caller::anonymous(), held(20, 0, Exclusive, 5));
        locker.lose(held(0, 3, Shared, 5));
        let (saved, last) = table.save().unwrap();
        let other = Table::new(7);
        other.restore(saved, last, 2).unwrap();
        let again = other.find(file, owner).unwrap();
        assert_eq!(again.svid, locker.svid);
        assert_eq!(again.held(LockRange::WHOLE), [held(3, 7, Shared, 2), held(20, 0, Exclusive, 2)]);
        assert!(other.has_lost(file, &[owner]) && !other.has_doubtful(2));
        assert_ne!(other.locker(file, LockOwner::Process(2)).svid, locker.svid);
        again.unlock(LockRange::WHOLE);
        drop(again);
        assert!(other.find(file, owner).is_none() && !other.has_lost(file, &[owner]));
        let _waiting = locker.wait(LockRange::WHOLE, Shared);
        assert!(table.save().is_err());
    }

    #[test]
    fn only_a_lock_that_is_waited_for_can_be_granted() {
        let table = Table::new(1);
        let file = Handle::new(b"file").unwrap();
        let locker = table.locker(file, LockOwner::Process(1));
        let range = LockRange::new(0, 10).unwrap();
        let waiting = locker.wait(range, Exclusive);
        let (svid, other) = (locker.svid, LockRange::new(0, 11).unwrap());
        assert!(table.granted(&file, svid, range, true));
        assert!(!table.granted(&file, svid, range, false) && !table.granted(&file, svid, other, true));
        assert!(!table.granted(&file, svid + 1, range, true));
        assert!(!table.granted(&Handle::new(b"other").unwrap(), svid, range, true));
        drop(waiting);
        assert!(!table.granted(&file, svid, range, true));
    }
}
