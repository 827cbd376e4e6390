//! Opens by file, client and open-owner: their indexes alone, since what they are found by stands in the entries. So an open
//! pays four bytes for it.

use core::hash::BuildHasher;

use hashbrown::HashTable;

use super::super::file::Keyed;
use super::super::wire::ClientId;
use super::{Cell, Entry, Kind};
use crate::state::tables::file_key::FileKey;

/// What tells an open from all others that are held. Clients choose the owner: see [`Map`](super::super::file::Map).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct OpenKey<'o> {
    pub(crate) file: FileKey,
    pub(crate) client: ClientId,
    pub(crate) owner: &'o [u8],
}

/// See the module. It is asked with the cells that the indexes are of.
#[derive(Debug)]
pub(super) struct ByOwner {
    indexes: HashTable<u32>,
    hasher: Keyed,
}

impl ByOwner {
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

    /// Puts in an open whose like is not there.
    pub(super) fn insert(&mut self, cells: &[Cell], index: u32) {
        let hasher = self.hasher;
        let hash = |index: &u32| hash_of(hasher, cells, *index);
        self.indexes.insert_unique(hash(&index), index, hash);
    }

    /// Takes an open out, whose entry is still as it was.
    pub(super) fn remove(&mut self, cells: &[Cell], index: u32) {
        let hash = hash_of(self.hasher, cells, index);
        let place = self.indexes.find_entry(hash, |other| *other == index);
        place.expect("what is held is listed here").remove();
    }
}

fn hash_of(hasher: Keyed, cells: &[Cell], index: u32) -> u64 {
    hasher.hash_one(key_of(cells, index).expect("what is listed here is an open"))
}

/// What the entry at an index is found by; nothing where that is no open.
fn key_of(cells: &[Cell], index: u32) -> Option<OpenKey<'_>> {
    match &cells.get(index as usize)?.entry {
        Some(Entry { client, file, kind: Kind::Open(open), .. }) => {
            Some(OpenKey { file: *file, client: client.id(), owner: &open.owner })
        }
        _ => None,
    }
}
