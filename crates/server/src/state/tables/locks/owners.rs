//! The lock-owners of a file and their numbers.

use std::sync::Arc;

use super::super::hashing::{Map, map};

/// Names a lock-owner among all clients and protocols.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct OwnerName {
    /// A number of the client or host.
    pub(crate) client: u64,
    /// The bytes by which the client names the owner.
    pub(crate) owner: Arc<[u8]>,
}

/// The number of a lock-owner within a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LockOwner(pub(crate) u32);

#[derive(Debug)]
struct OwnerRecord {
    number: LockOwner,
    /// Lock sets that the owner has in this file.
    sets: u32,
}

/// The lock-owners of a file. An owner keeps its number as long as it has a lock set there.
#[derive(Debug)]
pub(crate) struct LockOwners {
    by_name: Map<OwnerName, OwnerRecord>,
    last: u32,
}

impl LockOwners {
    pub(crate) fn new(seed: u64) -> Self {
        Self { by_name: map(seed), last: 0 }
    }

    /// Returns the number of an owner that has a lock set here.
    pub(crate) fn find(&self, name: &OwnerName) -> Option<LockOwner> {
        self.by_name.get(name).map(|owner| owner.number)
    }

    /// Counts one more lock set of an owner and returns the owner's number.
    pub(crate) fn add_set(&mut self, name: OwnerName) -> LockOwner {
        let last = &mut self.last;
        let record = self.by_name.entry(name).or_insert_with(|| {
            // A number is reused after 2^32 owners of one open file; its earlier owner has ended by then.
            *last = last.wrapping_add(1);
            OwnerRecord { number: LockOwner(*last), sets: 0 }
        });
        record.sets += 1;
        record.number
    }

    /// Counts one lock set less. The owner leaves with its last one.
    pub(crate) fn remove_set(&mut self, name: &OwnerName) {
        if let Some(record) = self.by_name.get_mut(name) {
            record.sets = record.sets.saturating_sub(1);
            if record.sets == 0 {
                self.by_name.remove(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(client: u64, owner: &[u8]) -> OwnerName {
        OwnerName { client, owner: owner.into() }
    }

    #[test]
    fn equal_bytes_of_two_clients_are_two_owners() {
        let mut owners = LockOwners::new(1);
        assert_ne!(owners.add_set(name(1, b"x")), owners.add_set(name(2, b"x")));
        assert_ne!(owners.find(&name(1, b"x")), owners.find(&name(1, b"y")));
    }

    #[test]
    fn an_owner_keeps_its_number_until_its_last_lock_set_ends() {
        let mut owners = LockOwners::new(1);
        let number = owners.add_set(name(1, b"x"));
        assert_eq!(owners.add_set(name(1, b"x")), number);
        owners.remove_set(&name(1, b"x"));
        assert_eq!(owners.find(&name(1, b"x")), Some(number));
        owners.remove_set(&name(1, b"x"));
        assert_eq!(owners.find(&name(1, b"x")), None);
        assert_ne!(owners.add_set(name(1, b"x")), number);
    }
}
