//! The map of what the next server must know ([`server::StateLog`]), in the state directory.
//!
//! A file to which changes are appended when somebody waits for them, mostly by a thread of its own, which syncs after each write: all
//! changes that come while one sync runs share the next. Who waits alone, with a thread that has nobody else to serve, writes and syncs
//! itself, as long as syncs are short ([`Pace`]): to hand over to another thread and to be woken by it takes longer. When most of the file is
//! of no more use, and at each start, the thread writes the map anew into another file that takes its place.
//!
//! ```text
//! file    header (32 bytes: magic with version (8), key of checksums (16), checksum of both (8)), then records, then zeros
//! record  number (8), length of the body (4), bytes before it that were written with it (4), checksum of the body (8),
//!         checksum of these 24 bytes (8), body
//! body    kind (1: a key is set, 0: it is taken away), length of the key (2), key, value, 0xa5
//! ```
//!
//! **Zeros ahead.** The file is kept longer than what it says, by some hundred KiB that are written with zeros. A record takes the
//! place of zeros, so that a sync writes the record alone: not the file's new size and blocks, nor the journal that has to have these.
//! Where the disk has no space for zeros, records are appended to the file's end.
//!
//! **Damage.** What was being written when the machine went down was not answered for, so that a *torn tail* is left out and
//! nothing is lost. Of one write any sectors may be on the disk and others not: where one is not, there is the file's end, or zeros
//! as before. So a tail is torn where a record lacks a sector, and all records behind it, if any, were written with it, which
//! they say; nothing behind is believed. Anything else that is no record is damage. It may have been a record that took back what one
//! before it says; so all that comes before is not believed, and all that comes behind it is: each record has the whole value
//! of its key. A log that is not understood at all tells nothing, and neither does one that is empty or gone. Whatever of
//! this there is, one line says it.
//!
//! **Space.** Two files have more space than the map needs: the one in use, and a spare one (`state.log.new`), which takes its place when
//! the map is written anew; then the one that was in use is the spare one. So a disk that becomes full later takes nothing from the map.
//! Records of new clients use up what was reserved. Behind that there is [no room](server::StateLog::has_room) for new clients, and
//! the last 256 KiB are for changes of what the map has. Where even these do not suffice, changes wait for space, and what is on disk
//! stays as it is. At a start on a full disk without a spare file, records are appended to the file of the server before.
//!
//! **When it cannot be written** (an error other than a full disk), the file would go on to say what is not true any more. It is cut
//! to nothing, or taken away: the next server lets nobody reclaim. From time to time the map is written anew.

mod file;
mod format;
mod writer;

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use server::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use vfs::{Op, Pace, Thread};

use crate::files::{error_text, open_file, random};
use crate::wait_queue::Waiters;
use file::Appending;
use format::{Key, Tail};
use writer::Writer;

/// Bytes of the file that are read at most: far above what a server's clients can make it write.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Bytes of changes from which on they are written though nobody waits.
const GATHERED_BYTES: usize = 256 << 10;

/// The map as the server uses it.
#[derive(Debug)]
pub struct StateFile {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What a log told when it was opened.
#[derive(Debug, Default)]
pub struct Kept {
    /// Keys and their values.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// One line that says what could not be read and what that costs, if anything.
    pub damage: Option<String>,
}

/// What the server's threads and the log's own share.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// Held while the file is written; whoever waits for it does so before locking the queue.
    writer: Mutex<Writer>,
    queue: Mutex<Queue>,
    /// There is something for the log's own thread to do.
    came: Condvar,
    stable: AtomicU64,
    /// Whether the file cannot be written at present.
    fails: AtomicBool,
    /// Whether there is space for more keys.
    has_room: AtomicBool,
    /// Of syncs of what was appended.
    pace: Pace,
    /// The threads that have synced what was appended.
    #[cfg(test)]
    syncs: Mutex<Vec<std::thread::ThreadId>>,
}

#[derive(Debug)]
struct Queue {
    /// All that is known, as the changes have it up to [`Self::last`].
    map: HashMap<Vec<u8>, Vec<u8>>,
    /// Bytes that the map takes in a file.
    live_bytes: u64,
    /// Bytes for which both files have space.
    room: u64,
    /// Encoded changes that are not written yet.
    changes: Vec<u8>,
    /// Of the changes' checksums.
    key: Key,
    /// Number of the last change.
    last: u64,
    /// Number of the last that is to be written, be it that nobody waits for it.
    wanted: u64,
    /// Who waits for which change.
    waiting: Waiters,
    /// Whether the log's own thread has nothing to do.
    is_idle: bool,
    ends: bool,
}

