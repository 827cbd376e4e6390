//! Opens by file, client and open-owner. The table holds indexes; the keys are in the entries. So an open costs four bytes here.

use core::hash::BuildHasher;

use hashbrown::HashTable;

use super::super::file_key::FileKey;
use super::super::hashing::Keyed;
use super::super::wire::ClientId;
use super::entry::{Cell, Entry, EntryKind};

/// Identifies an open among those in effect. Clients choose the owner: see [`Map`](super::super::hashing::Map).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct OpenKey<'o> {
    pub(crate) file: FileKey,
    pub(crate) client: ClientId,
    pub(crate) owner: &'o [u8],
}

/// Opens by file, client and open-owner. Each method takes the cells that the indexes refer to.
#[derive(Debug)]
pub(super) struct OpensByOwner {
    indexes: HashTable<u32>,
    hasher: Keyed,
}

impl OpensByOwner {
    pub(super) fn new(hasher: Keyed) -> Self {
        Self { indexes: HashTable::new(), hasher }
    }

    pub(super) fn len(&self) -> usize {
        self.indexes.len()
    }

    pub(super) fn get(&self, cells: &[Cell], key: OpenKey<'_>) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.indexes.find(hash, |index| key_of(cells, *index) == Some(key)).copied()
    }

    /// Adds an open whose key is not in the table.
    pub(super) fn insert(&mut self, cells: &[Cell], index: u32) {
        let hasher = self.hasher;
        let hash = |index: &u32| hash_of(hasher, cells, *index);
        self.indexes.insert_unique(hash(&index), index, hash);
    }

    /// Removes an open. Its entry must not have changed yet.
    pub(super) fn remove(&mut self, cells: &[Cell], index: u32) {
        let hash = hash_of(self.hasher, cells, index);
        let found = self.indexes.find_entry(hash, |other| *other == index);
        found.expect("an open in effect is in the table").remove();
    }
}

fn hash_of(hasher: Keyed, cells: &[Cell], index: u32) -> u64 {
    hasher.hash_one(key_of(cells, index).expect("the table holds indexes of opens"))
}

/// Returns the key of the open at an index.
fn key_of(cells: &[Cell], index: u32) -> Option<OpenKey<'_>> {
    match &cells.get(index as usize)?.entry {
        Some(Entry { client, file, kind: EntryKind::Open(open), .. }) => {
            Some(OpenKey { file: *file, client: client.id(), owner: &open.owner })
        }
        _ => None,
    }
}
