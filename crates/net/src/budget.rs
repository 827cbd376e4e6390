//! Memory that requests may hold while they wait, over all connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A number of bytes that is shared. It is not a hard bound but a brake: whoever finds it used up takes nothing new until
/// something is given back, so that what is held exceeds it by what was under way at that moment.
#[derive(Debug)]
pub(crate) struct Budget {
    held: AtomicUsize,
    bytes: usize,
}

/// Bytes that are held; given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { held: AtomicUsize::new(0), bytes })
    }

    /// Whether all of it is held.
    pub(crate) fn is_used_up(&self) -> bool {
        self.held.load(Relaxed) >= self.bytes
    }

    /// Holds `bytes` of it.
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
    fn is_used_up_until_something_is_given_back() {
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
