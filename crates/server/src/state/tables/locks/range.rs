//! The bytes that a lock covers.

use vfs::LocalLock;

/// A non-empty range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    pub(super) start: u64,
    /// The last byte.
    pub(super) end: u64,
}

impl LockRange {
    /// Returns the range of `length` bytes from `offset`; a length of 2^64 - 1 means "to the end of the file". Returns `None`
    /// for an empty range, and for one that ends after byte 2^64 - 1.
    #[must_use]
    pub fn new(offset: u64, length: u64) -> Option<Self> {
        let end = match length {
            0 => return None,
            u64::MAX => u64::MAX,
            _ => offset.checked_add(length)? - 1,
        };
        Some(Self { start: offset, end })
    }

    /// Returns whether both ranges have a byte in common.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// Returns the bytes that both ranges cover; they must overlap.
    pub(super) fn within(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// Returns the bytes of a local process's lock.
    pub(crate) fn of_local(lock: LocalLock) -> Self {
        Self { start: lock.first, end: lock.last }
    }

    /// Returns the first byte.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.start
    }

    /// Returns the number of bytes; 2^64 - 1 for a range to the end of the file.
    #[must_use]
    pub fn length(&self) -> u64 {
        if self.end == u64::MAX { u64::MAX } else { self.end - self.start + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_empty_ranges_and_ranges_beyond_the_last_byte() {
        assert_eq!(LockRange::new(5, 0), None);
        assert_eq!(LockRange::new(2, u64::MAX - 1), None, "the sum exceeds 2^64 - 1");
        assert_eq!(LockRange::new(1, u64::MAX - 1).map(|range| range.end), Some(u64::MAX - 1));
    }

    #[test]
    fn returns_the_offset_and_length_that_it_was_made_of() {
        for (offset, length) in [(7, 3), (7, u64::MAX), (0, 1), (u64::MAX, u64::MAX)] {
            let range = LockRange::new(offset, length).unwrap();
            assert_eq!((range.offset(), range.length()), (offset, length));
        }
    }
}
