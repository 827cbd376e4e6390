//! Results of tasks: counts of passed, failed and skipped tests.

use std::ops::AddAssign;
use std::path::PathBuf;
use std::process::ExitCode;

/// The result of a task: counts, or one line that says why it could not start.
pub(crate) type Outcome = Result<Tally, String>;

/// Counts of tests. With `CI=true` a skipped test counts as failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// Counts skipped tests and prints the reason.
    pub(crate) fn skip(&mut self, tests: u64, what: &str, why: &str) {
        println!("skipped: {what}: {why}");
        self.skipped += tests;
    }

    /// Counts one test.
    pub(crate) fn count(&mut self, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.failed += 1;
        }
    }

    /// Counts skipped tests as failed in CI.
    fn judged(self, in_ci: bool) -> Tally {
        if in_ci { Tally { failed: self.failed + self.skipped, ..self } } else { self }
    }

    /// Prints the last line, `N passed, N failed`, which scripts parse.
    pub(crate) fn print(self) {
        if self.skipped > 0 {
            let verdict = if in_ci() { "counted as failed, because CI=true" } else { "see `skipped:` above" };
            println!("{} skipped ({verdict})", self.skipped);
        }
        let judged = self.judged(in_ci());
        println!("{} passed, {} failed", judged.passed, judged.failed);
    }

    /// Returns success if nothing failed.
    pub(crate) fn exit_code(self) -> ExitCode {
        if self.judged(in_ci()).failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Returns whether this is a CI run, where no test may be skipped.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// Returns the workspace's root.
pub(crate) fn workspace_root() -> PathBuf {
    let manifest_dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.parent().map(PathBuf::from).unwrap_or(manifest_dir)
}

/// Returns cargo's target directory.
pub(crate) fn target_dir() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).unwrap_or("target".into());
    workspace_root().join(target)
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn skipped_tests_fail_only_in_ci() {
        let tally = Tally { passed: 3, failed: 0, skipped: 2 };
        assert_eq!(tally.judged(false).failed, 0);
        assert_eq!(tally.judged(true).failed, 2);
    }

    #[test]
    fn adds_tallies() {
        let mut total = Tally { passed: 1, failed: 2, skipped: 3 };
        total += Tally { passed: 10, failed: 20, skipped: 30 };
        assert_eq!(total, Tally { passed: 11, failed: 22, skipped: 33 });
    }
}
