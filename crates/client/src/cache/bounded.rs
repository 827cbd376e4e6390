//! A map of bounded size whose entries count against the memory budget.

use std::hash::Hash;

use quick_cache::unsync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter};

use super::limiter::{Kind, Permit, Refused, User};

/// A reclaim evicts at least this part of the map, so that it is not called for every entry.
const RECLAIM_PART: u64 = 64;

/// A map that evicts by `quick_cache`'s policy, which a scan of many keys does not flush.
///
/// Every entry holds a permit of [`Kind::Metadata`]. Without space in the budget the map evicts entries of its own before
/// it takes a new one.
pub(super) struct Bounded<K, V> {
    cache: Cache<K, Slot<V>, ByPermit, DefaultHashBuilder, KeepPinned>,
    user: User,
    capacity: u64,
}

/// A value of a [`Bounded`] map.
pub(super) trait Value {
    /// Returns true if the value must not be evicted now.
    fn is_pinned(&self) -> bool {
        false
    }
}

struct Slot<V> {
    value: V,
    permit: Permit,
}

#[derive(Clone)]
struct ByPermit;

impl<K, V> Weighter<K, Slot<V>> for ByPermit {
    fn weight(&self, _: &K, slot: &Slot<V>) -> u64 {
        slot.permit.bytes()
    }
}

#[derive(Clone)]
struct KeepPinned;

impl<K, V: Value> Lifecycle<K, Slot<V>> for KeepPinned {
    type RequestState = ();

    fn is_pinned(&self, _: &K, slot: &Slot<V>) -> bool {
        slot.value.is_pinned()
    }
}

impl<K: Eq + Hash, V: Value> Bounded<K, V> {
    /// Creates a map that holds at most `capacity` bytes, for entries of about `entry_bytes`.
    pub(super) fn new(user: User, capacity: u64, entry_bytes: u64) -> Self {
        let capacity = capacity.max(entry_bytes);
        let entries = usize::try_from(capacity / entry_bytes).unwrap_or(usize::MAX);
        let cache = Cache::with(entries, capacity, ByPermit, DefaultHashBuilder::default(), KeepPinned);
        Self { cache, user, capacity }
    }

    /// Inserts an entry of `bytes`, and evicts others if necessary. Returns false if the entry does not fit even then.
    pub(super) fn insert(&mut self, key: K, value: V, bytes: u64) -> bool {
        let Some(permit) = self.reserve(bytes) else {
            self.cache.remove(&key);
            return false;
        };
        self.cache.insert(key, Slot { value, permit });
        true
    }

    fn reserve(&mut self, bytes: u64) -> Option<Permit> {
        if bytes > self.capacity {
            return None;
        }
        match self.user.try_reserve(Kind::Metadata, bytes) {
            Err(Refused::Full) if self.reclaim(bytes) > 0 => {
                self.user.try_reserve(Kind::Metadata, bytes).ok()
            }
            result => result.ok(),
        }
    }

    /// Returns an entry and counts the use.
    pub(super) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        Q: Hash + quick_cache::Equivalent<K> + ?Sized,
    {
        self.cache.get(key).map(|slot| &slot.value)
    }

    /// Changes an entry in place. Its size does not change.
    pub(super) fn change<Q, R>(&mut self, key: &Q, change: impl FnOnce(&mut V) -> R) -> Option<R>
    where
        Q: Hash + quick_cache::Equivalent<K> + ?Sized,
    {
        self.cache.get_mut(key).map(|mut slot| change(&mut slot.value))
    }

    /// Removes an entry.
    pub(super) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        Q: Hash + quick_cache::Equivalent<K> + ?Sized,
    {
        self.cache.remove(key).map(|(_, slot)| slot.value)
    }

    /// Evicts entries of at least `bytes` if it has that many. Returns the bytes released.
    pub(super) fn reclaim(&mut self, bytes: u64) -> u64 {
        let before = self.cache.weight();
        let keep = before.saturating_sub(bytes.max(before / RECLAIM_PART));
        self.cache.set_capacity(keep.max(1));
        self.cache.set_capacity(self.capacity);
        before - self.cache.weight()
    }

    /// Returns the bytes that the entries hold.
    pub(super) fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.cache.len()
    }
}
