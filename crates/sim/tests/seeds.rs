//! Every scenario over some seeds; `cargo run -p enfys-sim -- --seeds 10000` plays more.

use sim::scenario::SCENARIOS;

/// Seeds played in the test run.
const SEEDS: u64 = 200;

#[test]
fn every_scenario_holds_for_every_seed() {
    for scenario in SCENARIOS {
        for seed in 1..=SEEDS {
            if let Err(why) = scenario.run(seed) {
                panic!("{why}");
            }
        }
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for scenario in SCENARIOS {
        assert_eq!(scenario.run(7), scenario.run(7), "{}", scenario.name);
    }
}
