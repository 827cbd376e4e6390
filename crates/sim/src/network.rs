//! What a network may do to messages.

use std::time::Duration;

use crate::rng::Rng;

/// How bad the network is, in percent of messages.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// Never arrive.
    pub lost: u64,
    /// Arrive twice.
    pub duplicated: u64,
    /// Arrive after seconds instead of milliseconds, so that others overtake them.
    pub late: u64,
    /// Break the connection that they were sent on; all messages on it are lost with them.
    pub breaking: u64,
    /// Of calls: the connection is cut while they run. Of replies: it is cut in the middle of them.
    pub cut: u64,
}

impl Faults {
    /// A network that delivers everything.
    pub const NONE: Self = Self { lost: 0, duplicated: 0, late: 0, breaking: 0, cut: 0 };
    /// A network that nobody should have.
    pub const MANY: Self = Self { lost: 15, duplicated: 20, late: 10, breaking: 5, cut: 0 };
    /// The same, where every third reply gets through half at most, and every third call loses its connection while it runs.
    pub const CUTS: Self = Self { cut: 33, ..Self::MANY };

    /// After which times copies of a message arrive.
    pub fn arrivals(&self, rng: &mut Rng) -> Vec<Duration> {
        if rng.chance(self.lost) {
            return Vec::new();
        }
        let copies = if rng.chance(self.duplicated) { 2 } else { 1 };
        (0..copies).map(|_| self.delay(rng)).collect()
    }

    fn delay(&self, rng: &mut Rng) -> Duration {
        if rng.chance(self.late) {
            Duration::from_millis(500 + rng.below(5_000))
        } else {
            Duration::from_micros(100 + rng.below(20_000))
        }
    }
}
