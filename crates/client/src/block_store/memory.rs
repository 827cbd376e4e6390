//! A block store in memory, for tests and simulations.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use parking_lot::Mutex;

use super::counts::{BlockCounters, BlockCounts};
use super::version::{BlockKey, FileVersion};
use super::{BLOCK, BlockStore, record};
use crate::cache::limiter::Permit;

/// Blocks in memory, first in first out within a number of bytes.
pub struct MemoryBlocks {
    records: Mutex<Records>,
    counters: BlockCounters,
    bytes_max: u64,
}

#[derive(Default)]
struct Records {
    by_key: HashMap<BlockKey, Bytes>,
    /// From the oldest to the newest.
    order: VecDeque<BlockKey>,
    bytes: u64,
}

impl MemoryBlocks {
    /// Creates an empty store of at most `bytes_max`.
    #[must_use]
    pub fn new(bytes_max: u64) -> Arc<Self> {
        Arc::new(Self { records: Mutex::default(), counters: BlockCounters::default(), bytes_max })
    }

    /// Lets a test damage each record, from the oldest to the newest.
    pub fn damage(&self, mut damage: impl FnMut(&mut Vec<u8>)) {
        let mut records = self.records.lock();
        for key in records.order.clone() {
            let Some(record) = records.by_key.get(&key) else { continue };
            let mut changed = record.to_vec();
            damage(&mut changed);
            records.bytes = records.bytes + changed.len() as u64 - record.len() as u64;
            records.by_key.insert(key, changed.into());
        }
    }

    fn find(&self, key: &BlockKey) -> Option<Bytes> {
        let mut records = self.records.lock();
        let data = record::data(key, records.by_key.get(key)?);
        if data.is_none() {
            self.counters.damaged();
            records.remove(key);
        }
        data
    }
}

impl Records {
    fn remove(&mut self, key: &BlockKey) {
        self.bytes -= self.by_key.remove(key).map_or(0, |record| record.len() as u64);
    }

    fn insert(&mut self, key: BlockKey, record: Bytes, bytes_max: u64) {
        self.remove(&key);
        self.order.retain(|known| *known != key);
        self.bytes += record.len() as u64;
        self.by_key.insert(key.clone(), record);
        self.order.push_back(key);
        while self.bytes > bytes_max {
            let Some(oldest) = self.order.pop_front() else { break };
            self.remove(&oldest);
        }
    }
}

impl BlockStore for MemoryBlocks {
    fn get(&self, file: &Arc<FileVersion>, blocks: Range<u64>) -> BoxFuture<'static, Vec<Option<Bytes>>> {
        let found = blocks.map(|block| {
            let data = self.find(&file.key(block));
            self.counters.found(data.as_ref().map(Bytes::len));
            data
        });
        ready(found.collect()).boxed()
    }

    fn put(&self, file: &Arc<FileVersion>, first: u64, data: Bytes, _memory: Permit) {
        for (block, data) in (first..).zip(data.chunks(BLOCK as usize)) {
            let key = file.key(block);
            let record = Bytes::from([&record::head(&key, data)[..], data].concat());
            self.records.lock().insert(key, record, self.bytes_max);
            self.counters.stored();
        }
    }

    fn counts(&self) -> BlockCounts {
        self.counters.counts(self.records.lock().bytes, self.bytes_max)
    }
}

impl fmt::Debug for MemoryBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBlocks").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
