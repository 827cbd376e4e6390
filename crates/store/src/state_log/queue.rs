//! The map in memory, and its changes that are not written yet.

use std::collections::HashMap;

use super::file::{LOW_BYTES, RESERVED_FOR_CHANGES_BYTES};
use super::format::{self, Key};
use crate::wait_queue::WaitQueue;

/// The map, its unwritten changes, and the tasks that wait for them.
#[derive(Debug)]
pub(super) struct Queue {
    /// The map after change [`Self::last`].
    pub(super) map: HashMap<Vec<u8>, Vec<u8>>,
    /// Bytes that the map's records take in a file.
    pub(super) live_bytes: u64,
    /// Bytes that both files have space for.
    pub(super) capacity: u64,
    /// Encoded changes that are not written yet.
    pub(super) changes: Vec<u8>,
    /// The key of the changes' checksums.
    pub(super) key: Key,
    /// The number of the last change.
    pub(super) last: u64,
    /// The number of the last change to write now.
    pub(super) wanted: u64,
    pub(super) waiting: WaitQueue,
    /// Whether the log's thread has nothing to do.
    pub(super) is_idle: bool,
    /// Whether the log's thread must end.
    pub(super) ends: bool,
}

impl Queue {
    /// Sets the value of a key, or removes the key. Returns the number of the change.
    pub(super) fn set(&mut self, key: &[u8], value: Option<&[u8]>) -> u64 {
        self.last += 1;
        let old = match value {
            Some(value) => {
                self.live_bytes += format::record_bytes(key, Some(value));
                self.map.insert(key.to_vec(), value.to_vec())
            }
            None => self.map.remove(key),
        };
        if let Some(old) = old {
            self.live_bytes -= format::record_bytes(key, Some(&old));
        }
        format::push_to_batch(&mut self.changes, &self.key, self.last, key, value);
        self.last
    }

    /// Takes all unwritten changes, and the number of the last.
    pub(super) fn take(&mut self) -> (Vec<u8>, u64) {
        (std::mem::take(&mut self.changes), self.last)
    }

    /// Inserts changes that were taken and could not be written before newer ones, as one batch.
    pub(super) fn put_back(&mut self, changes: &[u8]) {
        let newer = std::mem::take(&mut self.changes);
        self.changes = format::reencode_as_batch(&[changes, &newer].concat(), &self.key);
    }

    /// Removes the first `bytes` bytes of unwritten changes: they were written with the map.
    pub(super) fn forget_first(&mut self, bytes: usize) {
        self.changes = format::reencode_as_batch(&self.changes[bytes..], &self.key);
    }

    /// Returns whether more keys can be added.
    pub(super) fn has_room(&self) -> bool {
        self.has_spare(RESERVED_FOR_CHANGES_BYTES)
    }

    /// Returns whether more space must be allocated soon.
    pub(super) fn is_low(&self) -> bool {
        !self.has_spare(LOW_BYTES)
    }

    /// Returns whether both files have space for the map and `bytes` more.
    fn has_spare(&self, bytes: u64) -> bool {
        format::file_bytes(self.live_bytes) + bytes <= self.capacity
    }
}
