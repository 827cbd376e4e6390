//! Runs every scenario with some seeds; `cargo run -p enfys-sim -- --seeds 10000` runs more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sim::scenario::SCENARIOS;

/// Seeds of each scenario in the test run.
const SEEDS: usize = 200;

#[test]
fn every_scenario_holds_for_every_seed() {
    let checks: Vec<AtomicUsize> = SCENARIOS.iter().map(|_| AtomicUsize::new(0)).collect();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((scenario, seed)) = run_of(next.fetch_add(1, Ordering::Relaxed)) {
                    match SCENARIOS[scenario].run(seed) {
                        Ok(report) => checks[scenario].fetch_add(report.checks, Ordering::Relaxed),
                        Err(why) => panic!("{why}"),
                    };
                }
            });
        }
    });
    for (scenario, checks) in SCENARIOS.iter().zip(checks) {
        assert!(checks.into_inner() > 0, "{} checks nothing", scenario.name);
    }
}

/// Failures that long runs have found, fixed since.
const FOUND: [(&str, u64); 43] = [
    ("client-cached-mixed", 144),
    ("client-cached-mixed", 204),
    ("client-cached-mixed", 731),
    ("client-cached-mixed", 1151),
    ("client-cached-mixed", 1526),
    ("client-cached-mixed", 1558),
    ("client-cached-mixed", 2992),
    ("client-cached-mixed", 3089),
    ("client-cached-mixed", 4246),
    ("client-cached-mixed", 6195),
    ("client-cached-mixed", 6274),
    ("client-cached-mixed", 8326),
    ("client-cached-v40", 2404),
    ("client-cached-v40", 4100),
    ("client-cached-v40", 7682),
    ("client-cached-v40", 7875),
    ("client-cached-v40", 9824),
    ("client-mixed", 1382),
    ("client-mixed", 2229),
    ("client-mixed", 4648),
    ("client-revoked", 291),
    ("client-revoked", 304),
    ("client-revoked", 317),
    ("client-revoked", 442),
    ("client-revoked", 646),
    ("client-revoked", 649),
    ("client-revoked", 3246),
    ("client-revoked", 3293),
    ("client-revoked", 5504),
    ("client-v2", 5264),
    ("client-v40", 2645),
    ("client-v40", 3592),
    ("client-v40", 4280),
    ("client-v40", 12_398),
    ("client-v41", 324),
    ("client-v41", 4075),
    ("client-v41", 10_642),
    ("client-v41", 12_416),
    ("delegations", 1380),
    ("mute", 1834),
    ("notices", 8225),
    ("shares", 1307),
    ("transfers", 1244),
];

#[test]
fn seeds_of_fixed_failures_hold() {
    for (name, seed) in FOUND {
        let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).expect("there is one");
        scenario.run(seed).unwrap_or_else(|why| panic!("{why}"));
    }
}

/// Returns the scenario and seed of a run, numbered over all scenarios.
fn run_of(number: usize) -> Option<(usize, u64)> {
    (number < SCENARIOS.len() * SEEDS).then(|| (number / SEEDS, (number % SEEDS + 1) as u64))
}

#[test]
fn every_run_is_of_another_scenario_or_seed() {
    let runs: Vec<_> = (0..).map_while(run_of).collect();
    let wanted: Vec<_> = (0..SCENARIOS.len())
        .flat_map(|scenario| (1..=SEEDS as u64).map(move |seed| (scenario, seed)))
        .collect();
    assert_eq!(runs, wanted);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for scenario in SCENARIOS {
        assert_eq!(scenario.run(7), scenario.run(7), "{}", scenario.name);
    }
}
