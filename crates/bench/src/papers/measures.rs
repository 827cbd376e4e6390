//! Measures that judge figures: series over time, and means of the clients' counters.

use std::ops::Range;

use super::runs::{Pick, Runs};
use crate::result::{Measure, RequestCounters, RunResult};

impl Runs<'_> {
    /// Returns the median of operations in the first second.
    pub(super) fn first_second(&self, pick: &Pick<'_>) -> Option<f64> {
        self.median(pick, |result| Some(in_seconds(result, 0..1)))
    }

    /// Returns the median of operations a second in the last third of the time, when caches are full.
    pub(super) fn late_rate(&self, pick: &Pick<'_>) -> Option<f64> {
        self.median(pick, |result| {
            let whole = result.seconds as usize;
            let third = (whole / 3).max(1).min(whole);
            (third > 0).then(|| in_seconds(result, whole - third..whole) / third as f64)
        })
    }

    /// Returns the median of the length of runs, in seconds.
    pub(super) fn seconds(&self, pick: &Pick<'_>) -> Option<f64> {
        self.median(pick, |result| Some(result.seconds))
    }

    /// Returns the median of the requests of a client that are sent and have no reply, in the mean over the time.
    pub(super) fn outstanding(&self, pick: &Pick<'_>) -> Option<f64> {
        self.median(pick, |result| {
            let waited = sum(result, None, |counters| counters.round_trip_us) / 1e6;
            let time = result.seconds * f64::from(result.run.case.clients);
            (time > 0.0).then(|| waited / time)
        })
    }

    /// Returns the median of the mean time from request to reply, of one kind or of all, in microseconds.
    pub(super) fn round_trip_us(&self, pick: &Pick<'_>, operation: Option<&str>) -> Option<f64> {
        self.mean_us(pick, operation, |counters| counters.round_trip_us)
    }

    /// Returns the median of the mean time of a request before it is sent, in microseconds.
    pub(super) fn queue_us(&self, pick: &Pick<'_>, operation: Option<&str>) -> Option<f64> {
        self.mean_us(pick, operation, |counters| counters.queue_us)
    }

    fn mean_us(
        &self,
        pick: &Pick<'_>,
        operation: Option<&str>,
        of: fn(&RequestCounters) -> u64,
    ) -> Option<f64> {
        self.median(pick, |result| {
            let requests = sum(result, operation, |counters| counters.requests);
            (requests > 0.0).then(|| sum(result, operation, of) / requests)
        })
    }

    /// Returns the median of the requests of one kind for each operation of a program.
    pub(super) fn each(&self, pick: &Pick<'_>, operation: &str) -> Option<f64> {
        self.median(pick, |result| {
            let operations = result.measure(Measure::Operations)? * result.seconds;
            let requests = sum(result, Some(operation), |counters| counters.requests);
            (operations > 0.0).then(|| requests / operations)
        })
    }

    /// Returns the median of the mean latency of an operation of programs, in microseconds.
    pub(super) fn latency_us(&self, pick: &Pick<'_>, operation: &str) -> Option<f64> {
        self.median(pick, |result| Some(result.operations.get(operation)?.latency.mean_ns()?.0 / 1e3))
    }

    /// Returns the median of the part of its processors that the clients used.
    pub(super) fn client_busy(&self, pick: &Pick<'_>) -> Option<f64> {
        self.median(pick, |result| result.client_busy)
    }
}

/// Returns the operations of all clients in some seconds.
fn in_seconds(result: &RunResult, seconds: Range<usize>) -> f64 {
    let of = |second: usize| {
        result.clients.iter().filter_map(|client| client.operations.get(second)).sum::<u64>() as f64
    };
    seconds.map(of).sum()
}

/// Returns the sum of a counter over the requests of one kind, or of all.
fn sum(result: &RunResult, operation: Option<&str>, of: fn(&RequestCounters) -> u64) -> f64 {
    let chosen = result.requests.iter().filter(|(name, _)| operation.is_none_or(|wanted| *name == wanted));
    chosen.map(|(_, counters)| of(counters)).sum::<u64>() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::result;

    #[test]
    fn series_and_counters_become_means() {
        let mut run = result("enfys", "4.1", 1, 1000);
        run.clients[0].operations = vec![10, 20, 30, 40, 50, 60, 100, 200, 300, 600];
        let read = run.requests.get_mut("READ").unwrap();
        (read.requests, read.queue_us, read.round_trip_us) = (500, 1000, 40_000_000);
        let results = [run];
        let runs = Runs::new(&results);
        let pick = Pick::v41();
        assert_eq!(runs.first_second(&pick), Some(10.0));
        assert_eq!(runs.late_rate(&pick), Some(1100.0 / 3.0), "the last three of ten seconds");
        assert_eq!(runs.outstanding(&pick), Some(4.0), "40 s of waiting in 10 s");
        assert_eq!(runs.queue_us(&pick, None), Some(2.0));
        assert_eq!(runs.round_trip_us(&pick, Some("READ")), Some(80_000.0));
        assert_eq!(runs.round_trip_us(&pick, Some("WRITE")), None);
        assert_eq!(runs.each(&pick, "READ"), Some(0.5));
        let latency = runs.latency_us(&pick, "read").unwrap();
        assert!((latency / 119.0 - 1.0).abs() < 0.01, "99 % of 100 µs and 1 % of 2 ms: {latency}");
        assert_eq!(runs.first_second(&Pick::v3()), None);
    }
}
