//! The model of Hash-Cast (§3.2, Figure 3): `enfys bench hashcast` has its parameters.

use super::{Judgement, Verdict};
use crate::hashcast::{Report, Simulation};
use crate::statistics::jain;

/// Assignments of flows that are simulated.
const TRIALS: u32 = 100_000;
/// Seconds of the first part, in which the fifth client shares a queue, and of the second.
const SHARED: std::ops::Range<usize> = 241..270;
const ALONE: std::ops::Range<usize> = 275..360;
/// Jain's index from which shares are equal.
const FAIR: f64 = 0.99;

pub(super) fn judge() -> Option<Judgement> {
    let report = Report::of(&Simulation::papers(), TRIALS).ok()?;
    let shares = |series: &[Vec<f64>], seconds: std::ops::Range<usize>| -> Option<Vec<f64>> {
        let of = |client: &Vec<f64>| {
            Some(client.get(seconds.clone())?.iter().sum::<f64>() / seconds.len() as f64 / 1e6)
        };
        series.iter().map(of).collect()
    };
    let (shared, alone) = (shares(&report.hashed.series, SHARED)?, shares(&report.hashed.series, ALONE)?);
    let fair = shares(&report.fair.series, SHARED)?;
    let sum = |shares: &[f64]| shares.iter().sum::<f64>();
    let (hashed_jain, fair_jain) = (jain(&shared)?, jain(&fair)?);
    // Client 3 has a queue of its own; client 5 gets one at 270 s.
    let has_losers = shared[4] < 0.7 * shared[2] && alone[4] > 1.3 * shared[4];
    let same_sum = (sum(&fair) / sum(&shared) - 1.0).abs() <= 0.02;
    let is_seen = has_losers && hashed_jain < FAIR && fair_jain >= FAIR && same_sum;
    let list =
        |shares: &[f64]| shares.iter().map(|share| format!("{share:.1}")).collect::<Vec<_>>().join(", ");
    let ours = format!(
        "MB/s of clients 1 to 5 until 270 s {}, then {}; with SFQ {} (Jain's index {hashed_jain:.3} and {fair_jain:.3})",
        list(&shared),
        list(&alone),
        list(&fair)
    );
    let without = report.outcomes.without_collision()?;
    let counter = format!(
        "of {} assignments {without} have no collision; the fullest queue has exactly two flows with {:.1} %",
        report.outcomes.assignments?,
        report.outcomes.fullest(2) * 100.0
    );
    let verdict = if is_seen { Verdict::Confirmed } else { Verdict::NotSeen };
    Some(Judgement::new(verdict, ours, counter))
}
