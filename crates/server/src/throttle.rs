use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Now;

/// Lines about mounts and clients in the log: a client that makes hundreds a second is not logged each time.
pub(crate) const LOG_LINES_A_SECOND: u16 = 10;

/// Lets a few log lines through a second, and counts those it keeps back: peers must not fill the disk by misbehaving.
#[derive(Debug)]
pub struct Throttle {
    lines_a_second: u16,
    /// The second, above [`COUNT_BITS`] of how many lines it let through.
    seen: AtomicU64,
    kept_back: AtomicU64,
}

/// Bits of the count in `seen`.
const COUNT_BITS: u32 = 16;

impl Default for Throttle {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Throttle {
    /// Lets so many lines through a second.
    #[must_use]
    pub fn new(lines_a_second: u16) -> Self {
        Self { lines_a_second, seen: AtomicU64::new(0), kept_back: AtomicU64::new(0) }
    }

    /// Whether to log now; how many lines were kept back since the last one.
    #[must_use]
    pub fn admit(&self, now: Now) -> Option<u64> {
        let second = now.monotonic.as_secs();
        let counted = self.seen.fetch_update(Relaxed, Relaxed, |seen| {
            let count = if seen >> COUNT_BITS == second { seen & ((1 << COUNT_BITS) - 1) } else { 0 };
            (count < u64::from(self.lines_a_second)).then_some(second << COUNT_BITS | (count + 1))
        });
        if counted.is_err() {
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
    fn lets_several_a_second_through() {
        let throttle = Throttle::new(2);
        let at = |seconds| Now { monotonic: Duration::from_secs(seconds), wall: Timestamp::default() };
        let admitted = [7, 7, 7, 7, 8, 8, 8].map(|second| throttle.admit(at(second)));
        assert_eq!(admitted, [Some(0), Some(0), None, None, Some(2), Some(0), None]);
    }

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
