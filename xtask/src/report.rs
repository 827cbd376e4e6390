//! What a chore hands back: how many things it tried, and how they went.

use std::ops::AddAssign;
use std::path::PathBuf;
use std::process::ExitCode;

/// A chore's result: counts, or the one line that says why it could not even start.
pub(crate) type Outcome = Result<Tally, String>;

/// How many tests a chore ran. A skip is a failure where `CI=true`: there nothing may be left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// Says why some tests are left out, and counts them.
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

    /// Moves skips to failures where nothing may be skipped.
    fn judged(self, in_ci: bool) -> Tally {
        if in_ci { Tally { failed: self.failed + self.skipped, ..self } } else { self }
    }

    /// Prints the closing line that scripts read, `N passed, N failed`.
    pub(crate) fn print(self) {
        if self.skipped > 0 {
            let verdict = if in_ci() { "counted as failed, because CI=true" } else { "see `skipped:` above" };
            println!("{} skipped ({verdict})", self.skipped);
        }
        let judged = self.judged(in_ci());
        println!("{} passed, {} failed", judged.passed, judged.failed);
    }

    /// Success where nothing failed.
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

/// Whether this run is a continuous integration's, which may skip nothing.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// The workspace's root, wherever the chore was called from.
pub(crate) fn workspace_root() -> PathBuf {
    let manifest_dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.parent().map(PathBuf::from).unwrap_or(manifest_dir)
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from).unwrap_or("target".into());
    workspace_root().join(target)
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn a_skip_fails_only_in_ci() {
        let tally = Tally { passed: 3, failed: 0, skipped: 2 };
        assert_eq!(tally.judged(false).failed, 0);
        assert_eq!(tally.judged(true).failed, 2);
    }

    #[test]
    fn tallies_add_up() {
        let mut total = Tally { passed: 1, failed: 2, skipped: 3 };
        total += Tally { passed: 10, failed: 20, skipped: 30 };
        assert_eq!(total, Tally { passed: 11, failed: 22, skipped: 33 });
    }
}
