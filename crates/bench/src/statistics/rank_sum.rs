//! The Mann–Whitney U test (Wilcoxon's rank-sum test), and the interval of a ratio that belongs to it.

use statrs::distribution::{ContinuousCDF as _, Normal};

use super::{CONFIDENCE, SIGNIFICANCE, are_usable};

/// Up to this many samples of both sides together, probabilities are exact, also with ties.
pub const POOLED_EXACT_MAX: usize = 50;

/// How a probability was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By enumeration of all distributions of the ranks.
    Exact,
    /// By the normal distribution, corrected for ties and continuity.
    Normal,
}

/// The result of a Mann–Whitney U test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankSum {
    /// Pairs in which the first side's value is greater; a tie counts one half.
    pub u: f64,
    /// Probability that equal distributions differ at least as much, in either direction.
    pub p: f64,
    /// How `p` was computed.
    pub method: Method,
}

/// Tests whether values of `first` tend to be greater or less than those of `second`.
///
/// `None` if a side has no values, or one is not a finite number.
#[must_use]
pub fn mann_whitney(first: &[f64], second: &[f64]) -> Option<RankSum> {
    if !are_usable(first) || !are_usable(second) {
        return None;
    }
    let ranks = Ranks::of(first, second);
    let least = first.len() * (first.len() + 1) / 2;
    let u = ranks.first_doubled as f64 / 2.0 - least as f64;
    let (p, method) = if ranks.doubled.len() <= POOLED_EXACT_MAX {
        (exact_p(&ranks, first.len()), Method::Exact)
    } else {
        (normal_p(&ranks, u, first.len(), second.len()), Method::Normal)
    };
    Some(RankSum { u, p, method })
}

/// Ranks of pooled samples. Tied values share the mean of their ranks; ranks are doubled to stay integers.
struct Ranks {
    /// Doubled rank of each pooled value, ascending.
    doubled: Vec<usize>,
    /// Sum of the first side's doubled ranks.
    first_doubled: usize,
    /// Sizes of the groups of equal values.
    ties: Vec<usize>,
}

impl Ranks {
    fn of(first: &[f64], second: &[f64]) -> Self {
        let mut pooled: Vec<(f64, bool)> =
            first.iter().map(|v| (*v, true)).chain(second.iter().map(|v| (*v, false))).collect();
        pooled.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut ranks =
            Self { doubled: Vec::with_capacity(pooled.len()), first_doubled: 0, ties: Vec::new() };
        // 0 and −0 are equal, as numbers.
        for group in pooled.chunk_by(|a, b| a.0 == b.0) {
            // Ranks before + 1 to before + length, whose doubled mean is their ends' sum.
            let doubled = 2 * ranks.doubled.len() + 1 + group.len();
            ranks.doubled.extend(group.iter().map(|_| doubled));
            ranks.first_doubled += doubled * group.iter().filter(|(_, is_first)| *is_first).count();
            ranks.ties.push(group.len());
        }
        ranks
    }
}

/// Returns twice the smaller tail of the distribution of the first side's rank sum.
fn exact_p(ranks: &Ranks, first_count: usize) -> f64 {
    let ways = ways_by_sum(&ranks.doubled, first_count);
    let all: f64 = ways.iter().sum();
    let below: f64 = ways[..=ranks.first_doubled].iter().sum();
    let above: f64 = ways[ranks.first_doubled..].iter().sum();
    (2.0 * below.min(above) / all).min(1.0)
}

/// Returns, for each sum, how many sets of `count` of the ranks have it. The counts are exact: C(50, 25) < 2⁵³.
fn ways_by_sum(ranks: &[usize], count: usize) -> Vec<f64> {
    let sum_max: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0; sum_max + 1]; count + 1];
    ways[0][0] = 1.0;
    for (seen, rank) in ranks.iter().enumerate() {
        for taken in (1..=count.min(seen + 1)).rev() {
            let (fewer, more) = ways.split_at_mut(taken);
            for sum in *rank..=sum_max {
                more[0][sum] += fewer[taken - 1][sum - rank];
            }
        }
    }
    ways.swap_remove(count)
}

