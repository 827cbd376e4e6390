//! How a client's lease ends (RFC 8881 §8.3, §8.4.3). It renews itself by what its client says, and not by an event: see
//! [`Client::renew`](super::client::Client::renew). What follows is what time, and others, make of one that was renewed so long ago.

use std::time::Duration;

use super::transitions::{Row, step};

/// How long the state of an expired client is kept for courtesy, as Linux's server does.
const COURTESY: Duration = Duration::from_secs(24 * 60 * 60);

/// Where a lease stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    /// Nobody has confirmed the record yet.
    Unconfirmed,
    Running,
    /// Over, and what the client holds is kept as long as nobody needs it.
    Courtesy,
    /// Over, and the record goes.
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    /// A lease time has passed, and the client holds nothing.
    Empty,
    /// The same, and it holds something.
    Holding,
    /// Something does not fit, and what is expired has to go.
    Press,
    /// A day has passed.
    Day,
}

const TRANSITIONS: &[Row<Lease, Event>] = &[
    // §18.35.4: "Any unconfirmed record that is not confirmed within a lease period SHOULD be removed."
    (Lease::Unconfirmed, Event::Empty, Lease::Over),
    (Lease::Unconfirmed, Event::Holding, Lease::Over),
    (Lease::Running, Event::Empty, Lease::Over),
    // §8.4.3: the server "may allow the lock state to remain for a considerable period".
    (Lease::Running, Event::Holding, Lease::Courtesy),
    (Lease::Courtesy, Event::Press, Lease::Over),
    (Lease::Courtesy, Event::Day, Lease::Over),
];

impl Lease {
    /// What has become of it, `idle` after it was renewed: where its client `holds` something, and where others `press`.
    pub(crate) fn after(self, idle: Duration, lease: Duration, holds: bool, press: bool) -> Self {
        let lapse = if holds { Event::Holding } else { Event::Empty };
        let events = [(lapse, idle >= lease), (Event::Press, press), (Event::Day, idle >= COURTESY)];
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
    fn the_table_of_leases_is_sound() {
        check_table(TRANSITIONS, Running, &[Running, Courtesy, Over]);
        for event in [Event::Empty, Event::Holding, Event::Press, Event::Day] {
            assert_eq!(step(TRANSITIONS, Over, event), None, "what is over is over");
        }
        for event in [Event::Press, Event::Day] {
            assert_eq!(step(TRANSITIONS, Running, event), None, "§8.3: a lease that runs is not taken");
        }
    }

    /// Every lease at every age, with and without state, and pressed or not.
    #[test]
    fn a_lease_ends_as_its_table_says() {
        let lease = Duration::from_secs(90);
        let just_before = lease - Duration::from_nanos(1);
        let after = |start: Lease, holds, press| {
            [just_before, lease, COURTESY].map(|idle| start.after(idle, lease, holds, press))
        };
        for press in [false, true] {
            assert_eq!(after(Unconfirmed, false, press), [Unconfirmed, Over, Over]);
            assert_eq!(after(Running, false, press), [Running, Over, Over]);
        }
        assert_eq!(after(Running, true, false), [Running, Courtesy, Over]);
        assert_eq!(after(Running, true, true), [Running, Over, Over]);
    }
}
