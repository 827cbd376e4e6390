//! The file, and the thread that writes it.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use tracing::{error, info, warn};
use vfs::Pace;

use super::format::{self, Key};
use super::{Queue, Shared, sync_directory_of};
use crate::state_dir;

/// A file is not written anew before it has so many bytes.
const REWRITE_BYTES: u64 = 1 << 20;
/// Nor before it has so many times what its map needs.
const REWRITE_FACTOR: u64 = 4;
/// So much of the file is written with zeros ahead of what is appended.
const AHEAD_BYTES: u64 = 256 << 10;
/// How long after a failure the map is written anew.
const RETRY: Duration = if cfg!(test) { Duration::from_millis(20) } else { Duration::from_secs(10) };

/// How the file stands.
#[derive(Debug)]
pub(super) struct Writer {
    /// The file in use; none while it cannot be written.
    file: Option<Appending>,
    /// Whether it was said that it cannot be written.
    is_said: bool,
    /// When it is tried again.
    retry_at: Instant,
}

impl Default for Writer {
    fn default() -> Self {
        Self { file: None, is_said: false, retry_at: Instant::now() }
    }
}

/// A file that is appended to. What is ahead of the records is written already, with zeros, as far as the disk has room: a
/// record that takes their place changes neither the file's size nor its blocks, so that a sync has nothing to write but the
/// record, and no journal to commit.
#[derive(Debug)]
struct Appending {
    file: File,
    /// Up to where there are records.
    bytes: u64,
    /// Up to where it is written.
    written: u64,
    /// Whether there was room for zeros when they were last written. Not asked again before the file is written anew.
    has_room: bool,
}

impl Appending {
    /// A file that has `bytes` bytes of records and nothing else, none of it synced.
    fn new(file: File, bytes: u64) -> Self {
        let mut appending = Self { file, bytes, written: bytes, has_room: true };
        appending.write_ahead();
        appending
    }

    /// Whether it is mostly of no use.
    fn is_long(&self, queue: &Queue) -> bool {
        self.bytes > REWRITE_BYTES && self.bytes > REWRITE_FACTOR * queue.live_bytes
    }

    /// Appends `changes`, and has them on stable storage.
    fn append(&mut self, changes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(changes, self.bytes)?;
        self.bytes += changes.len() as u64;
        if self.bytes > self.written {
            self.written = self.bytes;
            self.write_ahead();
        }
        self.file.sync_data()
    }

    /// Whether so many bytes need nothing but their place, and a sync.
    fn has_place_for(&self, bytes: usize) -> bool {
        !self.has_room || self.bytes + bytes as u64 <= self.written
    }

    /// Writes zeros behind the end of the file. Records need none: where they cannot be written, the file just ends.
    fn write_ahead(&mut self) {
        let zeros = [0; 16 << 10];
        let end = (self.bytes + AHEAD_BYTES).next_multiple_of(zeros.len() as u64);
        while self.has_room && self.written < end {
            let bytes = zeros.len().min((end - self.written) as usize);
            match self.file.write_at(&zeros[..bytes], self.written) {
                Ok(done) if done > 0 => self.written += done as u64,
                _ => self.has_room = false,
            }
        }
    }
}

/// What there is to do for the log's own thread.
enum Work {
    /// Changes to be appended, up to this one.
    Append(Vec<u8>, u64),
    /// To let go who waits for changes up to this one, which cannot be written.
    GiveUp(u64),
    /// To be tried again, or the file is mostly of no use.
    Rewrite,
    /// Nothing before somebody calls, or this moment.
    Sleep(Option<Instant>),
    End,
}

/// Writes until the log ends.
pub(super) fn run(shared: &Shared) {
    // What was read is written anew: a torn tail must not stand before what comes, and the server before may have left a
    // file that cannot be appended to.
    shared.writer.lock().rewrite(shared);
    loop {
        let mut writer = shared.writer.lock();
        let mut queue = shared.queue.lock();
        let work = writer.next(shared, &mut queue);
        match work {
            Work::Append(changes, last) => {
                drop(queue);
                writer.append(shared, &changes);
                // Who is woken by it may write the next one.
                drop(writer);
                shared.set_stable(last);
            }
            Work::GiveUp(last) => {
                drop(queue);
                shared.set_stable(last);
            }
            Work::Rewrite => {
                drop(queue);
                writer.rewrite(shared);
            }
            Work::Sleep(until) => {
                // Others may write meanwhile.
                drop(writer);
                queue.is_idle = true;
                match until {
                    None => shared.came.wait(&mut queue),
                    // Which of both it was shows above.
                    Some(time) => _ = shared.came.wait_until(&mut queue, time),
                }
                queue.is_idle = false;
            }
            Work::End => return,
        }
    }
}

