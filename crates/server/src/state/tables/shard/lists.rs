//! Insertion into the lists of files and opens, and removal, in constant time.

use std::sync::Arc;

use vfs::LocalLocks;

use super::super::delegation::kind::DelegationKind;
use super::super::file_key::FileKey;
use super::entry::{Cell, Entry, EntryKind};
use super::file::File;
use super::share::Modes;
use super::table::Shard;

impl Shard {
    /// Removes a lock stateid from its open's list, if it is in one.
    pub(super) fn leave_open(&mut self, index: u32) {
        let EntryKind::Lock(lock) = &mut self.entry_mut(index).kind else { return };
        let (open, Some(at)) = (lock.open, lock.at_open.take()) else { return };
        let locks = &mut self.open_at_mut(open).locks;
        locks.swap_remove(at as usize);
        if let Some(moved) = locks.get(at as usize).copied()
            && let EntryKind::Lock(lock) = &mut self.entry_mut(moved).kind
        {
            lock.at_open = Some(at);
        }
    }

    /// Adds an open to its file's list, and the file to the shard with its first open.
    pub(super) fn enter_file(&mut self, key: FileKey, index: u32, modes: &Modes) {
        let Self { files, cells, seed, .. } = self;
        let file = files.entry(key).or_insert_with(|| File::new(*seed ^ key.fileid));
        let at_file = file.opens.insert(modes.bits(), index, |moved, at| set_at_file(cells, moved, at));
        set_at_file(cells, index, at_file);
    }

    /// Removes an open from its file's list.
    pub(super) fn take_from_file(&mut self, key: FileKey, at: u32) {
        let Self { files, cells, .. } = self;
        let file = files.get_mut(&key).expect("a file is listed while it has entries");
        file.opens.remove(at, |moved, at| set_at_file(cells, moved, at));
    }

    /// Removes a delegation from its file's list, and wakes the operations that waited for the last of them.
    pub(super) fn leave_delegated(&mut self, key: FileKey, at: u32) {
        let file = self.file_mut(key);
        file.delegations.swap_remove(at as usize);
        if let Some(moved) = file.delegations.get(at as usize).copied() {
            self.delegation_at_mut(moved).at_file = at;
        }
        // Each woken operation examines the remaining delegations under this lock. Of a file, no operation can continue while
        // two remain: one at most is its own client's, and a write delegation is the only one. The wake-ups at powers of two are
        // for holders whose leases expire meanwhile. Of a directory any number may remain: holders that are notified.
        let delegations = &self.file_mut(key).delegations;
        let (first, left) = (delegations.first().copied(), delegations.len());
        let is_directory =
            first.is_some_and(|one| matches!(self.delegation_at(one).kind, DelegationKind::Directory(_)));
        self.forget_unused(key);
        if left == 0 || left.is_power_of_two() || is_directory {
            self.wake_waiting(key);
        }
    }

    /// Wakes the operations that wait for delegations of a file.
    pub(crate) fn wake_waiting(&mut self, key: FileKey) {
        // A waker only schedules: no server code runs under the shard's lock.
        for waiter in self.waiting.remove(&key).into_iter().flatten() {
            waiter.wake();
        }
    }

    /// Returns the locks of a file against local processes, if it has any, or else these.
    pub(crate) fn local_locks<'a>(
        &'a self,
        file: FileKey,
        others: Option<&'a Arc<dyn LocalLocks>>,
    ) -> Option<&'a Arc<dyn LocalLocks>> {
        self.files.get(&file).and_then(|record| record.ranges.local()).or(others)
    }

    /// Removes a file that is neither open nor delegated.
    pub(super) fn forget_unused(&mut self, key: FileKey) {
        if self.files.get(&key).is_some_and(File::is_unused) {
            self.files.remove(&key);
        }
    }
}

/// Stores the new position of an open in its file's list.
fn set_at_file(cells: &mut [Cell], index: u32, at: u32) {
    if let Some(Entry { kind: EntryKind::Open(open), .. }) = &mut cells[index as usize].entry {
        open.at_file = at;
    }
}