fn normal_p(ranks: &Ranks, u: f64, first_count: usize, second_count: usize) -> f64 {
    let (first, second) = (first_count as f64, second_count as f64);
    let count = first + second;
    let tied: f64 = ranks.ties.iter().map(|tie| (*tie as f64).powi(3) - *tie as f64).sum();
    let variance = first * second / 12.0 * (count + 1.0 - tied / (count * (count - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let score = ((u - first * second / 2.0).abs() - 0.5) / variance.sqrt();
    (2.0 * Normal::standard().sf(score)).min(1.0)
}

/// A ratio, and the interval of the true ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioInterval {
    /// Median of the ratios of all pairs (Hodges and Lehmann).
    pub ratio: f64,
    /// Lower and upper end; `None` if the samples are too few for [`CONFIDENCE`].
    pub interval: Option<(f64, f64)>,
}

/// Returns the factor by which `second` is greater than `first`.
///
/// The interval has all factors that a Mann–Whitney test does not reject (Moses). `None` if a value is not positive.
#[must_use]
pub fn ratio_interval(first: &[f64], second: &[f64]) -> Option<RatioInterval> {
    let are_positive = |samples: &[f64]| are_usable(samples) && samples.iter().all(|value| *value > 0.0);
    if !are_positive(first) || !are_positive(second) {
        return None;
    }
    let mut ratios: Vec<f64> =
        second.iter().flat_map(|above| first.iter().map(move |below| above / below)).collect();
    ratios.sort_by(f64::total_cmp);
    let outside = pairs_outside(first.len(), second.len());
    let interval = outside.map(|outside| (ratios[outside], ratios[ratios.len() - 1 - outside]));
    Some(RatioInterval { ratio: super::median(ratios)?, interval })
}

/// Returns the number of sorted pairs that the interval omits at each end: the greatest U that is still significant.
/// `None` if no U is.
fn pairs_outside(first_count: usize, second_count: usize) -> Option<usize> {
    let count = first_count + second_count;
    let pairs = first_count * second_count;
    if count > POOLED_EXACT_MAX {
        let deviation = (pairs as f64 * (count + 1) as f64 / 12.0).sqrt();
        let score = Normal::standard().inverse_cdf(f64::midpoint(1.0, CONFIDENCE));
        let rank = (pairs as f64 / 2.0 - score * deviation).floor();
        return (rank >= 1.0).then_some(rank as usize - 1);
    }
    let ranks: Vec<usize> = (1..=count).collect();
    let ways = ways_by_sum(&ranks, first_count);
    let all: f64 = ways.iter().sum();
    let least = first_count * (first_count + 1) / 2;
    let mut at_most = 0.0;
    let significant = ways[least..].iter().take_while(|ways| {
        at_most += **ways;
        2.0 * at_most / all <= SIGNIFICANCE
    });
    significant.count().checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns two samples without ties whose U is `u`.
    fn samples_with_u(first: usize, second: usize, u: usize) -> (Vec<f64>, Vec<f64>) {
        let mut left = u;
        let above = (0..first).map(|index| {
            let below = left.min(second);
            left -= below;
            below as f64 + 0.5 + index as f64 / 1000.0
        });
        let first_samples: Vec<f64> = above.collect();
        assert_eq!(left, 0, "no such U");
        (first_samples, (1..=second).map(|value| value as f64).collect())
    }

    /// Critical values of U, two-sided 0.05: the table that textbooks reprint from Mann and Whitney (1947) and Auble (1953).
    #[test]
    fn critical_values_are_those_of_the_published_table() {
        let table = [
            (4, 4, 0),
            (5, 5, 2),
            (6, 6, 5),
            (7, 5, 5),
            (8, 8, 13),
            (10, 10, 23),
            (12, 15, 49),
            (20, 20, 127),
        ];
        for (first, second, critical) in table {
            let p = |u| {
                let (a, b) = samples_with_u(first, second, u);
                let test = mann_whitney(&a, &b).unwrap();
                assert_eq!((test.u, test.method), (u as f64, Method::Exact));
                test.p
            };
            assert!(p(critical) <= 0.05, "{first}, {second}: {}", p(critical));
            assert!(p(critical + 1) > 0.05, "{first}, {second}: {}", p(critical + 1));
            assert_eq!(pairs_outside(first, second), Some(critical));
        }
    }

    /// By hand: 3 of 3 is one of C(6, 3) = 20 orders, on two sides.
    #[test]
    fn three_rounds_each_can_never_be_significant() {
        let test = mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).unwrap();
        assert_eq!(test.u, 0.0);
        assert!((test.p - 0.1).abs() < 1e-12);
        assert_eq!(pairs_outside(3, 3), None);
    }

    /// By hand: ranks 1, 3, 3, 3, 5.5, 5.5; of 20 sets of three, {1, 3, 3} has the least sum, 7, in 3 ways.
    #[test]
    fn ties_share_their_ranks() {
        let test = mann_whitney(&[1.0, 2.0, 2.0], &[2.0, 3.0, 3.0]).unwrap();
        assert_eq!(test.u, 1.0);
        assert!((test.p - 0.3).abs() < 1e-12, "{}", test.p);
    }

    /// All C(15, 8) = 6,435 distributions of the ranks, counted by an independent program; the normal probability by
    /// SciPy 1.17 (`mannwhitneyu`, asymptotic, with continuity).
    #[test]
    fn ties_agree_with_other_programs() {
        let (first, second) =
            ([12.0, 15.0, 11.0, 18.0, 20.0, 14.0, 14.0, 16.0], [19.0, 22.0, 14.0, 25.0, 21.0, 17.0, 20.0]);
        let test = mann_whitney(&first, &second).unwrap();
        assert_eq!(test.u, 8.5);
        assert!((test.p - 0.021_134_421_134_421).abs() < 1e-12, "{}", test.p);
        let normal = normal_p(&Ranks::of(&first, &second), 8.5, 8, 7);
        assert!((normal - 0.027_195_156_956_907).abs() < 1e-9, "{normal}");
    }

    /// SciPy 1.17, as above.
    #[test]
    fn many_samples_use_the_normal_distribution() {
        let first: Vec<f64> = (0..30).map(|i| f64::from(100 + i * 37 % 23)).collect();
        let second: Vec<f64> = (0..30).map(|i| f64::from(104 + i * 29 % 23)).collect();
        let test = mann_whitney(&first, &second).unwrap();
        assert_eq!((test.u, test.method), (316.5, Method::Normal));
        assert!((test.p - 0.049_062_071_121_138).abs() < 1e-9, "{}", test.p);
    }

    #[test]
    fn equal_values_have_no_significance() {
        for count in [3, 40] {
            let same = vec![7.0; count];
            let test = mann_whitney(&same, &same).unwrap();
            assert!((test.p - 1.0).abs() < 1e-12);
        }
        assert_eq!(mann_whitney(&[], &[1.0]), None);
        assert_eq!(mann_whitney(&[f64::NAN], &[1.0]), None);
    }

    #[test]
    fn ratio_is_that_of_scaled_samples() {
        let base = [100.0, 102.0, 98.0, 101.0, 99.0, 100.5];
        let doubled = base.map(|value| value * 2.0);
        let found = ratio_interval(&base, &doubled).unwrap();
        let (low, high) = found.interval.unwrap();
        assert!((found.ratio - 2.0).abs() < 0.01);
        assert!(low > 1.9 && low <= found.ratio && found.ratio <= high && high < 2.1, "{low} to {high}");
        assert_eq!(ratio_interval(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).unwrap().interval, None);
        assert_eq!(ratio_interval(&[0.0], &[1.0]), None);
    }
}
