//! Operations under way that would break a delegation. While one changes a file, the file is not delegated.
//!
//! Files are grouped by a hash. If two files share a group, an operation on one delays grants of the other while
//! it runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

/// Groups of files.
const GROUPS: usize = 1024;

/// The numbers of operations under way that would break a delegation, and of those that have ended, by groups of files.
#[derive(Debug)]
pub(crate) struct ActiveChanges {
    groups: Box<[AtomicU64]>,
    /// Operations that know their file only by name. They prevent every grant.
    unnamed: AtomicU64,
    /// Whether any delegation was requested since the start.
    is_wanted: AtomicBool,
}

impl Default for ActiveChanges {
    fn default() -> Self {
        let groups = (0..GROUPS).map(|_| AtomicU64::new(0)).collect();
        Self { groups, unnamed: AtomicU64::new(0), is_wanted: AtomicBool::new(false) }
    }
}

impl ActiveChanges {
    /// Begins an operation that would break a delegation of a file with this hash.
    pub(crate) fn begin(&self, hash: u64) -> ChangeGuard<'_> {
        ChangeGuard::begin(self.group(hash))
    }

    /// Begins an operation that knows its file only by name. Returns `None` once delegations are requested: the operation must look
    /// the file up, since a stream of such operations would prevent every grant.
    pub(crate) fn begin_unnamed(&self) -> Option<ChangeGuard<'_>> {
        if self.is_wanted.load(SeqCst) {
            return None;
        }
        let guard = ChangeGuard::begin(&self.unnamed);
        // After the count: either this sees that delegations are requested, or the grant sees the count.
        (!self.is_wanted.load(SeqCst)).then_some(guard)
    }

    /// Returns the point from which changes of a file count for a grant. Call it before reading the attributes that
    /// the grant is based on.
    pub(crate) fn epoch(&self, hash: u64) -> ChangeEpoch {
        // It is usually set already: then the cache line is only read.
        if !self.is_wanted.load(SeqCst) {
            self.is_wanted.store(true, SeqCst);
        }
        ChangeEpoch { group: ended(self.group(hash)), unnamed: ended(&self.unnamed) }
    }

    /// Returns whether an operation on such a file is under way.
    pub(crate) fn is_changing(&self, hash: u64) -> bool {
        under_way(self.group(hash)) > 0 || under_way(&self.unnamed) > 0
    }

    /// Returns whether an operation on such a file has ended since the epoch.
    pub(crate) fn has_changed_since(&self, hash: u64, epoch: ChangeEpoch) -> bool {
        ended(self.group(hash)) != epoch.group || ended(&self.unnamed) != epoch.unnamed
    }

    fn group(&self, hash: u64) -> &AtomicU64 {
        &self.groups[hash as usize % GROUPS]
    }
}

/// Returns the number of operations of a group under way: the lower half of its number.
fn under_way(group: &AtomicU64) -> u32 {
    group.load(SeqCst) as u32
}

/// Returns the number of operations of a group that have ended, modulo 2^32: the upper half.
fn ended(group: &AtomicU64) -> u32 {
    (group.load(SeqCst) >> 32) as u32
}

/// The number of operations on a file that had ended at some point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeEpoch {
    group: u32,
    unnamed: u32,
}

/// An operation that would break a delegation of its file. Until it is dropped, the file is not delegated; nor afterwards by a
/// grant whose [epoch](ChangeEpoch) is older.
#[derive(Debug)]
#[must_use = "it protects the operation for as long as it lives"]
pub struct ChangeGuard<'s>(&'s AtomicU64);

impl<'s> ChangeGuard<'s> {
    fn begin(group: &'s AtomicU64) -> Self {
        group.fetch_add(1, SeqCst);
        Self(group)
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        // Subtracts one under way, adds one that has ended.
        self.0.fetch_add((1 << 32) - 1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_under_way_until_its_guard_is_dropped() {
        let changes = ActiveChanges::default();
        let (first, second) = (changes.begin(7), changes.begin(7));
        drop(first);
        assert!(changes.is_changing(7) && !changes.is_changing(8));
        drop(second);
        assert!(!changes.is_changing(7));
    }

    #[test]
    fn a_change_after_an_epoch_shows_when_it_has_ended() {
        let changes = ActiveChanges::default();
        let epoch = changes.epoch(7);
        drop(changes.begin(8));
        assert!(!changes.has_changed_since(7, epoch));
        let guard = changes.begin(7);
        assert!(changes.is_changing(7));
        drop(guard);
        assert!(!changes.is_changing(7) && changes.has_changed_since(7, epoch));
        assert!(!changes.has_changed_since(7, changes.epoch(7)));
    }

    #[test]
    fn the_count_of_ended_changes_wraps() {
        let changes = ActiveChanges::default();
        changes.group(7).store(u64::from(u32::MAX) << 32, SeqCst);
        let epoch = changes.epoch(7);
        drop(changes.begin(7));
        assert!(!changes.is_changing(7) && changes.has_changed_since(7, epoch));
    }

    #[test]
    fn unnamed_changes_prevent_every_grant_and_end_once_delegations_are_requested() {
        let changes = ActiveChanges::default();
        let unnamed = changes.begin_unnamed().expect("no delegation was requested");
        let epoch = changes.epoch(7);
        assert!(changes.is_changing(7) && changes.is_changing(8), "it may concern any file");
        assert!(changes.begin_unnamed().is_none());
        drop(unnamed);
        assert!(!changes.is_changing(7) && changes.has_changed_since(7, epoch));
    }
}
