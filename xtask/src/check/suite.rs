//! Runs `cargo test --workspace` and counts results and skipped tests.
//!
//! A test that cannot run on this machine prints `skipped:` and passes, but the harness hides the output of passing tests. So it
//! runs with `--show-output`; other output of passing tests is dropped. A test program that is silent for too long is killed, and the
//! others still run.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::report::Tally;

/// Silence after which a test hangs. Compiling everything prints nothing for some ten minutes, and so do the longest tests.
const SILENCE_MAX: Duration = Duration::from_mins(25);
/// Lines that are read ahead.
const LINES_MAX: usize = 1024;

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
        let lines = lines_of(stdout);
        while let Some(line) = next_line(&lines, SILENCE_MAX, || kill_children(&child)) {
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

/// Reads lines in a thread, so that the wait for the next one can end.
fn lines_of(output: impl Read + Send + 'static) -> Receiver<io::Result<Vec<u8>>> {
    let (sender, lines) = sync_channel(LINES_MAX);
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Returns the next line; `None` at the end. Calls `hangs` each time that there is none for `silence`.
fn next_line(
    lines: &Receiver<io::Result<Vec<u8>>>,
    silence: Duration,
    mut hangs: impl FnMut(),
) -> Option<io::Result<Vec<u8>>> {
    loop {
        match lines.recv_timeout(silence) {
            Ok(line) => return Some(line),
            Err(RecvTimeoutError::Timeout) => hangs(),
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// Kills the test program that cargo runs.
fn kill_children(cargo: &Child) {
    println!(
        "error: no output for {} minutes: the test program hangs and is killed",
        SILENCE_MAX.as_secs() / 60
    );
    let path = format!("/proc/{0}/task/{0}/children", cargo.id());
    let children = std::fs::read_to_string(path).unwrap_or_default();
    for pid in children.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
        // It may just have ended.
        let _ = kill_process(pid, Signal::KILL);
    }
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
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::{Reader, kill_children, lines_of, next_line};

    #[test]
    fn a_silent_program_is_killed() {
        // The shell simulates cargo, `sleep` a test program that hangs.
        let script = "echo before; sleep 600; echo after";
        let mut cargo = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = lines_of(cargo.stdout.take().unwrap());
        let mut kills = 0;
        let mut next = || {
            let silent = || {
                kills += 1;
                kill_children(&cargo);
            };
            next_line(&lines, Duration::from_millis(200), silent).map(Result::unwrap)
        };
        assert_eq!(next().as_deref(), Some(&b"before"[..]));
        assert_eq!(next().as_deref(), Some(&b"after"[..]));
        assert_eq!(next(), None);
        assert!(kills >= 1);
        cargo.wait().unwrap();
    }

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
        assert_eq!(reader.line("output of a passing test"), None);
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
