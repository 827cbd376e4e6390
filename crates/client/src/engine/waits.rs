//! Times for which requests waited before they could be sent.

use std::time::Duration;

/// Requests that waited for a slot, or in versions 3 and 4.0 for one of the calls in flight to end, and have it now.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Waits {
    /// Their number.
    pub count: u64,
    /// Sum of the times that they waited.
    pub time: Duration,
    /// Sum of the squares of these times, in seconds squared, for their deviation.
    pub squares: f64,
}

impl Waits {
    /// Counts a wait of this length.
    pub(super) fn add(&mut self, time: Duration) {
        self.count += 1;
        self.time += time;
        self.squares += time.as_secs_f64().powi(2);
    }
}
