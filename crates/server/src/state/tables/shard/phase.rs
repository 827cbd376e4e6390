//! The states of an entry and its legal transitions.

use super::super::stateid::Revocation;
use super::super::transitions::{Row, step};

/// The state of an open, a lock stateid or a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryPhase {
    /// In effect.
    Held,
    /// Revoked. The stateid is known until the client has acknowledged the loss.
    Revoked(Revocation),
    /// The stateid is unknown.
    Freed,
}

/// An event that ends an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryEvent {
    /// CLOSE, DELEGRETURN, or FREE_STATEID of a lock stateid without locks.
    Close,
    /// CLOSE of the open that a revoked lock stateid belongs to.
    CloseOpen,
    /// Another client's request conflicts, and the lease has expired.
    Conflict,
    /// A recalled delegation was not returned in time.
    Unreturned,
    /// The administrator revokes it.
    AdminRevoke,
    /// FREE_STATEID of a revoked entry.
    Acknowledge,
    /// The client's record is removed.
    ClientRemoved,
}

use EntryEvent as Event;
use EntryPhase as Phase;

const TRANSITIONS: &[Row<Phase, Event>] = &[
    (Phase::Held, Event::Close, Phase::Freed),
    (Phase::Held, Event::Conflict, Phase::Revoked(Revocation::Expired)),
    (Phase::Held, Event::AdminRevoke, Phase::Revoked(Revocation::Administrator)),
    (Phase::Held, Event::Unreturned, Phase::Revoked(Revocation::Unreturned)),
    (Phase::Held, Event::ClientRemoved, Phase::Freed),
    (Phase::Revoked(Revocation::Expired), Event::Acknowledge, Phase::Freed),
    (Phase::Revoked(Revocation::Administrator), Event::Acknowledge, Phase::Freed),
    (Phase::Revoked(Revocation::Expired), Event::CloseOpen, Phase::Freed),
    (Phase::Revoked(Revocation::Administrator), Event::CloseOpen, Phase::Freed),
    (Phase::Revoked(Revocation::Expired), Event::ClientRemoved, Phase::Freed),
    (Phase::Revoked(Revocation::Administrator), Event::ClientRemoved, Phase::Freed),
    (Phase::Revoked(Revocation::Unreturned), Event::Acknowledge, Phase::Freed),
    (Phase::Revoked(Revocation::Unreturned), Event::ClientRemoved, Phase::Freed),
];

impl EntryPhase {
    /// Returns the next state; `None` if the event is illegal in this one.
    pub(crate) fn after(self, event: Event) -> Option<Self> {
        step(TRANSITIONS, self, event)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::transitions::check_table;
    use super::*;

    #[test]
    fn the_transition_table_is_consistent() {
        let revoked =
            [Revocation::Expired, Revocation::Administrator, Revocation::Unreturned].map(Phase::Revoked);
        let all = [Phase::Held, revoked[0], revoked[1], revoked[2], Phase::Freed];
        check_table(TRANSITIONS, Phase::Held, &all);
        for phase in revoked {
            assert_eq!(phase.after(Event::Close), None, "a revoked open is acknowledged, not closed");
            assert_eq!(phase.after(Event::Acknowledge), Some(Phase::Freed));
        }
        let by_close = revoked.map(|phase| phase.after(Event::CloseOpen));
        assert_eq!(by_close, [Some(Phase::Freed), Some(Phase::Freed), None], "no open has delegations");
        assert_eq!(Phase::Held.after(Event::CloseOpen), None, "a lock in effect is not revoked");
        assert_eq!(Phase::Held.after(Event::Acknowledge), None, "FREE_STATEID frees nothing in effect");
    }
}
