//! The disk cache of a mount: blocks of files in a directory ([`client::block_store`]).
//!
//! Threads of their own do all I/O. Two read blocks; one writes and removes them. Both queues are bounded: when the disk is too slow,
//! reads go to the server, and blocks are not stored. Nothing is synced: a record that a crash tore is found by its checksum.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::block_store::{BLOCK, BlockCounters, BlockCounts, BlockStore, FileVersion, record};
use client::cache::limiter::Permit;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use parking_lot::Mutex;
use siphasher::sip128::SipHasher13;
use tokio::sync::oneshot;

mod directory;
mod index;
#[cfg(test)]
mod tests;

use directory::{Directory, Name};
use index::Index;

/// Minimum size in bytes.
pub const DISK_CACHE_MIN: u64 = 1 << 20;
/// Threads that read blocks.
const READERS: usize = 2;
/// Time between two attempts to take the lock of the directory.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of reads that wait, each of a request's range.
const READS_MAX: usize = 64;
/// Maximum number of writes that wait, each of a reply's data: at most 1 MiB, which the memory limiter accounts.
const WRITES_MAX: usize = 32;

/// Why a disk cache cannot be used, as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskCacheError {
    path: PathBuf,
    why: String,
}

impl fmt::Display for DiskCacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the disk cache {}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for DiskCacheError {}

/// What to do while another process uses the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhileBusy {
    /// Wait for this time, and fail then: a mount that was just ended may still write.
    Wait(Duration),
    /// Wait in the background. Nothing is cached until then.
    WaitInBackground,
}

/// Blocks of files in a directory, for one process.
pub struct DiskCache {
    shared: Arc<Shared>,
    reads: mpsc::SyncSender<ReadBlocks>,
    /// `None` after the end.
    writes: Mutex<Option<mpsc::SyncSender<WriteBlocks>>>,
    /// Disconnected when the writer has ended.
    writer: Mutex<mpsc::Receiver<()>>,
}

struct Shared {
    directory: Directory,
    index: Mutex<Index>,
    counters: BlockCounters,
    bytes_max: u64,
    /// Set once this process has the lock and the directory has the right format.
    is_usable: AtomicBool,
    /// Set once the index has all blocks of the directory.
    is_scanned: AtomicBool,
    /// Set when an error or a damaged block was logged: once each.
    has_reported_error: AtomicBool,
    has_reported_damage: AtomicBool,
}

struct ReadBlocks {
    file: Arc<FileVersion>,
    blocks: Range<u64>,
    answer: oneshot::Sender<Vec<Option<Bytes>>>,
}

struct WriteBlocks {
    file: Arc<FileVersion>,
    first: u64,
    data: Bytes,
    _memory: Permit,
}

impl DiskCache {
    /// Uses a directory for at most `bytes_max`.
    ///
    /// # Errors
    /// The directory cannot be used, or another process uses it.
    pub fn open(path: &Path, bytes_max: u64, busy: WhileBusy) -> Result<Arc<Self>, DiskCacheError> {
        let failed = |why: String| DiskCacheError { path: path.to_owned(), why };
        let directory = Directory::open(path).map_err(failed)?;
        let shared = Arc::new(Shared {
            directory,
            index: Mutex::new(Index::new(bytes_max)),
            counters: BlockCounters::default(),
            bytes_max,
            is_usable: AtomicBool::new(false),
            is_scanned: AtomicBool::new(false),
            has_reported_error: AtomicBool::new(false),
            has_reported_damage: AtomicBool::new(false),
        });
        if let WhileBusy::Wait(limit) = busy {
            shared.start_within(limit).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => failed("another mount uses it".to_owned()),
                _ => failed(error.to_string()),
            })?;
        }
        Self::with_threads(shared).map_err(|error| failed(format!("cannot start a thread: {error}")))
    }

    fn with_threads(shared: Arc<Shared>) -> io::Result<Arc<Self>> {
        let (reads, read_queue) = mpsc::sync_channel::<ReadBlocks>(READS_MAX);
        let (writes, write_queue) = mpsc::sync_channel::<WriteBlocks>(WRITES_MAX);
        let (alive, writer) = mpsc::channel();
        let read_queue = Arc::new(Mutex::new(read_queue));
        for _ in 0..READERS {
            let (shared, queue) = (Arc::clone(&shared), Arc::clone(&read_queue));
            thread::Builder::new().name("disk-cache-read".to_owned()).spawn(move || {
                loop {
                    let Ok(read) = queue.lock().recv() else { return };
                    // The reader may have been interrupted.
                    let _ = read.answer.send(shared.read_all(&read.file, read.blocks));
                }
            })?;
        }
        let own = Arc::clone(&shared);
        thread::Builder::new().name("disk-cache-write".to_owned()).spawn(move || {
            let _alive = alive;
            own.write_queued(&write_queue);
        })?;
        Ok(Arc::new(Self { shared, reads, writes: Mutex::new(Some(writes)), writer: Mutex::new(writer) }))
    }

    /// Writes the blocks that wait, within a time limit. Nothing is stored afterwards.
    pub fn close(&self, limit: Duration) {
        self.writes.lock().take();
        // Ends with an error in each case: nothing is sent.
        let _ = self.writer.lock().recv_timeout(limit);
    }
}

