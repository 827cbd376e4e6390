//! The durable index, which finds files if the kernel does not open them by handle.
//!
//! Every file that a client has a handle of has a number. For each number the index knows the identity of the file
//! (file system, inode number, time of creation) and its last known location (the number of its directory, and a name;
//! several locations for a file of several links). So the rename of a directory changes one record, regardless of the objects below
//! it. A file found at a location must be the identified one, so that a number never leads to another file, even when
//! inode numbers are reused.
//!
//! Records are appended to a [`log`]. Memory holds a few dozen bytes per file: the offset of its newest
//! record, and a digest of its identity. A record is written before its handle is answered, and so survives a crash
//! of the server. A durable volume also waits until the record is on stable storage ([`Index::is_unsynced`]), once
//! for each file that is new to the index, so that a handle survives a crash of the machine. Otherwise the next start
//! skips the numbers that the machine may have lost, so that no number is ever used for another file.
//!
//! On a file system without creation times, the index cannot distinguish files that had the same inode number; all
//! common local file systems have them.

mod log;

use std::collections::HashMap;
use std::hash::Hasher;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use siphasher::sip::SipHasher13;
use vfs::{Error, Handle, Result};

use crate::handle::{self, IndexIdentity, Meaning};
pub(crate) use log::FileKey;
use log::{Log, Record, Rewrite};

/// Maximum number of files of an index. At the bound new files are refused with [`Error::ServerFault`]. It is reached only
/// if more than this many files exist, because removed files are forgotten.
pub(crate) const MAX_FILES: usize = 4 << 20;
/// Maximum number of places that are remembered of a file with several links.
const MAX_PLACES: usize = 64;
/// Garbage in bytes below which the log is not rewritten.
const MIN_GARBAGE_BYTES: u64 = 4 << 20;

/// Numbers that are skipped if some may have been used and lost.
const SKIPPED_NUMBERS: u64 = 1 << 32;

/// The number of the exported directory.
pub(crate) const ROOT: u64 = 1;

/// The identity of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileName<'a> {
    /// Number of its directory.
    pub(crate) parent: u64,
    /// Its name there.
    pub(crate) name: &'a [u8],
}

/// Directories and names, the newest first.
pub(crate) type FileNames = Vec<(u64, Vec<u8>)>;

/// The content of the index for a number.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) key: FileKey,
    pub(crate) places: FileNames,
}

/// The index of one export. One process at a time uses it.
#[derive(Debug)]
pub(crate) struct Index {
    identity: IndexIdentity,
    state: Mutex<State>,
    /// Numbers of the last appended record, and of the last one on stable storage.
    appended: AtomicU64,
    synced: AtomicU64,
    /// Held by one sync at a time, so that no sync mistakes a concurrent failure for success.
    syncing: Mutex<()>,
    /// Whether the next sync fails.
    #[cfg(test)]
    planned_sync_failure: std::sync::atomic::AtomicBool,
}

#[derive(Debug)]
struct State {
    log: Log,
    /// The offset of the newest record of a number, and digests of its key and place.
    files: HashMap<u64, Entry>,
    /// Number by digest of the key.
    numbers: HashMap<u64, u64>,
    next: u64,
    live_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: u64,
    key: u64,
    place: u64,
}

impl Index {
    /// Opens or creates the index in the file `path`, for the export of the directory `root`.
    ///
    /// # Errors
    /// If the file cannot be used, or another process uses it.
    pub(crate) fn open(path: &Path, root: FileKey) -> std::io::Result<Self> {
        let mut files = HashMap::new();
        let mut next = ROOT;
        let mut live_bytes = 0;
        let (log, is_complete) = Log::open(path, |offset, record| {
            next = next.max(record.id + 1);
            if record.is_gone {
                files.remove(&record.id);
            } else {
                live_bytes += record.encoded_bytes();
                files.insert(
                    record.id,
                    Entry {
                        offset,
                        key: digest_key(&record.key),
                        place: digest_place(record.parent, &record.name),
                    },
                );
            }
        })?;
        let numbers = files.iter().map(|(id, entry)| (entry.key, *id)).collect();
        let identity = log.identity();
        let mut state = State { log, files, numbers, next, live_bytes };
        if !is_complete {
            state.next += SKIPPED_NUMBERS;
        }
        if !state.is_root(&root)? {
            // The index is new, or the directory was replaced by another: nothing in it is valid.
            state.restart(root)?;
        }
        if state.is_mostly_garbage() {
            state.compact()?;
        }
        state.log.sync()?;
        Ok(Self {
            identity,
            state: Mutex::new(state),
            appended: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            syncing: Mutex::new(()),
            #[cfg(test)]
            planned_sync_failure: Default::default(),
        })
    }

