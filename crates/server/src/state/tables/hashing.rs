//! Maps of the shards, with hashes that suit their keys.

use core::hash::{BuildHasher, Hasher};
use std::collections::HashMap;

use foldhash::quality::FixedState;
use siphasher::sip::SipHasher13;

/// A map whose keys contain owners, which clients choose. Its hash is SipHash: colliding keys cannot be found without the seed.
/// foldhash is faster, but keys are known that collide under every seed.
pub(crate) type Map<K, V> = HashMap<K, V, Keyed>;

/// A map whose keys are numbers of file systems and of this server, which no client chooses.
pub(crate) type Numbered<K, V> = HashMap<K, V, FixedState>;

/// Returns an empty map. Only this server may know the seed.
pub(crate) fn numbered<K, V>(seed: u64) -> Numbered<K, V> {
    HashMap::with_hasher(FixedState::with_seed(seed))
}

/// Returns an empty map. Only this server may know the seed.
pub(crate) fn map<K, V>(seed: u64) -> Map<K, V> {
    HashMap::with_hasher(keyed(seed))
}

/// Returns a hasher for keys that clients choose. Only this server may know the seed.
pub(crate) fn keyed(seed: u64) -> Keyed {
    Keyed(seed)
}

/// Creates hashers whose values clients cannot predict.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keyed(u64);

impl BuildHasher for Keyed {
    type Hasher = OwnerHasher;

    fn build_hasher(&self) -> OwnerHasher {
        let numbers = FixedState::with_seed(self.0).build_hasher();
        OwnerHasher { owner: SipHasher13::new_with_keys(self.0, !self.0), numbers }
    }
}

/// Hashes an owner by SipHash. Other numbers of the key are hashed as in [`Numbered`] maps: each would cost a round of SipHash.
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

    /// Ignores the owner's length: SipHash includes it.
    fn write_usize(&mut self, _length: usize) {}
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn owners_that_collide_in_foldhash_do_not_collide() {
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
