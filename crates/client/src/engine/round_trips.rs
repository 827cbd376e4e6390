//! Retransmission over datagrams: round trip estimates by class of procedure, and a congestion window.
//!
//! The rules are those of the BSD and Linux clients, after Van Jacobson, "Congestion Avoidance and Control" (1988), and Nowicki,
//! "Transport Issues in the Network File System" (1989):
//!
//! - Procedures that take different times have estimates of their own ([`Class`]). All others use the initial timeout.
//! - A call that was sent more than once says nothing about the round trip (Karn). Its longer timeout stays in use until a call that
//!   was sent once is answered.
//! - A timeout halves the window of calls in flight, at most once for calls that were sent before the last halving. Each full window
//!   of replies adds a call to it.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::{nfs2, nfs3};

use super::traffic::Label;

/// Shortest timeout, as in Linux.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Longest timeout, as in Linux.
const TIMEOUT_MAX: Duration = Duration::from_mins(1);
/// Maximum number of calls in flight over one socket, as in Linux.
const WINDOW_MAX: u32 = 16;
/// Parts of a call in which the window is kept.
const PARTS: u32 = 256;
/// Largest exponent of a timeout.
const BACK_OFF_MAX: u32 = 16;

/// A class of procedures whose calls take similar times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Attributes,
    Lookup,
    Read,
    Write,
}

const CLASSES: usize = 4;

/// Returns the class of a procedure; `None` for rare ones, and those whose time depends on the server's disk.
fn class_of(label: Label) -> Option<Class> {
    match (label.program, label.version) {
        (nfs2::PROGRAM, nfs2::VERSION) => match nfs2::Proc(label.number) {
            nfs2::Proc::GETATTR => Some(Class::Attributes),
            nfs2::Proc::LOOKUP => Some(Class::Lookup),
            nfs2::Proc::READLINK | nfs2::Proc::READ | nfs2::Proc::READDIR => Some(Class::Read),
            nfs2::Proc::WRITE => Some(Class::Write),
            _ => None,
        },
        (nfs3::PROGRAM, nfs3::VERSION) => match nfs3::Proc(label.number) {
            nfs3::Proc::GETATTR | nfs3::Proc::ACCESS => Some(Class::Attributes),
            nfs3::Proc::LOOKUP => Some(Class::Lookup),
            nfs3::Proc::READLINK | nfs3::Proc::READ | nfs3::Proc::READDIR | nfs3::Proc::READDIRPLUS => {
                Some(Class::Read)
            }
            nfs3::Proc::WRITE => Some(Class::Write),
            _ => None,
        },
        _ => None,
    }
}

/// The estimate of a class.
#[derive(Debug, Clone, Copy, Default)]
struct Estimate {
    /// Smoothed round trip time and its mean deviation; `None` before the first sample.
    measured: Option<(Duration, Duration)>,
    /// Number of doublings since the last sample.
    back_off: u32,
}

impl Estimate {
    /// Returns the timeout of a call that has been repeated this often.
    fn timeout(&self, initial: Duration, repetitions: u32) -> Duration {
        let first = self.measured.map_or(initial, |(smoothed, deviation)| smoothed + deviation * 4);
        let doublings = self.back_off.max(repetitions).min(BACK_OFF_MAX);
        first.max(TIMEOUT_MIN).saturating_mul(1 << doublings).min(TIMEOUT_MAX)
    }

    /// Takes the round trip time of a call that was sent once (Jacobson, appendix A: gains of 1/8 and 1/4).
    fn sample(&mut self, round_trip: Duration) {
        self.back_off = 0;
        self.measured = Some(match self.measured {
            None => (round_trip, round_trip / 2),
            Some((smoothed, deviation)) => {
                let error = smoothed.abs_diff(round_trip);
                ((smoothed * 7 + round_trip) / 8, (deviation * 3 + error) / 4)
            }
        });
    }
}

/// A call without a reply that was sent.
#[derive(Debug, Clone, Copy)]
struct Flight {
    label: Label,
    sent_at: Duration,
    /// When it is sent again.
    deadline: Duration,
}

