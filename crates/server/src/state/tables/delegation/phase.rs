//! The states of a delegation and its legal transitions.

use super::super::transitions::{Row, step};

/// The state of a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DelegationPhase {
    /// The client holds it.
    Granted,
    /// CB_RECALL was sent, and the client has not returned it.
    Recalled,
    /// It was not returned in time, or its lease expired. The client must acknowledge the loss (FREE_STATEID).
    Revoked,
    /// It was returned, or its loss was acknowledged. Its stateid is unknown.
    Gone,
}

/// An event that ends or changes a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DelegationEvent {
    /// Another client's request conflicts (§10.4.4).
    Conflict,
    /// DELEGRETURN.
    Return,
    /// It was not returned within the lease period (§10.4.5), its lease expired, or the administrator revoked it.
    Timeout,
    /// FREE_STATEID.
    Acknowledge,
    /// The client's record is removed.
    ClientRemoved,
}

use DelegationEvent as Event;
use DelegationPhase as Phase;

const TRANSITIONS: &[Row<Phase, Event>] = &[
    (Phase::Granted, Event::Conflict, Phase::Recalled),
    (Phase::Granted, Event::Return, Phase::Gone),
    (Phase::Granted, Event::Timeout, Phase::Revoked),
    (Phase::Granted, Event::ClientRemoved, Phase::Gone),
    // A second conflict waits for the same recall.
    (Phase::Recalled, Event::Conflict, Phase::Recalled),
    (Phase::Recalled, Event::Return, Phase::Gone),
    (Phase::Recalled, Event::Timeout, Phase::Revoked),
    (Phase::Recalled, Event::ClientRemoved, Phase::Gone),
    (Phase::Revoked, Event::Acknowledge, Phase::Gone),
    (Phase::Revoked, Event::ClientRemoved, Phase::Gone),
];

impl DelegationPhase {
    /// Returns the next state; `None` if the event is illegal in this one.
    #[must_use]
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
        let phases = [Phase::Granted, Phase::Recalled, Phase::Revoked, Phase::Gone];
        check_table(TRANSITIONS, Phase::Granted, &phases);
        assert_eq!(Phase::Revoked.after(Event::Return), None, "the loss must be acknowledged");
        assert_eq!(Phase::Granted.after(Event::Acknowledge), None, "FREE_STATEID gets LOCKS_HELD");
        let events =
            [Event::Conflict, Event::Return, Event::Timeout, Event::Acknowledge, Event::ClientRemoved];
        for event in events {
            assert_eq!(Phase::Gone.after(event), None);
        }
    }
}
