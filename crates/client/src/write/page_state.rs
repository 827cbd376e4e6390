//! The states of file data between the program's write and stable storage: Figure 1 of "NFS Version 3: Design and
//! Implementation" (1994), with requests under way as states of their own.
//!
//! The figure's fourth state, "dirty, client file in recovery", is [`PageState::Rewrite`]: the server lost uncommitted data
//! in a crash, and the client writes them again *synchronously*.

/// The state of a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageState {
    /// The server has the bytes on stable storage, or they are not cached.
    Clean,
    /// Written by the program only.
    Dirty,
    /// An UNSTABLE WRITE is under way.
    Writing,
    /// A DATA_SYNC or FILE_SYNC WRITE is under way.
    WritingStable,
    /// The server acknowledged an UNSTABLE WRITE; its verifier is kept.
    Written,
    /// A COMMIT is under way.
    Committing,
    /// The server may have lost the bytes: to be written again, synchronously.
    Rewrite,
    /// A synchronous WRITE after a loss is under way.
    Rewriting,
}

/// An event that changes a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The program writes.
    Write,
    /// An UNSTABLE WRITE is sent.
    SendUnstable,
    /// A WRITE is sent whose data must be stable before the reply.
    SendStable,
    /// The reply to a WRITE says UNSTABLE.
    RepliedUnstable,
    /// The reply to a WRITE says DATA_SYNC or FILE_SYNC.
    RepliedStable,
    /// A WRITE ended without these bytes: a short reply, or one that asks to try again.
    NotWritten,
    /// A COMMIT is sent.
    SendCommit,
    /// The reply to a COMMIT has the verifier of the WRITE.
    Committed,
    /// A verifier differs from that of the WRITE, or a COMMIT failed.
    Lost,
    /// A COMMIT ended without a result and has to be sent again.
    NotCommitted,
    /// A WRITE failed for good: the data are dropped and the program gets the error.
    Failed,
    /// The program truncates the file, or drops it.
    Discard,
}

/// A legal transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state before.
    pub from: PageState,
    /// The event.
    pub event: Event,
    /// The state afterwards.
    pub to: PageState,
}

impl PageState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Clean,
        Self::Dirty,
        Self::Writing,
        Self::WritingStable,
        Self::Written,
        Self::Committing,
        Self::Rewrite,
        Self::Rewriting,
    ];

    /// Returns the state after `event`, or `None` if it cannot happen in this state.
    pub fn after(self, event: Event) -> Option<Self> {
        let row = TRANSITIONS.iter().find(|row| row.from == self && row.event == event)?;
        Some(row.to)
    }
}

impl Event {
    /// Every event.
    pub const ALL: [Self; 12] = [
        Self::Write,
        Self::SendUnstable,
        Self::SendStable,
        Self::RepliedUnstable,
        Self::RepliedStable,
        Self::NotWritten,
        Self::SendCommit,
        Self::Committed,
        Self::Lost,
        Self::NotCommitted,
        Self::Failed,
        Self::Discard,
    ];
}

const fn row(from: PageState, event: Event, to: PageState) -> Transition {
    Transition { from, event, to }
}

/// Every legal transition. ①–④ and ❸ are the figure's.
pub const TRANSITIONS: &[Transition] = {
    use Event::*;
    use PageState::*;
    &[
        // ① The program may write at any time: requests under way have their own reference to the old bytes.
        row(Clean, Write, Dirty),
        row(Dirty, Write, Dirty),
        row(Writing, Write, Dirty),
        row(WritingStable, Write, Dirty),
        row(Written, Write, Dirty),
        row(Committing, Write, Dirty),
        row(Rewrite, Write, Dirty),
        row(Rewriting, Write, Dirty),
        // ②
        row(Dirty, SendUnstable, Writing),
        row(Writing, RepliedUnstable, Written),
        // A server may store data more stably than requested.
        row(Writing, RepliedStable, Clean),
        row(Writing, NotWritten, Dirty),
        row(Writing, Failed, Clean),
        row(Dirty, SendStable, WritingStable),
        row(WritingStable, RepliedStable, Clean),
        // RFC 1813 §3.3.7 forbids less, but a COMMIT makes up for it.
        row(WritingStable, RepliedUnstable, Written),
        row(WritingStable, NotWritten, Dirty),
        row(WritingStable, Failed, Clean),
        // ③
        row(Written, SendCommit, Committing),
        row(Committing, Committed, Clean),
        row(Committing, NotCommitted, Written),
        // ❸ Another WRITE's verifier shows the loss as well as a COMMIT's.
        row(Committing, Lost, Rewrite),
        row(Written, Lost, Rewrite),
        // ④
        row(Rewrite, SendStable, Rewriting),
        row(Rewriting, RepliedStable, Clean),
        row(Rewriting, RepliedUnstable, Written),
        row(Rewriting, NotWritten, Rewrite),
        row(Rewriting, Failed, Clean),
        row(Clean, Discard, Clean),
        row(Dirty, Discard, Clean),
        row(Writing, Discard, Clean),
        row(WritingStable, Discard, Clean),
        row(Written, Discard, Clean),
        row(Committing, Discard, Clean),
        row(Rewrite, Discard, Clean),
        row(Rewriting, Discard, Clean),
    ]
};

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fmt::Write;

    use super::*;

    #[test]
    fn table_of_transitions() {
        let mut table = String::new();
        for from in PageState::ALL {
            for event in Event::ALL {
                if let Some(to) = from.after(event) {
                    writeln!(table, "{:<14}{:<16}{to:?}", format!("{from:?}"), format!("{event:?}")).unwrap();
                }
            }
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn every_pair_has_at_most_one_transition() {
        let pairs: HashSet<_> = TRANSITIONS.iter().map(|row| (row.from, row.event)).collect();
        assert_eq!(pairs.len(), TRANSITIONS.len());
        assert!(TRANSITIONS.iter().all(|row| row.from.after(row.event) == Some(row.to)));
    }

    #[test]
    fn program_may_write_and_discard_in_every_state() {
        for state in PageState::ALL {
            assert_eq!(state.after(Event::Write), Some(PageState::Dirty));
            assert_eq!(state.after(Event::Discard), Some(PageState::Clean));
        }
    }

    #[test]
    fn lost_data_are_never_written_unstably_again() {
        assert_eq!(PageState::Rewrite.after(Event::SendUnstable), None);
        assert_eq!(PageState::Rewrite.after(Event::SendStable), Some(PageState::Rewriting));
        assert_eq!(PageState::Rewriting.after(Event::NotWritten), Some(PageState::Rewrite));
    }

    #[test]
    fn only_stable_storage_failure_and_discarding_make_data_clean() {
        use Event::{Committed, Discard, Failed, RepliedStable};
        for row in TRANSITIONS.iter().filter(|row| row.to == PageState::Clean) {
            assert!([RepliedStable, Committed, Failed, Discard].contains(&row.event), "{row:?}");
        }
    }

    #[test]
    fn every_state_leads_to_clean_without_the_program() {
        for state in PageState::ALL {
            let mut reached = HashSet::from([state]);
            loop {
                let before = reached.len();
                let own =
                    |row: &&Transition| ![Event::Write, Event::Discard, Event::Failed].contains(&row.event);
                let next: Vec<_> =
                    TRANSITIONS.iter().filter(own).filter(|row| reached.contains(&row.from)).collect();
                reached.extend(next.iter().map(|row| row.to));
                if reached.len() == before {
                    break;
                }
            }
            assert!(reached.contains(&PageState::Clean), "{state:?}");
        }
    }
}