impl StateFile {
    /// Reads the log, and writes it anew. Whatever is in the file, the log can be used afterwards; where it cannot be written,
    /// it says so and tries again later, and the file tells nothing meanwhile. That there is none is damage where a server
    /// was here before (`is_expected`).
    ///
    /// # Errors
    /// One line that names the file, where there is no thread or no random number to be had.
    pub fn open(path: &Path, is_expected: bool) -> Result<(Self, Kept), String> {
        let said = |what: &str| format!("{}: {what}", path.display());
        let (mut tail, nothing) = (None, HashMap::new());
        let (map, damage) = match read(path) {
            Ok(bytes) => {
                let scan = format::scan(&bytes);
                tail = scan.tail();
                scan.into_map()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (nothing, is_expected.then(|| format!("missing; {}", format::NOBODY)))
            }
            Err(error) => {
                let why = error_text(&error);
                (nothing, Some(format!("cannot be read: {why}; {}", format::NOBODY)))
            }
        };
        let damage = damage.map(|what| said(&what));
        let entries = map.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let shared = Arc::new(Shared::new(path, map, tail).map_err(|why| said(&why))?);
        let of_thread = Arc::clone(&shared);
        let thread =
            std::thread::Builder::new().name("state log".into()).spawn(move || writer::run(&of_thread));
        let thread = thread.map_err(|error| said(&error_text(&error)))?;
        Ok((Self { shared, thread: Some(thread) }, Kept { entries, damage }))
    }
}

impl Drop for StateFile {
    /// Writes what is left.
    fn drop(&mut self) {
        self.shared.queue.lock().ends = true;
        self.shared.came.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl server::StateLog for StateFile {
    fn set(&self, key: &[u8], value: Option<&[u8]>) -> u64 {
        debug_assert!(key.len() <= KEY_BYTES_MAX && value.is_none_or(|value| value.len() <= VALUE_BYTES_MAX));
        let mut queue = self.shared.queue.lock();
        let had_room = queue.has_room();
        let number = queue.set(key, value);
        let is_much = queue.changes.len() >= GATHERED_BYTES;
        let has_room = queue.has_room();
        if has_room != had_room {
            self.shared.has_room.store(has_room, Ordering::Relaxed);
        }
        drop(queue);
        if is_much || has_room != had_room {
            self.shared.want(number);
        }
        number
    }

    fn is_written(&self) -> bool {
        !self.shared.fails.load(Ordering::Relaxed)
    }

    fn has_room(&self) -> bool {
        self.shared.has_room.load(Ordering::Relaxed)
    }

    fn stable(&self) -> u64 {
        self.shared.stable.load(Ordering::Acquire)
    }

    fn reached(&self, number: u64, thread: Thread) -> Op<'_, ()> {
        if self.stable() < number && self.shared.pace.lend(thread) == Thread::Lent {
            self.shared.write_here();
        }
        if self.stable() >= number {
            return Op::ok(());
        }
        self.shared.want(number);
        let mut place = None;
        Op::pending(std::future::poll_fn(move |context| {
            let mut queue = self.shared.queue.lock();
            // Under the lock that the writer takes before it wakes.
            if self.stable() >= number {
                return Poll::Ready(Ok(()));
            }
            queue.waiting.wait(&mut place, number, context.waker());
            Poll::Pending
        }))
    }

    fn push(&self) {
        let last = self.shared.queue.lock().last;
        if self.stable() < last {
            self.shared.want(last);
        }
    }
}

impl Queue {
    fn set(&mut self, key: &[u8], value: Option<&[u8]>) -> u64 {
        self.last += 1;
        let old = match value {
            Some(value) => {
                self.live_bytes += format::record_bytes(key, Some(value));
                self.map.insert(key.to_vec(), value.to_vec())
            }
            None => self.map.remove(key),
        };
        if let Some(old) = old {
            self.live_bytes -= format::record_bytes(key, Some(&old));
        }
        format::put(&mut self.changes, &self.key, self.last, key, value);
        self.last
    }

