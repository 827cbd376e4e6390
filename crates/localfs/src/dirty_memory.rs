//! Estimates whether a write would block because too much memory is dirty.
//!
//! Linux makes a writer wait (in `balance_dirty_pages`) once dirty and written-back memory together exceed the mean
//! of `nr_dirty_background_threshold` and `nr_dirty_threshold`. /proc/vmstat has all four numbers. Reading it takes
//! tens of microseconds, so it is read once for many bytes, and at least once a second while there are writes. This
//! server's own writes in between are counted; three quarters of the free memory are left to others. The limit of a
//! control group cannot be predicted this way; [`crate::stall_detector`] notices it.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::nonblocking;

/// Maximum bytes written between two reads.
const REFRESH_BYTES: i64 = 32 << 20;
/// Bytes that a thread takes at once.
const CREDIT_BYTES: i64 = 1 << 20;
/// Nanoseconds between two reads while there is room, and while there is none.
const REFRESH_NS: u64 = 1_000_000_000;
const FULL_NS: u64 = 4_000_000;
/// Page size if the kernel does not say otherwise: counts are in pages.
const PAGE_BYTES: i64 = 4096;

/// Bytes that may be written before the next read, on the whole machine.
static BUDGET: Budget = Budget::new();

#[derive(Debug)]
struct Budget {
    /// Bytes; below zero there is no room.
    bytes: AtomicI64,
    /// When to read again, by the coarse clock.
    due_ns: AtomicU64,
    /// /proc/vmstat, kept open.
    source: Mutex<Option<File>>,
}

impl Budget {
    const fn new() -> Self {
        Self { bytes: AtomicI64::new(0), due_ns: AtomicU64::new(0), source: Mutex::new(None) }
    }

    /// Takes `bytes` of the budget. Returns false if there is not enough.
    fn take(&self, bytes: i64, now_ns: u64) -> bool {
        let left = self.bytes.fetch_sub(bytes, Ordering::Relaxed) - bytes;
        let is_due = now_ns >= self.due_ns.load(Ordering::Relaxed);
        if left >= 0 && !is_due {
            return true;
        }
        // A used-up budget is renewed at once; if there was no room, it is renewed once a tick.
        let was_full = left < -REFRESH_BYTES;
        if was_full && !is_due {
            return false;
        }
        // One thread reads for all.
        let Some(mut source) = self.source.try_lock() else { return left >= 0 };
        let room = read_budget(&mut source);
        let (bytes_left, wait_ns) = match room {
            room if room > bytes => (room - bytes, REFRESH_NS),
            _ => (-2 * REFRESH_BYTES, FULL_NS),
        };
        self.bytes.store(bytes_left, Ordering::Relaxed);
        self.due_ns.store(now_ns + wait_ns, Ordering::Relaxed);
        bytes_left >= 0
    }
}

/// One thread's share of the budget, and the end of its validity.
#[derive(Debug, Clone, Copy)]
struct Credit {
    bytes: i64,
    until_ns: u64,
}

thread_local! {
    static CREDIT: Cell<Credit> = const { Cell::new(Credit { bytes: 0, until_ns: 0 }) };
}

/// Returns whether `bytes` more can be dirtied without blocking.
#[inline]
pub(crate) fn has_room(bytes: usize) -> bool {
    let (bytes, now_ns) = (bytes as i64, nonblocking::now_ns());
    let credit = CREDIT.get();
    if bytes <= credit.bytes && now_ns < credit.until_ns {
        CREDIT.set(Credit { bytes: credit.bytes - bytes, ..credit });
        return true;
    }
    take_credit(bytes, now_ns)
}

/// Takes from the shared budget for many writes at once, so that threads do not contend for its cache line.
#[cold]
fn take_credit(bytes: i64, now_ns: u64) -> bool {
    let taken = bytes.max(CREDIT_BYTES);
    let has_room = BUDGET.take(taken, now_ns);
    let bytes = if has_room { taken - bytes } else { 0 };
    CREDIT.set(Credit { bytes, until_ns: now_ns + REFRESH_NS });
    has_room
}

/// Returns the bytes that may be written until the next read. Without /proc nothing is known, and nothing is
/// forbidden.
fn read_budget(source: &mut Option<File>) -> i64 {
    if source.is_none() {
        *source = File::open("/proc/vmstat").ok();
    }
    let mut text = [0; 16 * 1024];
    let Some(length) = source.as_ref().and_then(|source| source.read_at(&mut text, 0).ok()) else {
        return REFRESH_BYTES;
    };
    budget_of(&String::from_utf8_lossy(&text[..length])).unwrap_or(REFRESH_BYTES)
}

/// Computes the budget from the text of /proc/vmstat.
fn budget_of(vmstat: &str) -> Option<i64> {
    let mut counts = [None; 4];
    const NAMES: [&str; 4] =
        ["nr_dirty", "nr_writeback", "nr_dirty_threshold", "nr_dirty_background_threshold"];
    for line in vmstat.lines() {
        if let Some((name, count)) = line.split_once(' ')
            && let Some(index) = NAMES.iter().position(|known| *known == name)
        {
            counts[index] = count.parse::<i64>().ok();
        }
    }
    let [Some(dirty), Some(writeback), Some(limit), Some(background)] = counts else { return None };
    // mm/page-writeback.c calls it dirty_freerun_ceiling.
    let free = (limit + background) / 2 - dirty - writeback;
    Some((free.max(0) * PAGE_BYTES / 4).min(REFRESH_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vmstat(dirty: i64, writeback: i64) -> String {
        format!(
            "nr_free_pages 5\nnr_dirty {dirty}\nnr_writeback {writeback}\nnr_writeback_temp 9\n\
             nr_dirty_threshold 2000\nnr_dirty_background_threshold 1000\nnr_dirtied 7\n"
        )
    }

    #[test]
    fn there_is_room_up_to_the_mean_of_both_thresholds() {
        assert_eq!(budget_of(&vmstat(1000, 100)), Some(400 * 4096 / 4));
        assert_eq!(budget_of(&vmstat(1000, 500)), Some(0));
        assert_eq!(budget_of(&vmstat(5000, 500)), Some(0));
        assert_eq!(budget_of("nr_dirty 4\n"), None, "a kernel without the counters");
    }

    #[test]
    fn this_kernel_has_the_counters() {
        let text = std::fs::read_to_string("/proc/vmstat").expect("vmstat");
        assert!(budget_of(&text).is_some_and(|room| (0..=REFRESH_BYTES).contains(&room)));
    }

    #[test]
    fn a_used_up_budget_is_read_again() {
        let room = Budget::new();
        room.due_ns.store(u64::MAX, Ordering::Relaxed);
        room.bytes.store(4096, Ordering::Relaxed);
        assert!(room.take(4096, 1), "exactly the rest");
        room.bytes.store(-2 * REFRESH_BYTES, Ordering::Relaxed);
        assert!(!room.take(1, 2), "none, and it is not time to read again");
    }
}
