//! Two series of rounds side by side: faster, slower, or undecided.

use std::fmt;

use super::rank_sum::RatioInterval;
use super::{MedianInterval, SIGNIFICANCE, mann_whitney, ratio_interval};

/// Whether higher or lower values of a measure are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Throughputs and rates.
    Higher,
    /// Times, sizes and counts of requests.
    Lower,
}

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The second side is better, significantly.
    Better,
    /// The second side is worse, significantly.
    Worse,
    /// Chance explains the difference; more rounds may decide. Shown as `~`.
    Undecided,
}

/// The difference of the second of two series from the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The first series.
    pub before: MedianInterval,
    /// The second series.
    pub after: MedianInterval,
    /// The second divided by the first; `None` if a value is not positive.
    pub ratio: Option<RatioInterval>,
    /// Probability of such a difference by chance (Mann–Whitney).
    pub p: f64,
    /// The conclusion.
    pub verdict: Verdict,
}

impl Change {
    /// Compares two series; `None` if one has no samples, or a sample is not a finite number.
    #[must_use]
    pub fn of(before: &[f64], after: &[f64], better: Better) -> Option<Self> {
        let test = mann_whitney(before, after)?;
        // Pairs in which the first side is greater, against one half of all.
        let falls = test.u > before.len() as f64 * after.len() as f64 / 2.0;
        let verdict = match (test.p < SIGNIFICANCE, falls == (better == Better::Lower)) {
            (false, _) => Verdict::Undecided,
            (true, true) => Verdict::Better,
            (true, false) => Verdict::Worse,
        };
        Some(Self {
            before: MedianInterval::of(before)?,
            after: MedianInterval::of(after)?,
            ratio: ratio_interval(before, after),
            p: test.p,
            verdict,
        })
    }

    /// Returns the fraction by which the second side is worse: 0.05 for a rate that fell, or a time that grew, by 5 %. 0 if it is not
    /// significantly worse.
    #[must_use]
    pub fn loss(&self) -> f64 {
        match (self.verdict, self.ratio) {
            (Verdict::Worse, Some(ratio)) => (ratio.ratio - 1.0).abs(),
            // One side is zero: there is no ratio.
            (Verdict::Worse, None) => f64::INFINITY,
            _ => 0.0,
        }
    }
}

impl fmt::Display for Change {
    /// `~`, or the change with its interval: `-4.8 % (-6.1 … -3.2)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        match (self.verdict, self.ratio) {
            (Verdict::Undecided, _) => f.write_str("~"),
            (_, Some(RatioInterval { ratio, interval: Some((low, high)) })) => {
                write!(f, "{:+.1} % ({:+.1} … {:+.1})", percent(ratio), percent(low), percent(high))
            }
            (_, Some(RatioInterval { ratio, interval: None })) => write!(f, "{:+.1} %", percent(ratio)),
            (Verdict::Better, None) => f.write_str("better"),
            (Verdict::Worse, None) => f.write_str("worse"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: [f64; 6] = [100.0, 103.0, 99.0, 101.0, 98.0, 102.0];

    #[test]
    fn a_lower_rate_is_worse_and_a_lower_time_better() {
        let tenth_less = BASE.map(|value| value * 0.9);
        let rate = Change::of(&BASE, &tenth_less, Better::Higher).unwrap();
        assert_eq!(rate.verdict, Verdict::Worse);
        assert!((rate.loss() - 0.1).abs() < 0.005, "{}", rate.loss());
        let time = Change::of(&BASE, &tenth_less, Better::Lower).unwrap();
        assert_eq!((time.verdict, time.loss()), (Verdict::Better, 0.0));
        let back = Change::of(&tenth_less, &BASE, Better::Lower).unwrap();
        assert_eq!(back.verdict, Verdict::Worse);
        assert!(rate.to_string().starts_with("-10."), "{rate}");
    }

    #[test]
    fn overlapping_series_are_undecided() {
        let change = Change::of(&BASE, &[101.0, 97.0, 103.5, 100.5, 99.5, 98.5], Better::Higher).unwrap();
        assert_eq!((change.verdict, change.loss()), (Verdict::Undecided, 0.0));
        assert_eq!(change.to_string(), "~");
    }

    #[test]
    fn three_rounds_never_decide() {
        let change = Change::of(&[1.0, 1.0, 1.0], &[9.0, 9.0, 9.0], Better::Higher).unwrap();
        assert_eq!(change.verdict, Verdict::Undecided);
    }

    #[test]
    fn falling_to_nothing_is_an_infinite_loss() {
        let change = Change::of(&BASE, &[0.0; 6], Better::Higher).unwrap();
        assert_eq!((change.verdict, change.loss()), (Verdict::Worse, f64::INFINITY));
        assert_eq!(change.to_string(), "worse");
    }
}