impl Writer {
    fn next(&mut self, shared: &Shared, queue: &mut Queue) -> Work {
        let Some(file) = &self.file else {
            // Nobody waits for what cannot be written.
            queue.changes.clear();
            if shared.stable.load(Ordering::Acquire) < queue.last {
                return Work::GiveUp(queue.last);
            }
            if queue.ends {
                return Work::End;
            }
            let is_time = Instant::now() >= self.retry_at;
            return if is_time { Work::Rewrite } else { Work::Sleep(Some(self.retry_at)) };
        };
        if file.is_long(queue) && Instant::now() >= self.retry_at {
            return Work::Rewrite;
        }
        let is_wanted = queue.ends || queue.wanted > shared.stable.load(Ordering::Acquire);
        if is_wanted && !queue.changes.is_empty() {
            let (changes, last) = queue.take();
            return Work::Append(changes, last);
        }
        if queue.ends { Work::End } else { Work::Sleep(None) }
    }

    /// Whether the changes are few enough to be taken along with a flush, and nothing else has to be done for them.
    pub(super) fn takes_little(&self, queue: &Queue) -> bool {
        let bytes = queue.changes.len();
        let has_place = |file: &Appending| file.has_place_for(bytes) && !file.is_long(queue);
        bytes as u64 <= Pace::LITTLE_BYTES && self.file.as_ref().is_some_and(has_place)
    }

    /// Writes changes and has them on stable storage, or whatever else becomes of them: none of them is waited for any more.
    pub(super) fn append(&mut self, shared: &Shared, changes: &[u8]) {
        let Some(appending) = &mut self.file else { return };
        let began = Instant::now();
        let done = appending.append(changes);
        shared.pace.took(began.elapsed());
        #[cfg(test)]
        shared.syncs.lock().push(std::thread::current().id());
        if let Err(error) = done {
            // Whether a sync that failed left anything, nobody can tell: this file is not trusted any more.
            self.file = None;
            self.fail(shared, &error);
        }
    }

    /// Writes the whole map into a new file, which takes the old one's place.
    fn rewrite(&mut self, shared: &Shared) {
        let place = match Place::take(shared) {
            Ok(place) => place,
            // The one in use goes on to be true.
            Err(error) if self.file.is_some() => {
                warn!("{}: not written anew yet: {}", shared.path.display(), crate::said(&error));
                self.retry_at = Instant::now() + RETRY;
                return;
            }
            Err(error) => {
                let last = shared.queue.lock().last;
                self.fail(shared, &error);
                return shared.set_stable(last);
            }
        };
        let (map, last, key) = {
            let mut queue = shared.queue.lock();
            match state_dir::random::<16>() {
                Ok(key) => queue.key = key,
                Err(why) => error!("{}: {why}: checksums as before", shared.path.display()),
            }
            queue.changes.clear();
            (queue.map.clone(), queue.last, queue.key)
        };
        match place.write(&map, last, &key) {
            Ok(appending) => {
                self.file = Some(appending);
                shared.fails.store(false, Ordering::Relaxed);
                if std::mem::take(&mut self.is_said) {
                    info!("{}: written again", shared.path.display());
                }
            }
            Err(error) => {
                self.file = None;
                self.fail(shared, &error);
            }
        }
        shared.set_stable(last);
    }

    /// The file says no more what is true: it is made to say nothing, so that nobody reclaims by it.
    fn fail(&mut self, shared: &Shared, error: &io::Error) {
        let path = shared.path.display();
        let cause = crate::said(error);
        if let Err(left) = withdraw(&shared.path) {
            let left = crate::said(&left);
            error!(
                "{path}: {cause}; nor can it be taken away: {left}: remove it before the next start, or clients may reclaim what others have had since"
            );
        } else if !self.is_said {
            warn!("{path}: {cause}: clients reclaim nothing after a restart until it can be written again");
        }
        self.is_said = true;
        shared.fails.store(true, Ordering::Relaxed);
        self.retry_at = Instant::now() + RETRY;
    }
}

