//! Chooses the files that free most memory when it is short.

use std::collections::{BTreeSet, HashMap};

use crate::cache::FileId;

/// The files with bytes in one state that only a request ends: dirty (WRITE) or written (COMMIT).
///
/// Files are asked, largest first, until half of all these bytes are being freed. Further requests while replies are under
/// way therefore change nothing, and small files are not asked. Every operation takes logarithmic time.
#[derive(Debug, Default)]
pub(super) struct DemandQueue {
    notes: HashMap<FileId, Note>,
    /// Files that were not asked, by the logarithm of their bytes.
    not_asked: BTreeSet<(u32, FileId)>,
    /// Bytes of all files.
    total: u64,
    /// Bytes that are being freed.
    asked: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Note {
    total: u64,
    asked: u64,
    /// 0 if the file has no bytes to free.
    size: u32,
}

impl DemandQueue {
    /// Notes that a file has `waiting` bytes, which were `asked` for or not, and `under_way` bytes in requests.
    pub(super) fn note(&mut self, file: FileId, waiting: u64, under_way: u64, asked: bool) {
        let size = if asked { 0 } else { waiting.checked_ilog2().map_or(0, |log| log + 1) };
        let note =
            Note { total: waiting + under_way, asked: under_way + if asked { waiting } else { 0 }, size };
        let old = match note.total {
            0 => self.notes.remove(&file),
            _ => self.notes.insert(file, note),
        };
        let old = old.unwrap_or_default();
        self.total = self.total - old.total + note.total;
        self.asked = self.asked - old.asked + note.asked;
        if old.size != note.size {
            self.not_asked.remove(&(old.size, file));
            if note.size > 0 {
                self.not_asked.insert((note.size, file));
            }
        }
    }

    /// Returns the next file to ask; the caller asks it and calls [`note`](Self::note).
    pub(super) fn next(&self) -> Option<FileId> {
        let enough = self.asked >= self.total.div_ceil(2);
        let largest = self.not_asked.last().map(|(_, file)| *file);
        largest.filter(|_| !enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_the_largest_until_half_of_the_bytes_are_being_freed() {
        let mut queue = DemandQueue::default();
        for (file, bytes) in [(1, 100), (2, 5000), (3, 3000), (4, 2000)] {
            queue.note(FileId(file), bytes, 0, false);
        }
        assert_eq!(queue.next(), Some(FileId(2)));
        queue.note(FileId(2), 5000, 0, true);
        assert_eq!(queue.next(), Some(FileId(3)), "5000 is less than half of 10100");
        queue.note(FileId(3), 3000, 0, true);
        assert_eq!(queue.next(), None);
        // Requests under way are being freed.
        queue.note(FileId(2), 0, 5000, false);
        assert_eq!(queue.next(), None);
        queue.note(FileId(2), 0, 0, false);
        queue.note(FileId(3), 0, 0, false);
        assert_eq!(queue.next(), Some(FileId(4)));
    }

    #[test]
    fn nothing_is_left_of_files_without_bytes() {
        let mut queue = DemandQueue::default();
        for file in 0..100 {
            queue.note(FileId(file), file * 10, file, file % 2 == 0);
            queue.note(FileId(file), 0, 0, false);
        }
        assert_eq!((queue.total, queue.asked), (0, 0));
        assert!(queue.notes.is_empty() && queue.not_asked.is_empty());
    }
}
