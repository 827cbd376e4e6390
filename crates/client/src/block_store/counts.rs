//! Counters of a block store.

use std::sync::atomic::{AtomicU64, Ordering};

/// Uses of a block store so far, and its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockCounts {
    /// Blocks that were asked for and returned.
    pub hits: u64,
    /// Blocks that were asked for and not returned.
    pub misses: u64,
    /// Bytes of the returned blocks.
    pub hit_bytes: u64,
    /// Blocks that were stored.
    pub stored: u64,
    /// Blocks that were not stored: the store is too slow, or cannot be written.
    pub dropped: u64,
    /// Blocks that were removed because their content was damaged. They are misses too.
    pub damaged: u64,
    /// Bytes in the store.
    pub bytes: u64,
    /// Maximum number of bytes.
    pub bytes_max: u64,
}

/// The counters of a block store that several threads change.
#[derive(Debug, Default)]
pub struct BlockCounters {
    hits: AtomicU64,
    misses: AtomicU64,
    hit_bytes: AtomicU64,
    stored: AtomicU64,
    dropped: AtomicU64,
    damaged: AtomicU64,
}

impl BlockCounters {
    /// Counts the result of a search for a block.
    pub fn found(&self, block: Option<usize>) {
        match block {
            Some(bytes) => {
                add(&self.hits, 1);
                add(&self.hit_bytes, bytes as u64);
            }
            None => add(&self.misses, 1),
        }
    }

    /// Counts a block that was stored.
    pub fn stored(&self) {
        add(&self.stored, 1);
    }

    /// Counts blocks that were not stored.
    pub fn dropped(&self, blocks: u64) {
        add(&self.dropped, blocks);
    }

    /// Counts a damaged block.
    pub fn damaged(&self) {
        add(&self.damaged, 1);
    }

    /// Returns the counters, with the size of the store.
    pub fn counts(&self, bytes: u64, bytes_max: u64) -> BlockCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BlockCounts {
            hits: of(&self.hits),
            misses: of(&self.misses),
            hit_bytes: of(&self.hit_bytes),
            stored: of(&self.stored),
            dropped: of(&self.dropped),
            damaged: of(&self.damaged),
            bytes,
            bytes_max,
        }
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
