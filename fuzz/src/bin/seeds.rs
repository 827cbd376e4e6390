//! Fills `fuzz/corpus` from the messages recorded in the crates' tests and `fuzz/seeds/compounds` by trial: run once before fuzzing.

use std::path::Path;

use sim::compounds::{Played, play};
use sim::rng::Rng;

fn main() -> std::io::Result<()> {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR"));
    let golden = fuzz.join("../crates/protocol/tests/golden");
    for program in golden.read_dir()?.filter_map(Result::ok).filter(|entry| entry.path().is_dir()) {
        let program_name = program.file_name().to_string_lossy().into_owned();
        for file in program.path().read_dir()? {
            let path = file?.path();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path)?;
            let Some((_, hex)) = text.split_once("---\n") else { continue };
            let digits: Vec<u8> =
                hex.bytes().filter_map(|b| char::from(b).to_digit(16)).map(|d| d as u8).collect();
            let message = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
            for (target, input) in bodies::seeds(&program_name, &name, &message) {
                let corpus = fuzz.join("corpus").join(target);
                std::fs::create_dir_all(&corpus)?;
                std::fs::write(corpus.join(format!("{program_name}-{name}")), input)?;
            }
        }
    }
    compounds(&fuzz.join("seeds/compounds"))
}

/// Keeps the shortest of some random inputs that leads to what it is named after.
fn compounds(directory: &Path) -> std::io::Result<()> {
    type Shows = fn(&Played) -> bool;
    let wanted: [(&str, Shows); 3] = [
        ("delegation_granted", |played| played.delegations > 0),
        ("delegation_recalled", |played| played.recalls > 0),
        ("open_of_version_40", |played| played.opens_40 > 0),
    ];
    std::fs::create_dir_all(directory)?;
    for (name, shows) in wanted {
        let inputs = (1..=400).map(|seed| {
            let mut rng = Rng::new(seed);
            (0..2_000).map(|_| rng.below(256) as u8).collect::<Vec<u8>>()
        });
        let Some(mut input) = inputs.into_iter().find(|input| shows(&play(input))) else { continue };
        while input.len() > 1 && shows(&play(&input[..input.len() - 1])) {
            input.pop();
        }
        std::fs::write(directory.join(name), input)?;
    }
    Ok(())
}
