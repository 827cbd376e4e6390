//! A lock, and its conflicts with others.

use super::owners::LockOwner;
use super::range::LockRange;

/// Whether a lock excludes all other locks or only exclusive ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// A read lock.
    Shared,
    /// A write lock.
    Exclusive,
}

impl LockKind {
    /// Returns whether locks of these kinds of two owners exclude each other.
    pub(crate) fn excludes(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

/// Ranges of one owner that can be freed together. The caller chooses the numbers: NFSv4 has one set for each lock stateid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockSet(pub(crate) u32);

/// A held lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeldLock {
    pub(crate) range: LockRange,
    pub(crate) kind: LockKind,
    pub(crate) owner: LockOwner,
    pub(crate) set: LockSet,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_kinds_exclude_each_other_unless_both_are_shared() {
        assert!(!LockKind::Shared.excludes(LockKind::Shared));
        assert!(LockKind::Shared.excludes(LockKind::Exclusive));
        assert!(LockKind::Exclusive.excludes(LockKind::Shared));
        assert!(LockKind::Exclusive.excludes(LockKind::Exclusive));
    }
}