impl BlockStore for DiskCache {
    fn get(&self, file: &Arc<FileVersion>, blocks: Range<u64>) -> BoxFuture<'static, Vec<Option<Bytes>>> {
        let none = vec![None; blocks.clone().count()];
        let has_any = blocks.clone().any(|block| self.shared.may_have(name_of(&file.key(block))));
        let (answer, answered) = oneshot::channel();
        let read = ReadBlocks { file: Arc::clone(file), blocks, answer };
        if !has_any || self.reads.try_send(read).is_err() {
            none.iter().for_each(|_| self.shared.counters.found(None));
            return ready(none).boxed();
        }
        async move { answered.await.unwrap_or(none) }.boxed()
    }

    fn put(&self, file: &Arc<FileVersion>, first: u64, data: Bytes, memory: Permit) {
        let count = (data.len() as u64).div_ceil(BLOCK);
        let write = WriteBlocks { file: Arc::clone(file), first, data, _memory: memory };
        let is_queued = self.writes.lock().as_ref().is_some_and(|queue| queue.try_send(write).is_ok());
        if !is_queued {
            self.shared.counters.dropped(count);
        }
    }

    fn counts(&self) -> BlockCounts {
        self.shared.counters.counts(self.shared.index.lock().bytes(), self.shared.bytes_max)
    }
}

impl Shared {
    /// As [`Self::start`], within a time limit.
    fn start_within(&self, limit: Duration) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            match self.start(false) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && begin.elapsed() < limit => {
                    thread::sleep(LOCK_INTERVAL);
                }
                outcome => return outcome,
            }
        }
    }

    /// Takes the lock, and prepares the directory.
    fn start(&self, waits: bool) -> io::Result<()> {
        self.directory.lock(waits)?;
        self.directory.prepare()?;
        self.is_usable.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns whether a file may have this name.
    fn may_have(&self, name: Name) -> bool {
        let is_known = || !self.is_scanned.load(Ordering::Acquire) || self.index.lock().note_use(name);
        self.is_usable.load(Ordering::Acquire) && is_known()
    }

    fn read_all(&self, file: &FileVersion, blocks: Range<u64>) -> Vec<Option<Bytes>> {
        let read = |block| {
            let data = self.read(&file.key(block));
            self.counters.found(data.as_ref().map(Bytes::len));
            data
        };
        blocks.map(read).collect()
    }

    fn read(&self, key: &[u8]) -> Option<Bytes> {
        let name = name_of(key);
        let record = match self.directory.read(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                self.report(&error);
                Bytes::new()
            }
            Ok(record) => record,
        };
        let data = record::data(key, &record);
        if data.is_none() {
            self.counters.damaged();
            self.index.lock().remove(name);
            self.directory.remove(name);
            if !self.has_reported_damage.swap(true, Ordering::Relaxed) {
                tracing::warn!("a block of the disk cache is damaged; it is read from the server");
            }
        }
        data
    }

    /// Runs the writer.
    fn write_queued(&self, queue: &mpsc::Receiver<WriteBlocks>) {
        if !self.is_usable.load(Ordering::Acquire)
            && let Err(error) = self.start(true)
        {
            return self.report(&error);
        }
        for found in self.directory.scan() {
            self.add(found.name, found.bytes);
        }
        self.is_scanned.store(true, Ordering::Release);
        for WriteBlocks { file, first, data, _memory } in queue {
            for (block, data) in (first..).zip(data.chunks(BLOCK as usize)) {
                match self.write(&file.key(block), data) {
                    Ok(()) => self.counters.stored(),
                    Err(error) => {
                        self.counters.dropped(1);
                        self.report(&error);
                    }
                }
            }
        }
    }

    /// Writes a block. On a full disk, older blocks make room.
    fn write(&self, key: &[u8], data: &[u8]) -> io::Result<()> {
        let name = name_of(key);
        let bytes = match self.directory.write(name, key, data) {
            Err(error) if is_full(&error) => {
                let gone = self.index.lock().shrink();
                gone.into_iter().for_each(|name| self.directory.remove(name));
                self.directory.write(name, key, data)?
            }
            outcome => outcome?,
        };
        self.add(name, bytes);
        Ok(())
    }

    /// Adds a block to the index, and removes those that must go for it.
    fn add(&self, name: Name, bytes: u64) {
        let gone = self.index.lock().insert(name, bytes);
        gone.into_iter().for_each(|name| self.directory.remove(name));
    }

    fn report(&self, error: &io::Error) {
        if !self.has_reported_error.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "the disk cache fails; later errors are only counted");
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns the name of a block. Two blocks with the same name replace each other: a record has the whole key.
fn name_of(key: &[u8]) -> Name {
    SipHasher13::new().hash(key).as_u128()
}

impl fmt::Debug for DiskCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskCache").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
