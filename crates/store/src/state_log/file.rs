//! The file in use, and the spare file that replaces it when the map is rewritten.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use super::format;
use crate::disk_space;
use crate::files::{open_file, sync_parent};

/// A file longer than this is rewritten if it is also [`REWRITE_FACTOR`] times as long as its map needs.
const REWRITE_BYTES: u64 = 1 << 20;
const REWRITE_FACTOR: u64 = 4;
/// Zeros that are written after the last record.
const AHEAD_BYTES: u64 = 256 << 10;
/// Space that each file has in addition to the map's: for some ten thousand clients that arrive while the disk is full.
const RESERVE_BYTES: u64 = 2 << 20;
/// If less than this is left of the reserve, more is allocated.
pub(super) const LOW_BYTES: u64 = RESERVE_BYTES / 2;
/// The part of the reserve that is allocated for changes of existing keys.
pub(super) const RESERVED_FOR_CHANGES_BYTES: u64 = 256 << 10;

/// The disk. Tests can fill it: then no file gets more space.
#[derive(Debug, Default)]
pub(super) struct Disk {
    #[cfg(test)]
    pub(super) is_full: std::sync::atomic::AtomicBool,
}

impl Disk {
    fn check(&self, needs_space: bool) -> io::Result<()> {
        #[cfg(test)]
        if needs_space && self.is_full.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(io::Error::from(Errno::NOSPC));
        }
        let _ = needs_space;
        Ok(())
    }

    /// Allocates the first `wanted` bytes of a file that has `has`, or as many as possible. Returns their number, and the error if not all.
    fn allocate(&self, file: &File, has: u64, wanted: u64) -> io::Result<(u64, Option<io::Error>)> {
        #[cfg(test)]
        let before = std::os::unix::fs::MetadataExt::blocks(&file.metadata()?) * 512;
        #[cfg(not(test))]
        let before = 0;
        disk_space::allocate_up_to(has, wanted, |bytes| {
            self.check(bytes > before.max(has))?;
            disk_space::allocate(file, bytes)
        })
    }
}

/// Returns the number of bytes that each file should have for a map that takes `live_bytes`.
pub(super) fn wanted_bytes(live_bytes: u64) -> u64 {
    (format::HEADER as u64 + live_bytes + RESERVE_BYTES).next_multiple_of(64 << 10)
}

/// The file in use. Zeros are written after the records as far as the disk has space: a record that replaces them changes
/// neither the file's size nor its blocks, so its sync writes nothing else and commits no journal.
#[derive(Debug)]
pub(super) struct LogFile {
    file: File,
    /// The end of the records.
    bytes: u64,
    /// The end of the zeros after them.
    written: u64,
    /// The end of the allocated space.
    allocated: u64,
    /// Whether the disk had space for zeros at the last try. There is no other try until space was allocated.
    has_room: bool,
}

impl LogFile {
    /// Opens the file of the previous server, which is intact up to `end`, and clears the rest.
    ///
    /// # Errors
    /// It cannot be opened or cleared.
    pub(super) fn reopen(path: &Path, end: u64) -> io::Result<Self> {
        let file = open_file(path, OpenOptions::new().read(true).write(true))?;
        let written = file.metadata()?.len().max(end);
        // A torn tail must not precede new records.
        disk_space::zero(&file, end, written)?;
        file.sync_data()?;
        Ok(Self { file, bytes: end, written, allocated: written, has_room: true })
    }

    /// Returns the number of bytes that fit.
    pub(super) fn capacity(&self) -> u64 {
        self.written.max(self.allocated)
    }

    /// Returns whether most of it is obsolete, for a map that takes `live_bytes`.
    pub(super) fn is_long(&self, live_bytes: u64) -> bool {
        self.bytes > REWRITE_BYTES && self.bytes > REWRITE_FACTOR * live_bytes
    }

