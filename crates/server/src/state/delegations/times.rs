//! Times that the holder of a write delegation keeps (RFC 9754 §5).
//!
//! A client that asked for it is the authority for when its file was last read and changed: it answers for that (CB_GETATTR), and hands
//! the times in before it returns the delegation (SETATTR). What it says is taken where it lies between what was known and now.
//! What reads and writes of its own do to the times here meanwhile is told to nobody else.

use protocol::nfs4::types::Time;
use vfs::{Attributes, Timestamp};

use crate::state::State;
use crate::state::tables::client::Client;
use crate::state::tables::file_key::FileKey;
use crate::state::tables::shard::Kind;
use crate::state::tables::wire::{Stateid, Status};

/// Nanoseconds in a second.
const SECOND_NS: u32 = 1_000_000_000;

/// A client's time. RFC 8881 §3.3.1: "Values greater than 999,999,999 for nseconds are invalid."
#[must_use]
pub fn timestamp(Time { seconds, nanoseconds }: Time) -> Option<Timestamp> {
    (nanoseconds < SECOND_NS).then_some(Timestamp { seconds, nanoseconds })
}

/// When a file was last read and changed, as far as others know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of its content.
    pub modified: Timestamp,
}

/// What a holder says of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeldTimes {
    /// `time_deleg_access`.
    pub accessed: Option<Timestamp>,
    /// `time_deleg_modify`.
    pub modified: Option<Timestamp>,
}

impl HeldTimes {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Without those that `other` has.
    fn without(self, other: Self) -> Self {
        Self {
            accessed: self.accessed.filter(|_| other.accessed.is_none()),
            modified: self.modified.filter(|_| other.modified.is_none()),
        }
    }
}

impl Times {
    /// Of a file with these attributes.
    #[must_use]
    pub fn of(attributes: &Attributes) -> Self {
        Self { accessed: attributes.accessed, modified: attributes.modified }
    }

    /// Takes what a holder says; gives what of it was taken.
    ///
    /// RFC 9754 §5: "When the time presented is before the original time, then the update is ignored. When the time presented is
    /// in the future, the server can either clamp the new time to the current time, or it may return NFS4ERR_DELAY". Each time
    /// that was taken is the next original one, so that what others are told never goes back.
    pub fn take(&mut self, said: HeldTimes, now: Timestamp) -> HeldTimes {
        let take = |known: &mut Timestamp, said: Option<Timestamp>| {
            let time = said?.min(now);
            let is_taken = time >= *known;
            *known = time.max(*known);
            is_taken.then_some(time)
        };
        HeldTimes {
            accessed: take(&mut self.accessed, said.accessed),
            modified: take(&mut self.modified, said.modified),
        }
    }
}

/// The part of a delegation whose holder keeps the file's times.
#[derive(Debug)]
pub(crate) struct Keeping {
    /// From the grant, and what was taken since.
    pub(crate) known: Times,
    /// The last answer to CB_GETATTR, less what was set since.
    told: HeldTimes,
    /// What was set while an answer was awaited, which may be from before that.
    overtaken: HeldTimes,
    /// Whether the content is known to have changed since the file has last shown that.
    pub(crate) is_news: bool,
}

impl Keeping {
    pub(crate) fn since(known: Times) -> Box<Self> {
        Box::new(Self { known, told: HeldTimes::default(), overtaken: HeldTimes::default(), is_news: false })
    }

    /// The holder's answer to CB_GETATTR.
    pub(crate) fn hear(&mut self, said: HeldTimes) {
        self.told = said.without(std::mem::take(&mut self.overtaken));
    }

    /// Takes the last answer.
    pub(crate) fn hold(&mut self, now: Timestamp) {
        let before = self.known.modified;
        self.known.take(self.told, now);
        self.is_news |= self.known.modified > before;
    }

    /// The holder has set these itself, perhaps to earlier ones: what it said of them before does not count any more.
    fn set(&mut self, set: HeldTimes, is_asked: bool) {
        self.known.accessed = set.accessed.unwrap_or(self.known.accessed);
        self.known.modified = set.modified.unwrap_or(self.known.modified);
        self.told = self.told.without(set);
        if is_asked {
            let HeldTimes { accessed, modified } = self.overtaken;
            self.overtaken =
                HeldTimes { accessed: set.accessed.or(accessed), modified: set.modified.or(modified) };
        }
    }
}

impl State {
    /// What is known of the times that a client keeps by this delegation of a file.
    ///
    /// # Errors
    /// As for every stateid; BAD_STATEID where it is none by which times are kept.
    pub fn kept_times(&self, client: &Client, file: FileKey, stateid: &Stateid) -> Result<Times, Status> {
        let keeps =
            |kind: &Kind| matches!(kind, Kind::Delegation(delegation) if delegation.keeping.is_some());
        let (shard, index) = self.find_entry(client, file, stateid, keeps)?;
        Ok(shard.delegation_at(index).keeping.as_ref().expect("that was asked for").known)
    }

    /// The file is about to get these times, on the word of the client that keeps them. Before it shows them, so that others are told
    /// of none that go back ([`State::put_over`]).
    pub fn take_times(&self, client: &Client, file: FileKey, times: Times) {
        self.learn_times(client, file, |Keeping { known, is_news, .. }, _| {
            *is_news &= times.modified <= known.modified;
            known.accessed = known.accessed.max(times.accessed);
            known.modified = known.modified.max(times.modified);
        });
    }

    /// A client has set these times of a file to what it wanted: where it keeps them, they are the known ones, earlier or later.
    pub fn set_times(&self, client: &Client, file: FileKey, times: HeldTimes) {
        self.learn_times(client, file, |keeping, is_asked| keeping.set(times, is_asked));
    }

    fn learn_times(&self, client: &Client, file: FileKey, learn: impl FnOnce(&mut Keeping, bool)) {
        let mut shard = self.shards[self.shard_of(file)].lock();
        let Some(index) = shard.find_delegation(file, client.id()) else { return };
        let delegation = shard.delegation_at_mut(index);
        if let Some(keeping) = &mut delegation.keeping {
            learn(keeping, delegation.questions.is_open());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 0 }
    }

    fn said(accessed: i64, modified: i64) -> HeldTimes {
        HeldTimes { accessed: Some(at(accessed)), modified: Some(at(modified)) }
    }

    #[test]
    fn times_are_taken_between_the_original_one_and_now() {
        let original = Times { accessed: at(10), modified: at(20) };
        for (held, now, taken, known) in [
            (said(15, 25), 30, said(15, 25), (15, 25)),
            (said(10, 20), 30, said(10, 20), (10, 20)),
            // Each for itself.
            (said(9, 25), 30, HeldTimes { accessed: None, ..said(0, 25) }, (10, 25)),
            (said(15, 19), 30, HeldTimes { modified: None, ..said(15, 0) }, (15, 20)),
            // "in the future": clamped, and by one "same time value for the current time".
            (said(99, 98), 30, said(30, 30), (30, 30)),
            // A clock that was set back.
            (said(15, 25), 5, HeldTimes::default(), (10, 20)),
            (HeldTimes::default(), 30, HeldTimes::default(), (10, 20)),
        ] {
            let mut times = original;
            assert_eq!(times.take(held, at(now)), taken, "{held:?} at {now}");
            assert_eq!(times, Times { accessed: at(known.0), modified: at(known.1) });
        }
    }
}
