//! Locks of files that are delegated, of which the server does not know.

use super::*;

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