    /// Appends `changes` and syncs. On a full disk there is at most a torn tail after the older records, and the changes can be
    /// appended again.
    ///
    /// # Errors
    /// Errors of the write and the sync.
    pub(super) fn append(&mut self, changes: &[u8], disk: &Disk) -> io::Result<()> {
        let end = self.bytes + changes.len() as u64;
        disk.check(end > self.capacity())?;
        self.file.write_all_at(changes, self.bytes)?;
        self.bytes = end;
        if self.bytes > self.written {
            self.written = self.bytes;
            self.write_ahead(disk);
        }
        self.file.sync_data()
    }

    /// Returns whether this many bytes can be appended without another write of zeros.
    pub(super) fn has_zeros_for(&self, bytes: usize) -> bool {
        !self.has_room || self.bytes + bytes as u64 <= self.written
    }

    /// Writes zeros after the records. Without space for them, the file ends after its records.
    fn write_ahead(&mut self, disk: &Disk) {
        let end = (self.bytes + AHEAD_BYTES).next_multiple_of(16 << 10);
        if !self.has_room || self.written >= end {
            return;
        }
        // If the disk has no more space, within the allocated one.
        for end in [end, self.allocated.min(end)] {
            let done = disk
                .check(end > self.allocated)
                .and_then(|()| disk_space::zero(&self.file, self.written, end));
            if done.is_ok() {
                self.written = self.written.max(end);
                return;
            }
            self.has_room = false;
        }
    }

    /// Allocates the first `wanted` bytes, or as many as possible. Returns the error if not all.
    pub(super) fn reserve(&mut self, wanted: u64, disk: &Disk) -> io::Result<Option<io::Error>> {
        let (allocated, shortage) = disk.allocate(&self.file, self.capacity(), wanted)?;
        self.allocated = allocated;
        self.has_room |= shortage.is_none();
        Ok(shortage)
    }
}

/// The file that will replace the one in use; its space is allocated.
#[derive(Debug)]
pub(super) struct SpareFile {
    file: File,
    allocated: u64,
}

impl SpareFile {
    /// Returns its path.
    pub(super) fn path(log: &Path) -> PathBuf {
        log.with_extension("log.new")
    }

    /// Opens the spare file of the previous server, or creates one.
    ///
    /// # Errors
    /// Errors of open(2).
    pub(super) fn open(log: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = open_file(&Self::path(log), options.read(true).write(true).create(true).truncate(false))?;
        if file.metadata()?.len() == 0 {
            disk_space::overwrite_in_place(&file);
        }
        Ok(Self { file, allocated: 0 })
    }

    /// Returns the number of bytes that fit.
    pub(super) fn capacity(&self) -> u64 {
        self.allocated
    }

    /// As [`LogFile::reserve`]; frees space if it has more than twice `wanted`.
    pub(super) fn reserve(&mut self, wanted: u64, disk: &Disk) -> io::Result<Option<io::Error>> {
        if self.allocated > 2 * wanted {
            self.file.set_len(wanted)?;
            self.allocated = wanted;
        }
        let (allocated, shortage) = disk.allocate(&self.file, self.allocated, wanted)?;
        self.allocated = allocated;
        Ok(shortage)
    }

    /// Writes a whole log and replaces `old` by it, the file in use. `old` becomes the spare file if the file system can
    /// exchange both.
    ///
    /// # Errors
    /// Errors of writing, renaming and syncing; with `old` if the file in use was not touched.
    pub(super) fn replace(
        self,
        log: &Path,
        content: &[u8],
        old: Option<LogFile>,
        disk: &Disk,
    ) -> Result<(LogFile, Option<Self>), (Option<LogFile>, io::Error)> {
        let log_file = match self.write(content, disk) {
            Ok(log_file) => log_file,
            Err(error) => return Err((old, error)),
        };
        let is_exchanged = match exchange(&Self::path(log), log) {
            Ok(is_exchanged) => is_exchanged,
            Err(error) => return Err((old, error)),
        };
        // After a failure, the next server may find either file.
        sync_parent(log).map_err(|error| (None, error))?;
        let old = old.filter(|_| is_exchanged);
        Ok((log_file, old.map(|old| Self { allocated: old.capacity(), file: old.file })))
    }

