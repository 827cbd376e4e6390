//! Whether changes of a volume have lately made a thread wait.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::patience::STALL_NS;

/// Changes on the pool without waiting after which they are made in place again.
const WARY_CHANGES: u32 = 32;

/// Whether changes of a volume have lately made somebody wait.
#[derive(Debug, Default)]
pub(crate) struct Wariness(AtomicU32);

impl Wariness {
    pub(crate) fn is_wary(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// A change took that long.
    pub(crate) fn took(&self, ns: u64) {
        if ns >= STALL_NS {
            self.0.store(WARY_CHANGES, Ordering::Relaxed);
        } else if self.is_wary() {
            let less = |left: u32| left.checked_sub(1);
            // Nothing left to take from: another thread was faster.
            let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_change_that_waits_sends_others_to_the_pool_until_enough_did_not() {
        let wariness = Wariness::default();
        wariness.took(STALL_NS - 1);
        assert!(!wariness.is_wary());
        wariness.took(STALL_NS);
        for _ in 0..WARY_CHANGES - 1 {
            wariness.took(1);
        }
        assert!(wariness.is_wary());
        wariness.took(STALL_NS);
        for _ in 0..WARY_CHANGES - 1 {
            wariness.took(1);
        }
        assert!(wariness.is_wary(), "it began anew");
        wariness.took(1);
        assert!(!wariness.is_wary());
    }
}
