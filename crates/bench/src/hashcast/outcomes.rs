//! Distributions of flows over queues, if all queues are equally likely for each flow.

use std::collections::BTreeMap;

use serde::Serialize;
use statrs::function::factorial::ln_factorial;

use super::{FLOWS_MAX, QUEUES_MAX};
use crate::statistics::jain;

/// One distribution of flows over queues, regardless of which queues and flows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Flows in each queue, ascending; {0, 0, 1, 1, 1, 2} in the paper's example.
    pub occupancy: Vec<usize>,
    /// Number of the `queues^flows` assignments that have it; `None` if there are more than 2¹²⁸.
    pub assignments: Option<u128>,
    /// Probability.
    pub probability: f64,
    /// Part of the simulated assignments that have it.
    pub simulated: f64,
    /// Throughput of the fastest flow, divided by that of the slowest.
    pub spread: f64,
    /// Jain's index of the flows' throughputs.
    pub jain: f64,
}

/// All outcomes of one number of flows and queues.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcomes {
    /// Flows.
    pub flows: usize,
    /// Queues.
    pub queues: usize,
    /// All assignments, `queues^flows`; `None` if that is 2¹²⁸ or more.
    pub assignments: Option<u128>,
    /// Simulated assignments.
    pub trials: u32,
    /// The outcomes, the most probable first.
    pub outcomes: Vec<Outcome>,
}

impl Outcomes {
    /// Counts every outcome, and simulates `trials` assignments with the random numbers of `seed`.
    ///
    /// # Errors
    /// If there are no flows or queues, or more than [`FLOWS_MAX`] or [`QUEUES_MAX`].
    pub fn of(flows: usize, queues: usize, trials: u32, seed: u64) -> Result<Self, String> {
        check(flows, queues)?;
        let mut simulated = simulate(flows, queues, trials, seed);
        let mut outcomes: Vec<Outcome> = partitions(flows, queues)
            .into_iter()
            .map(|occupancy| {
                let seen = simulated.remove(&occupancy).unwrap_or_default();
                outcome(occupancy, f64::from(seen) / f64::from(trials.max(1)))
            })
            .collect();
        outcomes.sort_by(|a, b| b.probability.total_cmp(&a.probability));
        let assignments = (queues as u128).checked_pow(flows as u32);
        Ok(Self { flows, queues, assignments, trials, outcomes })
    }

    /// Returns the probability that the fullest queue has exactly `flows` flows.
    #[must_use]
    pub fn fullest(&self, flows: usize) -> f64 {
        let having = self.outcomes.iter().filter(|outcome| outcome.occupancy.last() == Some(&flows));
        having.map(|outcome| outcome.probability).sum()
    }

    /// Returns the number of assignments in which no two flows share a queue.
    #[must_use]
    pub fn without_collision(&self) -> Option<u128> {
        let even = self.outcomes.iter().find(|outcome| outcome.occupancy.last() == Some(&1));
        even.map_or(Some(0), |outcome| outcome.assignments)
    }
}

/// Checks the bounds of a model.
pub(super) fn check(flows: usize, queues: usize) -> Result<(), String> {
    if !(1..=FLOWS_MAX).contains(&flows) {
        return Err(format!("{flows} flows: the model has 1 to {FLOWS_MAX}"));
    }
    if !(1..=QUEUES_MAX).contains(&queues) {
        return Err(format!("{queues} queues: the model has 1 to {QUEUES_MAX}"));
    }
    Ok(())
}

/// Returns all ascending occupancies of `queues` queues by `flows` flows.
fn partitions(flows: usize, queues: usize) -> Vec<Vec<usize>> {
    /// Adds parts of at most `most` to `parts` until nothing is left.
    fn extend(left: usize, most: usize, parts: &mut Vec<usize>, queues: usize, found: &mut Vec<Vec<usize>>) {
        if left == 0 {
            let mut occupancy = vec![0; queues - parts.len()];
            occupancy.extend(parts.iter().rev());
            found.push(occupancy);
        } else if parts.len() < queues {
            for part in (1..=most.min(left)).rev() {
                parts.push(part);
                extend(left - part, part, parts, queues, found);
                parts.pop();
            }
        }
    }
    let mut found = Vec::new();
    extend(flows, flows, &mut Vec::new(), queues, &mut found);
    found
}

fn outcome(occupancy: Vec<usize>, simulated: f64) -> Outcome {
    let flows: usize = occupancy.iter().sum();
    // Which queue gets which occupancy, times which flows go there.
    let of_queues = multinomial(occupancy.len(), occupancy.chunk_by(|a, b| a == b).map(<[usize]>::len));
    let of_flows = multinomial(flows, occupancy.iter().copied());
    let assignments = of_queues.and_then(|ways| ways.checked_mul(of_flows?));
    let ln_ways = ln_multinomial(occupancy.len(), occupancy.chunk_by(|a, b| a == b).map(<[usize]>::len))
        + ln_multinomial(flows, occupancy.iter().copied());
    let probability = (ln_ways - flows as f64 * (occupancy.len() as f64).ln()).exp();
    let rates: Vec<f64> =
        occupancy.iter().flat_map(|in_queue| vec![1.0 / *in_queue as f64; *in_queue]).collect();
    let fullest = occupancy.last().copied().unwrap_or_default();
    let emptiest = occupancy.iter().copied().find(|in_queue| *in_queue > 0).unwrap_or(fullest);
    Outcome {
        assignments,
        probability,
        simulated,
        spread: fullest as f64 / emptiest as f64,
        jain: jain(&rates).unwrap_or(1.0),
        occupancy,
    }
}

