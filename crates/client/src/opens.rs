//! Open files of the client, as they must be known to reclaim them after the server restarted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use protocol::nfs4::types::{Handle, Stateid, Status};

use crate::config::Caller;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenMode {
    /// Whether it is read.
    pub read: bool,
    /// Whether it is written.
    pub write: bool,
}

impl OpenMode {
    /// For reading.
    pub const READ: Self = Self { read: true, write: false };
    /// For writing.
    pub const WRITE: Self = Self { read: false, write: true };
    /// For both.
    pub const BOTH: Self = Self { read: true, write: true };
}

/// An open file. Its stateid changes when it is reclaimed.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The number of its open-owner. Each open has an owner of its own, so that opens of one file are closed one by one and
    /// nothing is serialised.
    pub(crate) owner: u32,
    pub(crate) handle: Handle,
    pub(crate) mode: OpenMode,
    pub(crate) caller: Caller,
    state: Mutex<State>,
    /// Held while the file is opened again, so that this is done once.
    reopening: futures_util::lock::Mutex<()>,
    /// Whether bytes were ever locked through it.
    has_been_locked: AtomicBool,
    /// Number of lock owners whose locks through it the server gave up.
    lost_locks: AtomicUsize,
}

#[derive(Debug, Clone, Copy)]
struct State {
    stateid: Stateid,
    /// Why the state is lost for good.
    lost: Option<Status>,
}

impl OpenFile {
    /// Returns the stateid for I/O: with a seqid of zero the server takes the current one (RFC 8881 §8.2.2).
    ///
    /// # Errors
    /// Why the state was lost, if it could not be reclaimed.
    pub(crate) fn io_stateid(&self) -> Result<Stateid, Status> {
        self.stateid().map(|stateid| Stateid { seqid: 0, ..stateid })
    }

    /// Returns the stateid as the server gave it.
    ///
    /// # Errors
    /// Why the state was lost, if it could not be reclaimed.
    pub(crate) fn stateid(&self) -> Result<Stateid, Status> {
        let state = *self.state.lock();
        state.lost.map_or(Ok(state.stateid), Err)
    }

    /// Waits for the turn to open the file again.
    pub(crate) async fn reopening(&self) -> futures_util::lock::MutexGuard<'_, ()> {
        self.reopening.lock().await
    }

    /// Takes the stateid of a reclaimed open.
    pub(crate) fn reclaimed(&self, stateid: Stateid) {
        *self.state.lock() = State { stateid, lost: None };
    }

    /// Notes that bytes are locked through this open.
    pub(crate) fn note_locked(&self) {
        self.has_been_locked.store(true, Ordering::Relaxed);
    }

    /// Returns whether bytes were ever locked through this open.
    pub(crate) fn has_been_locked(&self) -> bool {
        self.has_been_locked.load(Ordering::Relaxed)
    }

    /// Notes that a lock owner has lost locks, or has unlocked them.
    pub(crate) fn note_lost_lock(&self, is_lost: bool) {
        if is_lost {
            self.lost_locks.fetch_add(1, Ordering::Relaxed);
        } else {
            self.lost_locks.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns whether the server has given up a lock through this open that its owner has not unlocked since.
    pub(crate) fn has_lost_lock(&self) -> bool {
        self.lost_locks.load(Ordering::Relaxed) > 0
    }

    /// Notes that the open is lost for good.
    pub(crate) fn lose(&self, status: Status) {
        self.state.lock().lost = Some(status);
    }
}

/// All open files of the client, and the numbers of their owners.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    open: BTreeMap<u32, Arc<OpenFile>>,
    /// Numbers that were used and are free again; the server keeps few owners this way.
    free: BTreeSet<u32>,
    next: u32,
}

impl OpenFiles {
    /// Returns a number for the owner of another open.
    pub(crate) fn take_owner(&self) -> u32 {
        let mut table = self.table.lock();
        table.free.pop_first().unwrap_or_else(|| {
            table.next += 1;
            table.next
        })
    }

    /// Gives a number back whose OPEN failed or whose file is closed.
    pub(crate) fn free_owner(&self, owner: u32) {
        let mut table = self.table.lock();
        table.open.remove(&owner);
        table.free.insert(owner);
    }

    /// Notes a file that the server has opened.
    pub(crate) fn add(
        &self,
        owner: u32,
        handle: Handle,
        mode: OpenMode,
        caller: &Caller,
        stateid: Stateid,
    ) -> Arc<OpenFile> {
        let state = Mutex::new(State { stateid, lost: None });
        let file = Arc::new(OpenFile {
            owner,
            handle,
            mode,
            caller: caller.clone(),
            state,
            reopening: Default::default(),
            has_been_locked: AtomicBool::new(false),
            lost_locks: AtomicUsize::new(0),
        });
        self.table.lock().open.insert(owner, Arc::clone(&file));
        file
    }

    /// Returns all open files, in the order of their owners.
    pub(crate) fn all(&self) -> Vec<Arc<OpenFile>> {
        self.table.lock().open.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_used_again_and_a_lost_open_says_why() {
        let files = OpenFiles::default();
        let (first, second) = (files.take_owner(), files.take_owner());
        assert_ne!(first, second);
        let stateid = Stateid { seqid: 3, other: [1; 12] };
        let file = files.add(first, Handle::default(), OpenMode::READ, &Caller::anonymous(), stateid);
        assert_eq!(file.io_stateid(), Ok(Stateid { seqid: 0, ..stateid }));
        file.lose(Status::EXPIRED);
        assert_eq!((file.io_stateid(), files.all().len()), (Err(Status::EXPIRED), 1));
        file.reclaimed(Stateid { seqid: 1, other: [2; 12] });
        assert_eq!(file.stateid(), Ok(Stateid { seqid: 1, other: [2; 12] }));
        files.free_owner(first);
        assert_eq!((files.take_owner(), files.all().len()), (first, 0));
    }
}
