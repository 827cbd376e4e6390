//! The size of compounds.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::session::Limits;

/// Operations of the first compounds: some 20 small files.
const OPERATIONS_FIRST: usize = 128;
/// Minimum size of compounds, in operations: one item of any kind.
const OPERATIONS_MIN: usize = 8;
/// Maximum number of operations in a compound: it grows while compounds are executed, and falls if the server reports that one
/// was too large.
#[derive(Debug)]
pub(crate) struct CompoundSize(AtomicUsize);

impl Default for CompoundSize {
    fn default() -> Self {
        Self(AtomicUsize::new(OPERATIONS_FIRST))
    }
}

impl CompoundSize {
    pub(crate) fn get(&self, limits: &Limits) -> usize {
        // SEQUENCE takes one.
        let granted = (limits.operations as usize).saturating_sub(1).max(1);
        self.0.load(Ordering::Relaxed).min(granted)
    }

    /// Notes that a compound with this many operations was executed.
    pub(crate) fn grow(&self, operations: usize) {
        if operations * 2 > self.0.load(Ordering::Relaxed) {
            self.0.fetch_max((operations * 2).max(OPERATIONS_FIRST), Ordering::Relaxed);
        }
    }

    /// Notes that a compound with this many operations was too large.
    pub(crate) fn shrink(&self, operations: usize) {
        self.0.store((operations / 2).max(OPERATIONS_MIN), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { request: 100_000, response: 100_000, operations: 50, in_flight: 4 };

    #[test]
    fn the_size_of_compounds_grows_and_falls() {
        let size = CompoundSize::default();
        assert_eq!(size.get(&LIMITS), 49, "SEQUENCE is one of those granted");
        size.grow(30);
        assert_eq!(size.0.load(Ordering::Relaxed), OPERATIONS_FIRST, "compounds this small prove nothing");
        size.grow(100);
        assert_eq!(size.0.load(Ordering::Relaxed), 200);
        size.shrink(49);
        assert_eq!(size.get(&LIMITS), 24);
        size.shrink(1);
        assert_eq!(size.get(&LIMITS), OPERATIONS_MIN);
    }
}
