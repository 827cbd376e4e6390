//! The state that the server's threads and the log's own thread share.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::{Condvar, Mutex};
use vfs::SyncLatency;

use super::format::{self, Key};
use super::queue::Queue;
use crate::wait_queue::WaitQueue;

/// The queue of changes, and the state of the file.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) path: PathBuf,
    pub(super) queue: Mutex<Queue>,
    /// Notified when the log's own thread has something to do.
    pub(super) wake: Condvar,
    /// The number up to which all changes are stable.
    pub(super) stable: AtomicU64,
    /// Whether the file cannot be written at present.
    pub(super) is_failing: AtomicBool,
    /// Whether there is space for more keys.
    pub(super) has_room: AtomicBool,
    /// Durations of syncs of appended changes.
    pub(super) sync_latency: SyncLatency,
    /// The threads that have synced appended changes, one entry for each sync.
    #[cfg(test)]
    pub(super) syncs: Mutex<Vec<std::thread::ThreadId>>,
}

impl Shared {
    /// Starts with a map, whose last change has the number `last`.
    pub(super) fn new(path: &Path, map: HashMap<Vec<u8>, Vec<u8>>, key: Key, last: u64) -> Self {
        let live_bytes = map.iter().map(|(key, value)| format::record_bytes(key, Some(value))).sum();
        let queue = Queue {
            map,
            live_bytes,
            capacity: u64::MAX,
            changes: Vec::new(),
            key,
            last,
            wanted: last,
            waiting: WaitQueue::default(),
            is_idle: false,
            ends: false,
        };
        Self {
            path: path.to_owned(),
            queue: Mutex::new(queue),
            wake: Condvar::new(),
            stable: AtomicU64::new(last),
            is_failing: AtomicBool::new(false),
            has_room: AtomicBool::new(true),
            sync_latency: SyncLatency::default(),
            #[cfg(test)]
            syncs: Mutex::default(),
        }
    }

    /// Sets the bytes that both files have space for.
    pub(super) fn set_capacity(&self, bytes: u64) {
        let mut queue = self.queue.lock();
        queue.capacity = bytes;
        self.has_room.store(queue.has_room(), Ordering::Relaxed);
    }

    /// Asks the log's own thread to write all changes up to this one.
    pub(super) fn want(&self, number: u64) {
        let mut queue = self.queue.lock();
        queue.wanted = queue.wanted.max(number);
        drop(queue);
        self.wake.notify_one();
    }

    /// Marks all changes up to this one as stable, and wakes the tasks that wait for them.
    pub(super) fn set_stable(&self, number: u64) {
        let mut queue = self.queue.lock();
        self.stable.fetch_max(number, Ordering::AcqRel);
        let woken = queue.waiting.take(|wanted| wanted <= number);
        drop(queue);
        woken.into_iter().for_each(Waker::wake);
    }
}