/// Calls over one socket.
#[derive(Debug)]
pub(super) struct RoundTrips {
    /// The timeout of a first call (`timeo`).
    initial: Duration,
    estimates: [Estimate; CLASSES],
    /// The window in [`PARTS`] of a call.
    window: u32,
    halved_at: Duration,
    flights: BTreeMap<u32, Flight>,
}

impl RoundTrips {
    pub(super) fn new(initial: Duration) -> Self {
        Self {
            initial,
            estimates: Default::default(),
            window: PARTS,
            halved_at: Duration::ZERO,
            flights: BTreeMap::new(),
        }
    }

    /// Returns whether another call may be sent.
    pub(super) fn has_room(&self) -> bool {
        (self.flights.len() as u32) < self.window / PARTS
    }

    /// Notes a call that was sent, for the `transmissions`th time.
    pub(super) fn sent(&mut self, xid: u32, label: Label, transmissions: u32, now: Duration) {
        let estimate = class_of(label).map(|class| self.estimates[class as usize]).unwrap_or_default();
        let deadline = now + estimate.timeout(self.initial, transmissions.saturating_sub(1));
        self.flights.insert(xid, Flight { label, sent_at: now, deadline });
    }

    /// Notes the reply to a call that was sent `transmissions` times, first at `sent_at`.
    pub(super) fn replied(
        &mut self,
        xid: u32,
        label: Label,
        (transmissions, sent_at): (u32, Duration),
        now: Duration,
    ) {
        let is_full = self.flights.len() as u32 >= self.window / PARTS;
        self.flights.remove(&xid);
        if transmissions == 1
            && let Some(class) = class_of(label)
        {
            self.estimates[class as usize].sample(now.saturating_sub(sent_at));
        }
        if is_full {
            self.window = (self.window + PARTS * PARTS / self.window).min(WINDOW_MAX * PARTS);
        }
    }

    /// Forgets a call for which no task waits.
    pub(super) fn forget(&mut self, xid: u32) {
        self.flights.remove(&xid);
    }

