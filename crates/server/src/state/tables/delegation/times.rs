//! File times that the holder of a write delegation maintains (RFC 9754 §5).
//!
//! A client that requested this is the authority for the times of the last read and change of its file. It answers CB_GETATTR with these
//! times, and sets them by SETATTR before it returns the delegation. A reported time is accepted if it is not before the known
//! one; times in the future count as now. The effects of the holder's own reads and writes on the times in the file system are hidden
//! from other clients meanwhile.

use protocol::nfs4::types::Time;
use vfs::{Attributes, Timestamp};

/// Nanoseconds in a second.
const SECOND_NS: u32 = 1_000_000_000;

/// Converts a client's time. RFC 8881 §3.3.1: "Values greater than 999,999,999 for nseconds are invalid."
#[must_use]
pub fn timestamp(Time { seconds, nanoseconds }: Time) -> Option<Timestamp> {
    (nanoseconds < SECOND_NS).then_some(Timestamp { seconds, nanoseconds })
}

/// The times of a file's last read and change, as other clients see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileTimes {
    /// The last access.
    pub accessed: Timestamp,
    /// The last change of the content.
    pub modified: Timestamp,
}

/// Times that a holder reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReportedTimes {
    /// `time_deleg_access`.
    pub accessed: Option<Timestamp>,
    /// `time_deleg_modify`.
    pub modified: Option<Timestamp>,
}

impl ReportedTimes {
    /// Returns whether no time is reported.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the times that `other` does not have.
    fn without(self, other: Self) -> Self {
        Self {
            accessed: self.accessed.filter(|_| other.accessed.is_none()),
            modified: self.modified.filter(|_| other.modified.is_none()),
        }
    }
}

impl FileTimes {
    /// Returns the times among a file's attributes.
    #[must_use]
    pub fn of(attributes: &Attributes) -> Self {
        Self { accessed: attributes.accessed, modified: attributes.modified }
    }

    /// Accepts a holder's report, and returns the accepted times.
    ///
    /// RFC 9754 §5: "When the time presented is before the original time, then the update is ignored. When the time presented is
    /// in the future, the server can either clamp the new time to the current time, or it may return NFS4ERR_DELAY". Each
    /// accepted time is the next "original" one, so that other clients never see times go backwards.
    pub fn accept(&mut self, reported: ReportedTimes, now: Timestamp) -> ReportedTimes {
        let accept = |known: &mut Timestamp, reported: Option<Timestamp>| {
            let time = reported?.min(now);
            let is_accepted = time >= *known;
            *known = time.max(*known);
            is_accepted.then_some(time)
        };
        ReportedTimes {
            accessed: accept(&mut self.accessed, reported.accessed),
            modified: accept(&mut self.modified, reported.modified),
        }
    }
}

/// The times of a delegated file whose holder maintains them.
#[derive(Debug)]
pub(crate) struct DelegatedTimes {
    /// The times at the grant, and those accepted since.
    pub(crate) known: FileTimes,
    /// The last answer to CB_GETATTR, without times that were set since.
    reported: ReportedTimes,
    /// Times that were set while an answer was awaited: the answer may be older.
    set_meanwhile: ReportedTimes,
    /// Whether the content changed and the file does not show it yet.
    pub(crate) is_changed: bool,
}

impl DelegatedTimes {
    pub(crate) fn new(known: FileTimes) -> Box<Self> {
        let none = ReportedTimes::default();
        Box::new(Self { known, reported: none, set_meanwhile: none, is_changed: false })
    }

    /// Takes the holder's answer to CB_GETATTR.
    pub(crate) fn report(&mut self, reported: ReportedTimes) {
        self.reported = reported.without(std::mem::take(&mut self.set_meanwhile));
    }

    /// Accepts the times of the last answer.
    pub(crate) fn accept_reported(&mut self, now: Timestamp) {
        let before = self.known.modified;
        self.known.accept(self.reported, now);
        self.is_changed |= self.known.modified > before;
    }

    /// Sets times as the holder did by SETATTR, to earlier ones too; its earlier reports of them no longer count. `is_asked` tells
    /// whether an answer to CB_GETATTR is awaited.
    pub(crate) fn set(&mut self, set: ReportedTimes, is_asked: bool) {
        self.known.accessed = set.accessed.unwrap_or(self.known.accessed);
        self.known.modified = set.modified.unwrap_or(self.known.modified);
        self.reported = self.reported.without(set);
        if is_asked {
            let ReportedTimes { accessed, modified } = self.set_meanwhile;
            self.set_meanwhile =
                ReportedTimes { accessed: set.accessed.or(accessed), modified: set.modified.or(modified) };
        }
    }

    /// Advances to the reported times that the file is about to get.
    pub(crate) fn advance(&mut self, times: FileTimes) {
        self.is_changed &= times.modified <= self.known.modified;
        self.known.accessed = self.known.accessed.max(times.accessed);
        self.known.modified = self.known.modified.max(times.modified);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 0 }
    }

    fn reported(accessed: i64, modified: i64) -> ReportedTimes {
        ReportedTimes { accessed: Some(at(accessed)), modified: Some(at(modified)) }
    }

    #[test]
    fn accepts_times_between_the_original_one_and_now() {
        let original = FileTimes { accessed: at(10), modified: at(20) };
        for (times, now, accepted, known) in [
            (reported(15, 25), 30, reported(15, 25), (15, 25)),
            (reported(10, 20), 30, reported(10, 20), (10, 20)),
            // Each is judged separately.
            (reported(9, 25), 30, ReportedTimes { accessed: None, ..reported(0, 25) }, (10, 25)),
            (reported(15, 19), 30, ReportedTimes { modified: None, ..reported(15, 0) }, (15, 20)),
            // "in the future": both are clamped to the "same time value for the current time".
            (reported(99, 98), 30, reported(30, 30), (30, 30)),
            // The server's clock was set back.
            (reported(15, 25), 5, ReportedTimes::default(), (10, 20)),
            (ReportedTimes::default(), 30, ReportedTimes::default(), (10, 20)),
        ] {
            let mut file = original;
            assert_eq!(file.accept(times, at(now)), accepted, "{times:?} at {now}");
            assert_eq!(file, FileTimes { accessed: at(known.0), modified: at(known.1) });
        }
    }
}