    /// Returns the identity, which is random.
    pub(crate) fn identity(&self) -> IndexIdentity {
        self.identity
    }

    /// Returns the number in a handle of this index.
    pub(crate) fn id_of(&self, handle: &Handle) -> Result<u64> {
        match handle::decode(handle)? {
            Meaning::Indexed(identity, id) if identity == self.identity => Ok(id),
            _ => Err(Error::BadHandle),
        }
    }

    /// Returns the number of the file of `key`, which was found at `place`. Its old places are kept if it has
    /// several links.
    pub(crate) fn remember(&self, key: &FileKey, place: &FileName<'_>, is_linked: bool) -> Result<u64> {
        let mut state = self.state.lock();
        let before = state.log.bytes();
        let id = state.remember(key, place, is_linked).map_err(|error| report(&error))?;
        if state.log.bytes() != before {
            self.appended.fetch_add(1, Ordering::AcqRel);
        }
        Ok(id)
    }

    /// Returns the content for a number.
    pub(crate) fn find(&self, id: u64) -> Result<Option<Known>> {
        self.state.lock().find(id).map_err(|error| report(&error))
    }

    /// Removes a file. Returns true if [`compact_if_worth_it`](Self::compact_if_worth_it) is useful now.
    pub(crate) fn forget(&self, id: u64) -> bool {
        let mut state = self.state.lock();
        if let Err(error) = state.forget(id) {
            report(&error);
        }
        state.is_mostly_garbage()
    }

    /// Rewrites the log when most of it is garbage. It creates a file, so the thread must act as the server.
    pub(crate) fn compact_if_worth_it(&self) {
        let mut state = self.state.lock();
        if state.is_mostly_garbage()
            && let Err(error) = state.compact()
        {
            report(&error);
        }
    }

    /// Notes that the open file of `handle` has this key. On an overlay the first change of a file of a lower layer
    /// gives it another creation time.
    pub(crate) fn confirm(&self, handle: &Handle, key: &FileKey) {
        if let Ok(id) = self.id_of(handle)
            && let Err(error) = self.state.lock().confirm(id, key)
        {
            report(&error);
        }
    }

    /// Returns whether records wait for [`sync`](Self::sync).
    pub(crate) fn is_unsynced(&self) -> bool {
        self.synced.load(Ordering::Acquire) < self.appended.load(Ordering::Acquire)
    }

    /// Makes all records durable, without blocking lookups. After a failure it rewrites the log, so the thread must
    /// act as the server.
    ///
    /// # Errors
    /// [`Error::ServerFault`] if that fails; the records stay unsynced.
    pub(crate) fn sync(&self) -> Result<()> {
        let _one_at_a_time = self.syncing.lock();
        self.sync_alone().map_err(|error| report(&error))
    }

    fn sync_alone(&self) -> std::io::Result<()> {
        let (file, appended) = {
            let mut state = self.state.lock();
            if state.log.is_suspect() {
                state.compact()?;
            }
            state.log.sync_name()?;
            (state.log.file()?, self.appended.load(Ordering::Acquire))
        };
        if self.synced.load(Ordering::Acquire) >= appended {
            // Another thread has synced while this one waited.
            return Ok(());
        }
        let synced = file.sync_data();
        #[cfg(test)]
        let synced = match self.planned_sync_failure.swap(false, Ordering::Relaxed) {
            true => Err(rustix::io::Errno::IO.into()),
            false => synced,
        };
        if synced.is_err() {
            self.state.lock().log.suspect();
        }
        synced?;
        self.synced.fetch_max(appended, Ordering::AcqRel);
        Ok(())
    }
}

