//! Random operations against a reference model.
//!
//! A seed determines a sequence of actions. Each runs on the backend and on a model that is simple enough to be
//! obviously correct. If they differ, the sequence is shortened by some hundred attempts, and the failure prints the
//! seed and the rest of the sequence. `ENFYS_SEED=n` replays one seed, `ENFYS_SEEDS=n` tries the first n (soak
//! tests), and `ENFYS_ACTIONS=n` sets the length of a sequence.

mod action;
mod apply;
mod expected;
mod generate;
mod model;
mod run;

use action::Action;
use generate::Numbers;
use run::Run;

use super::subject::Subject;

/// The number of seeds by default.
const SEEDS: u64 = 12;
/// Actions of a sequence.
const ACTIONS: usize = 300;
/// Attempts to shorten a failing sequence.
const SHRINKS_MAX: u32 = 1500;

pub(super) fn operations_agree_with_the_model(t: &Subject) {
    try_seeds(t, 1);
}

pub(super) fn operations_of_several_callers_agree_with_the_model(t: &Subject) {
    if !t.lacks(t.capabilities().identities, "identities") {
        try_seeds(t, 3);
    }
}

fn setting(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

fn try_seeds(t: &Subject, callers: usize) {
    let seeds = match setting("ENFYS_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=setting("ENFYS_SEEDS").unwrap_or(SEEDS),
    };
    let length = setting("ENFYS_ACTIONS").map_or(ACTIONS, |length| length as usize);
    for seed in seeds {
        let mut numbers = Numbers(seed);
        let actions: Vec<_> = (0..length).map(|_| generate::action(&mut numbers, callers)).collect();
        if let Err((failed, first)) = Run::new(t, callers).all(&actions) {
            let (actions, why) = shrink(t, callers, actions[..=failed].to_vec(), &first);
            panic!(
                "ENFYS_SEED={seed}: {why}\nafter these actions, the last of which failed:\n{}",
                format_actions(&actions)
            );
        }
    }
}

/// Omits actions that the failure does not need: halves first, then smaller parts, until each remaining action
/// is needed.
fn shrink(t: &Subject, callers: usize, mut actions: Vec<Action>, first: &str) -> (Vec<Action>, String) {
    let Err((_, mut why)) = Run::new(t, callers).all(&actions) else {
        let why = format!("{first}; does not fail again: the backend depends on more than the actions");
        return (actions, why);
    };
    let (mut attempts, mut part) = (0, actions.len() / 2);
    while part > 0 && attempts < SHRINKS_MAX {
        let (before, mut start) = (actions.len(), 0);
        while start < actions.len() && attempts < SHRINKS_MAX {
            attempts += 1;
            let end = (start + part).min(actions.len());
            let fewer = [&actions[..start], &actions[end..]].concat();
            match Run::new(t, callers).all(&fewer) {
                Err((failed, reason)) => (actions, why) = (fewer[..=failed].to_vec(), reason),
                Ok(()) => start = end,
            }
        }
        let spared = actions.len() < before;
        part = if spared && part == 1 { 1 } else { part / 2 };
    }
    (actions, why)
}

/// Formats one action per line.
fn format_actions(actions: &[Action]) -> String {
    actions.iter().map(|action| format!("  {action:?}\n")).collect()
}
