//! Starts to write large unstable data to the disk before their COMMIT.
//!
//! Without this, Linux keeps dirty data for many seconds, and the COMMIT at the end of a large file waits for all of them. A
//! file that grows in order gets one sync_file_range(2) for each [`STEP_BYTES`], on a thread of the pool, one at a time for each file. It
//! makes nothing durable and consumes no error.
//!
//! Data that are written in another order are left alone: their pages may be written again soon, and would go to the disk
//! twice.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that are written to a file before one flush of them.
const STEP_BYTES: u64 = 8 << 20;
/// A range is in order if the written bytes are at least this part of it, in quarters.
const DENSE_QUARTERS: u64 = 3;

/// Early flushes of all volumes.
static FLUSHES: AtomicU64 = AtomicU64::new(0);

/// Returns how often writing began before a COMMIT, in this process.
#[must_use]
pub fn early_flushes() -> u64 {
    FLUSHES.load(Ordering::Relaxed)
}

/// The unstable data of a file that no flush has covered.
#[derive(Debug, Default)]
pub(crate) struct EarlyFlush {
    /// Offset of the first byte.
    begin: AtomicU64,
    /// Bytes written there.
    written: AtomicU64,
    is_running: AtomicBool,
}

impl EarlyFlush {
    /// Notes a write, under the object's lock. Returns the offset and length to flush, if they are large enough and no other flush of the
    /// file runs. The caller [ends](Self::end) the flush.
    pub(crate) fn note(&self, offset: u64, length: u64) -> Option<(u64, u64)> {
        let (begin, end) = (self.begin.load(Ordering::Relaxed), offset + length);
        let written = self.written.load(Ordering::Relaxed) + length;
        // Another place: a file that is written again from its beginning, for example.
        if offset + STEP_BYTES < begin || begin + 4 * STEP_BYTES < offset {
            self.restart(offset, length);
            return None;
        }
        self.written.store(written, Ordering::Relaxed);
        let range = end.saturating_sub(begin);
        if written < STEP_BYTES || range < STEP_BYTES || self.is_running.load(Ordering::Relaxed) {
            return None;
        }
        self.restart(end, 0);
        if written * 4 < range * DENSE_QUARTERS {
            return None;
        }
        self.is_running.store(true, Ordering::Relaxed);
        FLUSHES.fetch_add(1, Ordering::Relaxed);
        Some((begin, range))
    }

    /// Notes that the flush has ended.
    pub(crate) fn end(&self) {
        self.is_running.store(false, Ordering::Relaxed);
    }

    fn restart(&self, begin: u64, written: u64) {
        self.begin.store(begin, Ordering::Relaxed);
        self.written.store(written, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Returns the ranges that a sequence of writes flushes, in MiB, if each flush ends before the next write.
    fn flushed(writes: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
        let state = EarlyFlush::default();
        let mut ranges = Vec::new();
        for (offset, length) in writes {
            if let Some((begin, bytes)) = state.note(offset * MIB, length * MIB) {
                ranges.push((begin / MIB, bytes / MIB));
                state.end();
            }
        }
        ranges
    }

    #[test]
    fn a_growing_file_is_flushed_in_steps() {
        assert_eq!(flushed((0..20).map(|number| (number, 1))), [(0, 8), (8, 8)]);
        assert_eq!(flushed([(0, 7)]), []);
        // As several WRITEs at once arrive: the first write that ends 8 MiB or more behind the beginning, when as much is written,
        // is that of the tenth MiB.
        assert_eq!(flushed([1, 0, 3, 2, 5, 4, 7, 6, 9, 8].map(|number| (number, 1))), [(0, 10)]);
    }

    #[test]
    fn a_file_that_is_written_again_is_flushed_again() {
        let twice = (0..32).chain(0..16).map(|number| (number, 1));
        assert_eq!(flushed(twice), [(0, 8), (8, 8), (16, 8), (24, 8), (0, 8), (8, 8)]);
    }

    #[test]
    fn scattered_and_repeated_writes_are_left_alone() {
        assert_eq!(flushed((0..100).map(|number| (number * 37 % 101, 1))), []);
        assert_eq!(flushed((0..100).map(|_| (3, 1))), []);
    }

    #[test]
    fn one_flush_of_a_file_runs_at_a_time() {
        let state = EarlyFlush::default();
        assert_eq!(state.note(0, 8 * MIB), Some((0, 8 * MIB)));
        assert_eq!(state.note(8 * MIB, 8 * MIB), None);
        state.end();
        assert_eq!(state.note(16 * MIB, MIB), Some((8 * MIB, 9 * MIB)));
    }
}
