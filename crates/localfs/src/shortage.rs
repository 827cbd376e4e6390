//! What is not watched because there is no more of something: said in the log, where an administrator finds what to raise.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::object::Object;
use crate::patience;

/// How long one thing that is short is not told of again.
const SILENCE_NS: u64 = 3600 * 1_000_000_000;

/// What is short, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Marks, to watch what is delegated.
    FileMarks,
    /// Descriptors, to keep open what is delegated, where there are no handles to find it by.
    FilesKept,
    /// Marks, to watch the entries of a directory.
    EntryMarks,
    /// Groups or descriptors, one for each such directory.
    Groups,
}

impl Shortage {
    const COUNT: usize = Self::Groups as usize + 1;

    /// What becomes of it, and why, for people.
    const fn text(self) -> (&'static str, &'static str) {
        const UNDELEGATED: &str = "no more files are delegated whose local changes are to be seen";
        const UNTOLD: &str = "directories are looked at each time that they are listed";
        const MARKS: &str = "this user watches as many files as it may (user.max_fanotify_marks)";
        match self {
            Self::FileMarks => (UNDELEGATED, MARKS),
            Self::FilesKept => (UNDELEGATED, "as many are kept open as may be (the limit of open files)"),
            Self::EntryMarks => (UNTOLD, MARKS),
            Self::Groups => (
                UNTOLD,
                "there are as many groups of fanotify(7) (user.max_fanotify_groups) or open files as may be",
            ),
        }
    }
}

/// When each was last told of, by the clock of ticks; 0 if never.
#[derive(Debug, Default)]
pub(crate) struct Shortages([AtomicU64; Shortage::COUNT]);

impl Shortages {
    /// Whether it is time to tell of this one, which then counts as told.
    fn is_due(&self, shortage: Shortage, now_ns: u64) -> bool {
        let told = &self.0[shortage as usize];
        let last_ns = told.load(Ordering::Relaxed);
        let is_new = last_ns == 0 || now_ns.saturating_sub(last_ns) >= SILENCE_NS;
        // Of two threads one tells.
        is_new && told.compare_exchange(last_ns, now_ns.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Logs that something below `root`, the exported directory, could not be watched for this.
    pub(crate) fn report(&self, shortage: Shortage, root: &Object) {
        if self.is_due(shortage, patience::ticks_ns()) {
            let (effect, why) = shortage.text();
            // The name that the exported directory has now.
            let directory = std::fs::read_link(root.file().name_in_proc()).unwrap_or_default();
            tracing::warn!(?directory, "{effect}: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_once_an_hour() {
        let shortages = Shortages::default();
        for now_ns in [0, 10 * SILENCE_NS] {
            assert!(shortages.is_due(Shortage::FileMarks, now_ns));
            assert!(!shortages.is_due(Shortage::FileMarks, now_ns + 1));
            assert!(shortages.is_due(Shortage::Groups, now_ns), "another one");
            assert!(!shortages.is_due(Shortage::FileMarks, now_ns + SILENCE_NS - 1));
            assert!(shortages.is_due(Shortage::FileMarks, now_ns + SILENCE_NS + 1));
        }
    }
}
