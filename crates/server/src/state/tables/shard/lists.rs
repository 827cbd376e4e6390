//! The lists that files and opens have of their entries: how an entry comes into them, and leaves them in constant time.

use smallvec::SmallVec;

use super::super::file::File;
use super::super::share::Modes;
use super::{Cell, Entry, Kind, Shard};
use crate::state::delegations::delegation::DelegationKind;
use crate::state::tables::file_key::FileKey;

/// Entries, by index. The first four lie in the list itself, which takes no more room for that: most files are open once, and
/// most opens have one lock-owner.
pub(crate) type List = SmallVec<[u32; 4]>;

impl Shard {
    /// Takes a lock stateid out of its open's list, where it is in one.
    pub(super) fn leave_open(&mut self, index: u32) {
        let Kind::Lock(lock) = &mut self.entry_mut(index).kind else { return };
        let (open, Some(at)) = (lock.open, lock.at_open.take()) else { return };
        let locks = &mut self.open_at_mut(open).locks;
        locks.swap_remove(at as usize);
        if let Some(moved) = locks.get(at as usize).copied()
            && let Kind::Lock(lock) = &mut self.entry_mut(moved).kind
        {
            lock.at_open = Some(at);
        }
    }

    /// Puts an open into its file's list; the file comes with its first open.
    pub(super) fn enter_file(&mut self, key: FileKey, index: u32, modes: &Modes) {
        let Self { files, cells, seed, .. } = self;
        let file = files.entry(key).or_insert_with(|| File::new(*seed ^ key.fileid));
        let at_file = file.opens.insert(modes.bits(), index, |moved, place| put_at(cells, moved, place));
        put_at(cells, index, at_file);
    }

    /// Takes an open out of its file's list.
    pub(super) fn take_from_file(&mut self, key: FileKey, at: u32) {
        let Self { files, cells, .. } = self;
        let file = files.get_mut(&key).expect("an entry's file is there while the entry is held");
        file.opens.remove(at, |moved, place| put_at(cells, moved, place));
    }

    /// Takes a delegation out of its file's list, and lets those go on that waited for the last of them.
    pub(super) fn leave_delegated(&mut self, key: FileKey, at: u32) {
        let file = self.file_mut(key);
        file.delegations.swap_remove(at as usize);
        if let Some(moved) = file.delegations.get(at as usize).copied() {
            self.delegation_at_mut(moved).at_file = at;
        }
        // Each that is woken looks through what is left, under this lock. Nobody can go on while two are left: one at most is the
        // operation's own client's, and who waits for one for writing waits for a single one. That they look again at powers of
        // two is for holders whose lease ended meanwhile. Of a directory any number may stay: holders who are told of changes.
        let first = self.file_mut(key).delegations.first().copied();
        let left = self.file_mut(key).delegations.len();
        let is_directory =
            first.is_some_and(|one| matches!(self.delegation_at(one).kind, DelegationKind::Directory(_)));
        self.forget_unused(key);
        if left == 0 || left.is_power_of_two() || is_directory {
            self.wake_waiting(key);
        }
    }

    /// Lets those look again that wait for a file's delegations.
    pub(crate) fn wake_waiting(&mut self, key: FileKey) {
        // A waker only schedules: nothing of the server runs under the shard's lock.
        for waiter in self.waiting.remove(&key).into_iter().flatten() {
            waiter.wake();
        }
    }

    pub(super) fn forget_unused(&mut self, key: FileKey) {
        let is_unused = |file: &File| file.opens.is_empty() && file.delegations.is_empty();
        if self.files.get(&key).is_some_and(is_unused) {
            self.files.remove(&key);
        }
    }
}

/// An open has another place in its file's list now.
fn put_at(cells: &mut [Cell], index: u32, place: u32) {
    if let Some(Entry { kind: Kind::Open(open), .. }) = &mut cells[index as usize].entry {
        open.at_file = place;
    }
}
