//! Names of directories: the file that each one has, and names that do not exist.
//!
//! A name is valid in the directory's [`Epoch`]: until its attributes show a change of the directory by another client.
//! The caller requests the directory's attributes first when their timeout is over. Own changes of names are stored with
//! [`NameCache::changed`] and keep the other names of the directory valid.
//!
//! A LOOKUP that overlaps an own change of the same name may answer with either state. Its reply is not cached.

use std::collections::HashMap;

use bytes::Bytes;
use quick_cache::Equivalent;

use super::FileId;
use super::attributes::Epoch;
use super::bounded::{Bounded, Value};
use super::limiter::User;

#[cfg(test)]
mod tests;

/// Bytes that are accounted for one name, besides its own.
pub const ENTRY_BYTES: u64 = 192;
/// Directories whose last own change is remembered; with more, LOOKUPs in flight are not cached.
pub const CHANGED_DIRECTORIES_MAX: usize = 1024;

/// `lookupcache=`: the names that are answered without a request to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LookupCache {
    /// All names, also those that do not exist.
    #[default]
    All,
    /// Only names that exist.
    Positive,
    /// None.
    None,
}

/// The result of looking up a name in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The name exists.
    Found(FileId),
    /// The name does not exist.
    Absent,
    /// A request to the server is needed.
    Unknown,
}

/// The moment when a LOOKUP was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the reply needs it"]
pub struct LookupStarted {
    generation: u64,
    epoch: Epoch,
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    directory: FileId,
    name: Bytes,
}

/// A borrowed [`Key`].
#[derive(Hash)]
struct KeyRef<'a> {
    directory: FileId,
    name: &'a [u8],
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.directory == key.directory && self.name == &key.name[..]
    }
}

struct Entry {
    target: Option<FileId>,
    epoch: Epoch,
    /// When the name was last entered or changed.
    generation: u64,
}

impl Value for Entry {}

/// The names of many directories, bounded by bytes.
pub struct NameCache {
    entries: Bounded<Key, Entry>,
    policy: LookupCache,
    generation: u64,
    /// The generation of each directory's last own change.
    changed: HashMap<FileId, u64>,
    /// LOOKUPs sent before this generation are not cached: earlier changes are forgotten.
    forgotten: u64,
}

impl NameCache {
    /// Creates a cache of at most `capacity` bytes, which are reserved for `user`.
    pub fn new(user: User, capacity: u64, policy: LookupCache) -> Self {
        let entries = Bounded::new(user, capacity, ENTRY_BYTES);
        Self { entries, policy, generation: 0, changed: HashMap::new(), forgotten: 0 }
    }

    /// Returns the cached entry of a name, in the directory's present epoch.
    pub fn lookup(&self, directory: FileId, epoch: Epoch, name: &[u8]) -> Lookup {
        let entry = self.entries.get(&KeyRef { directory, name }).filter(|entry| entry.epoch == epoch);
        match (entry.map(|entry| entry.target), self.policy) {
            (None, _) | (_, LookupCache::None) | (Some(None), LookupCache::Positive) => Lookup::Unknown,
            (Some(Some(file)), _) => Lookup::Found(file),
            (Some(None), LookupCache::All) => Lookup::Absent,
        }
    }

    /// Notes that a LOOKUP, or a READDIRPLUS, is sent while the directory is in `epoch`.
    pub fn start(&self, epoch: Epoch) -> LookupStarted {
        LookupStarted { generation: self.generation, epoch }
    }

    /// Notes that the server sent the object of a name; `None` if it does not exist.
    pub fn looked_up(
        &mut self,
        started: LookupStarted,
        directory: FileId,
        name: &[u8],
        target: Option<FileId>,
    ) {
        let last_change = match self.entries.get(&KeyRef { directory, name }) {
            Some(entry) => entry.generation,
            None => self.changed.get(&directory).copied().unwrap_or(0).max(self.forgotten),
        };
        if last_change <= started.generation {
            self.insert(directory, started.epoch, name, target);
        }
    }

    /// Notes that this client's change made `name` mean `target`, or removed it (`None`). `epoch` is the directory's present one.
    pub fn changed(&mut self, directory: FileId, epoch: Epoch, name: &[u8], target: Option<FileId>) {
        self.note_change(directory);
        self.insert(directory, epoch, name, target);
    }

    /// Forgets a name, for example when the outcome of an own change is not known.
    pub fn forget(&mut self, directory: FileId, name: &[u8]) {
        self.note_change(directory);
        self.entries.remove(&KeyRef { directory, name });
    }

    /// Releases names of at least `bytes`, if it has that many. Returns the bytes released.
    pub fn reclaim(&mut self, bytes: u64) -> u64 {
        self.entries.reclaim(bytes)
    }

    /// Returns the bytes accounted.
    pub fn bytes(&self) -> u64 {
        self.entries.bytes()
    }

    fn note_change(&mut self, directory: FileId) {
        self.generation += 1;
        if self.changed.len() >= CHANGED_DIRECTORIES_MAX && !self.changed.contains_key(&directory) {
            self.changed.clear();
            self.forgotten = self.generation;
        }
        self.changed.insert(directory, self.generation);
    }

    fn insert(&mut self, directory: FileId, epoch: Epoch, name: &[u8], target: Option<FileId>) {
        let entry = Entry { target, epoch, generation: self.generation };
        // A copy: a slice would keep a whole reply in memory.
        let key = Key { directory, name: Bytes::copy_from_slice(name) };
        self.entries.insert(key, entry, ENTRY_BYTES + name.len() as u64);
    }
}
