//! Limits the log lines that peers can cause, so that they cannot fill the disk.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Now;

/// Log lines a second about mounts and clients.
pub(crate) const LOG_LINES_A_SECOND: u16 = 10;

/// Allows a few log lines a second, and counts the suppressed ones.
#[derive(Debug)]
pub struct Throttle {
    lines_a_second: u16,
    /// The current second, above [`COUNT_BITS`] of the lines that it has allowed.
    allowed: AtomicU64,
    /// Lines suppressed since the last allowed one.
    suppressed: AtomicU64,
}

/// Number of suppressed lines, for the field `suppressed` of the next line: the field is absent if there were none.
pub type Suppressed = Option<NonZeroU64>;

/// Bits of the count in `allowed`.
const COUNT_BITS: u32 = 16;

impl Default for Throttle {
    fn default() -> Self {
        Self::new(1)
    }
}

impl Throttle {
    /// Allows this many lines a second.
    #[must_use]
    pub const fn new(lines_a_second: u16) -> Self {
        Self { lines_a_second, allowed: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Returns the lines suppressed since the last one if a line may be logged now; else counts it as suppressed.
    #[must_use]
    pub fn admit(&self, now: Now) -> Option<Suppressed> {
        let second = now.monotonic.as_secs();
        let counted = self.allowed.fetch_update(Relaxed, Relaxed, |allowed| {
            let count = if allowed >> COUNT_BITS == second { allowed & ((1 << COUNT_BITS) - 1) } else { 0 };
            (count < u64::from(self.lines_a_second)).then_some(second << COUNT_BITS | (count + 1))
        });
        if counted.is_err() {
            self.suppressed.fetch_add(1, Relaxed);
            return None;
        }
        Some(NonZeroU64::new(self.suppressed.swap(0, Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vfs::Timestamp;

    use super::*;

    #[test]
    fn several_lines_a_second_are_allowed() {
        let (throttle, two) = (Throttle::new(2), NonZeroU64::new(2));
        let at = |seconds| Now { monotonic: Duration::from_secs(seconds), wall: Timestamp::default() };
        let admitted = [7, 7, 7, 7, 8, 8, 8].map(|second| throttle.admit(at(second)));
        assert_eq!(admitted, [Some(None), Some(None), None, None, Some(two), Some(None), None]);
    }

    #[test]
    fn one_line_a_second_is_allowed_and_the_others_are_counted() {
        let throttle = Throttle::default();
        let at = |millis| Now { monotonic: Duration::from_millis(millis), wall: Timestamp::default() };
        assert_eq!(throttle.admit(at(0)), Some(None));
        assert_eq!(throttle.admit(at(10)), None);
        assert_eq!(throttle.admit(at(999)), None);
        assert_eq!(throttle.admit(at(1000)), Some(NonZeroU64::new(2)));
        assert_eq!(throttle.admit(at(5000)), Some(None));
    }
}
