//! The state log on a disk that loses a suffix of the records that were not synced.

use std::collections::BTreeMap;
use std::task::Poll;

use bytes::Bytes;
use parking_lot::Mutex;
use server::StateLog;
use vfs::{Op, Thread};

use crate::rng::Rng;

/// The state log.
#[derive(Debug, Default)]
pub(super) struct Disk(Mutex<Changes>);

#[derive(Debug, Default)]
struct Changes {
    all: Vec<(Bytes, Option<Bytes>)>,
    /// Number of durable changes.
    stable: usize,
}

impl Disk {
    /// Makes all changes durable.
    pub(super) fn sync(&self) {
        let mut changes = self.0.lock();
        changes.stable = changes.all.len();
    }

    /// Simulates a crash that keeps a random prefix of the changes that were not durable. A disk writes sectors in any order, but
    /// nothing is read after a missing one: `store/src/state_log/tests/mod.rs` tries each mix of them.
    pub(super) fn crash(&self, rng: &mut Rng) {
        let mut changes = self.0.lock();
        let unsynced = changes.all.len() - changes.stable;
        let kept = changes.stable + rng.below(unsynced as u64 + 1) as usize;
        changes.all.truncate(kept);
        changes.stable = kept;
    }

    /// Returns the entries that the next server reads.
    pub(super) fn entries(&self) -> Vec<(Bytes, Bytes)> {
        let mut entries = BTreeMap::new();
        for (key, value) in &self.0.lock().all {
            match value {
                Some(value) => entries.insert(key.clone(), value.clone()),
                None => entries.remove(key),
            };
        }
        entries.into_iter().collect()
    }
}

impl StateLog for Disk {
    fn set(&self, key: &[u8], value: Option<&[u8]>) -> u64 {
        let mut changes = self.0.lock();
        changes.all.push((Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice)));
        changes.all.len() as u64
    }

    fn is_written(&self) -> bool {
        true
    }

    fn stable(&self) -> u64 {
        self.0.lock().stable as u64
    }

    /// With an exclusive thread it syncs at once; otherwise the future is polled again after each step.
    fn reached(&self, number: u64, thread: Thread) -> Op<'_, ()> {
        if thread == Thread::Exclusive {
            self.sync();
            return Op::ok(());
        }
        let is_stable = move || self.stable() >= number;
        Op::pending(std::future::poll_fn(
            move |_| if is_stable() { Poll::Ready(Ok(())) } else { Poll::Pending },
        ))
    }

    /// Nothing to do: the world syncs it.
    fn push(&self) {}
}
