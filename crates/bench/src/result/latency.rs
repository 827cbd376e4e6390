//! Latencies as a histogram that a file can hold.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maximum latency that the histogram records: an hour.
const MAX_NS: u64 = 3_600_000_000_000;
/// Significant digits: values differ from the measured ones by less than 0.1 %.
const DIGITS: u8 = 3;

/// Latencies in nanoseconds, with three significant digits.
///
/// In a file it is a list of pairs: a latency in nanoseconds, and how many operations had it.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        // Grows as latencies need it: there may be one for each thread and operation.
        Self(Histogram::new(DIGITS).expect("valid digits"))
    }
}

impl Latency {
    /// Adds `count` operations that took `time`.
    pub fn record(&mut self, time: Duration, count: u64) {
        self.record_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), count);
    }

    fn record_ns(&mut self, nanoseconds: u64, count: u64) {
        // The histogram grows to the longest latency; nothing else can fail.
        let _ = self.0.record_n(nanoseconds.min(MAX_NS), count);
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Self) {
        for (nanoseconds, count) in other.pairs() {
            self.record_ns(nanoseconds, count);
        }
    }

    /// Returns the number of operations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the latency that this part of all operations did not exceed, in nanoseconds; `None` without operations.
    #[must_use]
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        (self.count() > 0).then(|| self.0.value_at_quantile(quantile))
    }

    /// Returns the mean and the standard deviation, in nanoseconds; `None` without operations.
    #[must_use]
    pub fn mean_ns(&self) -> Option<(f64, f64)> {
        (self.count() > 0).then(|| (self.0.mean(), self.0.stdev()))
    }

    /// Returns the shortest and the longest latency, in nanoseconds; `None` without operations.
    #[must_use]
    pub fn range_ns(&self) -> Option<(u64, u64)> {
        (self.count() > 0).then(|| (self.0.min(), self.0.max()))
    }

    /// Returns each latency that occurred, in nanoseconds, with its operations.
    pub fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value()))
    }
}

impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.pairs())
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut latency = Self::default();
        for (nanoseconds, count) in Vec::<(u64, u64)>::deserialize(deserializer)? {
            latency.record_ns(nanoseconds, count);
        }
        Ok(latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_survives_a_file() {
        let mut latency = Latency::default();
        for (microseconds, count) in [(1, 5), (120, 100), (121, 7), (50_000, 1)] {
            latency.record(Duration::from_micros(microseconds), count);
        }
        let text = serde_json::to_string(&latency).unwrap();
        let read: Latency = serde_json::from_str(&text).unwrap();
        assert_eq!(read, latency);
        assert_eq!(read.count(), 113);
        assert!(text.len() < 100, "only what occurred: {text}");
    }

    #[test]
    fn nothing_has_no_quantile() {
        let empty = Latency::default();
        assert_eq!((empty.quantile_ns(0.5), empty.mean_ns(), empty.range_ns()), (None, None, None));
    }

    #[test]
    fn sums_count_everything() {
        let mut all = Latency::default();
        let mut one = Latency::default();
        one.record(Duration::from_millis(1), 3);
        one.record(Duration::from_secs(7200), 1);
        all.add(&one);
        all.add(&one);
        assert_eq!(all.count(), 8);
        assert!(all.range_ns().unwrap().1 >= MAX_NS, "two hours count as the longest latency");
    }
}
