//! Times of delegated files that this client keeps instead of the server (RFC 9754 §5).
//!
//! Where the server lets the holder of a delegation for writing do so, a file's time is that at which a program has changed it, not
//! that at which the server gets the data. The client shows it to programs, answers CB_GETATTR with it, and sets it before it
//! returns the delegation.

use protocol::nfs4::types::{Handle, Stateid};

use super::Delegations;
use super::table::Phase;
use crate::attributes::Timestamp;

/// Nanoseconds in a second.
const SECOND_NS: u32 = 1_000_000_000;

/// The time of the last change of a delegated file.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptTimes {
    /// At the grant.
    granted: Timestamp,
    /// Of the last change by a program under the delegation.
    modified: Option<Timestamp>,
    /// Whether times of further changes are kept.
    is_kept: bool,
}

impl KeptTimes {
    pub(super) fn new(granted: Timestamp) -> Self {
        Self { granted, modified: None, is_kept: true }
    }

    /// Keeps no times of further changes.
    pub(super) fn end(&mut self) {
        self.is_kept = false;
    }

    /// Notes a change. RFC 9754 §5: the server ignores a time "before the original time". So the time advances even if the server's
    /// clock is ahead of this machine's.
    fn change(&mut self, now: Timestamp) {
        if self.is_kept {
            let known = self.modified.unwrap_or(self.granted);
            self.modified = Some(now.max(next(known)));
        }
    }
}

/// Returns the time that follows.
fn next(Timestamp { seconds, nanoseconds }: Timestamp) -> Timestamp {
    match nanoseconds + 1 {
        SECOND_NS => Timestamp { seconds: seconds.saturating_add(1), nanoseconds: 0 },
        nanoseconds => Timestamp { seconds, nanoseconds },
    }
}

/// A time to set at the server.
#[derive(Debug)]
pub(crate) struct EndedTimes {
    pub(crate) stateid: Stateid,
    pub(crate) modified: Timestamp,
}

/// Times.
impl Delegations {
    /// Notes that a program changes a file's content now.
    pub(crate) fn note_modified(&self, handle: &Handle, now: Timestamp) {
        if let Some(times) = self.times.lock().get_mut(handle) {
            times.change(now);
        }
    }

    /// Returns whether the times of changes of a file are kept.
    pub(crate) fn keeps_times(&self, handle: &Handle) -> bool {
        self.times.lock().get(handle).is_some_and(|times| times.is_kept)
    }

    /// Returns the time of the last change under a file's delegation, if it is kept.
    pub(crate) fn modified(&self, handle: &Handle) -> Option<Timestamp> {
        self.times.lock().get(handle)?.modified
    }

    /// Ends the keeping of times of a delegation that is being returned. Returns the time that the server must get before.
    pub(crate) fn end_times(&self, handle: &Handle) -> Option<EndedTimes> {
        let table = self.table.lock();
        let entry = table.entries.get(handle).filter(|entry| entry.phase != Phase::Lost)?;
        let mut times = self.times.lock();
        let times = times.get_mut(handle)?;
        times.end();
        Some(EndedTimes { stateid: entry.stateid, modified: times.modified? })
    }
}
