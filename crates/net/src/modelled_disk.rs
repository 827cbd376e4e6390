//! A server on the disk of the 1994 paper as a model: files are in memory, and what is to be stable waits for the disk.
//!
//! The disk (an RZ26: 2.3 MB/s, 5,400 revolutions a minute) has one arm. Each sync of a file transfers its data and updates its inode, and
//! each of both misses a revolution: the arm is elsewhere or late. So a WRITE of 8 KB that is stable at once takes 25.8 ms, 318 KB/s;
//! the paper measured 320 KB/s. The paper states no seek times: the two missed revolutions are chosen so that version 2 has
//! its rate. Gathering is a part of the model too, not of `localfs`. Names and attributes take no time: the figure measures from the first WRITE.
//!
//! Time comes from outside, as the function that waits ([`Wait`]).

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use server::{Export, ExportId, ExportOptions, ExportTable, HandleKey, Server, Settings, Squash, Versions};
use vfs::around::{Around, Call, Method, Subject, Wrapped};
use vfs::{Handle, MemFs, MemOptions, Op, Stability};

use crate::{Limits, Listeners, Running, serve};

/// Bytes a second that the disk transfers.
const BYTES_PER_SECOND: f64 = 2.3e6;
/// One revolution.
const REVOLUTION: Duration = Duration::from_micros(60_000_000 / 5400);
/// Revolutions that a sync misses: before the data, and before the inode.
const MISSED: u32 = 2;
/// Most bytes of all files.
const MEMORY_BYTES: u64 = 1 << 30;
/// The path of the export.
const EXPORT: &str = "/export";

/// Waits for a time.
pub type Wait = fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// How stable WRITEs reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncs {
    /// Each has a sync of its own.
    Each,
    /// Those of a file that wait for the disk together share one.
    Gathered,
}

/// The disk.
pub struct ModelledDisk {
    syncs: Syncs,
    wait: Wait,
    /// The arm, for which syncs queue.
    arm: tokio::sync::Mutex<()>,
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

impl fmt::Debug for ModelledDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { syncs, counts, .. } = self;
        f.debug_struct("ModelledDisk").field("syncs", syncs).field("counts", counts).finish_non_exhaustive()
    }
}

impl ModelledDisk {
    /// Returns a disk whose time passes by `wait`.
    #[must_use]
    pub fn new(syncs: Syncs, wait: Wait) -> Self {
        let (arm, files) = (tokio::sync::Mutex::default(), Mutex::default());
        Self { syncs, wait, arm, files, counts: Arc::default() }
    }

    /// Returns its counters, which go on counting.
    #[must_use]
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

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

    /// Syncs `bytes` of a file, or all of it.
    async fn sync(&self, file: Handle, bytes: Option<u64>, number: u64) {
        let _arm = self.arm.lock().await;
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
        let time = REVOLUTION * MISSED + Duration::from_secs_f64(bytes as f64 / BYTES_PER_SECOND);
        (self.wait)(time).await;
        self.counts.syncs.fetch_add(1, Relaxed);
        self.counts.bytes.fetch_add(bytes, Relaxed);
        self.counts.busy_us.fetch_add(time.as_micros() as u64, Relaxed);
    }
}

impl Around for ModelledDisk {
    fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'_>,
        run: impl FnOnce(Option<u32>) -> Op<'a, T> + Send + 'a,
    ) -> Op<'a, T> {
        let Subject::Bytes(&file, _) = call.subject else { return run(None) };
        let (own, number) = match (call.method, call.written) {
            (Method::Write, Some((bytes, Stability::Unstable))) => {
                self.written(file, bytes);
                return run(None);
            }
            (Method::Write, Some((bytes, _))) => {
                ((self.syncs == Syncs::Each).then_some(bytes), self.written(file, bytes))
            }
            (Method::Commit, _) => (None, self.file(file, |file| file.last)),
            _ => return run(None),
        };
        Op::pending(async move {
            let answer = run(None).await?;
            self.sync(file, own, number).await;
            Ok(answer)
        })
    }
}

/// A running server on the disk.
pub struct DiskServer {
    address: SocketAddr,
    counts: Arc<Counts>,
    running: Option<Running>,
}

impl DiskServer {
    /// Starts the server at `address`, with all versions and one core.
    ///
    /// # Errors
    /// The address is not free, or the system has no thread.
    pub fn start(address: SocketAddr, syncs: Syncs) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let disk = ModelledDisk::new(syncs, |time| Box::pin(tokio::time::sleep(time)));
        let counts = disk.counts();
        let memory = MemFs::new(&MemOptions { max_bytes: MEMORY_BYTES, ..MemOptions::default() });
        let export = Export {
            id: ExportId(1),
            path: EXPORT.into(),
            backend: Arc::new(Wrapped::of(memory, disk)),
            options: ExportOptions { squash: Squash::None, insecure: true, ..ExportOptions::default() },
            fsid: (1, 0),
            counts: Arc::default(),
        };
        let exports =
            ExportTable::new(vec![export]).map_err(|error| io::Error::other(format!("{error:?}")))?;
        let mut settings = Settings::new(HandleKey([1; 16]), 1, [1; 16], b"modelled disk".to_vec());
        settings.versions = Versions::IMPLEMENTED;
        let listeners = Listeners { tcp: vec![listener], udp: Vec::new() };
        let limits = Limits { cores: 1, ..Limits::default() };
        let running = serve(Arc::new(Server::new(settings, exports)), listeners, limits, None, None)?;
        Ok(Self { address, counts, running: Some(running) })
    }

    /// Returns the URL of its export.
    #[must_use]
    pub fn url(&self) -> String {
        let (ip, port) = (self.address.ip(), self.address.port());
        format!("nfs://{ip}{EXPORT}?nfsport={port}&mountport={port}")
    }

    /// Returns the disk's counters, which go on counting.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Drop for DiskServer {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shut_down();
        }
    }
}
