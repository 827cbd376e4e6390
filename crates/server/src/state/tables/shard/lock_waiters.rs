//! Clients that wait for byte-range locks of a shard's files.

use std::sync::atomic::Ordering::Relaxed;

use super::super::file_key::FileKey;
use super::super::gauges::{Gauges, adjust, read};
use super::super::locks::{LockWaiter, OwnerName};
use super::deferred::Deferred;
use super::lock_notify::{LockNotify, Notice};
use super::share::Modes;
use super::table::Shard;

/// Maximum number of waiters of one file, so that a scan of them is short. A client beyond the bound polls.
const WAITERS_PER_FILE_MAX: usize = 1024;
/// Maximum number of waiters of one client, so that none takes all room.
const WAITERS_PER_CLIENT_MAX: u32 = 1024;
/// Maximum number of waiters of all clients.
const WAITERS_MAX: u64 = 4096;

impl Shard {
    /// Adds a waiter for a lock. One that waits already keeps its place. A waiter beyond the bounds is not added. Returns whether it
    /// waits.
    pub(crate) fn join_queue(
        &mut self,
        file: FileKey,
        waiter: LockWaiter<LockNotify>,
        gauges: &Gauges,
    ) -> bool {
        let queue = self.lock_queues.entry(file).or_default();
        if let Some(known) = queue.find_mut(&waiter.owner, waiter.range) {
            *known = waiter;
            return true;
        }
        let own = &waiter.notify.client.holdings.lock_waiters;
        let has_room = queue.len() < WAITERS_PER_FILE_MAX
            && own.load(Relaxed) < WAITERS_PER_CLIENT_MAX
            && read(&gauges.lock_waiters) < WAITERS_MAX;
        if has_room {
            own.fetch_add(1, Relaxed);
            adjust(&gauges.lock_waiters, 1);
            queue.push(waiter);
        } else if queue.is_empty() {
            self.lock_queues.remove(&file);
        }
        has_room
    }

    /// Returns whether an NLM host waits for a lock of a file.
    pub(crate) fn has_waiting_host(&self, file: FileKey) -> bool {
        let queue = self.lock_queues.get(&file);
        queue.is_some_and(|queue| queue.iter().any(|waiter| matches!(waiter.notify.how, Notice::Grant(_))))
    }

    /// Removes the waiters of a file that `is_over` names. Others may have their turn then.
    pub(crate) fn leave_queue(
        &mut self,
        file: FileKey,
        gauges: &Gauges,
        deferred: &mut Deferred,
        is_over: impl Fn(&LockWaiter<LockNotify>) -> bool,
    ) {
        let Some(queue) = self.lock_queues.get_mut(&file) else { return };
        let before = queue.len();
        queue.remove(|waiter| {
            let is_over = is_over(waiter);
            if is_over {
                waiter.notify.client.holdings.lock_waiters.fetch_sub(1, Relaxed);
            }
            is_over
        });
        let left = queue.len();
        adjust(&gauges.lock_waiters, left as i64 - before as i64);
        if left == 0 {
            self.lock_queues.remove(&file);
        } else if left < before {
            deferred.unlock(file);
        }
    }

    /// Removes the waiters under an open that ends.
    pub(super) fn leave_queue_of_open(
        &mut self,
        file: FileKey,
        open: u32,
        gauges: &Gauges,
        deferred: &mut Deferred,
    ) {
        self.leave_queue(file, gauges, deferred, |waiter| waiter.notify.open() == Some(open));
    }

    /// Removes the waiters under an open whose modes no longer allow their locks: their LOCKs would get OPENMODE.
    pub(super) fn leave_queue_of_modes(
        &mut self,
        file: FileKey,
        (open, modes): (u32, Modes),
        gauges: &Gauges,
        deferred: &mut Deferred,
    ) {
        let is_over = |waiter: &LockWaiter<LockNotify>| {
            waiter.notify.open() == Some(open) && !modes.may_lock(waiter.kind)
        };
        self.leave_queue(file, gauges, deferred, is_over);
    }

    /// Removes the waiters of a lock stateid that ends. Its locks are free.
    pub(super) fn leave_queue_of_lock(
        &mut self,
        file: FileKey,
        (open, name): (u32, &OwnerName),
        gauges: &Gauges,
        deferred: &mut Deferred,
    ) {
        self.unlocked(file, deferred);
        self.leave_queue(file, gauges, deferred, |waiter| {
            waiter.notify.open() == Some(open) && waiter.owner == *name
        });
    }

    /// Notes that locks of a file were freed, or became shared.
    pub(crate) fn unlocked(&self, file: FileKey, deferred: &mut Deferred) {
        if self.lock_queues.contains_key(&file) {
            deferred.unlock(file);
        }
    }
}
