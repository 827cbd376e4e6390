//! Spreads rewriting over time, so that a server that has just restarted is not flooded.

use std::time::Duration;

/// Seconds after which the rate is not doubled any more.
const DOUBLINGS_MAX: u32 = 16;

/// A bucket of bytes. It fills at a rate that doubles every second: a fast server is not delayed for long.
#[derive(Debug)]
pub(super) struct RewritePace {
    /// Bytes in the first second.
    first_rate: u64,
    /// Maximum number of bytes at once.
    burst: u64,
    /// The start of rewriting; `None` while there is nothing to rewrite.
    since: Option<Duration>,
    last: Duration,
    tokens: f64,
}

impl RewritePace {
    pub(super) fn new(first_rate: u64, burst: u64) -> Self {
        Self { first_rate: first_rate.max(1), burst, since: None, last: Duration::ZERO, tokens: 0.0 }
    }

    /// Takes `bytes`, at most the burst, or returns the time at which they will be available.
    pub(super) fn take(&mut self, now: Duration, bytes: u64) -> Result<(), Duration> {
        debug_assert!(bytes <= self.burst);
        let since = *self.since.get_or_insert_with(|| {
            self.tokens = self.burst as f64;
            self.last = now;
            now
        });
        let doublings = now.saturating_sub(since).as_secs().min(u64::from(DOUBLINGS_MAX)) as u32;
        let rate = self.first_rate.saturating_mul(1 << doublings) as f64;
        let filled = self.tokens + rate * now.saturating_sub(self.last).as_secs_f64();
        self.tokens = filled.min(self.burst as f64);
        self.last = self.last.max(now);
        let missing = bytes as f64 - self.tokens;
        if missing > 0.0 {
            return Err(now + Duration::from_secs_f64(missing / rate) + Duration::from_nanos(1));
        }
        self.tokens -= bytes as f64;
        Ok(())
    }

    /// Notes that rewriting is complete: the next loss starts slowly again.
    pub(super) fn end(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes that a greedy sender gets in each second.
    fn sent(first_rate: u64, burst: u64, seconds: usize) -> Vec<u64> {
        let mut pace = RewritePace::new(first_rate, burst);
        let (mut now, mut sent) = (Duration::ZERO, vec![0; seconds]);
        while let Some(second) = sent.get_mut(now.as_secs() as usize) {
            match pace.take(now, burst) {
                Ok(()) => *second += burst,
                Err(then) => {
                    assert!(then > now);
                    now = then;
                }
            }
        }
        sent
    }

    #[test]
    fn rate_starts_low_and_doubles_every_second() {
        let sent = sent(1 << 20, 64 << 10, 5);
        for (second, bytes) in sent.into_iter().enumerate() {
            let expected = 1_u64 << (20 + second);
            assert!(bytes.abs_diff(expected) <= expected / 8, "second {second}: {bytes}");
        }
    }

    #[test]
    fn next_loss_starts_slowly_again() {
        let mut pace = RewritePace::new(1000, 1000);
        assert_eq!(pace.take(Duration::ZERO, 1000), Ok(()));
        assert!(pace.take(Duration::from_secs(10), 1000).is_ok());
        pace.end();
        assert_eq!(pace.take(Duration::from_secs(20), 1000), Ok(()));
        let next = pace.take(Duration::from_secs(20), 1000).unwrap_err();
        assert!(next >= Duration::from_secs(21));
    }
}
