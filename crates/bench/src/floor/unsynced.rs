//! Changes of a batch that must be on disk before their replies.

use std::fs::File;
use std::io;

/// New files, the directory in which entries were created or removed, and a written file.
///
/// Everything of a batch is synced at once, in place. A sync of a new file does not cover its name, and a sync of the directory does
/// not cover the file, so both are needed; one sync of the directory is enough for all.
#[derive(Debug, Default)]
pub(super) struct Unsynced<'f> {
    /// At most one for each outstanding request of a connection.
    files: Vec<File>,
    directory: Option<&'f File>,
    written: Option<&'f File>,
}

impl<'f> Unsynced<'f> {
    /// Notes that `file` was created in `directory`, which is the same for all.
    pub(super) fn created(&mut self, directory: &'f File, file: impl Into<File>) {
        self.files.push(file.into());
        self.directory = Some(directory);
    }

    /// Notes that an entry of `directory`, which is the same for all, was removed.
    pub(super) fn removed(&mut self, directory: &'f File) {
        self.directory = Some(directory);
    }

    /// Notes that `file`, which is the same for all, was written.
    pub(super) fn written(&mut self, file: &'f File) {
        self.written = Some(file);
    }

    /// Syncs all noted changes, and clears the list.
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
