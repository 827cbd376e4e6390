//! The file that each client writes in place.

use super::Parameters;
use super::files::make_file;
use crate::runner::{Task, Who};
use crate::targets::{Fault, Files, How};

/// Sizes in bytes, and how the file is opened.
pub(super) struct ClientFile {
    pub(super) io_bytes: u64,
    file_bytes: u64,
    is_sync: bool,
}

impl ClientFile {
    /// Reads `io-size`, `file-size` and `o-sync`.
    pub(super) fn new(parameters: &Parameters<'_>) -> Self {
        let io_bytes = parameters.size("io-size");
        let file_bytes = parameters.size("file-size").max(io_bytes);
        Self { io_bytes, file_bytes, is_sync: parameters.flag("o-sync") }
    }

    /// Returns the number of whole blocks of `io-size` in the file, at least one.
    pub(super) fn blocks(&self) -> u64 {
        self.file_bytes / self.io_bytes
    }

    /// Makes the file of a client.
    pub(super) async fn prepare<F: Files>(&self, files: &F, who: Who) -> Result<(), Fault> {
        make_file(files, &name(who), self.file_bytes).await
    }

    /// Opens the file of a task's client for writing.
    pub(super) async fn open<F: Files>(&self, task: &Task<F>) -> Result<F::File, Fault> {
        task.files.open(&name(task.who), How { sync: self.is_sync, ..How::WRITE }).await
    }
}

fn name(who: Who) -> String {
    format!("file-{}", who.client + 1)
}
