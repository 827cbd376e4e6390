//! The Mann–Kendall test for a trend in a series.

use statrs::distribution::{ContinuousCDF as _, Normal};

use super::are_usable;

/// Up to this many values, the probability is exact if there are no ties.
pub const TREND_EXACT_MAX: usize = 30;

/// Returns the probability that a series without a trend rises or falls as consistently as this one.
///
/// `None` for fewer than three values, or if one is not a finite number.
#[must_use]
pub fn mann_kendall(series: &[f64]) -> Option<f64> {
    if series.len() < 3 || !are_usable(series) {
        return None;
    }
    let pairs = || (1..series.len()).flat_map(|later| (0..later).map(move |earlier| (earlier, later)));
    let falls = pairs().filter(|(earlier, later)| series[*later] < series[*earlier]).count();
    let rises = pairs().filter(|(earlier, later)| series[*later] > series[*earlier]).count();
    let has_ties = falls + rises < series.len() * (series.len() - 1) / 2;
    if series.len() <= TREND_EXACT_MAX && !has_ties {
        return Some(exact_p(series.len(), falls.min(rises)));
    }
    Some(normal_p(series, falls.abs_diff(rises)))
}

/// Returns the probability of at most `inversions` inversions or at most as many non-inversions in a random order.
fn exact_p(count: usize, inversions: usize) -> f64 {
    // Probability of each number of inversions: the n-th value has 0 to n − 1 greater ones before it, equally likely.
    let mut probability = vec![1.0];
    for size in 2..=count {
        let mut next = vec![0.0; probability.len() + size - 1];
        for (inversions, p) in probability.iter().enumerate() {
            for more in 0..size {
                next[inversions + more] += p / size as f64;
            }
        }
        probability = next;
    }
    (2.0 * probability[..=inversions].iter().sum::<f64>()).min(1.0)
}

fn normal_p(series: &[f64], difference: usize) -> f64 {
    let mut sorted = series.to_vec();
    sorted.sort_by(f64::total_cmp);
    let share = |size: f64| size * (size - 1.0) * (2.0 * size + 5.0);
    let tied: f64 = sorted.chunk_by(|a, b| a == b).map(|group| share(group.len() as f64)).sum();
    let variance = (share(series.len() as f64) - tied) / 18.0;
    if variance <= 0.0 || difference == 0 {
        return 1.0;
    }
    (2.0 * Normal::standard().sf((difference as f64 - 1.0) / variance.sqrt())).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two-sided probabilities of |S| or more, from Kendall's table (Rank Correlation Methods, Appendix Table 1; one-sided
    /// there): n = 4, S = 6: 0.042; n = 5, S = 8: 0.042; n = 6, S = 11: 0.028; n = 8, S = 16: 0.031; n = 10, S = 21: 0.036.
    #[test]
    fn probabilities_are_those_of_kendalls_table() {
        for (count, score, one_sided) in
            [(4, 6, 0.042), (5, 8, 0.042), (6, 11, 0.028), (8, 16, 0.031), (10, 21, 0.036)]
        {
            let pairs = count * (count - 1) / 2;
            let p = exact_p(count, (pairs - score) / 2);
            assert!((p / 2.0 - one_sided).abs() < 0.0005, "{count}, {score}: {p}");
        }
    }

    #[test]
    fn steady_rise_is_a_trend_and_alternation_is_not() {
        // By hand: one order of 6! rises throughout, one falls throughout.
        let p = mann_kendall(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert!((p - 2.0 / 720.0).abs() < 1e-12);
        assert!(mann_kendall(&[1.0, 2.0, 1.1, 2.1, 0.9, 1.9]).unwrap() > 0.5);
        assert_eq!(mann_kendall(&[1.0; 12]), Some(1.0));
        assert_eq!(mann_kendall(&[1.0, 2.0]), None);
    }

    #[test]
    fn long_series_and_ties_use_the_normal_distribution() {
        let rising: Vec<f64> = (0..60).map(|value| f64::from(value / 2)).collect();
        assert!(mann_kendall(&rising).unwrap() < 1e-9);
        let level: Vec<f64> = (0..60).map(|value| f64::from(value % 2)).collect();
        assert!(mann_kendall(&level).unwrap() > 0.5);
    }
}
