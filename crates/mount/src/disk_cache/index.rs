//! The blocks of a disk cache, and those that must go.

use std::sync::Arc;

use client::block_store::BLOCK;
use parking_lot::Mutex;
use quick_cache::unsync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use super::directory::Name;

/// The part of the blocks that goes when the disk is full.
const SHRINK_PART: u64 = 8;

/// The blocks of a cache by name, within a number of bytes. Replacement is `quick_cache`'s, which a scan of many files does not
/// flush.
pub(super) struct Index {
    blocks: Cache<Name, u64, Bytes, DefaultHashBuilder, Evicted>,
    evicted: Arc<Mutex<Vec<Name>>>,
    bytes_max: u64,
}

#[derive(Clone)]
struct Bytes;

impl Weighter<Name, u64> for Bytes {
    fn weight(&self, _: &Name, bytes: &u64) -> u64 {
        *bytes
    }
}

/// Collects evicted names.
#[derive(Clone)]
struct Evicted(Arc<Mutex<Vec<Name>>>);

impl Lifecycle<Name, u64> for Evicted {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), name: Name, _: u64) {
        self.0.lock().push(name);
    }
}

impl Index {
    pub(super) fn new(bytes_max: u64) -> Self {
        let evicted = Arc::<Mutex<Vec<Name>>>::default();
        let count = usize::try_from(bytes_max / BLOCK).unwrap_or(usize::MAX);
        let lifecycle = Evicted(Arc::clone(&evicted));
        let blocks = Cache::with(count, bytes_max, Bytes, DefaultHashBuilder::default(), lifecycle);
        Self { blocks, evicted, bytes_max }
    }

    /// Returns whether a block is known, and notes its use.
    pub(super) fn note_use(&self, name: Name) -> bool {
        self.blocks.get(&name).is_some()
    }

    /// Adds a block. Returns the blocks to remove from the disk, perhaps this one too.
    #[must_use]
    pub(super) fn insert(&mut self, name: Name, bytes: u64) -> Vec<Name> {
        // `quick_cache` reports a value that is replaced as evicted.
        self.blocks.remove(&name);
        self.blocks.insert(name, bytes);
        std::mem::take(&mut self.evicted.lock())
    }

    pub(super) fn remove(&mut self, name: Name) {
        self.blocks.remove(&name);
    }

    /// Forgets an eighth of the blocks. Returns them.
    #[must_use]
    pub(super) fn shrink(&mut self) -> Vec<Name> {
        let bytes = self.blocks.weight();
        self.blocks.set_capacity(bytes - bytes / SHRINK_PART);
        self.blocks.set_capacity(self.bytes_max);
        std::mem::take(&mut self.evicted.lock())
    }

    pub(super) fn bytes(&self) -> u64 {
        self.blocks.weight()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_kept_and_every_block_that_goes_is_named() {
        let mut index = Index::new(100 * BLOCK);
        let mut present = std::collections::BTreeSet::new();
        for name in 0..1000 {
            present.insert(name);
            for evicted in index.insert(name, BLOCK) {
                assert!(present.remove(&evicted), "{evicted}");
            }
            assert!(index.bytes() <= 100 * BLOCK);
        }
        assert_eq!(present.len() as u64 * BLOCK, index.bytes());
        assert!(present.len() > 90);
        assert!(present.iter().all(|name| index.note_use(*name)));
        let gone = index.shrink();
        assert!(gone.len() >= 10 && gone.iter().all(|name| present.remove(name)));
        assert_eq!(present.len() as u64 * BLOCK, index.bytes());
        // The limit is the same as before.
        for name in 1000..1020 {
            present.insert(name);
            index.insert(name, BLOCK).iter().for_each(|name| assert!(present.remove(name)));
        }
        assert!(index.bytes() > 95 * BLOCK);
    }

    #[test]
    fn a_block_that_is_stored_again_stays() {
        let mut index = Index::new(100 * BLOCK);
        assert!(index.insert(1, BLOCK).is_empty());
        assert!(index.insert(1, 100).is_empty());
        assert_eq!((index.bytes(), index.note_use(1)), (100, true));
    }
}
