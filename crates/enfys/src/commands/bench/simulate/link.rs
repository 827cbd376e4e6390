//! A link in virtual time: the records of a TCP connection arrive in their order, late by the delay and by retransmissions.

use std::time::Duration;

use fastrand::Rng;

/// Bytes of a TCP segment on Ethernet.
const SEGMENT_BYTES: usize = 1448;
/// Linux's shortest timeout of a retransmission (`TCP_RTO_MIN`), added to the round trip.
const TIMEOUT_MIN: Duration = Duration::from_millis(200);
/// Its longest (`TCP_RTO_MAX`).
const TIMEOUT_MAX: Duration = Duration::from_secs(120);
/// Segments after a lost one whose acknowledgments tell the sender of it (RFC 5681: three duplicates).
const DUPLICATES: usize = 3;

/// What a link does to records.
#[derive(Clone, Debug, Default)]
pub(super) struct Behavior {
    /// The round trip.
    pub(super) delay: Duration,
    /// The part of segments that is lost, in each direction.
    pub(super) loss: f64,
    /// Times at which everything is lost: start and length.
    pub(super) outages: Vec<(Duration, Duration)>,
}

/// One direction of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Direction {
    last_arrival: Duration,
}

impl Direction {
    /// Returns when a record arrives that is sent now.
    pub(super) fn send(
        &mut self,
        behavior: &Behavior,
        bytes: usize,
        now: Duration,
        rng: &mut Rng,
    ) -> Duration {
        let segments = bytes.div_ceil(SEGMENT_BYTES).max(1);
        let lost = if behavior.loss > 0.0 {
            (0..segments).filter(|_| rng.f64() < behavior.loss).last()
        } else {
            None
        };
        let mut sent = now;
        let mut timeout = (behavior.delay + TIMEOUT_MIN).min(TIMEOUT_MAX);
        let mut is_lost = false;
        if let Some(lost) = lost.filter(|_| !behavior.is_out(now)) {
            if segments - lost > DUPLICATES {
                // Fast retransmission: the sender learns of it after a round trip.
                sent += behavior.delay;
                is_lost = rng.f64() < behavior.loss;
            } else {
                is_lost = true;
            }
        }
        while is_lost || behavior.is_out(sent) {
            sent += timeout;
            timeout = (timeout * 2).min(TIMEOUT_MAX);
            is_lost = rng.f64() < behavior.loss;
        }
        // TCP delivers in order.
        self.last_arrival = (sent + behavior.delay / 2).max(self.last_arrival);
        self.last_arrival
    }
}

impl Behavior {
    fn is_out(&self, now: Duration) -> bool {
        self.outages.iter().any(|(start, length)| (*start..*start + *length).contains(&now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_link_without_faults_has_half_the_round_trip_and_keeps_order() {
        let behavior = Behavior { delay: SECOND, ..Behavior::default() };
        let (mut direction, mut rng) = (Direction::default(), Rng::with_seed(1));
        assert_eq!(direction.send(&behavior, 1, SECOND, &mut rng), SECOND * 3 / 2);
        let lossy = Behavior { loss: 0.2, ..behavior };
        let mut last = Duration::ZERO;
        for number in 0..1000 {
            let arrival = direction.send(&lossy, 3000, SECOND + Duration::from_millis(number), &mut rng);
            assert!(arrival >= last);
            last = arrival;
        }
    }

    #[test]
    fn an_outage_ends_with_a_doubled_timeout() {
        let outages = vec![(SECOND, SECOND * 2)];
        let behavior = Behavior { delay: SECOND / 10, loss: 0.0, outages };
        let (mut direction, mut rng) = (Direction::default(), Rng::with_seed(1));
        // Repeated after 0.3 s, 0.6 s and 1.2 s: 3.1 s is after the outage.
        let arrival = direction.send(&behavior, 1, SECOND, &mut rng);
        assert_eq!(arrival, Duration::from_millis(1000 + 300 + 600 + 1200 + 50));
    }

    #[test]
    fn lost_records_take_a_timeout_and_long_ones_a_round_trip() {
        let behavior = Behavior { delay: SECOND / 10, loss: 0.01, outages: Vec::new() };
        let mut rng = Rng::with_seed(5);
        let mut late = |bytes| {
            let on_time = SECOND * 105 / 100;
            let arrivals = (0..20_000).map(|_| Direction::default().send(&behavior, bytes, SECOND, &mut rng));
            arrivals.filter(|arrival| *arrival > on_time).count()
        };
        // Binomial: 200 of 20,000 with a deviation of 14; and 1 - 0.99^10 = 9.56 %: 1,912 with one of 42.
        let (short, long) = (late(100), late(10 * SEGMENT_BYTES));
        assert!((130..=270).contains(&short), "{short}");
        assert!((1700..=2130).contains(&long), "{long}");
    }
}
