//! Results: one measurement, and the medians of many.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::operation::Operation;
use crate::statistics::{median, ranks_outside};

/// The shape of a load: the same number of outstanding requests on each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Shape {
    /// TCP connections.
    pub connections: u32,
    /// Requests outstanding on each of them.
    pub depth: u32,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}", self.connections, self.depth)
    }
}

/// The results of one run of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The operation.
    pub operation: Operation,
    /// The load, as it was granted: a session may have fewer slots than requested.
    pub shape: Shape,
    /// Operations finished inside the window.
    pub operations: u64,
    /// Length of the window.
    pub seconds: f64,
    /// Operations a second.
    pub rate: f64,
    /// Median latency, in microseconds: from the read that allowed the request to the one with its reply.
    pub p50_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// Longest latency.
    pub max_us: f64,
    /// CPU time of the server for each operation, in microseconds: user and system, all threads.
    pub server_cpu_us: Option<f64>,
    /// Share of the window that the server was on a CPU; 1 means that it could not have done more on one core.
    pub server_busy: Option<f64>,
    /// Share of the window that the generator was on its CPU; near 1, the rate is the generator's limit.
    pub load_busy: f64,
}

/// Medians of several measurements of the same operation, shape and server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of measurements in this summary.
    pub rounds: usize,
    /// Operations a second.
    pub rate: f64,
    /// Median of the median latencies, in microseconds.
    pub p50_us: f64,
    /// Median of the 99th percentiles, in microseconds.
    pub p99_us: f64,
    /// Server CPU for each operation, in microseconds.
    pub server_cpu_us: Option<f64>,
    /// Minimum and maximum server CPU of the rounds, to judge the median.
    pub server_cpu_range_us: Option<(f64, f64)>,
    /// Share of the window that the generator was busy.
    pub load_busy: f64,
}

impl Summary {
    /// Summarizes `runs`; `None` if there are none.
    #[must_use]
    pub fn of(runs: &[&Measurement]) -> Option<Self> {
        let pick = |field: fn(&Measurement) -> f64| median(runs.iter().map(|run| field(run)).collect());
        let cpu: Vec<f64> = runs.iter().filter_map(|run| run.server_cpu_us).collect();
        let range = cpu.iter().copied().fold(None, |range: Option<(f64, f64)>, value| {
            Some(range.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        });
        Some(Self {
            rounds: runs.len(),
            rate: pick(|run| run.rate)?,
            p50_us: pick(|run| run.p50_us)?,
            p99_us: pick(|run| run.p99_us)?,
            server_cpu_us: median(cpu),
            server_cpu_range_us: range,
            load_busy: pick(|run| run.load_busy)?,
        })
    }
}

/// The ratio of two figures measured in the same rounds. The machine's speed in a round affects both figures and cancels out; in the
/// ratio of two medians it does not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Median of the rounds' own ratios.
    pub median: f64,
    /// Bounds of the median of infinitely many rounds, with 95 % confidence: order statistics of the binomial
    /// distribution. Of fewer than six rounds, their extremes, with less confidence.
    pub interval: (f64, f64),
}

impl Ratio {
    /// Summarizes the ratios of rounds; `None` if there are none.
    #[must_use]
    pub fn of(mut rounds: Vec<f64>) -> Option<Self> {
        rounds.sort_by(f64::total_cmp);
        let outside = ranks_outside(rounds.len());
        let interval = (*rounds.get(outside)?, rounds[rounds.len() - 1 - outside]);
        Some(Self { median: median(rounds)?, interval })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rate: f64, cpu: Option<f64>) -> Measurement {
        Measurement {
            operation: Operation::Getattr,
            shape: Shape { connections: 1, depth: 64 },
            operations: 10,
            seconds: 1.0,
            rate,
            p50_us: 2.0 * rate,
            p99_us: 3.0 * rate,
            max_us: 4.0 * rate,
            server_cpu_us: cpu,
            server_busy: None,
            load_busy: 0.5,
        }
    }

    #[test]
    fn summary_takes_each_median_by_itself() {
        let runs = [measured(3.0, Some(9.0)), measured(1.0, Some(5.0)), measured(2.0, None)];
        let summary = Summary::of(&runs.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!((summary.rate, summary.p50_us, summary.p99_us), (2.0, 4.0, 6.0));
        assert_eq!(summary.server_cpu_us, Some(7.0));
        assert_eq!(summary.server_cpu_range_us, Some((5.0, 9.0)));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn the_interval_of_a_ratio_is_that_of_the_sign_test() {
        // The ranks that tables of the binomial distribution with p = 1/2 give for 95 %.
        for (rounds, lowest) in [(6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (31, 10), (61, 23), (100, 40)] {
            let ratio = Ratio::of((1..=rounds).map(f64::from).collect()).unwrap();
            assert_eq!(ratio.interval, (f64::from(lowest), f64::from(rounds + 1 - lowest)), "{rounds}");
            assert_eq!(ratio.median, f64::from(rounds + 1) / 2.0);
        }
        let few = Ratio::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!(
            (few.median, few.interval),
            (2.0, (1.0, 3.0)),
            "too few for any confidence: their extremes"
        );
        assert_eq!(Ratio::of(Vec::new()), None);
    }
}
