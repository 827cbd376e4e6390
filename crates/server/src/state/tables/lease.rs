//! How a client's lease ends (RFC 8881 §8.3, §8.4.3). Requests renew it directly
//! ([`Client::renew`](super::client::Client::renew)); this table has the transitions of a lease that was not renewed.

use std::time::Duration;

use super::transitions::{Row, step};

/// The time for which an expired client's state is kept as a courtesy, as in Linux's server.
const COURTESY: Duration = Duration::from_secs(24 * 60 * 60);

/// The phase of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    /// The record is not confirmed.
    Unconfirmed,
    Running,
    /// Expired. The client's state is kept until another client needs it.
    Courtesy,
    /// Expired. The record is removed.
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseEvent {
    /// The lease time has passed, and the client holds nothing.
    Empty,
    /// The lease time has passed, and the client holds state.
    Holding,
    /// A limit is reached, and expired state is removed to make room.
    LimitReached,
    /// The courtesy period has passed.
    CourtesyOver,
}

const TRANSITIONS: &[Row<Lease, LeaseEvent>] = &[
    // §18.35.4: "Any unconfirmed record that is not confirmed within a lease period SHOULD be removed."
    (Lease::Unconfirmed, LeaseEvent::Empty, Lease::Over),
    (Lease::Unconfirmed, LeaseEvent::Holding, Lease::Over),
    (Lease::Running, LeaseEvent::Empty, Lease::Over),
    // §8.4.3: the server "may allow the lock state to remain for a considerable period".
    (Lease::Running, LeaseEvent::Holding, Lease::Courtesy),
    (Lease::Courtesy, LeaseEvent::LimitReached, Lease::Over),
    (Lease::Courtesy, LeaseEvent::CourtesyOver, Lease::Over),
];

impl Lease {
    /// Returns the phase of a lease that was renewed `idle` ago. `holds`: the client holds state. `limit_reached`: a limit is
    /// reached.
    pub(crate) fn after(self, idle: Duration, lease: Duration, holds: bool, limit_reached: bool) -> Self {
        let lapse = if holds { LeaseEvent::Holding } else { LeaseEvent::Empty };
        let events = [
            (lapse, idle >= lease),
            (LeaseEvent::LimitReached, limit_reached),
            (LeaseEvent::CourtesyOver, idle >= COURTESY),
        ];
        let happened = events.into_iter().filter(|(_, has_happened)| *has_happened);
        happened.fold(self, |stands, (event, _)| step(TRANSITIONS, stands, event).unwrap_or(stands))
    }
}

#[cfg(test)]
mod tests {
    use super::super::transitions::check_table;
    use super::Lease::{Courtesy, Over, Running, Unconfirmed};
    use super::*;

    #[test]
    fn the_table_of_leases_is_consistent() {
        check_table(TRANSITIONS, Running, &[Running, Courtesy, Over]);
        for event in
            [LeaseEvent::Empty, LeaseEvent::Holding, LeaseEvent::LimitReached, LeaseEvent::CourtesyOver]
        {
            assert_eq!(step(TRANSITIONS, Over, event), None, "an ended lease stays ended");
        }
        for event in [LeaseEvent::LimitReached, LeaseEvent::CourtesyOver] {
            assert_eq!(step(TRANSITIONS, Running, event), None, "§8.3: a lease that runs is not taken");
        }
    }

    /// Every phase at every age, with and without state, with and without a limit reached.
    #[test]
    fn a_lease_ends_as_its_table_says() {
        let lease = Duration::from_secs(90);
        let just_before = lease - Duration::from_nanos(1);
        let after = |start: Lease, holds, limit_reached| {
            [just_before, lease, COURTESY].map(|idle| start.after(idle, lease, holds, limit_reached))
        };
        for limit_reached in [false, true] {
            assert_eq!(after(Unconfirmed, false, limit_reached), [Unconfirmed, Over, Over]);
            assert_eq!(after(Running, false, limit_reached), [Running, Over, Over]);
        }
        assert_eq!(after(Running, true, false), [Running, Courtesy, Over]);
        assert_eq!(after(Running, true, true), [Running, Over, Over]);
    }
}
