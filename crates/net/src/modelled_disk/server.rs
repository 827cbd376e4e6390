//! A server on the modelled disk, with or without a journal.

use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use server::{Export, ExportId, ExportOptions, ExportTable, HandleKey, Server, Settings, Squash, Versions};
use tokio::sync::Notify;
use vfs::around::Wrapped;
use vfs::journal::{Journaled, LOG_BYTES_MIN, Log};
use vfs::{Backend, MemFs, MemOptions};

use super::{Counts, Disk, ModelledDisk, Syncs};
use crate::{Limits, Listeners, Running, serve};

/// Most bytes of all files.
const MEMORY_BYTES: u64 = 1 << 30;
/// The path of the export.
const EXPORT: &str = "/export";
/// Bytes of the journal: the paper's Prestoserve had 1 MB.
const JOURNAL_BYTES: u64 = LOG_BYTES_MIN;
/// Longest time that a change is in the journal alone.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);

/// A running server on the disk.
pub struct DiskServer {
    address: SocketAddr,
    counts: Arc<Counts>,
    running: Option<Running>,
    /// After the server, whose changes it has.
    _journal: Option<FastLog>,
}

impl DiskServer {
    /// Starts the server at `address`, with all versions and one core. With `has_journal`, changes are answered when they are in a
    /// journal of 1 MB whose device takes no time.
    ///
    /// # Errors
    /// The address is not free, or the system has no thread.
    pub fn start(address: SocketAddr, disk: Disk, syncs: Syncs, has_journal: bool) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let disk = ModelledDisk::new(disk, syncs, |time| Box::pin(tokio::time::sleep(time)));
        let counts = disk.counts();
        let memory = MemFs::new(&MemOptions { max_bytes: MEMORY_BYTES, ..MemOptions::default() });
        let files = Wrapped::of(memory, disk);
        let (backend, journal): (Arc<dyn Backend>, _) = if has_journal {
            let (journaled, journal) = FastLog::start(files)?;
            (journaled, Some(journal))
        } else {
            (Arc::new(files), None)
        };
        let export = Export {
            id: ExportId(1),
            path: EXPORT.into(),
            backend,
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
        Ok(Self { address, counts, running: Some(running), _journal: journal })
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

/// The device of a journal, with a thread that writes it and makes checkpoints. A write to it takes no time.
struct FastLog {
    end: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl FastLog {
    /// Puts a journal before `files`.
    fn start<B: Backend + 'static>(files: B) -> io::Result<(Arc<Journaled<B>>, Self)> {
        let log = Log::create(files.identity(), ([1; 16], [1; 16]), JOURNAL_BYTES, Arc::default());
        let backend = Arc::new(Journaled::new(files, Arc::new(log)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (of_thread, end) = (Arc::clone(&backend), Arc::new(Notify::new()));
        let ended = Arc::clone(&end);
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = ended.notified() => {}
                    () = write_log(of_thread.log()) => {}
                    () = make_checkpoints(&of_thread) => {}
                }
            });
        };
        let thread = thread::Builder::new().name("journal".into()).spawn(run)?;
        Ok((backend, Self { end, thread: Some(thread) }))
    }
}

async fn write_log(log: &Log) {
    while poll_fn(|context| log.poll_write(context)).await.is_some() {
        log.written(true);
    }
}

async fn make_checkpoints<B: Backend>(files: &Journaled<B>) {
    loop {
        let due = poll_fn(|context| files.poll_due(context));
        // Early if the log fills.
        let _ = tokio::time::timeout(CHECKPOINT_INTERVAL, due).await;
        if files.needs_checkpoint() {
            files.checkpoint().await.expect("neither the disk nor the log fails");
        }
    }
}

impl Drop for FastLog {
    fn drop(&mut self) {
        self.end.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
