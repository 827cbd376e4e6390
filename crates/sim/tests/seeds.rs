//! Every scenario over some seeds; `cargo run -p enfys-sim -- --seeds 10000` plays more.

use sim::scenario::SCENARIOS;

/// Seeds played in the test run.
const SEEDS: u64 = 200;

#[test]
fn every_scenario_holds_for_every_seed() {
    for scenario in SCENARIOS {
        let mut deeds = 0;
        for seed in 1..=SEEDS {
            match scenario.run(seed) {
                Ok(report) => deeds += report.deeds,
                Err(why) => panic!("{why}"),
            }
        }
        assert!(deeds > 0, "{} shows nothing", scenario.name);
    }
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for scenario in SCENARIOS {
        assert_eq!(scenario.run(7), scenario.run(7), "{}", scenario.name);
    }
}
