//! Where in a request the data of a WRITE may begin.
//!
//! Linux's server before version 6.16 executes a compound of several WRITEs with success, but with other data if they begin after the
//! first page of the request: it then takes the bytes from the start of the page in which the data begin. The first page is at
//! least 4 KiB, and more on some processors.
//!
//! So the data of each WRITE begin in the first 4 KiB, until the server has shown that it does better: a first compound of several
//! files reads the last one back (`ops/write_trial.rs`). A client must not decide by the name of the server (RFC 8881 §18.35.3).

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Sizes of pages of servers.
const PAGES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];
/// Offset of data that is always safe, of one WRITE in a request.
pub(super) const SAFE: usize = PAGES[0];
/// Bytes of data before those that a trial reads back, if there are enough: more than the pages of nearly all servers.
pub(super) const TRIAL: usize = PAGES[1];
/// Maximum number of trials of a server.
const TRIALS_MAX: u32 = 3;

/// What is known about a server.
#[derive(Debug)]
pub(super) struct WriteStart {
    /// The data of WRITEs begin at lower offsets.
    limit: AtomicUsize,
    trials: AtomicU32,
}

impl Default for WriteStart {
    fn default() -> Self {
        Self { limit: AtomicUsize::new(SAFE), trials: AtomicU32::new(0) }
    }
}

impl WriteStart {
    /// Returns the limit of offsets in a record, at which data of a WRITE may begin.
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns whether a trial should be made now.
    pub(super) fn starts_trial(&self) -> bool {
        self.limit() <= TRIAL && self.trials.fetch_add(1, Ordering::Relaxed) < TRIALS_MAX
    }

    /// Notes the limit that a trial has proven.
    pub(super) fn note_proven(&self, limit: usize) {
        self.limit.fetch_max(limit, Ordering::Relaxed);
    }

    /// Notes that the server took other data.
    pub(super) fn note_wrong(&self) {
        self.trials.store(TRIALS_MAX, Ordering::Relaxed);
    }

    /// Forgets all: the server has restarted, perhaps as another one.
    pub(super) fn reset(&self) {
        self.limit.store(SAFE, Ordering::Relaxed);
        self.trials.store(0, Ordering::Relaxed);
    }
}

/// Returns the limit that a server has proven if it has written `data`, which begin at `start` of `record`, correctly.
pub(super) fn proven_limit(record: &[u8], start: usize, data: &[u8]) -> usize {
    let would_be_wrong = |page: usize| {
        let from = start - start % page;
        start >= page && record.get(from..from + data.len()).is_some_and(|wrong| wrong != data)
    };
    PAGES.into_iter().find(|page| !would_be_wrong(*page)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_size_is_proven_by_data_that_begin_after_the_first_page_and_differ() {
        let mut record = vec![1; 100_000];
        record[70_000..70_100].fill(2);
        let data = &record[70_000..70_100];
        assert_eq!(proven_limit(&record, 70_000, data), usize::MAX);
        record[20_000..20_100].fill(2);
        assert_eq!(proven_limit(&record, 20_000, &record[20_000..20_100]), 64 << 10);
        assert_eq!(proven_limit(&record, 5_000, &[2; 10]), 16 << 10);
        assert_eq!(proven_limit(&record, 4_000, &[2; 10]), SAFE, "in the first page");
        assert_eq!(proven_limit(&record, 50_000, &[1; 10]), SAFE, "the same bytes");
    }

    #[test]
    fn trials_end_and_begin_again_with_another_server() {
        let start = WriteStart::default();
        assert!((0..TRIALS_MAX).all(|_| start.starts_trial()) && !start.starts_trial());
        start.reset();
        assert!(start.starts_trial());
        start.note_proven(16 << 10);
        assert!(start.starts_trial(), "more can be proven");
        start.note_proven(64 << 10);
        assert!(!start.starts_trial() && start.limit() == 64 << 10);
        start.reset();
        start.note_wrong();
        assert!(!start.starts_trial() && start.limit() == SAFE);
    }
}
