//! A server on the disks of the 1994 paper as a model: files are in memory, and what is to be stable waits for the disk.
//!
//! The disk (an RZ26: 2.3 MB/s, 5,400 revolutions a minute) has one arm. Each sync of a file transfers its data and updates its inode, and
//! each of both misses a revolution: the arm is elsewhere or late. So a WRITE of 8 KB that is stable at once takes 25.8 ms, 318 KB/s;
//! the paper measured 320 KB/s. The paper states no seek times: the two missed revolutions are chosen so that version 2 has
//! its rate. Gathering is a part of the model too, not of `localfs`. Names and attributes take no time: the figure measures from the first WRITE.
//!
//! The paper's second server has four RZ28 (4.8 MB/s, 5,400 revolutions a minute) as one striped disk. In the model that is a disk
//! with four times the rate: each transfer is on all four, whose arms move together.
//!
//! Changes of a request with a [`GroupCommit`](vfs::GroupCommit) wait for the disk when the group is committed, with one sync for each file.
//! So a journal answers a change before the disk has it, and pays the disk's time at its checkpoints.
//!
//! Time comes from outside, as the function that waits ([`Wait`]).

mod server;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vfs::around::{Around, Call, Method, Subject};
use vfs::{Committer, Committing, Handle, Op, Peer, Stability, Thread};

pub use server::DiskServer;

/// One revolution.
const REVOLUTION: Duration = Duration::from_micros(60_000_000 / 5400);
/// Revolutions that a sync misses: before the data, and before the inode.
const MISSED: u32 = 2;

/// Waits for a time.
pub type Wait = fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// The disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// An RZ26 (Figure 2 of the paper).
    One,
    /// Four RZ28, striped (Figure 3).
    FourStriped,
}

impl Disk {
    /// Returns the bytes a second that it transfers.
    const fn bytes_per_second(self) -> f64 {
        match self {
            Self::One => 2.3e6,
            Self::FourStriped => 4.0 * 4.8e6,
        }
    }
}

/// How stable WRITEs reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// Each has a sync of its own.
    Each,
    /// Those of a file that wait for the disk together share one.
    Gathered,
}

/// The disk, around the files that it has.
#[derive(Debug)]
pub struct ModelledDisk {
    syncs: Syncs,
    arm: Arc<Arm>,
}

/// What moves for each sync, and what is left to sync.
struct Arm {
    disk: Disk,
    wait: Wait,
    /// Held by the sync that runs.
    is_busy: tokio::sync::Mutex<()>,
    files: Mutex<HashMap<Handle, Unsynced>>,
    counts: Arc<Counts>,
}

/// What a file's writes have left to sync.
#[derive(Clone, Copy, Debug, Default)]
struct Unsynced {
    bytes: u64,
    /// The number of the last write, and of the last one that a sync has served.
    last: u64,
    synced: u64,
}

/// What the disk has done.
#[derive(Debug, Default)]
pub struct Counts {
    syncs: AtomicU64,
    bytes: AtomicU64,
    busy_us: AtomicU64,
}

impl Counts {
    /// Returns the number of syncs.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Relaxed)
    }

    /// Returns the number of bytes that were synced.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Returns the time that the disk has worked.
    #[must_use]
    pub fn busy(&self) -> Duration {
        Duration::from_micros(self.busy_us.load(Relaxed))
    }
}

impl fmt::Debug for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arm").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl ModelledDisk {
    /// Returns a disk whose time passes by `wait`.
    #[must_use]
    pub fn new(disk: Disk, syncs: Syncs, wait: Wait) -> Self {
        let (is_busy, files) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { syncs, arm: Arc::new(Arm { disk, wait, is_busy, files, counts: Arc::default() }) }
    }

    /// Returns its counters, which go on counting.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.arm.counts)
    }
}

/// What an operation has to wait for.
#[derive(Clone, Copy, Debug)]
struct Sync {
    file: Handle,
    /// The bytes that have a sync of their own; `None` is all of the file.
    bytes: Option<u64>,
    /// The number of the write, or of the last one before.
    number: u64,
}

impl Sync {
    /// Returns one sync that does both, which are of one file.
    fn joined(self, other: Self) -> Self {
        let bytes = self.bytes.zip(other.bytes).map(|(one, two)| one + two);
        Self { bytes, number: self.number.max(other.number), ..self }
    }
}

impl Arm {
    fn file<T>(&self, file: Handle, change: impl FnOnce(&mut Unsynced) -> T) -> T {
        change(self.files.lock().unwrap_or_else(PoisonError::into_inner).entry(file).or_default())
    }

    /// Notes written bytes. Returns the number of the write.
    fn written(&self, file: Handle, bytes: u64) -> u64 {
        self.file(file, |file| {
            file.bytes += bytes;
            file.last += 1;
            file.last
        })
    }

    /// Waits for a sync.
    async fn sync(&self, Sync { file, bytes, number }: Sync) {
        let _busy = self.is_busy.lock().await;
        let bytes = self.file(file, |file| match bytes {
            // A write that has its own sync leaves those of others to them.
            Some(bytes) => {
                file.bytes = file.bytes.saturating_sub(bytes);
                Some(bytes)
            }
            None if file.synced >= number => None,
            None => {
                file.synced = file.last;
                Some(std::mem::take(&mut file.bytes))
            }
        });
        let Some(bytes) = bytes.filter(|bytes| *bytes > 0) else { return };
        let time = REVOLUTION * MISSED + Duration::from_secs_f64(bytes as f64 / self.disk.bytes_per_second());
        (self.wait)(time).await;
        self.counts.syncs.fetch_add(1, Relaxed);
        self.counts.bytes.fetch_add(bytes, Relaxed);
        self.counts.busy_us.fetch_add(time.as_micros() as u64, Relaxed);
    }
}

impl Committer for Arm {
    type Change = Sync;

    fn commit(self: Arc<Self>, changes: Vec<(u32, Sync)>, _: Thread, _: Peer) -> Committing {
        let mut syncs = HashMap::<Handle, Sync>::new();
        for (_, change) in changes {
            syncs.entry(change.file).and_modify(|sync| *sync = sync.joined(change)).or_insert(change);
        }
        Box::pin(async move {
            for sync in syncs.into_values() {
                self.sync(sync).await;
            }
            Ok(())
        })
    }
}

impl Around for ModelledDisk {
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'_>,
        run: impl FnOnce(Option<u32>) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T> {
        let Subject::Bytes(&file, _) = call.subject else { return run(None) };
        let arm = &self.arm;
        let (bytes, number) = match (call.method, call.written) {
            (Method::Write, Some((bytes, Stability::Unstable))) => {
                arm.written(file, bytes);
                return run(None);
            }
            (Method::Write, Some((bytes, _))) => {
                ((self.syncs == Syncs::Each).then_some(bytes), arm.written(file, bytes))
            }
            (Method::Commit, _) => (None, arm.file(file, |file| file.last)),
            _ => return run(None),
        };
        let (sync, group) =
            (Sync { file, bytes, number }, call.context.and_then(|context| context.group.clone()));
        Op::pending(async move {
            let answer = run(None).await?;
            match group {
                Some(group) => group.defer(arm, sync),
                None => arm.sync(sync).await,
            }
            Ok(answer)
        })
    }
}
