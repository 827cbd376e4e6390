//! Open files and directories, by the kernel's numbers.

use std::collections::HashMap;
use std::sync::Arc;

use client::config::Caller;
use client::fs::inode;
use fuse::{Errno, FileHandle};
use parking_lot::Mutex;

use crate::listing::Position;

/// A directory that a program lists.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) open: inode::OpenDirectory,
    /// The caller that opened it.
    pub(crate) caller: Caller,
    pub(crate) position: futures_util::lock::Mutex<Position>,
}

/// Open files or directories. The kernel bounds them by the limits of its processes.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    table: Mutex<Table<T>>,
}

#[derive(Debug)]
struct Table<T> {
    open: HashMap<FileHandle, Arc<T>>,
    last: u64,
}

impl<T> Handles<T> {
    /// Creates an empty table whose numbers are higher than `last`.
    pub(crate) fn from(last: u64) -> Self {
        Self { table: Mutex::new(Table { open: HashMap::new(), last }) }
    }

    pub(crate) fn add(&self, value: T) -> FileHandle {
        let mut table = self.table.lock();
        table.last += 1;
        let handle = FileHandle(table.last);
        table.open.insert(handle, Arc::new(value));
        handle
    }

    /// Adds one that another process had under this number.
    pub(crate) fn restore(&self, handle: FileHandle, value: T) {
        let mut table = self.table.lock();
        table.last = table.last.max(handle.0);
        table.open.insert(handle, Arc::new(value));
    }

    /// Gives new ones numbers above `last`.
    pub(crate) fn continue_after(&self, last: u64) {
        let mut table = self.table.lock();
        table.last = table.last.max(last);
    }

    /// Returns all with their numbers, and the last number.
    pub(crate) fn numbered(&self) -> (Vec<(FileHandle, Arc<T>)>, u64) {
        let table = self.table.lock();
        (table.open.iter().map(|(handle, value)| (*handle, Arc::clone(value))).collect(), table.last)
    }

    /// # Errors
    /// EBADF for a number that is not open.
    pub(crate) fn get(&self, handle: FileHandle) -> Result<Arc<T>, Errno> {
        self.table.lock().open.get(&handle).map(Arc::clone).ok_or(Errno::BADF)
    }

    pub(crate) fn take(&self, handle: FileHandle) -> Option<Arc<T>> {
        self.table.lock().open.remove(&handle)
    }

    /// Returns all open files.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.table.lock().open.values().map(Arc::clone).collect()
    }
}
