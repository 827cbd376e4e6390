//! One thread of one client.

use std::cell::Cell;
use std::future::Future;

use fastrand::Rng;

use super::recorder::Meter;
use crate::targets::Files;

/// The position of a thread in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// The client, from 0.
    pub client: u32,
    /// The thread of the client, from 0.
    pub thread: u32,
    /// Threads of each client.
    pub threads: u32,
    /// Clients.
    pub clients: u32,
}

/// One thread of one client, with its files and meter.
pub struct Task<F: Files> {
    /// The files of the run's directory.
    pub files: F,
    /// The thread's position in the run.
    pub who: Who,
    /// Random numbers of this thread, by the run's seed.
    pub rng: Rng,
    /// Counts and times operations.
    pub meter: Meter,
    has_met: Cell<bool>,
}

impl<F: Files> Task<F> {
    pub(super) fn new(files: F, who: Who, seed: u64, meter: Meter) -> Self {
        // Another sequence for each thread, the same in each run with this seed.
        let number = u64::from(who.client) << 32 | u64::from(who.thread);
        let rng = Rng::with_seed(seed ^ Rng::with_seed(number).u64(..));
        Self { files, who, rng, meter, has_met: Cell::new(false) }
    }

    /// Waits until all threads of all clients are ready. What was done before is not measured.
    pub async fn ready(&self) {
        if !self.has_met.replace(true) {
            self.meter.window().meet(|| {}).await;
            self.meter.begin();
        }
    }

    /// Does the work of a thread. Others wait for this thread at the start, so it reaches the start even if its work fails before.
    pub(super) async fn run<E>(&self, work: impl Future<Output = Result<(), E>>) -> Result<(), E> {
        let done = work.await;
        self.ready().await;
        done
    }

    /// Returns the part of `count` items that this thread has if all threads of its client share them.
    #[must_use]
    pub fn part(&self, count: u64) -> std::ops::Range<u64> {
        let (thread, threads) = (u64::from(self.who.thread), u64::from(self.who.threads));
        count * thread / threads..count * (thread + 1) / threads
    }
}
