//! Byte-range locks of POSIX programs: the owners of locked bytes of files.
//!
//! [`ranges`] splits and merges the ranges of one owner. [`table`] keeps the ranges of all owners, so that they can be reclaimed
//! after the server restarted. [`waiters`] are tasks that wait until a lock is free.

use bytes::Bytes;

use crate::attributes::Attributes;
use crate::errno::Errno;
use crate::error::OpError;
use crate::hand_over::OwnerState;

mod local;
mod ranges;
mod table;
mod waiters;

pub(crate) use local::LocalLocks;
pub(crate) use ranges::{HeldRange, HeldRanges};
pub(crate) use table::{Asking, LocalLock, LockerUse, Locks, Snapshot, Unlocking};
pub(crate) use waiters::Waiters;

/// The owner of locks: its own locks never conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockOwner {
    /// Locks of a process (fcntl(2), `F_SETLK`); the number is the program's choice.
    Process(u64),
    /// Locks of an open file description (flock(2), `F_OFD_SETLK`); the number is the program's choice.
    File(u64),
}

impl LockOwner {
    /// Returns the owner as plain values.
    pub(crate) fn save(self) -> OwnerState {
        match self {
            Self::Process(number) => OwnerState { is_file: false, number },
            Self::File(number) => OwnerState { is_file: true, number },
        }
    }

    /// Returns the owner of plain values.
    pub(crate) fn restored(OwnerState { is_file, number }: OwnerState) -> Self {
        if is_file { Self::File(number) } else { Self::Process(number) }
    }
}

/// Whether others may hold the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Others may hold shared locks (`F_RDLCK`). The file must be open for reading.
    Shared,
    /// No other owner may (`F_WRLCK`). The file must be open for writing.
    Exclusive,
}

/// The last offset that a file can have (`OFFSET_MAX` of Linux).
const OFFSET_MAX: u64 = i64::MAX as u64;

/// A range of bytes of a file, which need not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockRange {
    first: u64,
    /// `u64::MAX` if it has no end.
    last: u64,
}

impl LockRange {
    /// All bytes of a file, as flock(2) locks them.
    pub const WHOLE: Self = Self { first: 0, last: u64::MAX };

    /// Creates the range of `length` bytes at `offset`; a length of 0 means all bytes that follow, as in fcntl(2).
    ///
    /// # Errors
    /// EINVAL or EOVERFLOW if it goes beyond the largest offset of a file, 2^63 - 1.
    pub fn new(offset: u64, length: u64) -> Result<Self, OpError> {
        if offset > OFFSET_MAX {
            return Err(OpError::Invalid(Errno::EINVAL, "a lock after the largest offset"));
        }
        if length == 0 {
            return Ok(Self { first: offset, last: u64::MAX });
        }
        match offset.checked_add(length - 1) {
            Some(last) if last < OFFSET_MAX => Ok(Self { first: offset, last }),
            Some(OFFSET_MAX) => Ok(Self { first: offset, last: u64::MAX }),
            _ => Err(OpError::Invalid(Errno::EOVERFLOW, "a lock after the largest offset")),
        }
    }

    /// Creates the range of a lock that the server reports: RFC 8881 §18.10.3 has a length of all ones for all that follow.
    pub(crate) fn of_wire(offset: u64, length: u64) -> Self {
        let last = if length == u64::MAX { u64::MAX } else { offset.saturating_add(length.max(1) - 1) };
        Self { first: offset, last }
    }

    /// As [`Self::of_wire`] for NLM, where a length of zero "means to the end of the file" (XNFS).
    pub(crate) fn of_nlm(offset: u64, length: u64) -> Self {
        Self::of_wire(offset, if length == 0 { u64::MAX } else { length })
    }

    /// Returns the first byte.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.first
    }

    /// Returns the number of bytes; `None` if it is without end.
    #[must_use]
    pub fn length(self) -> Option<u64> {
        (self.last != u64::MAX).then(|| self.last - self.first + 1)
    }

    /// Returns the length for LOCK.
    pub(crate) fn wire_length(self) -> u64 {
        self.length().unwrap_or(u64::MAX)
    }

    /// Returns whether the ranges overlap.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// A lock that was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locked {
    /// The server has it. With the file's attributes as they are under the lock, if the server sent some whose change attribute
    /// tells whether cached data are still valid. Otherwise, as in version 3, cached data must not be used: times of files do
    /// not show each change.
    AtServer(Option<Attributes>),
    /// It is kept on this machine.
    Here,
    /// The delegation of the file grants it: no other client changes the file.
    Delegated,
}

/// The lock that conflicts with a refused one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockConflict {
    /// Its range.
    pub range: LockRange,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// Its owner, if that is one of this client.
    pub owner: Option<LockOwner>,
    /// The owner in the server's reply; empty if the lock is kept on this machine.
    pub name: Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_end_at_the_largest_offset_of_files() {
        let range = LockRange::new(5, 10).unwrap();
        assert_eq!((range.offset(), range.length(), range.wire_length()), (5, Some(10), 10));
        assert_eq!(LockRange::new(0, 0), Ok(LockRange::WHOLE));
        assert_eq!(LockRange::new(OFFSET_MAX, 1).unwrap().length(), None);
        let errno = |range: Result<LockRange, OpError>| range.unwrap_err().errno();
        assert_eq!(errno(LockRange::new(OFFSET_MAX, 2)), Errno::EOVERFLOW);
        assert_eq!(errno(LockRange::new(1, u64::MAX)), Errno::EOVERFLOW);
        assert_eq!(errno(LockRange::new(OFFSET_MAX + 1, 0)), Errno::EINVAL);
        assert_eq!(LockRange::of_wire(5, u64::MAX).length(), None);
        let byte = |at| LockRange::new(at, 1).unwrap();
        assert!(range.overlaps(byte(5)) && range.overlaps(byte(14)) && !range.overlaps(byte(15)));
    }
}
