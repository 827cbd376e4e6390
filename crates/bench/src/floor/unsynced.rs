//! What the calls of a batch changed that must be on disk before they are answered.

use std::fs::File;
use std::io;

/// New files, the directory that entries came to or went from, and a file that was written.
///
/// Everything of a batch is synced at once, in place: fsync(2) of a new file does not cover its name, and that of the
/// directory nothing of the file, so that both are needed; but one of the directory does for all.
#[derive(Debug, Default)]
pub(super) struct Unsynced<'f> {
    /// As many as a connection has requests outstanding, at most.
    files: Vec<File>,
    directory: Option<&'f File>,
    written: Option<&'f File>,
}

impl<'f> Unsynced<'f> {
    /// `file` was made in `directory`, the same for all.
    pub(super) fn created(&mut self, directory: &'f File, file: impl Into<File>) {
        self.files.push(file.into());
        self.directory = Some(directory);
    }

    /// An entry of `directory`, the same for all, was removed.
    pub(super) fn removed(&mut self, directory: &'f File) {
        self.directory = Some(directory);
    }

    /// `file`, the same for all, was written.
    pub(super) fn written(&mut self, file: &'f File) {
        self.written = Some(file);
    }

    /// Waits until all of it is on disk, and forgets it.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        for file in self.files.drain(..) {
            file.sync_all()?;
        }
        for file in self.directory.take().into_iter().chain(self.written.take()) {
            file.sync_all()?;
        }
        Ok(())
    }
}
