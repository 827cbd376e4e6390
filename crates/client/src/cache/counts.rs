//! Counters of the use of caches.

use std::sync::atomic::{AtomicU64, Ordering};

/// Uses of one cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Uses {
    /// Answered from the cache.
    pub hits: u64,
    /// Needed a request to the server.
    pub misses: u64,
}

/// Uses of the caches of a mount so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounts {
    /// Attributes that were asked for.
    pub attributes: Uses,
    /// Names that were looked up. A name whose directory had to be revalidated first is a hit.
    pub names: Uses,
    /// Permissions that were asked for.
    pub access: Uses,
    /// Parts of directories that were listed.
    pub listings: Uses,
    /// Bytes that programs read through the cache. Bytes that read-ahead has requested already are hits.
    pub data_bytes: Uses,
}

/// Counters of one cache that several tasks change.
#[derive(Debug, Default)]
pub(crate) struct UseCounter {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl UseCounter {
    /// Counts one use.
    pub(crate) fn note(&self, is_hit: bool) {
        if is_hit { self.add(1, 0) } else { self.add(0, 1) }
    }

    /// Counts several uses.
    pub(crate) fn add(&self, hits: u64, misses: u64) {
        self.hits.fetch_add(hits, Ordering::Relaxed);
        self.misses.fetch_add(misses, Ordering::Relaxed);
    }

    fn uses(&self) -> Uses {
        Uses { hits: self.hits.load(Ordering::Relaxed), misses: self.misses.load(Ordering::Relaxed) }
    }
}

/// The counters of a mount.
#[derive(Debug, Default)]
pub(crate) struct CacheCounters {
    pub(crate) attributes: UseCounter,
    pub(crate) names: UseCounter,
    pub(crate) access: UseCounter,
    pub(crate) listings: UseCounter,
    pub(crate) data_bytes: UseCounter,
}

impl CacheCounters {
    /// Returns the present values.
    pub(crate) fn all(&self) -> CacheCounts {
        CacheCounts {
            attributes: self.attributes.uses(),
            names: self.names.uses(),
            access: self.access.uses(),
            listings: self.listings.uses(),
            data_bytes: self.data_bytes.uses(),
        }
    }
}
