//! Logs the limit that prevented watches of objects, so that an administrator can raise it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::nonblocking;
use crate::object::Object;

/// Time for which the same limit is not logged again.
const SILENCE_NS: u64 = 3600 * 1_000_000_000;

/// A limit that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WatchLimit {
    /// Marks, to watch delegated files.
    FileMarks,
    /// Descriptors, to keep delegated files open if no handle finds them again.
    FilesKept,
    /// Marks, to watch the entries of a directory.
    EntryMarks,
    /// Groups or descriptors, one for each such directory.
    Groups,
}

impl WatchLimit {
    const COUNT: usize = Self::Groups as usize + 1;

    /// Returns the effect and the cause, for the log.
    const fn text(self) -> (&'static str, &'static str) {
        const NOT_DELEGATED: &str = "files are not delegated, because their local changes cannot be watched";
        const NOT_REUSED: &str = "directories are read for each listing";
        const MARKS: &str = "the limit of fanotify marks is reached (user.max_fanotify_marks)";
        match self {
            Self::FileMarks => (NOT_DELEGATED, MARKS),
            Self::FilesKept => (NOT_DELEGATED, "the limit of open files is reached"),
            Self::EntryMarks => (NOT_REUSED, MARKS),
            Self::Groups => (
                NOT_REUSED,
                "the limit of fanotify groups (user.max_fanotify_groups) or open files is reached",
            ),
        }
    }
}

/// When each limit was last logged, by the coarse clock; 0 if never.
#[derive(Debug, Default)]
pub(crate) struct LimitLog([AtomicU64; WatchLimit::COUNT]);

impl LimitLog {
    /// Returns whether it is time to log this limit, which then counts as logged.
    fn is_due(&self, limit: WatchLimit, now_ns: u64) -> bool {
        let logged = &self.0[limit as usize];
        let last_ns = logged.load(Ordering::Relaxed);
        let is_new = last_ns == 0 || now_ns.saturating_sub(last_ns) >= SILENCE_NS;
        // Of two threads one logs.
        is_new
            && logged.compare_exchange(last_ns, now_ns.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Logs that an object below `root`, the exported directory, could not be watched.
    pub(crate) fn report(&self, limit: WatchLimit, root: &Object) {
        if self.is_due(limit, nonblocking::coarse_now_ns()) {
            let (effect, why) = limit.text();
            // The current name of the exported directory.
            let directory = std::fs::read_link(root.file().name_in_proc()).unwrap_or_default();
            tracing::warn!(?directory, "{effect}: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_logged_once_an_hour() {
        let limit_log = LimitLog::default();
        for now_ns in [0, 10 * SILENCE_NS] {
            assert!(limit_log.is_due(WatchLimit::FileMarks, now_ns));
            assert!(!limit_log.is_due(WatchLimit::FileMarks, now_ns + 1));
            assert!(limit_log.is_due(WatchLimit::Groups, now_ns), "another one");
            assert!(!limit_log.is_due(WatchLimit::FileMarks, now_ns + SILENCE_NS - 1));
            assert!(limit_log.is_due(WatchLimit::FileMarks, now_ns + SILENCE_NS + 1));
        }
    }
}