impl State {
    fn is_root(&mut self, key: &FileKey) -> std::io::Result<bool> {
        Ok(self.files.get(&ROOT).is_some_and(|entry| entry.key == digest_key(key)))
    }

    fn restart(&mut self, root: FileKey) -> std::io::Result<()> {
        self.files.clear();
        self.numbers.clear();
        self.live_bytes = 0;
        self.log.clear()?;
        // Numbers continue, because none is ever used for another file.
        self.next = self.next.max(ROOT + 1);
        self.append(ROOT, &root, &FileName { parent: ROOT, name: b"" }, 0)
    }

    fn remember(&mut self, key: &FileKey, place: &FileName<'_>, is_linked: bool) -> std::io::Result<u64> {
        let known = self.numbers.get(&digest_key(key)).copied();
        let Some((id, entry)) = known.and_then(|id| self.files.get(&id).map(|entry| (id, *entry))) else {
            if self.files.len() >= MAX_FILES {
                return Err(std::io::Error::other("the index of handles is full"));
            }
            let id = self.next;
            self.next += 1;
            self.append(id, key, place, 0)?;
            return Ok(id);
        };
        if id == ROOT || entry.place == digest_place(place.parent, place.name) {
            return Ok(id);
        }
        let previous = if is_linked { entry.offset } else { 0 };
        let is_known = is_linked
            && self
                .places(id, entry.offset)?
                .1
                .iter()
                .any(|(parent, name)| (*parent, &**name) == (place.parent, place.name));
        if !is_known {
            self.append(id, key, place, previous)?;
        }
        Ok(id)
    }

    fn find(&mut self, id: u64) -> std::io::Result<Option<Known>> {
        let Some(entry) = self.files.get(&id).copied() else { return Ok(None) };
        let (key, places) = self.places(id, entry.offset)?;
        Ok(Some(Known { key, places }))
    }

    fn places(&self, id: u64, newest: u64) -> std::io::Result<(FileKey, FileNames)> {
        let record = self.read(id, newest)?;
        let (key, mut previous) = (record.key, record.previous);
        let mut places = vec![(record.parent, record.name)];
        while previous != 0 && places.len() < MAX_PLACES {
            let record = self.read(id, previous)?;
            previous = record.previous;
            places.push((record.parent, record.name));
        }
        Ok((key, places))
    }