fn withdraw(path: &Path) -> io::Result<()> {
    let is_absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match fs::remove_file(path) {
        Err(error) if !is_absent(&error) => {
            let file = state_dir::open_file(path, OpenOptions::new().write(true).truncate(true))?;
            file.sync_all()
        }
        _ => sync_directory_of(path),
    }
}

/// A new file with room for the map, beside the one in use: from here on nothing should be missing to write it.
struct Place {
    path: PathBuf,
    /// What it will be called.
    target: PathBuf,
    file: File,
    directory: File,
}

impl Place {
    fn take(shared: &Shared) -> io::Result<Self> {
        let target = shared.path.clone();
        let path = target.with_extension("log.new");
        let directory = File::open(target.parent().unwrap_or(Path::new("/")))?;
        let file = state_dir::open_file(&path, OpenOptions::new().write(true).create(true).truncate(true))?;
        let place = Self { path, target, file, directory };
        let bytes = format::HEADER as u64 + shared.queue.lock().live_bytes;
        match rustix::fs::fallocate(&place.file, FallocateFlags::KEEP_SIZE, 0, bytes) {
            // Not every file system can keep room.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(place),
            Err(error) => {
                let _ = fs::remove_file(&place.path);
                Err(error.into())
            }
        }
    }

    fn write(mut self, map: &HashMap<Vec<u8>, Vec<u8>>, last: u64, key: &Key) -> io::Result<Appending> {
        let mut bytes = format::header(key);
        // The numbers end where the next change goes on.
        let first = last - map.len() as u64 + 1;
        // In order: see `StateLog`.
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_unstable();
        for (number, (name, value)) in (first..).zip(entries) {
            format::put_synced(&mut bytes, key, number, name, value);
        }
        let done = self.file.write_all(&bytes).and_then(|()| {
            let appending = Appending::new(self.file, bytes.len() as u64);
            appending.file.sync_all()?;
            fs::rename(&self.path, &self.target)?;
            self.directory.sync_all()?;
            Ok(appending)
        });
        if done.is_err() {
            let _ = fs::remove_file(&self.path);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, SealFlags};

    use super::*;

    impl Writer {
        /// What it appends to has no room any more.
        pub(in super::super) fn fill_disk(&mut self) {
            let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
            self.file = Some(Appending::new(full, 0));
        }
    }

    #[test]
    fn a_full_disk_takes_the_file_back_and_it_is_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.log");
        let entry = (b"c-a".to_vec(), b"may reclaim".to_vec());
        let shared = Shared::new(&path, HashMap::from([entry.clone()]));
        let mut writer = shared.writer.lock();
        writer.rewrite(&shared);
        assert!(path.exists());
        writer.fill_disk();
        let last = shared.queue.lock().set(&entry.0, Some(b"lost something"));
        shared.want(last);
        let work = writer.next(&shared, &mut shared.queue.lock());
        let Work::Append(changes, number) = work else { panic!("there is a change") };
        assert_eq!(number, last);
        writer.append(&shared, &changes);
        shared.set_stable(number);
        assert!(!path.exists(), "it would say what is not true any more");
        assert!(shared.fails.load(Ordering::Relaxed));
        assert!(shared.stable.load(Ordering::Relaxed) >= last, "nobody waits for it");
        writer.rewrite(&shared);
        assert!(!shared.fails.load(Ordering::Relaxed));
        let (map, damage) = format::scan(&fs::read(&path).unwrap()).into_map();
        assert_eq!((map, damage), (HashMap::from([(entry.0, b"lost something".to_vec())]), None));
    }

    #[test]
    fn where_there_is_no_room_for_zeros_records_are_appended_all_the_same() {
        // A file that may not grow: as on a disk that is as good as full.
        let full = rustix::fs::memfd_create("full", MemfdFlags::ALLOW_SEALING).unwrap();
        let full = File::from(full);
        full.set_len(8192).unwrap();
        rustix::fs::fcntl_add_seals(&full, SealFlags::GROW).unwrap();
        let mut appending = Appending::new(full.try_clone().unwrap(), 0);
        assert!(!appending.has_room, "{} bytes ahead", appending.written);
        for number in 1..=8 {
            appending.append(&[number; 1024]).unwrap();
        }
        let mut bytes = [0; 8192];
        full.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().zip(0..).all(|(byte, at)| *byte == 1 + (at / 1024) as u8));
        appending.append(&[9]).unwrap_err();
    }
}
