//! The server's durable logs, and their losses at a power failure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use server::{ReplyLog, StableLog, StateLog};
use vfs::{Op, Thread};

use crate::backend::Clock;
use crate::rng::Rng;

/// Maximum time of a sync.
const SLOWEST_SYNC: Duration = Duration::from_millis(200);

/// The reply log and the state log, on a slow disk.
#[derive(Debug)]
pub struct Logs {
    clock: Arc<Clock>,
    slowest_sync: Duration,
    content: Mutex<Content>,
}

#[derive(Debug)]
struct Content {
    rng: Rng,
    records: Grown<Bytes>,
    changes: Grown<(Vec<u8>, Option<Vec<u8>>)>,
}

/// Appended records, and the number of durable ones.
#[derive(Debug)]
struct Grown<T> {
    all: Vec<T>,
    stable: usize,
}

impl<T> Grown<T> {
    const fn new() -> Self {
        Self { all: Vec::new(), stable: 0 }
    }

    fn push(&mut self, item: T) {
        self.all.push(item);
    }

    fn reach(&mut self, count: usize) {
        // A power failure may have removed records meanwhile.
        self.stable = self.stable.max(count.min(self.all.len()));
    }

    /// Loses records that are not durable, except for a random prefix.
    fn lose(&mut self, rng: &mut Rng) {
        let unsynced = self.all.len() - self.stable;
        self.all.truncate(self.stable + rng.below(unsynced as u64 + 1) as usize);
        self.stable = self.all.len();
    }
}

impl Logs {
    /// Creates empty logs; `seed` determines the times of syncs, and the losses.
    pub fn new(clock: Arc<Clock>, seed: u64) -> Self {
        let content = Content { rng: Rng::new(seed), records: Grown::new(), changes: Grown::new() };
        Self { clock, slowest_sync: SLOWEST_SYNC, content: Mutex::new(content) }
    }

    /// Creates empty logs on a disk without delay.
    pub fn prompt(clock: Arc<Clock>) -> Self {
        Self { slowest_sync: Duration::ZERO, ..Self::new(clock, 0) }
    }

    /// Simulates a power failure.
    pub fn lose(&self) {
        let Content { rng, records, changes } = &mut *self.content.lock();
        records.lose(rng);
        changes.lose(rng);
    }

    /// Returns the records of the reply log.
    pub fn records(&self) -> Vec<Bytes> {
        self.content.lock().records.all.clone()
    }

    /// Returns the keys and values of the state log.
    pub fn entries(&self) -> Vec<(Bytes, Bytes)> {
        let mut map = BTreeMap::new();
        for (key, value) in self.content.lock().changes.all.clone() {
            match value {
                Some(value) => _ = map.insert(key, value),
                None => _ = map.remove(&key),
            }
        }
        map.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
    }

    /// Runs `reach` at the end of a sync that starts now.
    fn synced<'a>(&'a self, reach: impl FnOnce(&mut Content) + Send + 'a) -> Op<'a, ()> {
        let slowest = self.slowest_sync.as_micros() as u64;
        let delay = if slowest == 0 { 0 } else { self.content.lock().rng.below(slowest) };
        let over = Clock::until(&self.clock, self.clock.now() + Duration::from_micros(delay));
        Op::pending(async move {
            over.await;
            reach(&mut self.content.lock());
            Ok(())
        })
    }
}

impl ReplyLog for Logs {
    fn append(&self, parts: &[&[u8]]) {
        self.content.lock().records.push(parts.concat().into());
    }
}

impl StableLog for Logs {
    fn sync(&self) -> Op<'_, ()> {
        let count = self.content.lock().records.all.len();
        self.synced(move |content| content.records.reach(count))
    }
}

impl StateLog for Logs {
    fn set(&self, key: &[u8], value: Option<&[u8]>) -> u64 {
        let mut content = self.content.lock();
        content.changes.push((key.to_vec(), value.map(<[u8]>::to_vec)));
        content.changes.all.len() as u64
    }

    fn is_written(&self) -> bool {
        true
    }

    fn stable(&self) -> u64 {
        self.content.lock().changes.stable as u64
    }

    /// Syncs the disk at once for a caller with an exclusive thread.
    fn reached(&self, number: u64, thread: Thread) -> Op<'_, ()> {
        if thread == Thread::Exclusive {
            let changes = &mut self.content.lock().changes;
            changes.reach(changes.all.len());
        }
        if self.stable() >= number {
            return Op::ok(());
        }
        self.synced(move |content| content.changes.reach(number as usize))
    }

    /// Records that nothing waits for are lost at a power failure.
    fn push(&self) {}
}
