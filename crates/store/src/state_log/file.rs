//! The file that is appended to, and the one that takes its place when the map is written anew.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use super::{Queue, format};
use crate::disk_space;
use crate::files::open_file;

/// A file is not written anew before it has so many bytes.
const REWRITE_BYTES: u64 = 1 << 20;
/// Nor before it has so many times what its map needs.
const REWRITE_FACTOR: u64 = 4;
/// So much of the file is written with zeros ahead of what is appended.
const AHEAD_BYTES: u64 = 256 << 10;
/// Space that each of both files has beside what the map needs: for some ten thousand clients that come when the disk is full.
const RESERVE_BYTES: u64 = 2 << 20;
/// From so little on, more is allocated.
pub(super) const LOW_BYTES: u64 = RESERVE_BYTES / 2;
/// The last of it is for changes of what is in the map already.
pub(super) const LAST_BYTES: u64 = 256 << 10;

/// The disk. Tests have it full: then files have the space that they had.
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

    /// Allocates what is wanted of a file that has `has` bytes, or as much as there is; returns how much that is.
    fn keep(&self, file: &File, has: u64, wanted: u64) -> io::Result<(u64, Option<io::Error>)> {
        #[cfg(test)]
        let before = std::os::unix::fs::MetadataExt::blocks(&file.metadata()?) * 512;
        #[cfg(not(test))]
        let before = 0;
        disk_space::keep(has, wanted, |bytes| {
            self.check(bytes > before.max(has))?;
            disk_space::allocate(file, bytes)
        })
    }
}

/// How many bytes each of both files shall have for a map that takes so many.
pub(super) fn wanted(live_bytes: u64) -> u64 {
    (format::HEADER as u64 + live_bytes + RESERVE_BYTES).next_multiple_of(64 << 10)
}

/// A file that is appended to. What is ahead of the records is written already, with zeros, as far as the disk has room: a
/// record that takes their place changes neither the file's size nor its blocks, so that a sync has nothing to write but the
/// record, and no journal to commit.
#[derive(Debug)]
pub(super) struct Appending {
    file: File,
    /// Up to where there are records.
    bytes: u64,
    /// Up to where it is written.
    written: u64,
    /// Up to where it has its space.
    kept: u64,
    /// Whether there was room for zeros when they were last written. Not asked again before space was allocated.
    has_room: bool,
}

impl Appending {
    /// A file of another server that is sound up to `end`, where nothing but zeros stands behind.
    ///
    /// # Errors
    /// It cannot be opened, or not have zeros behind its end.
    pub(super) fn adopt(path: &Path, end: u64) -> io::Result<Self> {
        let file = open_file(path, OpenOptions::new().read(true).write(true))?;
        let written = file.metadata()?.len().max(end);
        // A torn tail may not stand before what comes.
        disk_space::zero(&file, end, written)?;
        file.sync_data()?;
        Ok(Self { file, bytes: end, written, kept: written, has_room: true })
    }

    /// Up to where it needs no more space.
    pub(super) fn room(&self) -> u64 {
        self.written.max(self.kept)
    }

    /// Whether it is mostly of no use.
    pub(super) fn is_long(&self, queue: &Queue) -> bool {
        self.bytes > REWRITE_BYTES && self.bytes > REWRITE_FACTOR * queue.live_bytes
    }

    /// Appends `changes`, and has them on stable storage. Where there is no space for them, nothing stands behind what was appended before
    /// but a torn tail, and they can be appended again.
    ///
    /// # Errors
    /// Those of writing and syncing.
    pub(super) fn append(&mut self, changes: &[u8], disk: &Disk) -> io::Result<()> {
        let end = self.bytes + changes.len() as u64;
        disk.check(end > self.room())?;
        self.file.write_all_at(changes, self.bytes)?;
        self.bytes = end;
        if self.bytes > self.written {
            self.written = self.bytes;
            self.write_ahead(disk);
        }
        self.file.sync_data()
    }

    /// Whether so many bytes need nothing but their place, and a sync.
    pub(super) fn has_place_for(&self, bytes: usize) -> bool {
        !self.has_room || self.bytes + bytes as u64 <= self.written
    }

    /// Writes zeros behind the end of the file. Records need none: where they cannot be written, the file just ends.
    fn write_ahead(&mut self, disk: &Disk) {
        let end = (self.bytes + AHEAD_BYTES).next_multiple_of(16 << 10);
        if !self.has_room || self.written >= end {
            return;
        }
        // As far as it has space, if it cannot have more.
        for end in [end, self.kept.min(end)] {
            let done =
                disk.check(end > self.kept).and_then(|()| disk_space::zero(&self.file, self.written, end));
            if done.is_ok() {
                self.written = self.written.max(end);
                return;
            }
            self.has_room = false;
        }
    }

    /// Allocates space up to `wanted`, or as much as there is; why it is less.
    pub(super) fn keep(&mut self, wanted: u64, disk: &Disk) -> io::Result<Option<io::Error>> {
        let (kept, shortage) = disk.keep(&self.file, self.room(), wanted)?;
        self.kept = kept;
        self.has_room |= shortage.is_none();
        Ok(shortage)
    }
}

/// The file that will be the one in use: it has its space already.
#[derive(Debug)]
pub(super) struct Spare {
    file: File,
    kept: u64,
}

impl Spare {
    /// Its path.
    pub(super) fn path(log: &Path) -> PathBuf {
        log.with_extension("log.new")
    }

