//! Detects that changes of a volume block the thread that makes them.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::nonblocking::STALL_NS;

/// Changes on the pool that must not block before changes are made in place again.
const CHANGES_AFTER_STALL: u32 = 32;

/// The number of changes that must still run on the pool after one that blocked.
#[derive(Debug, Default)]
pub(crate) struct StallDetector(AtomicU32);

impl StallDetector {
    pub(crate) fn is_stalling(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Notes the duration of a change, in nanoseconds.
    pub(crate) fn took(&self, ns: u64) {
        if ns >= STALL_NS {
            self.0.store(CHANGES_AFTER_STALL, Ordering::Relaxed);
        } else if self.is_stalling() {
            let less = |left: u32| left.checked_sub(1);
            // At 0 another thread has counted the last change.
            let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_go_to_the_pool_after_one_that_blocked_until_enough_did_not() {
        let stall_detector = StallDetector::default();
        stall_detector.took(STALL_NS - 1);
        assert!(!stall_detector.is_stalling());
        stall_detector.took(STALL_NS);
        for _ in 0..CHANGES_AFTER_STALL - 1 {
            stall_detector.took(1);
        }
        assert!(stall_detector.is_stalling());
        stall_detector.took(STALL_NS);
        for _ in 0..CHANGES_AFTER_STALL - 1 {
            stall_detector.took(1);
        }
        assert!(stall_detector.is_stalling(), "it started over");
        stall_detector.took(1);
        assert!(!stall_detector.is_stalling());
    }
}
