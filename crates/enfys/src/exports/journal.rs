//! The journal of an export: opened and repeated at the start, and emptied by checkpoints.

use std::future::poll_fn;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use localfs::LocalFs;
use store::journal::marker::{self, Marker};
use store::journal::{Expected, JournalFile, JournalWriter};
use store::reply_log::boot_id;
use store::{error_text, random};
use tokio::sync::Notify;
use tracing::{error, info, warn};
use vfs::journal::{Found, JournalCounts, Journaled, Log, replay};
use vfs::{Backend, Credentials, Timestamp};

use super::plan::ExportPlan;

/// Longest time that a change is in the log alone.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(5);

/// A directory with a journal in use.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) backend: Arc<Journaled<LocalFs>>,
    pub(super) path: PathBuf,
    state_dir: PathBuf,
    /// Before the writer, since checkpoints use it.
    _checkpoints: Checkpoints,
    _writer: JournalWriter,
}

impl Journal {
    /// Opens the journal of `plan`, and repeats it in `directory` if that is needed.
    ///
    /// # Errors
    /// One line that says why it cannot be used.
    pub(super) fn open(
        plan: &ExportPlan,
        directory: &LocalFs,
        state_dir: &Path,
        counts: &Arc<JournalCounts>,
    ) -> Result<Option<Self>, String> {
        let identity = directory.identity();
        let in_use = marker::read(state_dir, &identity)?;
        let Some(journal) = &plan.journal else {
            return start_without_journal(plan, state_dir, &identity, in_use).map(|()| None);
        };
        let path = &journal.path;
        let expected = Expected {
            identity,
            bytes: journal.bytes,
            in_use: in_use.map(|marker| marker.key),
            may_be_lost: plan.may_lose_journal,
        };
        let (file, found) = JournalFile::open(path, expected)?;
        let boot = boot_id();
        let log = match &found {
            Some(found) => {
                restore(plan, directory, path, found, boot)?;
                Log::resume(found, boot, Arc::clone(counts))
            }
            None => Log::create(identity, (random()?, boot), file.bytes(), Arc::clone(counts)),
        };
        let log = Arc::new(log);
        let failed = |error: io::Error| format!("journal {}: {}", path.display(), error_text(&error));
        let bytes = file.bytes();
        let writer = JournalWriter::start(file, Arc::clone(&log), path).map_err(failed)?;
        let is_ready = wait(log.ready())?;
        is_ready.map_err(|error| format!("journal {}: {error}", path.display()))?;
        marker::write(state_dir, &identity, &Marker { key: log.key(), path: path.clone() })?;
        let backend = Arc::new(Journaled::new(directory.clone(), log));
        let checkpoints = Checkpoints::start(Arc::clone(&backend), path).map_err(failed)?;
        info!(path = %path.display(), bytes, "journal opened");
        if plan.directory().is_some_and(|directory| is_on_one_file_system(path, directory)) {
            let path = path.display();
            warn!("{}", plan.error(format!("journal {path}: on the file system of the export it saves little: move it to a faster device")));
        }
        let (path, state_dir) = (path.clone(), state_dir.into());
        Ok(Some(Self { backend, path, state_dir, _checkpoints: checkpoints, _writer: writer }))
    }

    /// Notes that the journal, which was emptied, is not needed any more.
    ///
    /// # Errors
    /// One line that names the file.
    pub(super) fn note_clean(&self) -> Result<(), String> {
        if self.backend.has_changes() || self.backend.log().has_failed() {
            return Ok(());
        }
        marker::remove(&self.state_dir, &self.backend.identity())
    }
}

/// Returns whether both files are known to be on the same file system.
fn is_on_one_file_system(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev()).ok();
    device(one).is_some_and(|of_one| device(other) == Some(of_one))
}

/// Refuses to serve a file system without the journal that has changes of it.
fn start_without_journal(
    plan: &ExportPlan,
    state_dir: &Path,
    identity: &[u8; 16],
    in_use: Option<Marker>,
) -> Result<(), String> {
    let Some(marker) = in_use else { return Ok(()) };
    let path = marker.path.display();
    if !plan.may_lose_journal {
        return Err(format!(
            "the last server used the journal {path} and did not end in order, so changes that clients were told \
             are safe may be in it: set `journal` again, or accept the loss with --ignore-lost-journals"
        ));
    }
    warn!("{}", plan.error(format!("served without the journal {path}: changes in it are lost")));
    marker::remove(state_dir, identity)
}

/// Brings the changes of an earlier log to stable storage.
fn restore(
    plan: &ExportPlan,
    directory: &LocalFs,
    path: &Path,
    found: &Found,
    boot: [u8; 16],
) -> Result<(), String> {
    let path = path.display();
    if found.is_damaged {
        warn!("{}", plan.error(format!("journal {path}: damaged: the changes after the damage are lost")));
    }
    if found.is_torn {
        info!(
            "journal {path}: the last write is incomplete and left out; the server had not answered its changes"
        );
    }
    if !found.needs_replay(boot) {
        // The machine has run since: the kernel has all changes.
        let synced = wait(async {
            directory.sync_inherited().await?;
            directory.sync().await
        })?;
        match synced {
            Ok(()) => return Ok(()),
            Err(error) => warn!("journal {path}: {error} while syncing: repeating its changes"),
        }
    }
    let records = found.records.len();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Timestamp { seconds: now.as_secs().cast_signed(), nanoseconds: now.subsec_nanos() };
    let server = Credentials {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: Arc::from([]),
    };
    let skip = |failed| warn!("{}", plan.error(format!("journal {path}: lost: {failed}")));
    let skip = plan.may_lose_journal.then_some(&skip as &(dyn Fn(_) + Sync));
    let repeated = wait(replay(directory, &found.records, &server, now, skip))?.map_err(|failed| {
        format!(
            "journal {path}: cannot repeat {failed}: mend that, or accept the loss with --ignore-lost-journals"
        )
    })?;
    if records > 0 {
        info!(journal = %path, records, repeated, "changes of the journal repeated");
    }
    Ok(())
}

/// Waits for an operation of a directory on a thread of its own, which needs no runtime.
fn wait<T: Send>(operation: impl Future<Output = T> + Send) -> Result<T, String> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.map_err(|error| format!("cannot start a runtime: {}", error_text(&error)))?;
        Ok(runtime.block_on(operation))
    };
    thread::scope(|scope| scope.spawn(run).join().map_err(|_| "the journal's thread failed".to_owned())?)
}

/// The thread that makes checkpoints.
#[derive(Debug)]
struct Checkpoints {
    end: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    fn start(backend: Arc<Journaled<LocalFs>>, path: &Path) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let end = Arc::new(Notify::new());
        let (of_thread, name) = (Arc::clone(&end), path.display().to_string());
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = of_thread.notified() => {}
                    () = repeat(&backend, &name) => {}
                }
            });
        };
        let thread = thread::Builder::new().name("checkpoints".into()).spawn(run)?;
        Ok(Self { end, thread: Some(thread) })
    }
}

async fn repeat(backend: &Journaled<LocalFs>, name: &str) {
    loop {
        let due = poll_fn(|context| backend.poll_due(context));
        // Early if the log fills.
        let _ = tokio::time::timeout(CHECKPOINT_INTERVAL, due).await;
        if !backend.needs_checkpoint() {
            continue;
        }
        if let Err(error) = backend.checkpoint().await {
            error!(
                "journal {name}: {error} while syncing its file system: no more changes enter it, and files with changes in it \
                 take no others until the server starts again and repeats them"
            );
            return;
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.end.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
