//! Runs the fuzz target's compounds with random inputs.

use sim::compounds::{Played, play};
use sim::rng::Rng;

/// Inputs of the test run.
const INPUTS: u64 = 400;

#[test]
fn no_sequence_of_compounds_breaks_the_server() {
    let mut played = Played::default();
    for seed in 1..=INPUTS {
        let mut rng = Rng::new(seed);
        let length = 200 + rng.below(2_000);
        let input: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
        match std::panic::catch_unwind(|| play(&input)) {
            Ok(one) => played += one,
            Err(panic) => {
                eprintln!("the input of seed {seed} failed");
                std::panic::resume_unwind(panic);
            }
        }
    }
    // Otherwise the inputs cover too little.
    assert!(played.delegations > 0 && played.recalls > 0 && played.opens_40 > 0, "{played:?}");
}
