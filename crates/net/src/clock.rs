use std::time::{Instant, SystemTime, UNIX_EPOCH};

use server::Now;
use vfs::Timestamp;

/// The clock for the server.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts a clock at zero.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Now {
        // A clock set before 1970 counts as 1970.
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = Timestamp { seconds: wall.as_secs().cast_signed(), nanoseconds: wall.subsec_nanos() };
        Now { monotonic: self.start.elapsed(), wall }
    }
}