    /// All changes that are not written yet, and the number of the last.
    fn take(&mut self) -> (Vec<u8>, u64) {
        (std::mem::take(&mut self.changes), self.last)
    }

    /// What was taken has not been written, and is the first to be.
    fn put_back(&mut self, changes: &[u8]) {
        let newer = std::mem::take(&mut self.changes);
        self.changes = format::as_batch(&[changes, &newer].concat(), &self.key);
    }

    /// So many bytes of changes are written with the map.
    fn forget_first(&mut self, bytes: usize) {
        self.changes = format::as_batch(&self.changes[bytes..], &self.key);
    }

    /// Whether there is space for the map in both files, with so many bytes to spare.
    fn spares(&self, bytes: u64) -> bool {
        format::file_bytes(self.live_bytes) + bytes <= self.room
    }

    /// Whether more keys can come.
    fn has_room(&self) -> bool {
        self.spares(file::LAST_BYTES)
    }

    /// Whether it is time for more space.
    fn is_low(&self) -> bool {
        !self.spares(file::LOW_BYTES)
    }
}

impl Shared {
    /// `tail` is where records may be appended to the file that has the map; none where it is not sound.
    fn new(path: &Path, map: HashMap<Vec<u8>, Vec<u8>>, tail: Option<Tail>) -> Result<Self, String> {
        let live_bytes = map.iter().map(|(key, value)| format::record_bytes(key, Some(value))).sum();
        let adopted = tail.and_then(|tail| Some((Appending::adopt(path, tail.end).ok()?, tail)));
        let (file, key, last) = match adopted {
            Some((file, tail)) => (Some(file), tail.key, tail.last),
            // Each key has a number, so that the file's numbers go on when it is written anew.
            None => (None, random()?, map.len() as u64),
        };
        let (changes, waiting, room) = (Vec::new(), Waiters::default(), u64::MAX);
        let (wanted, is_idle, ends) = (last, false, false);
        Ok(Self {
            path: path.to_owned(),
            writer: Mutex::new(Writer::new(file)),
            queue: Mutex::new(Queue {
                map,
                live_bytes,
                room,
                changes,
                key,
                last,
                wanted,
                waiting,
                is_idle,
                ends,
            }),
            came: Condvar::new(),
            stable: AtomicU64::new(last),
            fails: AtomicBool::new(false),
            has_room: AtomicBool::new(true),
            pace: Pace::default(),
            #[cfg(test)]
            syncs: Mutex::default(),
        })
    }

    /// Both files have space for so many bytes.
    fn set_room(&self, bytes: u64) {
        let mut queue = self.queue.lock();
        queue.room = bytes;
        self.has_room.store(queue.has_room(), Ordering::Relaxed);
    }

    /// Has the log's own thread write all changes up to this one.
    fn want(&self, number: u64) {
        let mut queue = self.queue.lock();
        queue.wanted = queue.wanted.max(number);
        drop(queue);
        self.came.notify_one();
    }

    /// Writes all changes on the calling thread, where nobody else writes or waits, and it is little that needs no more than a sync.
    fn write_here(&self) {
        let mut queue = self.queue.lock();
        if !queue.is_idle || queue.waiting.count() > 0 {
            return;
        }
        // Another core's may be at it.
        let Some(mut writer) = self.writer.try_lock() else { return };
        if !writer.takes_little(&queue) {
            return;
        }
        let (changes, last) = queue.take();
        drop(queue);
        let is_stable = writer.append(self, &changes);
        drop(writer);
        if is_stable {
            self.set_stable(last);
        }
        // Then it is that thread's to try again.
        if !is_stable || self.fails.load(Ordering::Relaxed) {
            self.came.notify_one();
        }
    }

    /// All changes up to this one are stable: those who waited for them go on.
    fn set_stable(&self, number: u64) {
        let mut queue = self.queue.lock();
        self.stable.fetch_max(number, Ordering::AcqRel);
        let woken = queue.waiting.take(|wanted| wanted <= number);
        drop(queue);
        woken.into_iter().for_each(Waker::wake);
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    let mut content = Vec::new();
    open_file(path, OpenOptions::new().read(true))?.read_to_end(&mut content)?;
    Ok(content)
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Where it is.
pub fn path_in(state_directory: &Path) -> PathBuf {
    state_directory.join("state.log")
}

#[cfg(test)]
mod tests;
