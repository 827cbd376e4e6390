//! Names that were found in memory in the current minute.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::nonblocking;
use crate::object::Object;

/// Names that are remembered, at eight bytes each.
const NAMES: usize = 16 * 1024;
/// Entries of a set. With one entry, about thirty pairs of a directory of a thousand names would evict each other.
const WAYS: usize = 4;

/// A set-associative table of name hashes. A hash is made of directory, name and minute, and selects its set; the
/// newest is first. An evicted hash costs an openat2(2) the next time, and so does a hash that is lost when two
/// threads insert at once.
#[derive(Debug)]
pub(crate) struct CachedNames {
    sets: Box<[[AtomicU64; WAYS]]>,
    hasher: quick_cache::DefaultHashBuilder,
}

impl Default for CachedNames {
    fn default() -> Self {
        Self { sets: (0..NAMES / WAYS).map(|_| Default::default()).collect(), hasher: Default::default() }
    }
}

/// The hash of a directory, a name in it, and a minute.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameHash(u64);

/// Hashes names of one directory.
pub(crate) struct NameHasher(HasherState);

type HasherState = <quick_cache::DefaultHashBuilder as BuildHasher>::Hasher;

impl NameHasher {
    /// Returns the hash of a name.
    pub(crate) fn hash_name(&self, name: &[u8]) -> NameHash {
        let mut hasher = self.0.clone();
        name.hash(&mut hasher);
        NameHash(hasher.finish() | 1)
    }
}

impl CachedNames {
    /// Returns the hasher for names in `directory` in this minute.
    pub(crate) fn hasher(&self, directory: &Object) -> NameHasher {
        let mut hasher = self.hasher.build_hasher();
        (directory.key, nonblocking::minute()).hash(&mut hasher);
        NameHasher(hasher)
    }

    fn set(&self, hash: NameHash) -> &[AtomicU64; WAYS] {
        &self.sets[(hash.0 >> 32) as usize % (NAMES / WAYS)]
    }

    pub(crate) fn contains(&self, hash: NameHash) -> bool {
        self.set(hash).iter().any(|place| place.load(Ordering::Relaxed) == hash.0)
    }

    pub(crate) fn insert(&self, hash: NameHash) {
        let mut pushed = hash.0;
        for place in self.set(hash) {
            let here = place.load(Ordering::Relaxed);
            place.store(pushed, Ordering::Relaxed);
            if here == hash.0 {
                return;
            }
            pushed = here;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a hash in the first set.
    fn mark(number: u64) -> NameHash {
        NameHash(number << 1 | 1)
    }

    #[test]
    fn a_set_contains_its_newest_hashes() {
        let names = CachedNames::default();
        (0..WAYS as u64).for_each(|number| names.insert(mark(number)));
        // Inserted again, so it evicts nothing.
        names.insert(mark(0));
        assert!((0..WAYS as u64).all(|number| names.contains(mark(number))));
        names.insert(mark(9));
        let known: Vec<u64> = (0..10).filter(|number| names.contains(mark(*number))).collect();
        assert_eq!(known, [0, 2, 3, 9], "1 was the oldest");
        assert!(!names.contains(NameHash(1 << 32 | 1)), "another set's");
    }
}
