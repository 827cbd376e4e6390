//! Memory for the slots of sessions and their cached replies: of all clients, or one client's share.
//!
//! Every session makes progress independently of other sessions: memory for its first slots is reserved at creation, or the
//! creation fails. Everything else is allocated as long as memory lasts. When unreserved memory runs out, clients are asked,
//! step by step, to use fewer slots. Idle clients cost others nothing: reservations alone never make memory scarce.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// One client may use one part in this many, so that it cannot shut out others.
const SHARE_PART: usize = 4;
/// Lower bound of a client's share in bytes: a session of a thousand slots, and some replies.
const SHARE_MIN: usize = 64 << 10;
/// Steps in which clients are asked to use fewer slots.
pub(crate) const STEPS: u32 = 4;

#[derive(Debug)]
pub(crate) struct SlotMemory {
    used: AtomicUsize,
    /// Bytes reserved for sessions at their creation, used or not.
    promised: AtomicUsize,
    budget: usize,
    /// Requests that used the last slot their client may use.
    full: AtomicU64,
    /// Requests answered with DELAY because memory was short.
    deferred: AtomicU64,
    /// The memory of all clients, if this is one client's share.
    whole: Option<Arc<SlotMemory>>,
}

impl SlotMemory {
    pub(crate) fn new(budget: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            promised: AtomicUsize::new(0),
            budget,
            full: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
            whole: None,
        }
    }

    /// Returns one client's share of `whole`.
    pub(crate) fn share_of(whole: &Arc<Self>) -> Self {
        let budget = (whole.budget / SHARE_PART).max(SHARE_MIN);
        Self { whole: Some(Arc::clone(whole)), ..Self::new(budget) }
    }

    /// Iterates over this, and over the memory that it is a share of.
    fn both(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.whole.as_deref())
    }

    /// Bytes charged.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Relaxed)
    }

    /// Requests that used the last slot their client may use.
    pub(crate) fn full(&self) -> u64 {
        self.full.load(Relaxed)
    }

    /// Requests answered with DELAY because memory was short.
    pub(crate) fn deferred(&self) -> u64 {
        self.deferred.load(Relaxed)
    }

    pub(crate) fn count_full(&self) {
        self.both().for_each(|memory| _ = memory.full.fetch_add(1, Relaxed));
    }

    pub(crate) fn count_deferred(&self) {
        self.both().for_each(|memory| _ = memory.deferred.fetch_add(1, Relaxed));
    }

    /// Returns whether unreserved memory is used up.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.both().any(|memory| memory.used() >= memory.budget)
    }

    /// Returns whether clients should be asked to use fewer slots: three quarters of the unreserved memory are used.
    pub(crate) fn is_scarce(&self) -> bool {
        self.both().any(Self::is_scarce_itself)
    }

    fn is_scarce_itself(&self) -> bool {
        let promised = self.promised.load(Relaxed);
        self.used() >= promised + self.budget.saturating_sub(promised) / 4 * 3
    }

    /// Returns the scarcity: 0 if memory is not scarce, [`STEPS`] when the last sixteenth of unreserved memory is in use.
    pub(crate) fn pressure(&self) -> u32 {
        if !self.is_scarce() {
            return 0;
        }
        let step = |memory: &Self| {
            let promised = memory.promised.load(Relaxed);
            let sixteenth = (memory.budget.saturating_sub(promised) / 16).max(1);
            let sixteenths = memory.used().saturating_sub(promised) / sixteenth;
            (u32::try_from(sixteenths).unwrap_or(u32::MAX)).saturating_sub(16 - STEPS - 1).min(STEPS)
        };
        // Rounding must not yield 0 when memory is scarce.
        self.both().map(step).max().unwrap_or_default().max(1)
    }

    pub(crate) fn charge(&self, bytes: usize) {
        self.both().for_each(|memory| _ = memory.used.fetch_add(bytes, Relaxed));
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.both().for_each(|memory| _ = memory.used.fetch_sub(bytes, Relaxed));
    }

    /// Reserves `bytes`, or nothing if they would not fit.
    pub(crate) fn promise(&self, bytes: usize) -> bool {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.budget);
        if self.used.fetch_update(Relaxed, Relaxed, fits).is_err() {
            return false;
        }
        let whole_fits = self.whole.as_ref().is_none_or(|whole| whole.promise(bytes));
        if whole_fits {
            self.promised.fetch_add(bytes, Relaxed);
        } else {
            self.used.fetch_sub(bytes, Relaxed);
        }
        whole_fits
    }

    /// Releases the reserved memory.
    pub(crate) fn withdraw(&self, bytes: usize) {
        self.both().for_each(|memory| _ = memory.promised.fetch_sub(bytes, Relaxed));
        self.release(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_not_scarcity_and_pressure_rises_in_steps() {
        let whole = Arc::new(SlotMemory::new(1 << 20));
        let [a, b] = std::array::from_fn(|_| SlotMemory::share_of(&whole));
        assert!(a.promise(200 << 10) && b.promise(200 << 10));
        assert!(!a.promise(60 << 10), "a quarter is all that a client has");
        assert_eq!((whole.used(), whole.is_scarce(), a.is_scarce()), (400 << 10, false, false));
        // Each client has 56 KiB left: 3.5 a sixteenth.
        let steps: Vec<u32> = (0..16)
            .map(|_| {
                a.charge(3584);
                a.pressure()
            })
            .collect();
        assert_eq!(steps, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 4]);
        assert_eq!((a.is_exhausted(), b.is_exhausted(), b.pressure()), (true, false, 0));
        a.release(16 * 3584);
        a.withdraw(200 << 10);
        b.withdraw(200 << 10);
        assert_eq!((whole.used(), a.used(), b.used()), (0, 0, 0));
        assert!(a.promise(256 << 10), "all memory is free again");
    }

    #[test]
    fn memory_used_by_others_is_scarce_for_each() {
        let whole = Arc::new(SlotMemory::new(1 << 20));
        let shares: [_; 4] = std::array::from_fn(|_| SlotMemory::share_of(&whole));
        shares[..3].iter().for_each(|share| share.charge(256 << 10));
        assert_eq!(shares[3].pressure(), 1, "three quarters are used, by others");
        shares[3].charge(250 << 10);
        assert_eq!(shares[3].pressure(), STEPS);
    }
}
