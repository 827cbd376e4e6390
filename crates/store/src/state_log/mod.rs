//! The state log: data for the next server, as a map on stable storage ([`server::StateLog`]).
//!
//! **Purpose.** The map has the clients that may reclaim after a restart, and persistent sessions with the last replies of their
//! slots.
//!
//! **Writing.** Changes are appended to a file when a caller waits for them. The log's own thread writes and syncs; all
//! changes that arrive during a sync share the next one. A caller that waits alone, on a thread that serves only its client,
//! writes and syncs itself while syncs are short ([`vfs::SyncLatency`]): a hand-over to another thread and back takes longer. At each
//! start, and when most of the file is obsolete, the thread writes the whole map into a second file, which replaces the first.
//!
//! **Format.**
//!
//! ```text
//! file    header (32 bytes: magic with version (8), key of checksums (16), checksum of both (8)), then records, then zeros
//! record  number (8), length of the body (4), bytes before it in its batch (4), checksum of the body (8),
//!         checksum of these 24 bytes (8), body
//! body    kind (1: a key is set, 0: it is removed), length of the key (2), key, value, 0xa5
//! ```
//!
//! A batch is the records of one write and one sync. The file is written with some hundred KiB of zeros after the last record.
//! A new record replaces zeros, so its sync writes neither a new file size nor new blocks, and no journal. On a full disk
//! without zeros, records are appended at the end of the file.
//!
//! **Crashes.** A batch that was being written when the machine crashed was not acknowledged. Any of its sectors may be
//! missing: there the file ends, or still has zeros. So the tail is *torn*, and ignored without loss, if a record
//! lacks a sector and all records after it belong to the same batch. Anything else that is not a record is *damage*: it may
//! have been a record that removed an older key. So records before the damage are ignored, and those after it are used, since
//! each record has the whole value of its key. A log that is empty, missing or of another version is not used. One line in
//! the server's log names any of these.
//!
//! **Full disk.** Two files have more space allocated than the map needs: the one in use, and a spare one (`state.log.new`).
//! They change roles when the map is rewritten. So a disk that becomes full later cannot lose the map. Records of new clients
//! use up the reserve of 2 MiB. Then the log has [no room](server::StateLog::has_room) for new clients, and keeps the last
//! 256 KiB for changes of existing keys. If even these are used up, changes wait for space, and the file remains valid. At
//! a start on a full disk without a spare file, records are appended to the existing file.
//!
//! **Other write errors.** The file would become outdated, so it is truncated or removed: the next server lets no client reclaim.
//! Every 10 s the log tries to write the whole map again.
//!
//! **Bounds.** A file of more than 1 GiB is not read. Key and value have at most [`KEY_BYTES_MAX`] and [`VALUE_BYTES_MAX`] bytes.

mod file;
mod format;
mod queue;
mod shared;
mod writer;

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use server::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use vfs::{Op, Thread};

use crate::files::{error_text, open_file, random};
use file::LogFile;
use format::Tail;
use shared::Shared;
use writer::{Work, Writer};

/// A longer file is not read: no server's clients can make it write that much.
const FILE_BYTES_MAX: u64 = 1 << 30;
/// Changes for which no caller waits are written when they have this many bytes.
const UNWRITTEN_BYTES_MAX: usize = 256 << 10;

/// A state log in use.
#[derive(Debug)]
pub struct FileStateLog {
    log: Arc<Log>,
    thread: Option<JoinHandle<()>>,
}

/// Content of a log when it was opened.
#[derive(Debug, Default)]
pub struct RecoveredState {
    /// Keys and their values.
    pub entries: Vec<(Vec<u8>, Vec<u8>)>,
    /// One line that names unreadable parts and the consequence, if there are any.
    pub damage: Option<String>,
}

#[derive(Debug)]
struct Log {
    shared: Shared,
    /// Locked while the file is written, before the queue.
    writer: Mutex<Writer>,
}

impl FileStateLog {
    /// Reads the log, and rewrites it. If it cannot be written, this is logged, and the log retries later; the
    /// file is empty or missing meanwhile. `is_expected` says that a server has used this directory before: then a missing log is
    /// damage.
    ///
    /// # Errors
    /// One line that names the file: no thread or no random numbers.
    pub fn open(path: &Path, is_expected: bool) -> Result<(Self, RecoveredState), String> {
        let line = |what: &str| format!("{}: {what}", path.display());
        let (mut tail, empty) = (None, HashMap::new());
        let (map, damage) = match read(path) {
            Ok(bytes) => {
                let scan = format::scan(&bytes);
                tail = scan.tail();
                scan.into_map()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (empty, is_expected.then(|| format!("missing: {}", format::NO_RECLAIMS)))
            }
            Err(error) => {
                let why = error_text(&error);
                (empty, Some(format!("cannot be read: {why}: {}", format::NO_RECLAIMS)))
            }
        };
        let damage = damage.map(|what| line(&what));
        let entries = map.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let log = Arc::new(Log::new(path, map, tail).map_err(|why| line(&why))?);
        let of_thread = Arc::clone(&log);
        let thread = std::thread::Builder::new().name("state log".into()).spawn(move || of_thread.run());
        let thread = thread.map_err(|error| line(&error_text(&error)))?;
        Ok((Self { log, thread: Some(thread) }, RecoveredState { entries, damage }))
    }
}

