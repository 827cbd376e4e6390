//! The grace period after a restart (RFC 8881 §8.4.2.1).
//!
//! It runs exactly where clients are known that may have held state before, and ends as soon as the last of them has
//! said RECLAIM_COMPLETE, or after its time. The durable list of clients comes from outside.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

/// Who may still reclaim.
#[derive(Debug)]
pub(super) struct Grace {
    active: AtomicBool,
    /// §8.4.2.1: "a grace period at least as long as the lease period for the previous server instantiation".
    ends: Duration,
    /// Owners (`co_ownerid`) from before the restart that have not completed.
    waiting: Mutex<HashSet<Bytes>>,
}

impl Grace {
    pub(super) fn new(previous: Vec<Bytes>, ends: Duration) -> Self {
        let waiting: HashSet<Bytes> = previous.into_iter().collect();
        Self { active: AtomicBool::new(!waiting.is_empty()), ends, waiting: Mutex::new(waiting) }
    }

    /// Whether the period runs.
    pub(super) fn is_active(&self, now: Duration) -> bool {
        if !self.active.load(Relaxed) {
            return false;
        }
        if now >= self.ends {
            self.active.store(false, Relaxed);
            self.waiting.lock().clear();
            return false;
        }
        true
    }

    /// How long it runs at most from now on, and how many clients it waits for; `None` where it does not run.
    pub(super) fn remaining(&self, now: Duration) -> Option<(Duration, usize)> {
        self.is_active(now).then(|| (self.ends.saturating_sub(now), self.waiting.lock().len()))
    }

    /// Ends it for all; returns how many clients it waited for.
    pub(super) fn end(&self) -> usize {
        let mut waiting = self.waiting.lock();
        self.active.store(false, Relaxed);
        std::mem::take(&mut *waiting).len()
    }

    /// Whether this owner held state before, and has not completed its reclaims.
    pub(super) fn awaits(&self, now: Duration, owner: &[u8]) -> bool {
        self.is_active(now) && self.waiting.lock().contains(owner)
    }

    /// This owner reclaims nothing more. §18.51.4: "it is able to use the fact that all such clients have done a
    /// RECLAIM_COMPLETE to terminate the grace period".
    pub(super) fn complete(&self, owner: &[u8]) {
        if self.active.load(Relaxed) {
            let mut waiting = self.waiting.lock();
            waiting.remove(owner);
            if waiting.is_empty() {
                self.active.store(false, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Duration = Duration::from_secs(90);

    #[test]
    fn no_known_client_no_grace() {
        assert!(!Grace::new(vec![], END).is_active(Duration::ZERO));
    }

    #[test]
    fn ends_with_the_last_client_or_after_its_time() {
        let previous = || vec![Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        let grace = Grace::new(previous(), END);
        grace.complete(b"stranger");
        grace.complete(b"a");
        assert!(grace.is_active(Duration::ZERO) && !grace.awaits(Duration::ZERO, b"a"));
        assert!(grace.awaits(Duration::ZERO, b"b"));
        grace.complete(b"b");
        assert!(!grace.is_active(Duration::ZERO));

        let grace = Grace::new(previous(), END);
        assert!(grace.is_active(END - Duration::from_nanos(1)));
        assert!(!grace.is_active(END) && !grace.awaits(Duration::ZERO, b"a"), "an ended period stays ended");
    }
}
