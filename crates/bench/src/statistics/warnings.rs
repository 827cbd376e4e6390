//! Signs that the rounds of a measurement should not be trusted, each with advice.

use std::fmt;

use super::{MedianInterval, SIGNIFICANCE, are_usable, mann_kendall, median};

/// Rounds that an interval of the median with 95 % needs.
pub const ROUNDS_MIN: usize = 6;
/// Deviations from the median of an outlier, by the median absolute deviation. With few rounds this is a rough estimate, so
/// that the usual 3.5 would name ordinary rounds.
pub const OUTLIER_SCORE: f64 = 10.0;
/// A drift below this part of the median is not reported, however consistent it is.
const DRIFT_MIN: f64 = 0.02;
/// An outlier closer than this part of the median is not reported: rounds that hardly differ have a tiny deviation.
const OUTLIER_DISTANCE_MIN: f64 = 0.02;

/// A reason to doubt a series of rounds.
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// Fewer rounds than [`ROUNDS_MIN`].
    TooFewRounds {
        /// Number of rounds.
        rounds: usize,
        /// Confidence that their extremes enclose the true median.
        confidence: f64,
    },
    /// The rounds rise or fall in order of time.
    Drift {
        /// Median of the first half of the rounds.
        first: f64,
        /// Median of the second half.
        last: f64,
    },
    /// Rounds far from the others, counted from 1.
    Outliers {
        /// Their numbers.
        rounds: Vec<usize>,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewRounds { rounds, confidence } => write!(
                f,
                "{rounds} round(s) only; their extremes enclose the median with {:.0} %. Run at least {ROUNDS_MIN}.",
                confidence * 100.0
            ),
            Self::Drift { first, last } => write!(
                f,
                "the rounds drift by {:+.1} % from the first half to the second. Let the system settle (longer warm-up, \
                 fresh file system per run), and repeat.",
                (last / first - 1.0) * 100.0
            ),
            Self::Outliers { rounds } => {
                let rounds: Vec<String> = rounds.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "round {} is far from the others. Look for other work on the machine.",
                    rounds.join(", ")
                )
            }
        }
    }
}

/// Returns the warnings about rounds, given in order of time.
#[must_use]
pub fn warnings(rounds: &[f64]) -> Vec<Warning> {
    let Some(interval) = MedianInterval::of(rounds) else { return Vec::new() };
    let mut found = Vec::new();
    if rounds.len() < ROUNDS_MIN {
        found.push(Warning::TooFewRounds { rounds: rounds.len(), confidence: interval.confidence });
    }
    found.extend(drift(rounds, interval.median));
    let outliers = outliers(rounds, interval.median);
    if !outliers.is_empty() {
        found.push(Warning::Outliers { rounds: outliers });
    }
    found
}

fn drift(rounds: &[f64], middle: f64) -> Option<Warning> {
    let p = mann_kendall(rounds)?;
    let (early, late) = rounds.split_at(rounds.len() / 2);
    let (first, last) = (median(early.to_vec())?, median(late.to_vec())?);
    let is_large = (last - first).abs() >= DRIFT_MIN * middle.abs();
    (p < SIGNIFICANCE && is_large && first != 0.0).then_some(Warning::Drift { first, last })
}

/// Returns the numbers of outliers, from 1.
fn outliers(rounds: &[f64], middle: f64) -> Vec<usize> {
    if rounds.len() < 4 || !are_usable(rounds) {
        return Vec::new();
    }
    let distances: Vec<f64> = rounds.iter().map(|round| (round - middle).abs()).collect();
    // The standard deviation of a normal distribution, by the median absolute deviation (Iglewicz and Hoaglin 1993).
    let scale = median(distances.clone()).unwrap_or_default() / 0.6745;
    let is_outlier =
        |distance: f64| distance > OUTLIER_SCORE * scale && distance >= OUTLIER_DISTANCE_MIN * middle.abs();
    let numbered = distances.iter().enumerate().filter(|(_, distance)| is_outlier(**distance));
    numbered.map(|(index, _)| index + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_rounds_have_no_warning() {
        assert_eq!(warnings(&[100.0, 103.0, 99.0, 101.0, 98.0, 102.0, 100.0]), []);
        assert_eq!(warnings(&[]), []);
    }

    #[test]
    fn five_rounds_are_too_few() {
        let found = warnings(&[100.0, 103.0, 99.0, 101.0, 98.0]);
        assert!(matches!(found[..], [Warning::TooFewRounds { rounds: 5, .. }]), "{found:?}");
        assert!(found[0].to_string().contains("with 94 %"), "1 − 2 ⁄ 2⁵: {}", found[0]);
        assert!(found[0].to_string().contains("5 round(s)") && found[0].to_string().contains("at least 6"));
    }

    #[test]
    fn rising_rounds_drift() {
        let found = warnings(&[100.0, 103.0, 104.0, 108.0, 109.0, 112.0]);
        assert_eq!(found, [Warning::Drift { first: 103.0, last: 109.0 }]);
        assert!(found[0].to_string().contains("+5.8 %"), "{}", found[0]);
        // As consistent, but 0.1 %.
        assert_eq!(warnings(&[100.00, 100.02, 100.04, 100.06, 100.08, 100.10]), []);
    }

    /// The median deviation is 1, so the standard deviation 1.48: 120 is 13.5 away, 110 only 6.7.
    #[test]
    fn one_wild_round_is_named() {
        let found = warnings(&[100.0, 101.0, 99.0, 120.0, 100.0, 99.0, 101.0]);
        assert_eq!(warnings(&[100.0, 101.0, 99.0, 110.0, 100.0, 99.0, 101.0]), []);
        assert_eq!(found, [Warning::Outliers { rounds: vec![4] }]);
        assert_eq!(
            warnings(&[5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 9.0]),
            [Warning::Outliers { rounds: vec![8] }]
        );
    }
}