    fn write(self, content: &[u8], disk: &Disk) -> io::Result<LogFile> {
        let Self { file, allocated } = self;
        let bytes = content.len() as u64;
        disk.check(bytes > allocated)?;
        file.write_all_at(content, 0)?;
        // Clears its older content.
        let written = file.metadata()?.len();
        disk_space::zero(&file, bytes, written)?;
        let mut log_file = LogFile { file, bytes, written, allocated, has_room: true };
        log_file.write_ahead(disk);
        log_file.file.sync_all()?;
        Ok(log_file)
    }
}

/// Replaces `log` by `new`. Returns whether `new` is now the old `log`.
fn exchange(new: &Path, log: &Path) -> io::Result<bool> {
    if !std::fs::symlink_metadata(log).is_ok_and(|metadata| metadata.is_file()) {
        return std::fs::rename(new, log).map(|()| false);
    }
    match rustix::fs::renameat_with(CWD, new, CWD, log, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        // Not every file system can exchange files.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            std::fs::rename(new, log)?;
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags};

    use super::*;

    impl LogFile {
        /// Returns a file that cannot be written.
        pub(in super::super) fn broken() -> Self {
            let file = File::open("/dev/null").unwrap();
            Self { file, bytes: 0, written: 1 << 20, allocated: 0, has_room: true }
        }
    }

    #[test]
    fn without_space_for_zeros_records_are_appended() {
        // A file that cannot grow, as on a full disk.
        let full = rustix::fs::memfd_create("full", MemfdFlags::ALLOW_SEALING).unwrap();
        let full = File::from(full);
        full.set_len(8192).unwrap();
        rustix::fs::fcntl_add_seals(&full, SealFlags::GROW).unwrap();
        let file = full.try_clone().unwrap();
        let mut log_file = LogFile { file, bytes: 0, written: 0, allocated: 0, has_room: true };
        let disk = Disk::default();
        log_file.write_ahead(&disk);
        assert!(!log_file.has_room, "{} bytes ahead", log_file.written);
        for number in 1..=8 {
            log_file.append(&[number; 1024], &disk).unwrap();
        }
        let mut bytes = [0; 8192];
        full.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().zip(0..).all(|(byte, at)| *byte == 1 + (at / 1024) as u8));
        log_file.append(&[9], &disk).unwrap_err();
    }

    #[test]
    fn a_spare_file_is_cut_to_size_and_loses_its_old_content() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("state.log");
        let disk = Disk::default();
        std::fs::write(SpareFile::path(&log), vec![0xff; 8 << 20]).unwrap();
        let mut spare = SpareFile::open(&log).unwrap();
        spare.reserve(8 << 20, &disk).unwrap();
        spare.reserve(1 << 20, &disk).unwrap();
        assert_eq!(spare.capacity(), 1 << 20);
        let (first, none) = spare.replace(&log, b"first", None, &disk).unwrap();
        assert!(none.is_none(), "there was no log");
        let bytes = std::fs::read(&log).unwrap();
        assert_eq!((&bytes[..5], bytes.len()), (&b"first"[..], 1 << 20));
        assert!(bytes[5..].iter().all(|byte| *byte == 0));
        let mut spare = SpareFile::open(&log).unwrap();
        spare.reserve(1 << 20, &disk).unwrap();
        let (_second, spare) = spare.replace(&log, b"second", Some(first), &disk).unwrap();
        assert_eq!(spare.map(|spare| spare.capacity()), Some(1 << 20));
        assert!(std::fs::read(SpareFile::path(&log)).unwrap().starts_with(b"first"));
    }
}
