//! Errors of writes, reported exactly once to each open file description, as Linux's `errseq_t` does.

use crate::cache::FileId;
use crate::errno::Errno;

/// An open file description. It remembers which errors of its file were reported to it.
#[derive(Debug)]
pub struct OpenFile {
    pub(super) file: FileId,
    seen: u64,
}

impl OpenFile {
    /// Returns the file.
    pub fn file(&self) -> FileId {
        self.file
    }
}

/// The errors of one file.
#[derive(Debug, Default)]
pub(super) struct ErrorLog {
    /// Counts errors.
    sequence: u64,
    last: Option<Errno>,
    /// Set until the last error has been reported.
    unseen: bool,
}

impl ErrorLog {
    pub(super) fn record(&mut self, error: Errno) {
        self.sequence += 1;
        self.last = Some(error);
        self.unseen = true;
    }

    /// Opens a description, which gets an error that has not been reported yet, but no earlier ones.
    pub(super) fn open(&self, file: FileId) -> OpenFile {
        OpenFile { file, seen: if self.unseen { self.sequence - 1 } else { self.sequence } }
    }

    /// Returns an error that has not been reported to this description yet; the newest, if there are several.
    pub(super) fn take(&mut self, open: &mut OpenFile) -> Result<(), Errno> {
        if open.seen == self.sequence {
            return Ok(());
        }
        open.seen = self.sequence;
        self.unseen = false;
        self.last.map_or(Ok(()), Err)
    }

    pub(super) fn has_unseen(&self) -> bool {
        self.unseen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_gets_an_error_once() {
        let mut log = ErrorLog::default();
        let (mut first, mut second) = (log.open(FileId(1)), log.open(FileId(1)));
        log.record(Errno::ENOSPC);
        assert_eq!(log.take(&mut first), Err(Errno::ENOSPC));
        assert_eq!(log.take(&mut first), Ok(()));
        assert_eq!(log.take(&mut second), Err(Errno::ENOSPC));
        assert_eq!(log.take(&mut second), Ok(()));
        let mut third = log.open(FileId(1));
        assert_eq!(log.take(&mut third), Ok(()), "the error was reported before it was opened");
    }

    #[test]
    fn unreported_error_reaches_the_next_description() {
        let mut log = ErrorLog::default();
        log.record(Errno::EIO);
        let mut late = log.open(FileId(1));
        assert_eq!(log.take(&mut late), Err(Errno::EIO));
        assert!(!log.has_unseen());
    }
}
