use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use server::Now;

/// Lets a log line through once a second, and counts those it keeps back: peers must not fill the disk by misbehaving.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    second: AtomicU64,
    kept_back: AtomicU64,
}

impl Throttle {
    /// Whether to log now; how many lines were kept back since the last one.
    pub(crate) fn admit(&self, now: Now) -> Option<u64> {
        // From 1 on, so that the very first second counts too.
        let second = now.monotonic.as_secs() + 1;
        if self.second.swap(second, Relaxed) == second {
            self.kept_back.fetch_add(1, Relaxed);
            return None;
        }
        Some(self.kept_back.swap(0, Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vfs::Timestamp;

    use super::*;

    #[test]
    fn lets_one_a_second_through_and_counts_the_others() {
        let throttle = Throttle::default();
        let at = |millis| Now { monotonic: Duration::from_millis(millis), wall: Timestamp::default() };
        assert_eq!(throttle.admit(at(0)), Some(0));
        assert_eq!(throttle.admit(at(10)), None);
        assert_eq!(throttle.admit(at(999)), None);
        assert_eq!(throttle.admit(at(1000)), Some(2));
        assert_eq!(throttle.admit(at(5000)), Some(0));
    }
}
