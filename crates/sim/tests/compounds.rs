//! The compounds that the fuzz target plays, over inputs that a seed makes.

use sim::compounds::play;
use sim::rng::Rng;

/// Inputs played in the test run.
const INPUTS: u64 = 400;

#[test]
fn no_sequence_of_compounds_confuses_the_server() {
    for seed in 1..=INPUTS {
        let mut rng = Rng::new(seed);
        let length = 200 + rng.below(2_000);
        let input: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
        if let Err(panic) = std::panic::catch_unwind(|| play(&input)) {
            eprintln!("the input of seed {seed} failed");
            std::panic::resume_unwind(panic);
        }
    }
}
