//! The clock of an agent, compared with the coordinator's.

use std::time::Duration;

/// Comparisons of the clocks; the one with the shortest round trip counts.
pub(super) const COMPARISONS: usize = 9;

/// By how much an agent's clock is ahead of the coordinator's. Both count from the start of their process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ClockOffset {
    /// Its time minus ours, in microseconds.
    ahead_us: i64,
    /// Maximum error of that.
    pub(super) uncertainty: Duration,
}

impl ClockOffset {
    /// Of one comparison: the agent told `theirs_us` between two times of the coordinator. It may have done so at any time between.
    fn of(asked: Duration, theirs_us: u64, answered: Duration) -> Self {
        let middle = (asked + answered) / 2;
        let uncertainty = answered.saturating_sub(asked) / 2;
        Self { ahead_us: signed(theirs_us) - signed(micros(middle)), uncertainty }
    }

    /// Returns the best of several comparisons.
    pub(super) fn best(all: impl IntoIterator<Item = (Duration, u64, Duration)>) -> Option<Self> {
        let each = all.into_iter().map(|(asked, theirs, answered)| Self::of(asked, theirs, answered));
        each.min_by_key(|offset| offset.uncertainty)
    }

    /// Returns the agent's time at a time of the coordinator, in microseconds.
    pub(super) fn theirs(self, ours: Duration) -> u64 {
        u64::try_from(signed(micros(ours)) + self.ahead_us).unwrap_or(0)
    }

    /// Returns the coordinator's time at a time of the agent, in microseconds; before its start that is negative.
    pub(super) fn ours(self, theirs_us: u64) -> i64 {
        signed(theirs_us) - self.ahead_us
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn signed(us: u64) -> i64 {
    i64::try_from(us).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_comparison_with_the_shortest_round_trip_counts() {
        let ms = Duration::from_millis;
        let slow = (ms(100), 900_000, ms(140));
        // At 201 ms of the coordinator's clock the agent's is at 1,000 ms.
        let fast = (ms(200), 1_000_000, ms(202));
        let offset = ClockOffset::best([slow, fast]).unwrap();
        assert_eq!(offset.uncertainty, ms(1));
        assert_eq!(offset.theirs(ms(301)), 1_100_000);
        assert_eq!(offset.ours(1_100_000), 301_000);
        assert_eq!(offset.ours(0), -799_000);
        assert_eq!(ClockOffset::best([]), None);
    }
}
