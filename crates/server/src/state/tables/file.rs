//! A file that somebody has open, locked or delegated.

use core::hash::{BuildHasher, Hasher};
use std::collections::HashMap;
use std::sync::Arc;

use foldhash::quality::FixedState;
use siphasher::sip::SipHasher13;

use super::range::Ranges;
use super::shard::List;
use super::share::Opens;
use super::wire::ClientId;

/// A map of a shard. Clients choose the owners in the keys, so that the hash has to be one for which nobody finds keys that
/// collide without knowing the seed; of foldhash, which is faster, that is not so.
pub(crate) type Map<K, V> = HashMap<K, V, Keyed>;

/// A map of a shard whose keys no client chooses: file systems and this server number what is in them.
pub(crate) type Numbered<K, V> = HashMap<K, V, FixedState>;

/// An empty one; `seed` is nobody's but this server's.
pub(crate) fn numbered<K, V>(seed: u64) -> Numbered<K, V> {
    HashMap::with_hasher(FixedState::with_seed(seed))
}

/// Makes hashers that nobody foresees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keyed(u64);

impl BuildHasher for Keyed {
    type Hasher = OwnerHasher;

    fn build_hasher(&self) -> OwnerHasher {
        let numbers = FixedState::with_seed(self.0).build_hasher();
        OwnerHasher { owner: SipHasher13::new_with_keys(self.0, !self.0), numbers }
    }
}

/// Hashes one owner, and the numbers beside it: these as in [`Numbered`] maps, since each would take SipHash a round.
pub(crate) struct OwnerHasher {
    owner: SipHasher13,
    numbers: <FixedState as BuildHasher>::Hasher,
}

impl Hasher for OwnerHasher {
    fn finish(&self) -> u64 {
        self.owner.finish() ^ self.numbers.finish()
    }

    fn write(&mut self, bytes: &[u8]) {
        self.owner.write(bytes);
    }

    fn write_u64(&mut self, number: u64) {
        self.numbers.write_u64(number);
    }

    /// The owner's length, which SipHash counts by itself.
    fn write_usize(&mut self, _length: usize) {}
}

/// Makes the hasher; `seed` is nobody's but this server's.
pub(crate) fn keyed(seed: u64) -> Keyed {
    Keyed(seed)
}

/// An empty one.
pub(crate) fn map<K, V>(seed: u64) -> Map<K, V> {
    HashMap::with_hasher(keyed(seed))
}

/// A lock-owner of a file.
#[derive(Debug)]
struct LockOwner {
    number: u32,
    /// Lock stateids that it has there.
    stateids: u32,
}

/// A file that somebody has open, or delegated.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) opens: Opens,
    pub(crate) delegations: List,
    pub(crate) ranges: Ranges,
    lock_owners: Map<(ClientId, Arc<[u8]>), LockOwner>,
    next_owner: u32,
}

impl File {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            opens: Opens::default(),
            delegations: List::new(),
            ranges: Ranges::new(seed),
            lock_owners: map(seed),
            next_owner: 0,
        }
    }

    /// The number of a lock-owner, a new one where it has none.
    pub(crate) fn owner_number(&mut self, client: ClientId, owner: &Arc<[u8]>) -> u32 {
        let next = &mut self.next_owner;
        let record = self.lock_owners.entry((client, Arc::clone(owner))).or_insert_with(|| {
            // A number may come back after four thousand million owners of one open file, when its last holder is long gone.
            *next = next.wrapping_add(1);
            LockOwner { number: *next, stateids: 0 }
        });
        record.number
    }

    /// The number of a lock-owner, where it has locks here.
    pub(crate) fn known_owner(&self, client: ClientId, owner: Arc<[u8]>) -> Option<u32> {
        self.lock_owners.get(&(client, owner)).map(|owner| owner.number)
    }

    /// A lock stateid of an owner came or went; the owner goes with its last one.
    pub(crate) fn count_owner(&mut self, client: ClientId, owner: &Arc<[u8]>, by: i32) {
        let key = (client, Arc::clone(owner));
        if let Some(record) = self.lock_owners.get_mut(&key) {
            record.stateids = record.stateids.saturating_add_signed(by);
            if record.stateids == 0 {
                self.lock_owners.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_choice_of_owners_makes_them_collide_whatever_the_seed() {
        // With this end, foldhash gives all owners of sixteen bytes one hash under every seed.
        const END: [u8; 8] = [0x17, 0x09, 0x47, 0xb5, 0xb5, 0xd5, 0x84, 0x3f];
        for seed in [0, 1, u64::MAX] {
            let hash = |number: u64| {
                let owner: Arc<[u8]> = [number.to_le_bytes(), END].concat().into();
                Keyed(seed).hash_one((1u64, owner))
            };
            assert_eq!((0..1000).map(hash).collect::<HashSet<_>>().len(), 1000);
        }
    }
}
