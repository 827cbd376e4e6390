//! Byte-range locks against local processes.

use std::fmt;

/// A byte-range lock of fcntl(2), which local processes take too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalLock {
    /// First byte.
    pub first: u64,
    /// Last byte; 2^64 - 1 for a lock to the end of the file.
    pub last: u64,
    /// Whether it excludes all other locks, or only exclusive ones.
    pub is_exclusive: bool,
}

/// The byte-range locks of a file that a server holds for all its clients together, so that they and those of local
/// processes exclude each other. The server decides about conflicts among clients. No call waits for a lock. All are
/// unlocked when the value is dropped.
pub trait LocalLocks: Send + Sync + fmt::Debug {
    /// Locks bytes. For bytes that are locked already, this replaces the lock.
    ///
    /// # Errors
    /// A lock of a local process that conflicts. Nothing is locked then.
    fn lock(&self, lock: LocalLock) -> Result<(), LocalLock>;

    /// Unlocks bytes, from the first to the last.
    fn unlock(&self, first: u64, last: u64);

    /// Returns a lock of a local process that conflicts with this one.
    fn conflict(&self, lock: LocalLock) -> Option<LocalLock>;
}
