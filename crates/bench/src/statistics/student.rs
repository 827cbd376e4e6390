//! The mean and its interval by Student's t.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::{CONFIDENCE, are_usable};

/// The mean of samples, with the interval of the true mean by Student's t.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// Number of samples.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the samples, with n − 1; 0 for one sample.
    pub deviation: f64,
    /// Half of the interval's width: the true mean is within `mean ± half_width`. `None` for one sample.
    pub half_width: Option<f64>,
}

impl Mean {
    /// Summarizes samples; `None` without samples, or if one is not a finite number.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        if !are_usable(samples) {
            return None;
        }
        let count = samples.len();
        let mean = samples.iter().sum::<f64>() / count as f64;
        if count == 1 {
            return Some(Self { count, mean, deviation: 0.0, half_width: None });
        }
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let deviation = (squares / (count - 1) as f64).sqrt();
        let half_width = t_quantile(count - 1) * deviation / (count as f64).sqrt();
        Some(Self { count, mean, deviation, half_width: Some(half_width) })
    }
}

/// Returns the two-sided quantile of Student's t for `freedom` degrees of freedom (at least 1).
fn t_quantile(freedom: usize) -> f64 {
    let distribution = StudentsT::new(0.0, 1.0, freedom as f64).expect("at least one degree of freedom");
    distribution.inverse_cdf(f64::midpoint(1.0, CONFIDENCE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table of the t distribution, 0.975: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
    #[test]
    fn quantiles_are_those_of_the_published_table() {
        let table = [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (9, 2.262),
            (29, 2.045),
            (60, 2.000),
            (100, 1.984),
        ];
        for (freedom, expected) in table {
            assert!((t_quantile(freedom) - expected).abs() < 0.0005, "{freedom}: {}", t_quantile(freedom));
        }
    }

    /// Student's own data (Biometrika 6, 1908): additional hours of sleep by a soporific, 10 patients. Mean 1.58,
    /// deviation 1.23 with n − 1; the interval is the one that R's `t.test` gives for `sleep`: 0.7001 to 2.4599.
    #[test]
    fn interval_of_students_sleep_data() {
        let difference = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let mean = Mean::of(&difference).unwrap();
        let half_width = mean.half_width.unwrap();
        assert!((mean.mean - 1.58).abs() < 1e-12);
        assert!((mean.deviation - 1.229_995).abs() < 1e-6);
        assert!((mean.mean - half_width - 0.700_114_2).abs() < 1e-6);
        assert!((mean.mean + half_width - 2.459_885_8).abs() < 1e-6);
    }

    #[test]
    fn one_sample_has_no_interval_and_no_sample_no_mean() {
        let one = Mean::of(&[3.0]).unwrap();
        assert_eq!((one.mean, one.half_width), (3.0, None));
        assert_eq!(Mean::of(&[]), None);
        assert_eq!(Mean::of(&[1.0, f64::NAN]), None);
    }
}
