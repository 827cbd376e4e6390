//! Statistics of repeated measurements: intervals, tests, and warnings about rounds that cannot be trusted.
//!
//! A table shows means with Student's t, as the papers do ([`Mean`]). Decisions use ranks alone, because times of a
//! computer are skewed: medians with the intervals of order statistics ([`MedianInterval`]), and [`mann_whitney`].
//! All intervals have [`CONFIDENCE`].

mod comparison;
mod fairness;
mod order;
mod rank_sum;
mod student;
mod trend;
mod warnings;

pub use self::comparison::{Better, Change, Verdict};
pub use self::fairness::{Clusters, clusters, jain};
pub use self::order::{MedianInterval, median, ranks_outside};
pub use self::rank_sum::{Method, POOLED_EXACT_MAX, RankSum, mann_whitney, ratio_interval};
pub use self::student::Mean;
pub use self::trend::{TREND_EXACT_MAX, mann_kendall};
pub use self::warnings::{OUTLIER_SCORE, ROUNDS_MIN, Warning, warnings};

/// Confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;
/// A difference is significant if its probability by chance is below this.
pub const SIGNIFICANCE: f64 = 1.0 - CONFIDENCE;

/// Returns whether there are samples, and all are numbers.
fn are_usable(samples: &[f64]) -> bool {
    !samples.is_empty() && samples.iter().all(|sample| sample.is_finite())
}