    /// Reads the record at an offset, which must be one of `id`: after any error, no number may lead to another file.
    fn read(&self, id: u64, offset: u64) -> std::io::Result<Record> {
        let record = self.log.read(offset)?;
        if record.id == id && !record.is_gone {
            return Ok(record);
        }
        Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "the index of handles has lost a record"))
    }

    fn forget(&mut self, id: u64) -> std::io::Result<()> {
        if id == ROOT {
            return Ok(());
        }
        let Some(entry) = self.files.remove(&id) else { return Ok(()) };
        if self.numbers.get(&entry.key) == Some(&id) {
            self.numbers.remove(&entry.key);
        }
        // As much as was added for the file, so that `live_bytes` does not grow without bound.
        let bytes = self.read(id, entry.offset).map_or(Record::MIN_BYTES, |record| record.encoded_bytes());
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
        self.log.append(&Record::gone(id)).map(drop)
    }

    fn confirm(&mut self, id: u64, key: &FileKey) -> std::io::Result<()> {
        let digest = digest_key(key);
        let Some(entry) = self.files.get(&id).copied().filter(|entry| entry.key != digest) else {
            return Ok(());
        };
        let record = self.read(id, entry.offset)?;
        self.numbers.remove(&entry.key);
        self.append(id, key, &FileName { parent: record.parent, name: &record.name }, record.previous)
    }

    fn append(&mut self, id: u64, key: &FileKey, place: &FileName<'_>, previous: u64) -> std::io::Result<()> {
        let record = Record {
            id,
            key: *key,
            parent: place.parent,
            previous,
            name: place.name.to_vec(),
            is_gone: false,
        };
        let offset = self.log.append(&record)?;
        let entry = Entry { offset, key: digest_key(key), place: digest_place(place.parent, place.name) };
        if self.files.insert(id, entry).is_none() {
            self.live_bytes += record.encoded_bytes();
        }
        self.numbers.insert(entry.key, id);
        Ok(())
    }

    fn is_mostly_garbage(&self) -> bool {
        let garbage = self.log.bytes().saturating_sub(self.live_bytes);
        garbage >= MIN_GARBAGE_BYTES && garbage >= 2 * self.live_bytes
    }

    /// Rewrites the log without garbage, and makes it durable.
    fn compact(&mut self) -> std::io::Result<()> {
        let mut rewrite = self.log.begin_rewrite(self.next)?;
        let (moved, live_bytes) = match self.copy(&mut rewrite) {
            Ok(copied) => copied,
            Err(error) => {
                rewrite.discard();
                return Err(error);
            }
        };
        self.log.finish_rewrite(rewrite)?;
        // Not earlier: until here the offsets are those of the old file.
        for (id, offset) in moved {
            if let Some(entry) = self.files.get_mut(&id) {
                entry.offset = offset;
            }
        }
        self.live_bytes = live_bytes;
        self.log.sync_name()
    }

    /// Writes all live records. Returns the new offset of each number's newest record, and the bytes of all.
    fn copy(&self, rewrite: &mut Rewrite) -> std::io::Result<(Vec<(u64, u64)>, u64)> {
        let mut moved = Vec::with_capacity(self.files.len());
        let mut live_bytes = 0;
        for (&id, entry) in &self.files {
            let (key, places) = self.places(id, entry.offset)?;
            let mut previous = 0;
            for (parent, name) in places.into_iter().rev() {
                let record = Record { id, key, parent, previous, name, is_gone: false };
                previous = rewrite.append(&record)?;
                live_bytes += record.encoded_bytes();
            }
            moved.push((id, previous));
        }
        Ok((moved, live_bytes))
    }
}

fn digest_key(key: &FileKey) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0x656e_6679_735f_6b65, 0x795f_6469_6765_7374);
    hasher.write_u64(key.fsid);
    hasher.write_u64(key.inode);
    hasher.write_i64(key.created.seconds);
    hasher.write_u32(key.created.nanoseconds);
    hasher.finish()
}

fn digest_place(parent: u64, name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0x656e_6679_735f_706c, 0x6163_655f_6469_6765);
    hasher.write_u64(parent);
    hasher.write(name);
    hasher.finish()
}

fn report(error: &std::io::Error) -> Error {
    tracing::error!(error = error.to_string(), "index of handles failed");
    Error::ServerFault
}

#[cfg(test)]
mod tests {
    use vfs::Timestamp;

    use super::*;

    fn key(inode: u64) -> FileKey {
        FileKey { fsid: 1, inode, created: Timestamp { seconds: 1_700_000_000, nanoseconds: 5 } }
    }

