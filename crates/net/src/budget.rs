//! A limit on the memory of waiting requests, over all connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A shared number of bytes. It is a soft limit: once it is used up, no new charge begins until some are returned, so that the
/// total exceeds it by the charges of that moment.
#[derive(Debug)]
pub(crate) struct Budget {
    held: AtomicUsize,
    bytes: usize,
}

/// Charged bytes; returned when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), bytes })
    }

    /// Returns whether all bytes are charged.
    pub(crate) fn is_used_up(&self) -> bool {
        self.held.load(Relaxed) >= self.bytes
    }

    /// Charges `bytes`.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.held.fetch_add(bytes, Relaxed);
        Charge { budget: Arc::clone(self), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_used_up_until_a_charge_returns() {
        let budget = Budget::new(100);
        let first = budget.charge(60);
        assert!(!budget.is_used_up());
        let second = budget.charge(60);
        assert!(budget.is_used_up());
        drop(first);
        assert!(!budget.is_used_up());
        drop(second);
        assert_eq!(budget.held.load(Relaxed), 0);
    }
}
