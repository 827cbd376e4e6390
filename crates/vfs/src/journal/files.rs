//! What the journal knows about each object: who changes it, whether the log has changes of it, and which unstable data it has.

use std::collections::HashMap;
use std::future::poll_fn;
use std::ops::Range;
use std::task::Poll;

use parking_lot::Mutex;

use super::log::{Waiters, wake};
use crate::Handle;

/// Maximum number of objects with changes in the log. Each may keep a descriptor open until the next checkpoint.
pub(super) const LOGGED_MAX: usize = 256;
/// Number of known objects from which on a new file takes no unstable data.
pub(super) const KNOWN_MAX: usize = 4096;
/// A COMMIT is logged if at most this many ranges, with this many bytes together, are unstable.
const RANGES_MAX: usize = 16;
pub(super) const RANGES_BYTES_MAX: u64 = 128 << 10;

/// The known objects.
#[derive(Debug, Default)]
pub(super) struct Files {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<Handle, State>,
    /// Objects with changes in the log.
    logged: usize,
}

#[derive(Debug, Default)]
struct State {
    is_locked: bool,
    waiting: Waiters,
    /// The last frame with a change of the object; 0 without any.
    last: u64,
    unstable: Unstable,
    /// Grows with each unstable write.
    version: u64,
}

impl State {
    fn is_idle(&self) -> bool {
        !self.is_locked && self.last == 0 && self.unstable == Unstable::default()
    }
}

/// Unstable data of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unstable {
    /// In these ranges.
    Ranges(Vec<Range<u64>>),
    /// Anywhere.
    Much,
}

impl Default for Unstable {
    fn default() -> Self {
        Self::Ranges(Vec::new())
    }
}

impl Unstable {
    fn add(&mut self, new: Range<u64>) {
        let Self::Ranges(ranges) = self else { return };
        let touches = |old: &Range<u64>| old.start <= new.end && new.start <= old.end;
        let joined = ranges
            .extract_if(.., |old| touches(old))
            .fold(new.clone(), |new, old| new.start.min(old.start)..new.end.max(old.end));
        ranges.push(joined);
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if ranges.len() > RANGES_MAX || bytes > RANGES_BYTES_MAX {
            *self = Self::Much;
        }
    }
}

/// The right to change an object in an order that the log has too. Unstable writes need none.
#[derive(Debug)]
pub(super) struct Order<'f> {
    files: &'f Files,
    file: Handle,
}

impl Files {
    /// Waits for the right to change an object.
    pub(super) async fn lock(&self, file: &Handle) -> Order<'_> {
        let mut ticket = None;
        poll_fn(|context| {
            let table = &mut *self.table.lock();
            let state = table.files.entry(*file).or_default();
            if state.is_locked {
                state.waiting.register(&mut ticket, context.waker());
                return Poll::Pending;
            }
            state.is_locked = true;
            Poll::Ready(Order { files: self, file: *file })
        })
        .await
    }

    /// Notes an unstable write that was made, even if there is no room for more files: a COMMIT must know of it.
    pub(super) fn note_unstable(&self, file: &Handle, range: Option<Range<u64>>) {
        let table = &mut *self.table.lock();
        let state = table.files.entry(*file).or_default();
        state.version += 1;
        match range {
            Some(range) => state.unstable.add(range),
            None => state.unstable = Unstable::Much,
        }
    }

    /// Notes that the unstable data of this version are stable. They stay noted if there are newer ones.
    pub(super) fn clear_unstable(&self, file: &Handle, version: u64) {
        let table = &mut *self.table.lock();
        let Some(state) = table.files.get_mut(file).filter(|state| state.version == version) else { return };
        state.unstable = Unstable::default();
        if state.is_idle() {
            table.files.remove(file);
        }
    }

    /// Returns whether an unstable write of the file can be noted.
    pub(super) fn has_room(&self, file: &Handle) -> bool {
        let table = self.table.lock();
        table.files.len() < KNOWN_MAX || table.files.contains_key(file)
    }

    /// Returns whether the object is unknown: it has neither changes in the log nor unstable data that were noted.
    pub(super) fn is_unknown(&self, file: &Handle) -> bool {
        !self.table.lock().files.contains_key(file)
    }

    /// Returns the number of objects with changes in the log.
    pub(super) fn logged(&self) -> usize {
        self.table.lock().logged
    }

    /// Notes that frames up to this one are not needed any more. Returns the number of objects that have no changes in the log
    /// from now on.
    pub(super) fn freed(&self, number: u64) -> usize {
        let table = &mut *self.table.lock();
        let before = table.logged;
        for state in table.files.values_mut().filter(|state| state.last > 0 && state.last <= number) {
            state.last = 0;
            table.logged -= 1;
        }
        table.files.retain(|_, state| !state.is_idle());
        before - table.logged
    }

    /// Returns whether so many files are known that those with unstable data should be synced and forgotten.
    pub(super) fn has_many_files(&self) -> bool {
        self.table.lock().files.len() >= KNOWN_MAX / 2
    }

    /// Returns the files with unstable data if there are many.
    pub(super) fn many_unstable_files(&self) -> Vec<Handle> {
        if !self.has_many_files() {
            return Vec::new();
        }
        let table = self.table.lock();
        let has_data = table.files.iter().filter(|(_, state)| state.unstable != Unstable::default());
        has_data.map(|(file, _)| *file).collect()
    }
}

impl Order<'_> {
    fn state<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(self.files.table.lock().files.entry(self.file).or_default())
    }

    /// Returns whether the log has changes of the object.
    pub(super) fn is_logged(&self) -> bool {
        self.last() > 0
    }

    /// Returns whether another change of the object may enter the log.
    pub(super) fn may_log(&self) -> bool {
        let table = &mut *self.files.table.lock();
        table.logged < LOGGED_MAX || table.files.get(&self.file).is_some_and(|state| state.last > 0)
    }

    /// Notes that the log has a change of the object in this frame.
    pub(super) fn note_logged(&self, number: u64) {
        let table = &mut *self.files.table.lock();
        let state = table.files.entry(self.file).or_default();
        table.logged += usize::from(state.last == 0);
        state.last = number;
    }

    /// Returns the last frame with a change of the object; 0 without any.
    pub(super) fn last(&self) -> u64 {
        self.state(|state| state.last)
    }

    /// Returns the unstable data and their version. They stay noted until they are stable, so that another COMMIT waits for them too.
    pub(super) fn unstable(&self) -> (Unstable, u64) {
        self.state(|state| (state.unstable.clone(), state.version))
    }
}

impl Drop for Order<'_> {
    fn drop(&mut self) {
        let waiting = {
            let table = &mut *self.files.table.lock();
            let Some(state) = table.files.get_mut(&self.file) else { return };
            state.is_locked = false;
            let waiting = state.waiting.take();
            if state.is_idle() {
                table.files.remove(&self.file);
            }
            waiting
        };
        wake(waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_are_bounded() {
        let mut unstable = Unstable::default();
        for range in [0..10, 20..30, 5..20] {
            unstable.add(range);
        }
        assert_eq!(unstable, Unstable::Ranges(std::iter::once(0..30).collect()));
        unstable.add(100..100 + RANGES_BYTES_MAX);
        assert_eq!(unstable, Unstable::Much);
        let mut unstable = Unstable::default();
        (0..RANGES_MAX as u64).for_each(|number| unstable.add(number * 10..number * 10 + 1));
        assert!(matches!(&unstable, Unstable::Ranges(ranges) if ranges.len() == RANGES_MAX));
        unstable.add(1000..1001);
        assert_eq!(unstable, Unstable::Much);
    }
}
