//! Runs scenarios by seed, and prints the command that repeats a failed run.

use std::process::ExitCode;

use clap::Parser;
use sim::scenario::{SCENARIOS, Scenario};

/// Simulate server, clients and network in virtual time.
#[derive(Debug, Parser)]
struct Arguments {
    /// Scenarios to run (default: all)
    scenarios: Vec<String>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds to run
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Continue after a failure, and print the number of failures at the end
    #[arg(long)]
    keep_going: bool,
    /// List the scenarios
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
        eprintln!("unknown scenario: --list prints all names");
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

/// Runs the seeds and prints the outcome; returns the number of failures.
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
