//! Fast stable storage: small changes are answered when they are in a log on a fast device, and reach the file system later
//! (the Prestoserve of Pawlowski et al. 1994).
//!
//! [`Journaled`] wraps a back end. It makes a change in the back end first, which [defers](crate::GroupCommit) the sync; then the record of
//! the change is appended to the [`Log`], and the answer waits until the record is on the log's device. All changes
//! that wait share one sync of it. A [checkpoint](Journaled::checkpoint) makes the deferred changes durable in the back end, and then
//! frees the log.
//!
//! # Which changes are logged
//! Stable WRITEs, COMMITs of few unstable bytes (they are read back from the back end), and SETATTR of regular files. Other changes, and large ones, are
//! made durable in the back end before they are answered.
//!
//! # Why repeating the log is correct
//! - Changes of one object enter the log in the order in which they were made ([`Order`]), and a record sets bytes and
//!   attributes to values. So the log can be repeated from its tail, however much of it the file system has already.
//! - A change that is not logged, of an object with changes in the log, waits for a checkpoint first. So the log never has changes that
//!   are older than a durable change that it lacks. Unstable writes are the exception: clients know that a
//!   crash may lose them.
//! - An object is named by its handle, which never names another object. Records of a removed object do nothing. Creations and
//!   other changes of names are not logged: a repeated creation would be another object.
//! - After a crash of the server alone, the kernel has all changes, and nothing is repeated. A local process may have
//!   changed the files since.
//!
//! # Failures
//! If the log's device or the file system fails, no more changes are logged, and objects with changes in the log take no change until
//! the next start repeats them.

mod backend;
mod changes;
mod checkpoint;
mod files;
mod format;
mod log;
mod record;
mod replay;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use parking_lot::Mutex;

use crate::{Backend, Error, GroupCommit, NotDurable};
use checkpoint::Checkpoints;
use files::{Files, Order};

pub use format::{BLOCK_BYTES, Found, LOG_BYTES_MAX, LOG_BYTES_MIN, Scan, scan};
pub use log::{JournalCounts, Log, LogWrite};
pub use record::{Action, Record};
pub use replay::{NotReplayed, replay};

/// A back end with a journal.
#[derive(Debug)]
pub struct Journaled<B> {
    inner: B,
    log: Arc<Log>,
    files: Files,
    /// Changes in the log that may not be durable in the back end. Its lock is held while a record is appended, so that a checkpoint has the
    /// changes of all records before its end.
    pending: Mutex<GroupCommit>,
    checkpoints: Checkpoints,
}

impl<B: Backend> Journaled<B> {
    /// Wraps a back end whose earlier log has been repeated.
    #[must_use]
    pub fn new(inner: B, log: Arc<Log>) -> Self {
        let (files, pending, checkpoints) = (Files::default(), Mutex::default(), Checkpoints::default());
        Self { inner, log, files, pending, checkpoints }
    }

    /// Returns the wrapped back end.
    pub const fn inner(&self) -> &B {
        &self.inner
    }

    /// Returns the wrapped back end. Changes that are only in the log are not durable in it.
    pub fn into_inner(self) -> B {
        self.inner
    }

    /// Returns the log.
    pub const fn log(&self) -> &Arc<Log> {
        &self.log
    }
}

/// Returns the error of the only operation of a group.
fn error_of(failed: NotDurable) -> Error {
    failed.error
}
