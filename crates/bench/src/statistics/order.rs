//! Medians, with intervals that assume nothing about the distribution.

use statrs::distribution::{Binomial, DiscreteCDF as _};

use super::{SIGNIFICANCE, are_usable};

/// Returns the middle value, or the mean of the two in the middle; `None` without values.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// A median, and the interval of the true median between two order statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MedianInterval {
    /// Number of samples.
    pub count: usize,
    /// Median of the samples.
    pub median: f64,
    /// Lower end: one of the samples.
    pub low: f64,
    /// Upper end: one of the samples.
    pub high: f64,
    /// Probability that the true median is inside. Fewer than six samples cannot reach
    /// [`CONFIDENCE`](super::CONFIDENCE); their interval has their extremes.
    pub confidence: f64,
}

impl MedianInterval {
    /// Summarizes samples; `None` without samples, or if one is not a finite number.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        if !are_usable(samples) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        let outside = ranks_outside(count);
        Some(Self {
            count,
            low: sorted[outside],
            high: sorted[count - 1 - outside],
            confidence: (1.0 - 2.0 * at_most_below(outside, count)).max(0.0),
            median: median(sorted)?,
        })
    }
}

/// Returns the number of `count` sorted values that the interval of the median omits at each end.
///
/// Each value is below the true median with probability 1/2. An interval that leaves out n values misses the median
/// if at most n values are on one side of it.
#[must_use]
pub fn ranks_outside(count: usize) -> usize {
    let is_narrower_allowed = |outside: &usize| 2.0 * at_most_below(*outside, count) <= SIGNIFICANCE;
    (0..count.div_ceil(2)).take_while(is_narrower_allowed).last().unwrap_or(0)
}

/// Returns the probability that at most `below` of `count` values are below the true median.
fn at_most_below(below: usize, count: usize) -> f64 {
    let distribution = Binomial::new(0.5, count as u64).expect("1/2 is a probability");
    distribution.cdf(below as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks by tables of the binomial distribution with p = 1/2 (Conover, Practical Nonparametric Statistics).
    #[test]
    fn ranks_are_those_of_the_sign_test() {
        for (count, lowest) in [(6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (31, 10), (61, 23), (100, 40)] {
            let samples: Vec<f64> = (1..=count).map(f64::from).collect();
            let interval = MedianInterval::of(&samples).unwrap();
            assert_eq!((interval.low, interval.high), (f64::from(lowest), f64::from(count + 1 - lowest)));
            assert!(interval.confidence >= 0.95, "{count}: {}", interval.confidence);
        }
    }

    #[test]
    fn few_samples_promise_less() {
        // 1 − 2 ⁄ 2ⁿ.
        for (count, confidence) in [(1, 0.0), (2, 0.5), (3, 0.75), (5, 0.9375), (6, 0.968_75)] {
            let samples: Vec<f64> = (0..count).map(f64::from).collect();
            let interval = MedianInterval::of(&samples).unwrap();
            assert!((interval.confidence - confidence).abs() < 1e-12, "{count}: {}", interval.confidence);
            assert_eq!((interval.low, interval.high), (0.0, f64::from(count - 1)));
        }
    }

    #[test]
    fn one_wild_sample_does_not_move_the_median() {
        assert_eq!(median(vec![1.0, 900.0, 1.2, 1.1, 1.3]), Some(1.2));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
        assert_eq!(MedianInterval::of(&[f64::INFINITY]), None);
    }
}