    /// Takes all calls, oldest first.
    pub(super) fn take_all(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.flights).into_keys().collect()
    }

    /// Returns when the first call times out.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.flights.values().map(|flight| flight.deadline).min()
    }

    /// Takes the calls that have timed out, oldest first. They must be sent again, or fail. `repetitions` returns how often a call has
    /// been repeated.
    pub(super) fn take_late(&mut self, now: Duration, repetitions: impl Fn(u32) -> u32) -> Vec<u32> {
        let is_late = |flight: &Flight| flight.deadline <= now;
        let late: Vec<(u32, Flight)> = self
            .flights
            .iter()
            .filter(|(_, flight)| is_late(flight))
            .map(|(xid, flight)| (*xid, *flight))
            .collect();
        for (xid, flight) in &late {
            self.flights.remove(xid);
            if let Some(class) = class_of(flight.label) {
                let estimate = &mut self.estimates[class as usize];
                estimate.back_off = estimate.back_off.max(repetitions(*xid) + 1).min(BACK_OFF_MAX);
            }
        }
        if late.iter().any(|(_, flight)| flight.sent_at >= self.halved_at) {
            self.window = (self.window / 2).max(PARTS);
            self.halved_at = now;
        }
        late.into_iter().map(|(xid, _)| xid).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIAL: Duration = Duration::from_millis(1100);
    const GETATTR: Label = label(nfs3::Proc::GETATTR);
    const READ: Label = label(nfs3::Proc::READ);
    const CREATE: Label = label(nfs3::Proc::CREATE);

    const fn label(procedure: nfs3::Proc) -> Label {
        Label { program: nfs3::PROGRAM, version: nfs3::VERSION, number: procedure.0 }
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Returns the timeout of a call that is sent for the `transmissions`th time.
    fn timeout(trips: &mut RoundTrips, label: Label, transmissions: u32) -> Duration {
        trips.sent(1000, label, transmissions, ms(50_000));
        let deadline = trips.flights[&1000].deadline;
        trips.forget(1000);
        deadline - ms(50_000)
    }

    /// Sends a call once, which is answered after `took`.
    fn exchange(trips: &mut RoundTrips, label: Label, took: Duration) {
        trips.sent(1, label, 1, ms(0));
        trips.replied(1, label, (1, ms(0)), took);
    }

    #[test]
    fn each_class_has_its_timeout_and_other_procedures_the_initial_one() {
        let mut trips = RoundTrips::new(INITIAL);
        for label in [GETATTR, READ, CREATE] {
            assert_eq!(timeout(&mut trips, label, 1), INITIAL, "nothing was measured");
        }
        for _ in 0..100 {
            exchange(&mut trips, GETATTR, ms(1));
            exchange(&mut trips, READ, ms(400));
            exchange(&mut trips, CREATE, ms(9));
        }
        assert_eq!(timeout(&mut trips, GETATTR, 1), TIMEOUT_MIN);
        assert!(timeout(&mut trips, READ, 1).abs_diff(ms(400)) < ms(1), "the deviation is zero");
        assert_eq!(timeout(&mut trips, CREATE, 1), INITIAL);
        // 400 ms and 800 ms in turn: a deviation of about 200 ms around 600 ms.
        for _ in 0..100 {
            exchange(&mut trips, READ, ms(800));
            exchange(&mut trips, READ, ms(400));
        }
        assert!(timeout(&mut trips, READ, 1).abs_diff(ms(1400)) < ms(100));
    }

    #[test]
    fn timeouts_double_until_a_call_that_was_sent_once_is_answered() {
        let mut trips = RoundTrips::new(INITIAL);
        (0..100).for_each(|_| exchange(&mut trips, READ, ms(400)));
        let first = timeout(&mut trips, READ, 1);
        trips.sent(1, READ, 1, ms(0));
        assert_eq!(trips.take_late(ms(399), |_| 0), []);
        assert_eq!(trips.take_late(ms(1000), |_| 0), [1]);
        assert_eq!(timeout(&mut trips, READ, 2), first * 2);
        trips.sent(1, READ, 2, ms(1000));
        assert_eq!(trips.take_late(ms(3000), |_| 1), [1]);
        trips.sent(1, READ, 3, ms(3000));
        trips.replied(1, READ, (3, ms(0)), ms(3001));
        assert_eq!(timeout(&mut trips, READ, 1), first * 4, "Karn: which one was answered is not known");
        assert_eq!(timeout(&mut trips, GETATTR, 1), INITIAL, "another class");
        exchange(&mut trips, READ, ms(400));
        assert!(timeout(&mut trips, READ, 1).abs_diff(first) < ms(1));
        assert_eq!(timeout(&mut trips, READ, 1000), TIMEOUT_MAX);
    }

    #[test]
    fn a_window_of_replies_adds_a_call_and_a_loss_halves_it() {
        let mut trips = RoundTrips::new(INITIAL);
        let fill = |trips: &mut RoundTrips, now| {
            let mut sent = 0;
            while trips.has_room() {
                sent += 1;
                trips.sent(sent, GETATTR, 1, now);
            }
            sent
        };
        let answer = |trips: &mut RoundTrips, count, now| {
            (1..=count).for_each(|xid| trips.replied(xid, GETATTR, (1, now), now + ms(1)));
        };
        let mut windows = Vec::new();
        for round in 0..400 {
            let sent = fill(&mut trips, ms(round));
            windows.push(sent);
            answer(&mut trips, sent, ms(round));
        }
        assert_eq!(windows[0], 1);
        assert!(windows.windows(2).all(|pair| pair[0] <= pair[1] && pair[1] <= pair[0] + 1));
        assert_eq!(windows.last(), Some(&WINDOW_MAX));

        assert_eq!(fill(&mut trips, ms(1000)), 16);
        assert_eq!(trips.take_late(ms(5000), |_| 0).len(), 16);
        assert_eq!(fill(&mut trips, ms(5000)), 8, "one halving for all that were lost together");
        assert_eq!(trips.take_late(ms(20_000), |_| 0).len(), 8);
        assert_eq!(fill(&mut trips, ms(20_000)), 4);
        for round in 1..10 {
            trips.take_late(ms(100_000 * round), |_| 0);
            fill(&mut trips, ms(100_000 * round));
        }
        assert_eq!(trips.flights.len(), 1, "one call is always in flight");
    }
}
