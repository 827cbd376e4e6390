//! Whether a volume's syncs are short enough to be waited for in place.
//!
//! A client that asks for one thing after the other waits, with each change of a name and each stable WRITE, for a thread of the pool to wake up, to sync
//! and to wake up the core: twice the time that it takes to go to sleep and to wake up, where the device is fast as much as the sync itself.
//! So a thread that has nobody else to serve ([`vfs::Thread::Lent`]) syncs what it changed itself, as long as the volume's last
//! syncs of names and of little content were short and none is under way, which it would have to wait for or could share.
//!
//! Nobody can know how long the next one takes. Who comes to the same thread meanwhile waits as long, once: after a sync
//! that was not short the pool has them all until [`IN_A_ROW`] were.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use vfs::Thread;

/// Less than a disk that turns takes for a flush, and some ten times what it takes to wake up two threads.
const SHORT: Duration = Duration::from_millis(1);
/// Short syncs in a row by which the next is taken to be short.
const IN_A_ROW: u32 = 32;

/// Content that a fast device takes along with a flush.
pub(super) const LITTLE_BYTES: u64 = 64 << 10;

/// How long syncs of names and of little content took lately.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Short ones since the last that was not, at most [`IN_A_ROW`].
    short: AtomicU32,
    /// Syncs of whatever kind that are under way.
    under_way: AtomicU32,
}

/// A sync that is under way.
#[derive(Debug)]
#[must_use = "it ends when this is dropped"]
pub(super) struct UnderWay<'a>(&'a Pace);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pace {
    /// A sync begins.
    pub(super) fn begin(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    /// A sync of a directory, a new file or little content has taken that long.
    pub(super) fn took(&self, time: Duration) {
        if time >= SHORT {
            self.short.store(0, Ordering::Relaxed);
        } else {
            let more = |short: u32| (short < IN_A_ROW).then_some(short + 1);
            // There are as many as are counted.
            let _ = self.short.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        }
    }

    /// What a caller's thread may be used for, with a sync to be waited for.
    pub(super) fn lend(&self, thread: Thread) -> Thread {
        if self.is_short() { thread } else { Thread::Shared }
    }

    /// Whether the next one is taken to be short.
    fn is_short(&self) -> bool {
        self.short.load(Ordering::Relaxed) == IN_A_ROW && self.under_way.load(Ordering::Relaxed) == 0
    }
}

#[cfg(test)]
mod tests;
