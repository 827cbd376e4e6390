//! Runs scenarios by seed, and says how to run a failed one again.

use std::process::ExitCode;

use clap::Parser;
use sim::scenario::{SCENARIOS, Scenario};

/// Play server and clients against each other in virtual time.
#[derive(Debug, Parser)]
struct Arguments {
    /// Scenarios to run; all unless given
    scenarios: Vec<String>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds to run from there on
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Play on behind a failure, and say at the end how many there were
    #[arg(long)]
    keep_going: bool,
    /// Only say which scenarios there are
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.list {
        SCENARIOS.iter().for_each(|scenario| println!("{:<14} {}", scenario.name, scenario.about));
        return ExitCode::SUCCESS;
    }
    let is_wanted = |scenario: &&Scenario| {
        arguments.scenarios.is_empty() || arguments.scenarios.iter().any(|name| name == scenario.name)
    };
    let wanted: Vec<_> = SCENARIOS.iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        eprintln!("no such scenario; --list says which there are");
        return ExitCode::FAILURE;
    }
    let mut all_held = true;
    for scenario in wanted {
        let failures = play(scenario, &arguments);
        all_held &= failures == 0;
        if failures > 0 && !arguments.keep_going {
            break;
        }
    }
    if all_held { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Plays the seeds that are asked for, and says what came of them; how many failed.
fn play(scenario: &Scenario, arguments: &Arguments) -> u64 {
    let (mut messages, mut checks, mut failures) = (0, 0, 0);
    for seed in arguments.seed..arguments.seed.saturating_add(arguments.seeds) {
        match scenario.run(seed) {
            Ok(report) => (messages, checks) = (messages + report.messages, checks + report.checks),
            Err(why) => {
                eprintln!("{why}");
                failures += 1;
                if !arguments.keep_going {
                    return failures;
                }
            }
        }
    }
    let outcome = if failures == 0 { "held".to_owned() } else { format!("{failures} failed") };
    println!("{}: {} seeds, {checks} checks, {messages} messages: {outcome}", scenario.name, arguments.seeds);
    failures
}
