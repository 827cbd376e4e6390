use std::time::Duration;

use vfs::Timestamp;

/// The time of a request. The core has no clock, so the driver passes the time with every call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Since a fixed time before the server started; never goes backwards. Leases run on it.
    pub monotonic: Duration,
    /// Time of day, for times that are stored in files.
    pub wall: Timestamp,
}

impl Now {
    /// Returns the later of the two.
    pub(crate) fn or_later(self, other: Self) -> Self {
        if other.monotonic > self.monotonic { other } else { self }
    }
}