/// Returns `total! / ∏ parts!` as a product of binomials; `None` on overflow.
fn multinomial(total: usize, parts: impl Iterator<Item = usize>) -> Option<u128> {
    let mut left = total as u128;
    let mut ways = 1_u128;
    for part in parts {
        for taken in 1..=part as u128 {
            // Exact: each step multiplies by a binomial coefficient.
            ways = ways.checked_mul(left)? / taken;
            left -= 1;
        }
    }
    Some(ways)
}

fn ln_multinomial(total: usize, parts: impl Iterator<Item = usize>) -> f64 {
    ln_factorial(total as u64) - parts.map(|part| ln_factorial(part as u64)).sum::<f64>()
}

/// Assigns flows at random, `trials` times, and counts the sorted occupancies.
fn simulate(flows: usize, queues: usize, trials: u32, seed: u64) -> BTreeMap<Vec<usize>, u32> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut seen = BTreeMap::new();
    for _ in 0..trials {
        let mut occupancy = vec![0; queues];
        for _ in 0..flows {
            occupancy[random.usize(0..queues)] += 1;
        }
        occupancy.sort_unstable();
        *seen.entry(occupancy).or_insert(0) += 1;
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn papers() -> Outcomes {
        Outcomes::of(5, 6, 20_000, 1).unwrap()
    }

    /// By combinatorics: 6!/(2!·3!·1!) ways to choose the queues, 5!/2! to choose the flows; and so on.
    #[test]
    fn five_flows_in_six_queues_have_the_counted_outcomes() {
        let outcomes = papers();
        assert_eq!(outcomes.assignments, Some(7776));
        let likeliest = &outcomes.outcomes[0];
        assert_eq!((&likeliest.occupancy[..], likeliest.assignments), (&[0, 0, 1, 1, 1, 2][..], Some(3600)));
        assert!((likeliest.probability - 3600.0 / 7776.0).abs() < 1e-12);
        assert_eq!(outcomes.without_collision(), Some(720));
        // {0,0,1,1,1,2} and {0,0,0,1,2,2}: 3,600 + 1,800.
        assert!((outcomes.fullest(2) - 5400.0 / 7776.0).abs() < 1e-12);
        assert_eq!(outcomes.outcomes.iter().filter_map(|o| o.assignments).sum::<u128>(), 7776);
        // All five in one queue: one way for each of six.
        assert_eq!(outcomes.outcomes.last().unwrap().assignments, Some(6));
    }

    #[test]
    fn losers_of_the_likeliest_outcome_have_half() {
        let outcomes = papers();
        assert_eq!(outcomes.outcomes[0].spread, 2.0);
        assert!((outcomes.outcomes[0].jain - 64.0 / 70.0).abs() < 1e-12);
        let even = outcomes.outcomes.iter().find(|o| o.occupancy.last() == Some(&1)).unwrap();
        assert_eq!((even.spread, even.jain), (1.0, 1.0));
    }

    /// Five deviations of a binomial: a fixed seed, so the test cannot fail by chance.
    #[test]
    fn simulated_parts_agree_with_the_count() {
        let outcomes = papers();
        assert!((outcomes.outcomes.iter().map(|o| o.simulated).sum::<f64>() - 1.0).abs() < 1e-9);
        for outcome in &outcomes.outcomes {
            let deviation = (outcome.probability * (1.0 - outcome.probability) / 20_000.0).sqrt();
            assert!((outcome.simulated - outcome.probability).abs() < 5.0 * deviation, "{outcome:?}");
        }
        assert_eq!(papers(), outcomes, "the same seed");
        assert_ne!(Outcomes::of(5, 6, 20_000, 2).unwrap(), outcomes, "another seed");
    }

    #[test]
    fn probabilities_sum_to_one_beyond_exact_counts() {
        let outcomes = Outcomes::of(32, 1024, 0, 1).unwrap();
        assert_eq!(outcomes.assignments, None);
        let sum: f64 = outcomes.outcomes.iter().map(|outcome| outcome.probability).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        // The birthday problem: ∏ (1 − k/1024), k = 0 … 31.
        let apart: f64 = (0..32).map(|taken| 1.0 - f64::from(taken) / 1024.0).product();
        assert!((outcomes.fullest(1) - apart).abs() < 1e-9);
    }

    #[test]
    fn more_flows_than_queues_always_collide() {
        let outcomes = Outcomes::of(3, 2, 100, 1).unwrap();
        assert_eq!(outcomes.without_collision(), Some(0));
        assert_eq!(outcomes.outcomes.len(), 2);
        assert!(Outcomes::of(33, 6, 1, 1).is_err() && Outcomes::of(5, 0, 1, 1).is_err());
    }
}
