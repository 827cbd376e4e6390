//! Fills `fuzz/corpus` from the messages recorded in the crates' tests: run once before fuzzing.

use std::path::Path;

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
    Ok(())
}
