//! How a delegation goes from one state to the next.

use super::shard;
use super::transitions::{Row, step};

/// Where a delegation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The client has it.
    Granted,
    /// CB_RECALL is on its way, or was answered, and the client has not returned it yet.
    Recalled,
    /// It was not returned in time, or its lease expired: the client must acknowledge the loss (FREE_STATEID).
    Revoked,
    /// Returned, or acknowledged; its stateid is unknown.
    Gone,
}

/// What happens to a delegation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Another's request conflicts (§10.4.4).
    Conflict,
    /// DELEGRETURN.
    Return,
    /// The client did not return it within the lease period (§10.4.5), its lease expired, or the administrator took it.
    Timeout,
    /// FREE_STATEID.
    Acknowledge,
    /// The client's record goes.
    Leave,
}

const TRANSITIONS: &[Row<Phase, Event>] = &[
    (Phase::Granted, Event::Conflict, Phase::Recalled),
    (Phase::Granted, Event::Return, Phase::Gone),
    (Phase::Granted, Event::Timeout, Phase::Revoked),
    (Phase::Granted, Event::Leave, Phase::Gone),
    // A second conflict waits for the same recall.
    (Phase::Recalled, Event::Conflict, Phase::Recalled),
    (Phase::Recalled, Event::Return, Phase::Gone),
    (Phase::Recalled, Event::Timeout, Phase::Revoked),
    (Phase::Recalled, Event::Leave, Phase::Gone),
    (Phase::Revoked, Event::Acknowledge, Phase::Gone),
    (Phase::Revoked, Event::Leave, Phase::Gone),
];

impl Phase {
    /// The phase that follows; `None` where the event cannot happen in this one.
    #[must_use]
    pub(crate) fn after(self, event: Event) -> Option<Self> {
        step(TRANSITIONS, self, event)
    }
}

impl Event {
    /// What the end of an entry means to a delegation.
    pub(crate) fn of_end(event: shard::Event) -> Self {
        match event {
            // No delegation is under an open.
            shard::Event::Close | shard::Event::CloseOpen => Self::Return,
            shard::Event::Conflict | shard::Event::Unreturned | shard::Event::Take => Self::Timeout,
            shard::Event::Acknowledge => Self::Acknowledge,
            shard::Event::Leave => Self::Leave,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::transitions::check_table;
    use super::*;

    #[test]
    fn the_table_of_phases_is_sound() {
        let phases = [Phase::Granted, Phase::Recalled, Phase::Revoked, Phase::Gone];
        check_table(TRANSITIONS, Phase::Granted, &phases);
        assert_eq!(
            Phase::Revoked.after(Event::Return),
            None,
            "a revoked delegation is acknowledged, not returned"
        );
        assert_eq!(
            Phase::Granted.after(Event::Acknowledge),
            None,
            "FREE_STATEID of a delegation in effect is LOCKS_HELD"
        );
        for event in [Event::Conflict, Event::Return, Event::Timeout, Event::Acknowledge, Event::Leave] {
            assert_eq!(Phase::Gone.after(event), None);
        }
    }
}
