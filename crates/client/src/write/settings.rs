//! Settings of write-behind.

use std::time::Duration;

use crate::results::Stability;

/// Settings of write-behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of bytes of a WRITE, a multiple of 4096.
    pub wsize: u64,
    /// Minimum stability of every WRITE: `FileSync` for NFSv2 and `sync` mounts.
    pub stability: Stability,
    /// Less than `wsize` of dirty data waits at most this long.
    pub dirty_age: Duration,
    /// Bytes that are rewritten in the first second after a server lost data. The rate doubles every second.
    pub rewrite_rate: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            wsize: 1 << 20,
            stability: Stability::Unstable,
            dirty_age: Duration::from_secs(1),
            rewrite_rate: 32 << 20,
        }
    }
}
