//! Decides whether a device's syncs are short enough to block the calling thread.
//!
//! A client that sends one request after the other waits, for each durable change, until another thread wakes up,
//! syncs and wakes up the core. Two wake-ups take as long as the sync itself on a fast device. So a thread that
//! serves only one client ([`Thread::Exclusive`]) syncs its own changes, as long as the last syncs were short and
//! none is running (it would wait for that one, or could share it).
//!
//! The duration of the next sync is unknown. If it is long, other requests of this thread wait once: afterwards other
//! threads make all syncs until [`SyncLatency::SHORT_SYNCS`] were short.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::Thread;

/// The durations of recent syncs, of directories, new files and little content, or of a log.
#[derive(Debug, Default)]
pub struct SyncLatency {
    /// Short syncs since the last long one, at most [`Self::SHORT_SYNCS`].
    short: AtomicU32,
    /// Running syncs of any kind.
    running: AtomicU32,
}

/// A running sync.
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub struct RunningSync<'a>(&'a SyncLatency);

impl Drop for RunningSync<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SyncLatency {
    /// A sync below this is short: less than the flush of a rotating disk, and about ten times two wake-ups.
    pub const SHORT: Duration = Duration::from_millis(1);
    /// Consecutive short syncs after which the next one is expected to be short.
    pub const SHORT_SYNCS: u32 = 32;
    /// Bytes that a fast device writes along with a flush.
    pub const SMALL_BYTES: u64 = 64 << 10;

    /// Notes that a sync begins.
    pub fn begin(&self) -> RunningSync<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        RunningSync(self)
    }

    /// Records the duration of a sync of at most [`Self::SMALL_BYTES`].
    pub fn record(&self, time: Duration) {
        if time >= Self::SHORT {
            self.short.store(0, Ordering::Relaxed);
        } else {
            let more = |short: u32| (short < Self::SHORT_SYNCS).then_some(short + 1);
            // The count has reached its maximum.
            let _ = self.short.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        }
    }

    /// Returns the permitted uses of the caller's thread in a sync.
    pub fn usable(&self, thread: Thread) -> Thread {
        if self.is_short() { thread } else { Thread::Shared }
    }

    /// Returns whether the next sync is expected to be short.
    fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed) == Self::SHORT_SYNCS && self.running.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_sync_counts_as_short_after_enough_short_ones() {
        let latency = SyncLatency::default();
        assert!(!latency.is_short(), "nothing is recorded");
        (1..SyncLatency::SHORT_SYNCS)
            .for_each(|_| latency.record(SyncLatency::SHORT - Duration::from_nanos(1)));
        assert!(!latency.is_short());
        latency.record(Duration::ZERO);
        latency.record(Duration::ZERO);
        assert!(latency.is_short());
        latency.record(SyncLatency::SHORT);
        (1..SyncLatency::SHORT_SYNCS).for_each(|_| latency.record(Duration::ZERO));
        assert!(!latency.is_short(), "the count starts again");
    }

    #[test]
    fn no_sync_is_short_beside_another() {
        let latency = SyncLatency::default();
        (0..SyncLatency::SHORT_SYNCS).for_each(|_| latency.record(Duration::ZERO));
        let running = latency.begin();
        assert!(!latency.is_short());
        drop(running);
        assert!(latency.is_short());
    }
}
