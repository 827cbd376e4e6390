//! Runs `cargo test --workspace` and counts results and skipped tests.
//!
//! A test that cannot run on this machine prints `skipped:` and passes, but the harness hides the output of passing tests. So it
//! runs with `--show-output`; other output of passing tests is dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::report::Tally;

/// Runs all tests of the workspace. Compile errors count as one failure.
pub(super) fn run(root: &Path) -> Result<Tally, String> {
    let mut child = Command::new(env!("CARGO"))
        .args(["test", "--workspace", "--quiet", "--no-fail-fast"])
        .args(super::kerberos())
        .args(["--", "--show-output"])
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cargo test: {error}"))?;
    let mut reader = Reader::default();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.map_err(|error| format!("cargo test: {error}"))?;
            if let Some(shown) = reader.line(&String::from_utf8_lossy(&line)) {
                println!("{shown}");
            }
        }
    }
    let status = child.wait().map_err(|error| format!("cargo test: {error}"))?;
    let mut tally = reader.tally;
    if reader.ignored > 0 {
        tally.skip(reader.ignored, "cargo test", "marked #[ignore]");
    }
    if !status.success() && tally.failed == 0 {
        // The tests did not compile, or a test program ended without a summary.
        tally.failed = 1;
    }
    println!("tests: {} passed, {} failed, {} skipped", tally.passed, tally.failed, tally.skipped);
    Ok(tally)
}

/// Reads the output of the test harness line by line.
#[derive(Default)]
struct Reader {
    tally: Tally,
    /// Tests marked `#[ignore]`.
    ignored: u64,
    /// Inside the section with the output of passing tests.
    in_successes: bool,
}

impl Reader {
    /// Reads one line; returns it if it should be shown.
    fn line(&mut self, line: &str) -> Option<String> {
        if let Some(summary) = line.strip_prefix("test result: ") {
            self.in_successes = false;
            self.tally.passed += number_before(summary, " passed");
            self.tally.failed += number_before(summary, " failed");
            self.ignored += number_before(summary, " ignored");
            return (!summary.starts_with("ok. 0 passed")).then(|| line.to_owned());
        }
        match line.trim_end() {
            "successes:" => self.in_successes = true,
            "failures:" => self.in_successes = false,
            _ => {}
        }
        if line.trim_start().starts_with("skipped:") {
            self.tally.skipped += 1;
            return Some(line.trim_start().to_owned());
        }
        let noise = line.trim().is_empty() || line.starts_with("running ");
        (!self.in_successes && !noise).then(|| line.to_owned())
    }
}

/// Returns the number directly before `word`, or zero.
fn number_before(summary: &str, word: &str) -> u64 {
    let Some(end) = summary.find(word) else { return 0 };
    let digits = summary[..end].rsplit(|character: char| !character.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::Reader;

    #[test]
    fn counts_every_summary() {
        let mut reader = Reader::default();
        reader.line("test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        reader.line("test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out");
        assert_eq!((reader.tally.passed, reader.tally.failed, reader.ignored), (15, 2, 1));
    }

    #[test]
    fn counts_a_skip_in_the_output_of_a_passing_test() {
        let mut reader = Reader::default();
        assert_eq!(reader.line("successes:"), None);
        assert_eq!(reader.line("chatter of a passing test"), None);
        assert_eq!(reader.line("skipped: no root").as_deref(), Some("skipped: no root"));
        assert_eq!(reader.tally.skipped, 1);
    }

    #[test]
    fn shows_the_output_of_failing_tests() {
        let mut reader = Reader::default();
        reader.line("successes:");
        reader.line("failures:");
        assert!(reader.line("assertion failed: left == right").is_some());
    }
}