impl Drop for FileStateLog {
    /// Writes the remaining changes.
    fn drop(&mut self) {
        self.log.shared.queue.lock().ends = true;
        self.log.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl server::StateLog for FileStateLog {
    fn set(&self, key: &[u8], value: Option<&[u8]>) -> u64 {
        debug_assert!(key.len() <= KEY_BYTES_MAX && value.is_none_or(|value| value.len() <= VALUE_BYTES_MAX));
        let shared = &self.log.shared;
        let mut queue = shared.queue.lock();
        let had_room = queue.has_room();
        let number = queue.set(key, value);
        let is_much = queue.changes.len() >= UNWRITTEN_BYTES_MAX;
        let has_room = queue.has_room();
        if has_room != had_room {
            shared.has_room.store(has_room, Ordering::Relaxed);
        }
        drop(queue);
        if is_much || has_room != had_room {
            shared.want(number);
        }
        number
    }

    fn is_written(&self) -> bool {
        !self.log.shared.is_failing.load(Ordering::Relaxed)
    }

    fn has_room(&self) -> bool {
        self.log.shared.has_room.load(Ordering::Relaxed)
    }

    fn stable(&self) -> u64 {
        self.log.shared.stable.load(Ordering::Acquire)
    }

    fn reached(&self, number: u64, thread: Thread) -> Op<'_, ()> {
        let shared = &self.log.shared;
        if self.stable() < number && shared.sync_latency.usable(thread) == Thread::Exclusive {
            self.log.write_here();
        }
        if self.stable() >= number {
            return Op::ok(());
        }
        shared.want(number);
        let mut ticket = None;
        Op::pending(std::future::poll_fn(move |context| {
            let mut queue = shared.queue.lock();
            // Under the lock that the writer takes before it wakes.
            if self.stable() >= number {
                return Poll::Ready(Ok(()));
            }
            queue.waiting.register(&mut ticket, number, context.waker());
            Poll::Pending
        }))
    }

    fn push(&self) {
        let last = self.log.shared.queue.lock().last;
        if self.stable() < last {
            self.log.shared.want(last);
        }
    }
}

impl Log {
    /// `tail` is the offset at which records may be appended to an intact file with this map.
    fn new(path: &Path, map: HashMap<Vec<u8>, Vec<u8>>, tail: Option<Tail>) -> Result<Self, String> {
        let reopened = tail.and_then(|tail| Some((LogFile::reopen(path, tail.end).ok()?, tail)));
        let (file, key, last) = match reopened {
            Some((file, tail)) => (Some(file), tail.key, tail.last),
            // One number for each key: a rewritten file begins with 1.
            None => (None, random()?, map.len() as u64),
        };
        Ok(Self { shared: Shared::new(path, map, key, last), writer: Mutex::new(Writer::new(file)) })
    }

    /// Writes until the log ends.
    fn run(&self) {
        let shared = &self.shared;
        // The file may be mostly obsolete; and the next server needs a spare one.
        self.writer.lock().rewrite(shared);
        loop {
            let mut writer = self.writer.lock();
            let mut queue = shared.queue.lock();
            match writer.next(shared, &mut queue) {
                Work::Append(changes, last) => {
                    drop(queue);
                    let is_stable = writer.append(shared, &changes);
                    // A task that this wakes may write the next change.
                    drop(writer);
                    if is_stable {
                        shared.set_stable(last);
                    }
                }
                Work::Discard(last) => {
                    drop(queue);
                    shared.set_stable(last);
                }
                Work::Rewrite => {
                    drop(queue);
                    writer.rewrite(shared);
                }
                Work::Reserve => {
                    drop(queue);
                    writer.reserve(shared);
                }
                Work::Sleep(until) => {
                    drop(writer);
                    queue.is_idle = true;
                    match until {
                        None => shared.wake.wait(&mut queue),
                        Some(time) => _ = shared.wake.wait_until(&mut queue, time),
                    }
                    queue.is_idle = false;
                }
                Work::End => return,
            }
        }
    }

    /// Writes all changes on the calling thread, if no other thread writes or waits and one short sync is enough.
    fn write_here(&self) {
        let shared = &self.shared;
        let mut queue = shared.queue.lock();
        if !queue.is_idle || !queue.waiting.is_empty() {
            return;
        }
        // Another core may be writing.
        let Some(mut writer) = self.writer.try_lock() else { return };
        if !writer.is_short_append(&queue) {
            return;
        }
        let (changes, last) = queue.take();
        drop(queue);
        let is_stable = writer.append(shared, &changes);
        drop(writer);
        if is_stable {
            shared.set_stable(last);
        }
        // The log's own thread tries again.
        if !is_stable || shared.is_failing.load(Ordering::Relaxed) {
            shared.wake.notify_one();
        }
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

/// Returns the path of the log in a state directory.
pub fn path_in(state_directory: &Path) -> PathBuf {
    state_directory.join("state.log")
}

#[cfg(test)]
mod tests;
