//! Faults of the network.

use std::time::Duration;

use crate::rng::Rng;

/// Rates of faults, in percent of messages.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    /// Lost.
    pub lost: u64,
    /// Duplicated.
    pub duplicated: u64,
    /// Delayed by seconds instead of milliseconds, and so reordered.
    pub late: u64,
    /// Lost together with the connection and all messages on it.
    pub breaking: u64,
    /// Calls whose connection is cut while they run, and replies in the middle of which it is cut.
    pub cut: u64,
}

impl Faults {
    /// No faults.
    pub const NONE: Self = Self { lost: 0, duplicated: 0, late: 0, breaking: 0, cut: 0 };
    /// Many faults of all kinds except cuts.
    pub const MANY: Self = Self { lost: 15, duplicated: 20, late: 10, breaking: 5, cut: 0 };
    /// The same, and every third call or reply is cut.
    pub const CUTS: Self = Self { cut: 33, ..Self::MANY };

    /// Returns the delays of all copies of a message.
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
