//! A file in whose bytes local processes and a server lock, byte by byte.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use vfs::{LocalLock, LocalLocks, Pin};

/// The number of bytes. Later bytes are never locked.
pub(crate) const BYTES: usize = 64;

/// For each byte, whether it is locked and whether exclusively.
type Locks = [Option<bool>; BYTES];

/// The locks of a file; `None` is the local process, the others are open file descriptions of the server.
#[derive(Debug, Default)]
pub(crate) struct LockedFile(Mutex<BTreeMap<Option<u32>, Locks>>);

impl LockedFile {
    /// The local process locks bytes.
    #[track_caller]
    pub(crate) fn lock(&self, first: u64, last: u64, is_exclusive: bool) {
        self.set(None, LocalLock { first, last, is_exclusive }).expect("the server has not locked them");
    }

    /// Returns whether the local process could lock bytes.
    pub(crate) fn is_free(&self, first: u64, last: u64, is_exclusive: bool) -> bool {
        self.conflict(None, LocalLock { first, last, is_exclusive }).is_none()
    }

    /// The local process unlocks all.
    pub(crate) fn unlock_all(&self) {
        self.0.lock().remove(&None);
    }

    /// Returns the server's lock of each byte.
    pub(crate) fn of_server(&self) -> Locks {
        let all = self.0.lock();
        let descriptions: Vec<&Locks> =
            all.iter().filter_map(|(owner, locks)| owner.map(|_| locks)).collect();
        assert!(descriptions.len() <= 1, "two descriptions exclude each other");
        descriptions.first().map_or([None; BYTES], |locks| **locks)
    }

    /// Returns the number of the server's descriptions.
    pub(crate) fn descriptions(&self) -> usize {
        self.0.lock().keys().flatten().count()
    }

    fn conflict(&self, owner: Option<u32>, lock: LocalLock) -> Option<LocalLock> {
        let all = self.0.lock();
        let others = all.iter().filter(|(other, _)| **other != owner);
        let held = others
            .flat_map(|(_, locks)| bytes(lock).filter_map(|at| locks[at].map(|kind| (at as u64, kind))));
        let mut excluding = held.filter(|(_, is_exclusive)| *is_exclusive || lock.is_exclusive);
        excluding.next().map(|(at, is_exclusive)| LocalLock { first: at, last: at, is_exclusive })
    }

    fn set(&self, owner: Option<u32>, lock: LocalLock) -> Result<(), LocalLock> {
        if let Some(holder) = self.conflict(owner, lock) {
            return Err(holder);
        }
        self.0.lock().entry(owner).or_insert([None; BYTES])[bytes(lock)].fill(Some(lock.is_exclusive));
        Ok(())
    }
}

fn bytes(lock: LocalLock) -> std::ops::Range<usize> {
    let end = |byte: u64| (byte as usize).min(BYTES);
    end(lock.first)..end(lock.last.saturating_add(1))
}

/// Keeps the file open.
#[derive(Debug, Default)]
pub(crate) struct LockedFilePin {
    pub(crate) file: Arc<LockedFile>,
    pub(crate) descriptions: Mutex<u32>,
}

impl Pin for LockedFilePin {
    fn local_locks(&self) -> Option<Arc<dyn LocalLocks>> {
        let mut last = self.descriptions.lock();
        *last += 1;
        let description = Description { file: Arc::clone(&self.file), number: *last };
        self.file.0.lock().insert(Some(description.number), [None; BYTES]);
        Some(Arc::new(description))
    }
}

/// An open file description of the server.
#[derive(Debug)]
struct Description {
    file: Arc<LockedFile>,
    number: u32,
}

impl LocalLocks for Description {
    fn lock(&self, lock: LocalLock) -> Result<(), LocalLock> {
        self.file.set(Some(self.number), lock)
    }

    fn unlock(&self, first: u64, last: u64) {
        let lock = LocalLock { first, last, is_exclusive: false };
        self.file.0.lock().get_mut(&Some(self.number)).expect("it is open")[bytes(lock)].fill(None);
    }

    fn conflict(&self, lock: LocalLock) -> Option<LocalLock> {
        self.file.conflict(Some(self.number), lock)
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        self.file.0.lock().remove(&Some(self.number));
    }
}
