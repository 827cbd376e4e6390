//! Whether a device's syncs are short enough to be waited for in place.
//!
//! A client that asks for one thing after the other waits, with each that has to be on stable storage, for another thread to wake up, to sync
//! and to wake up the core: twice the time that it takes to go to sleep and to wake up, where the device is fast as much as the sync itself.
//! So a thread that has nobody else to serve ([`Thread::Exclusive`]) syncs what it changed itself, as long as the
//! last syncs were short and none is under way, which it would have to wait for or could share.
//!
//! Nobody can know how long the next one takes. Who comes to the same thread meanwhile waits as long, once: after a sync
//! that was not short other threads have them all until [`SyncLatency::SHORT_SYNCS`] were.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::Thread;

/// How long syncs took lately, of a file system's names and little content or of a log.
#[derive(Debug, Default)]
pub struct SyncLatency {
    /// Short ones since the last that was not, at most [`Self::SHORT_SYNCS`].
    short: AtomicU32,
    /// Syncs of whatever kind that are under way.
    running: AtomicU32,
}

/// A sync that is under way.
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub struct RunningSync<'a>(&'a SyncLatency);

impl Drop for RunningSync<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SyncLatency {
    /// A sync is short that takes less: than a disk that turns takes for a flush, and some ten times what it takes to wake up two threads.
    pub const SHORT: Duration = Duration::from_millis(1);
    /// Short syncs in a row by which the next is taken to be short.
    pub const SHORT_SYNCS: u32 = 32;
    /// Bytes that a fast device takes along with a flush.
    pub const SMALL_BYTES: u64 = 64 << 10;

    /// A sync begins.
    pub fn begin(&self) -> RunningSync<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        RunningSync(self)
    }

    /// A sync of [little](Self::SMALL_BYTES) has taken that long.
    pub fn record(&self, time: Duration) {
        if time >= Self::SHORT {
            self.short.store(0, Ordering::Relaxed);
        } else {
            let more = |short: u32| (short < Self::SHORT_SYNCS).then_some(short + 1);
            // There are as many as are counted.
            let _ = self.short.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        }
    }

    /// What a caller's thread may be used for, with a sync to be waited for.
    pub fn usable(&self, thread: Thread) -> Thread {
        if self.is_short() { thread } else { Thread::Shared }
    }

    /// Whether the next one is taken to be short.
    fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed) == Self::SHORT_SYNCS && self.running.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_sync_is_taken_to_be_short_after_enough_that_were() {
        let latency = SyncLatency::default();
        assert!(!latency.is_short(), "nobody knows");
        (1..SyncLatency::SHORT_SYNCS)
            .for_each(|_| latency.record(SyncLatency::SHORT - Duration::from_nanos(1)));
        assert!(!latency.is_short());
        latency.record(Duration::ZERO);
        latency.record(Duration::ZERO);
        assert!(latency.is_short());
        latency.record(SyncLatency::SHORT);
        (1..SyncLatency::SHORT_SYNCS).for_each(|_| latency.record(Duration::ZERO));
        assert!(!latency.is_short(), "it begins anew");
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