    /// Opens the one of the server before, or makes one.
    ///
    /// # Errors
    /// Those of open(2).
    pub(super) fn open(log: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = open_file(&Self::path(log), options.read(true).write(true).create(true).truncate(false))?;
        if file.metadata()?.len() == 0 {
            disk_space::overwrite_in_place(&file);
        }
        Ok(Self { file, kept: 0 })
    }

    /// How many bytes it has space for.
    pub(super) fn room(&self) -> u64 {
        self.kept
    }

    /// As [`Appending::keep`]. What is far more than that is given back.
    pub(super) fn keep(&mut self, wanted: u64, disk: &Disk) -> io::Result<Option<io::Error>> {
        if self.kept > 2 * wanted {
            self.file.set_len(wanted)?;
            self.kept = wanted;
        }
        let (kept, shortage) = disk.keep(&self.file, self.kept, wanted)?;
        self.kept = kept;
        Ok(shortage)
    }

    /// Writes a whole log, and has it take the place of the one in use, which was `old`: that is the spare one then, where the file system
    /// can exchange both. Until it has begun to do so, `log` is what it was.
    pub(super) fn replace(
        self,
        log: &Path,
        content: &[u8],
        old: Option<Appending>,
        disk: &Disk,
    ) -> Result<(Appending, Option<Self>), (Option<Appending>, io::Error)> {
        let appending = match self.write(content, disk) {
            Ok(appending) => appending,
            Err(error) => return Err((old, error)),
        };
        let is_exchanged = match exchange(&Self::path(log), log) {
            Ok(is_exchanged) => is_exchanged,
            Err(error) => return Err((old, error)),
        };
        // Which of both the next server would find, nobody can tell.
        super::sync_directory_of(log).map_err(|error| (None, error))?;
        let old = old.filter(|_| is_exchanged);
        Ok((appending, old.map(|old| Self { kept: old.room(), file: old.file })))
    }

    fn write(self, content: &[u8], disk: &Disk) -> io::Result<Appending> {
        let Self { file, kept } = self;
        let bytes = content.len() as u64;
        disk.check(bytes > kept)?;
        file.write_all_at(content, 0)?;
        // What it held before is no part of it.
        let written = file.metadata()?.len();
        disk_space::zero(&file, bytes, written)?;
        let mut appending = Appending { file, bytes, written, kept, has_room: true };
        appending.write_ahead(disk);
        appending.file.sync_all()?;
        Ok(appending)
    }
}

/// Gives `log` the content of `new`; whether `new` is what `log` was.
fn exchange(new: &Path, log: &Path) -> io::Result<bool> {
    if !std::fs::symlink_metadata(log).is_ok_and(|metadata| metadata.is_file()) {
        return std::fs::rename(new, log).map(|()| false);
    }
    match rustix::fs::renameat_with(CWD, new, CWD, log, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        // Not every file system can.
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

    impl Appending {
        /// A file that cannot be written.
        pub(in super::super) fn broken() -> Self {
            let file = File::open("/dev/null").unwrap();
            Self { file, bytes: 0, written: 1 << 20, kept: 0, has_room: true }
        }
    }

    #[test]
    fn where_there_is_no_room_for_zeros_records_are_appended_all_the_same() {
        // A file that may not grow: as on a disk that is as good as full.
        let full = rustix::fs::memfd_create("full", MemfdFlags::ALLOW_SEALING).unwrap();
        let full = File::from(full);
        full.set_len(8192).unwrap();
        rustix::fs::fcntl_add_seals(&full, SealFlags::GROW).unwrap();
        let file = full.try_clone().unwrap();
        let mut appending = Appending { file, bytes: 0, written: 0, kept: 0, has_room: true };
        let disk = Disk::default();
        appending.write_ahead(&disk);
        assert!(!appending.has_room, "{} bytes ahead", appending.written);
        for number in 1..=8 {
            appending.append(&[number; 1024], &disk).unwrap();
        }
        let mut bytes = [0; 8192];
        full.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().zip(0..).all(|(byte, at)| *byte == 1 + (at / 1024) as u8));
        appending.append(&[9], &disk).unwrap_err();
    }

    #[test]
    fn a_spare_file_is_no_longer_than_it_shall_be_and_nothing_of_before_is_left_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("state.log");
        let disk = Disk::default();
        std::fs::write(Spare::path(&log), vec![0xff; 8 << 20]).unwrap();
        let mut spare = Spare::open(&log).unwrap();
        spare.keep(8 << 20, &disk).unwrap();
        spare.keep(1 << 20, &disk).unwrap();
        assert_eq!(spare.room(), 1 << 20);
        let (first, none) = spare.replace(&log, b"first", None, &disk).unwrap();
        assert!(none.is_none(), "there was no log");
        let bytes = std::fs::read(&log).unwrap();
        assert_eq!((&bytes[..5], bytes.len()), (&b"first"[..], 1 << 20));
        assert!(bytes[5..].iter().all(|byte| *byte == 0));
        let mut spare = Spare::open(&log).unwrap();
        spare.keep(1 << 20, &disk).unwrap();
        let (_second, spare) = spare.replace(&log, b"second", Some(first), &disk).unwrap();
        assert_eq!(spare.map(|spare| spare.room()), Some(1 << 20));
        assert!(std::fs::read(Spare::path(&log)).unwrap().starts_with(b"first"));
    }
}