    fn at(parent: u64, name: &str) -> FileName<'_> {
        FileName { parent, name: name.as_bytes() }
    }

    fn places(index: &Index, id: u64) -> FileNames {
        index.find(id).expect("readable").expect("known").places
    }

    fn open(directory: &tempfile::TempDir) -> Index {
        Index::open(&directory.path().join("index"), key(2)).expect("index")
    }

    #[test]
    fn numbers_and_places_survive_a_kill() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let index = open(&directory);
        let identity = index.identity();
        let folder = index.remember(&key(10), &at(ROOT, "folder"), false).expect("number");
        let file = index.remember(&key(11), &at(folder, "file"), false).expect("number");
        index.remember(&key(10), &at(ROOT, "renamed"), false).expect("number");
        // Like kill -9: nothing is closed or synced, only the lock is released.
        index.state.lock().log.abandon();
        std::mem::forget(index);
        let index = open(&directory);
        assert_eq!(index.identity(), identity);
        assert_eq!(places(&index, folder), [(ROOT, b"renamed".to_vec())]);
        assert_eq!(places(&index, file), [(folder, b"file".to_vec())]);
        assert_eq!(index.remember(&key(11), &at(folder, "file"), false), Ok(file));
    }

    #[test]
    fn a_number_is_never_reused() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let index = open(&directory);
        let first = index.remember(&key(10), &at(ROOT, "a"), false).expect("number");
        index.forget(first);
        drop(index);
        let index = open(&directory);
        assert!(index.find(first).expect("readable").is_none());
        let second = index.remember(&key(10), &at(ROOT, "a"), false).expect("number");
        assert!(second > first);
    }

    #[test]
    fn a_file_of_several_links_keeps_its_places() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let index = open(&directory);
        let file = index.remember(&key(10), &at(ROOT, "a"), false).expect("number");
        for name in ["b", "a", "b", "c"] {
            assert_eq!(index.remember(&key(10), &at(ROOT, name), true), Ok(file));
        }
        let names: Vec<_> = places(&index, file).into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, [b"c", b"b", b"a"]);
    }

    #[test]
    fn the_log_is_bounded_by_its_live_records() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let index = open(&directory);
        let kept = index.remember(&key(5), &at(ROOT, "kept"), false).expect("number");
        index.remember(&key(5), &at(ROOT, "linked"), true).expect("number");
        for round in 0..60_000 {
            let id =
                index.remember(&key(100 + round), &at(ROOT, "created and removed"), false).expect("number");
            if index.forget(id) {
                index.compact_if_worth_it();
            }
        }
        let bytes = std::fs::metadata(directory.path().join("index")).expect("file").len();
        assert!(bytes < 2 * MIN_GARBAGE_BYTES, "{bytes} bytes for two files");
        assert_eq!(places(&index, kept).len(), 2);
        drop(index);
        assert_eq!(places(&open(&directory), kept).len(), 2);
    }

    #[test]
    fn a_failed_rewrite_leaves_every_number_with_its_file() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let index = open(&directory);
        let gone = index.remember(&key(9), &at(ROOT, "shifts all the others"), false).expect("number");
        let name = |inode: u64| format!("file {inode}");
        let ids: Vec<_> = (10..30)
            .map(|inode| index.remember(&key(inode), &at(ROOT, &name(inode)), false).expect("number"))
            .collect();
        index.forget(gone);
        // With a directory in its place, everything is written but cannot be renamed.
        let path = directory.path().join("index");
        std::fs::rename(&path, directory.path().join("moved")).expect("rename");
        std::fs::create_dir(&path).expect("directory");
        assert!(index.state.lock().compact().is_err());
        assert!(!path.with_extension("new").exists(), "its space is freed");
        for (inode, id) in (10..).zip(&ids) {
            assert_eq!(places(&index, *id), [(ROOT, name(inode).into_bytes())]);
        }
        std::fs::remove_dir(&path).expect("remove");
        index.state.lock().compact().expect("now it can be created");
        for (inode, id) in (10..).zip(&ids) {
            assert_eq!(places(&index, *id), [(ROOT, name(inode).into_bytes())]);
        }
    }

    #[test]
    fn a_record_of_another_number_is_an_error() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let index = open(&directory);
        let one = index.remember(&key(10), &at(ROOT, "a"), false).expect("number");
        let other = index.remember(&key(11), &at(ROOT, "b"), false).expect("number");
        let mut state = index.state.lock();
        let wrong = state.files[&other].offset;
        state.files.get_mut(&one).expect("known").offset = wrong;
        drop(state);
        assert_eq!(index.find(one).err(), Some(Error::ServerFault));
    }

    #[test]
    fn after_a_failed_sync_only_a_rewrite_counts() {
        use std::os::unix::fs::MetadataExt;
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("index");
        let inode = || std::fs::metadata(&path).expect("file").ino();
        let index = open(&directory);
        let file = index.remember(&key(10), &at(ROOT, "a"), false).expect("number");
        let before = inode();
        index.planned_sync_failure.store(true, Ordering::Relaxed);
        assert_eq!(index.sync(), Err(Error::ServerFault));
        assert!(index.is_unsynced());
        // The kernel would return success: it has reported the error already.
        index.sync().expect("sync");
        assert!(!index.is_unsynced());
        assert_ne!(inode(), before, "the records are in another file");
        assert_eq!(places(&index, file), [(ROOT, b"a".to_vec())]);
    }

    #[test]
    fn a_log_whose_sync_failed_is_not_closed_as_complete() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("index");
        let index = open(&directory);
        index.remember(&key(10), &at(ROOT, "a"), false).expect("number");
        index.planned_sync_failure.store(true, Ordering::Relaxed);
        index.sync().expect_err("planned");
        drop(index);
        assert_eq!(std::fs::read(&path).expect("log")[32], 0);
        drop(open(&directory));
        assert_eq!(std::fs::read(&path).expect("log")[32], 1);
    }

    #[test]
    fn a_replaced_directory_gets_a_new_index() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let index = open(&directory);
        let old = index.remember(&key(10), &at(ROOT, "a"), false).expect("number");
        drop(index);
        let index = Index::open(&directory.path().join("index"), key(3)).expect("index");
        assert!(index.find(old).expect("readable").is_none());
        let new = index.remember(&key(11), &at(ROOT, "a"), false).expect("number");
        assert!(new > old);
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let target = directory.path().join("target");
        std::os::unix::fs::symlink(&target, directory.path().join("index")).expect("link");
        Index::open(&directory.path().join("index"), key(2)).expect_err("a link");
        assert!(!target.exists());
    }

    #[test]
    fn a_torn_record_at_the_end_is_cut_off() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("index");
        let index = open(&directory);
        let first = index.remember(&key(10), &at(ROOT, "a"), false).expect("number");
        let second = index.remember(&key(11), &at(ROOT, "b"), false).expect("number");
        drop(index);
        let bytes = std::fs::metadata(&path).expect("file").len();
        std::fs::OpenOptions::new().write(true).open(&path).expect("file").set_len(bytes - 1).expect("cut");
        let index = open(&directory);
        assert_eq!(places(&index, first).len(), 1);
        assert!(index.find(second).expect("readable").is_none());
        let third = index.remember(&key(12), &at(ROOT, "c"), false).expect("number");
        drop(index);
        assert_eq!(places(&open(&directory), third), [(ROOT, b"c".to_vec())]);
    }

    #[test]
    fn after_a_crash_of_the_machine_numbers_that_may_be_lost_are_skipped() {
        use std::os::unix::fs::FileExt;
        let directory = tempfile::tempdir().expect("temporary directory");
        let index = open(&directory);
        let lost = index.remember(&key(10), &at(ROOT, "a"), false).expect("number");
        index.state.lock().log.abandon();
        std::mem::forget(index);
        let file =
            std::fs::OpenOptions::new().write(true).open(directory.path().join("index")).expect("file");
        file.set_len(file.metadata().expect("file").len() - 20).expect("cut");
        // Another boot id: the machine has crashed.
        file.write_all_at(&[0xee; 16], 16).expect("write");
        let index = open(&directory);
        assert!(index.find(lost).expect("readable").is_none());
        assert!(index.remember(&key(11), &at(ROOT, "b"), false).expect("number") > lost);
    }

    #[test]
    fn appended_records_are_unsynced_until_a_sync() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let index = open(&directory);
        assert!(!index.is_unsynced());
        index.remember(&key(10), &at(ROOT, "a"), false).expect("number");
        assert!(index.is_unsynced());
        index.sync().expect("sync");
        index.remember(&key(10), &at(ROOT, "a"), false).expect("number");
        assert!(!index.is_unsynced(), "nothing was added");
    }

    #[test]
    fn two_servers_do_not_share_an_index() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let _used = open(&directory);
        assert!(Index::open(&directory.path().join("index"), key(2)).is_err());
    }
}
