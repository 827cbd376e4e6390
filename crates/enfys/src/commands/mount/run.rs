//! The process of a mount: connects, mounts, and serves until the file system is unmounted.

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::fs::inode::Mount;
use client::url::{LocalLock, ReaddirPlus, Url};
use fuse::mount::MountError;
use fuse::{Capabilities, Config, Serving};
use mount::{Adapter, Files, Identity, Settings};
use store::error_text;
use tokio::task::{LocalSet, spawn_blocking, spawn_local};

use super::super::session::{Session, failed, machine_name, random_u64, text};
use super::control::protocol;
use super::control::server::Control;
use super::options::MountOptions;
use super::table;
use crate::signals::Signals;

/// Read-ahead of the kernel in KiB, if this process may set it: a few requests of 1 MiB at a time.
const READ_AHEAD_KIB: u32 = 4096;
/// Time limit at the end of a mount for a server that does not answer. Data not written by then are lost, which is logged.
const SHUTDOWN_MAX: Duration = Duration::from_secs(60);
/// Minimum and maximum number of threads that read the kernel's requests, without an option.
const THREADS: (usize, usize) = (2, 8);

/// Parameters of a mount.
pub struct Plan {
    pub url: Url,
    pub directory: PathBuf,
    pub options: MountOptions,
    pub threads: Option<NonZeroUsize>,
}

/// Mounts, calls `ready`, and serves.
///
/// # Errors
/// One line that names the failed step.
pub fn run(plan: &Plan, ready: impl FnOnce(&str) -> Result<(), String>) -> Result<(), String> {
    fuse::mount::check(&plan.directory).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the runtime: {}", error_text(&error)))?;
    LocalSet::new().block_on(&runtime, serve(plan, ready))
}

async fn serve(plan: &Plan, ready: impl FnOnce(&str) -> Result<(), String>) -> Result<(), String> {
    let session = Session::default();
    let files = Arc::new(connect(&session, plan).await?);
    let mut signals = Signals::new()?;
    let (serving, directory) = mount_on(plan, &files)?;
    let version = files.version();
    let control = control(plan, &directory, &files);
    let started = format!("{} on {} (NFS {version})", text(&plan.url), directory.display());
    if let Err(error) = ready(&started) {
        unmount(directory).await;
        return Err(error);
    }
    let result = wait(serving, &mut signals, &directory).await;
    drop(control);
    let ended = async {
        files.shut_down().await;
        session.close().await;
    };
    if tokio::time::timeout(SHUTDOWN_MAX, ended).await.is_err() {
        tracing::error!(
            seconds = SHUTDOWN_MAX.as_secs(),
            "the server does not answer; data that were not written are lost"
        );
    }
    result.map_err(|error| format!("{}: {}", directory.display(), error_text(&error)))
}

/// Starts the control socket. The mount works without it too.
fn control(plan: &Plan, directory: &Path, files: &Arc<Files>) -> Option<Control> {
    let identity = protocol::Identity {
        software: concat!("enfys ", env!("CARGO_PKG_VERSION")).to_owned(),
        source: text(&plan.url),
        directory: directory.display().to_string(),
        protocol: files.version().to_string(),
        pid: std::process::id(),
    };
    let device = match table::find(directory) {
        Ok(Some(found)) => found.device,
        // Unmounted already.
        _ => return None,
    };
    let started = Control::start(device, identity, files);
    let failed = |error: &io::Error| tracing::warn!(error = %error_text(error), "no control socket: `enfys stats` will not work");
    started.inspect_err(failed).ok()
}

/// Connects to the server, and finds the directory to mount.
async fn connect(session: &Session, plan: &Plan) -> Result<Files, String> {
    let url = &plan.url;
    let caches = plan.options.caches(machine_memory());
    let (client, caller) = session.connect_with(url, caches).await.map_err(|failure| failure.to_string())?;
    let path: Vec<&[u8]> = url.path().split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    let refused = |error| failed("mount", url, &error).to_string();
    let mount = Mount::new(client, &caller, &path).await.map_err(refused)?;
    let has_fixed_user = url.options.uid.is_some() || url.options.gid.is_some();
    let identity = if has_fixed_user {
        Identity::Fixed(caller.clone())
    } else {
        Identity::PerProgram { machine_name: machine_name() }
    };
    let settings = Settings {
        identity,
        users: plan.options.users.clone(),
        groups: plan.options.groups.clone(),
        caches_missing_names: plan.options.caches_missing_names(),
        machine: caller,
        seed: random_u64(),
    };
    Files::new(mount, settings).await.map_err(refused)
}

/// Returns the bytes of memory of this machine; 0 if that is unknown.
fn machine_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    let kib: u64 = line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
    kib << 10
}

/// Mounts, and starts the threads that serve. Returns the whole path of the directory too.
fn mount_on(plan: &Plan, files: &Arc<Files>) -> Result<(Serving, PathBuf), String> {
    let directory = fuse::mount::check(&plan.directory).map_err(|error| error.to_string())?;
    let device = fuse::mount::mount(&directory, &mount_options(plan)).map_err(|error| error.to_string())?;
    let failed = |error: io::Error| MountError::Io(directory.clone(), error).to_string();
    let start = || {
        let session = fuse::Session::new(device, &config(plan))?;
        files.set_notifier(session.notifier())?;
        let (adapter, executor) = Adapter::new(Arc::clone(files));
        spawn_local(executor.run());
        session.serve(Arc::new(adapter))
    };
    let serving = start().map_err(failed).inspect_err(|_| {
        // The error of the session takes precedence.
        let _ = fuse::mount::unmount(&directory, true);
    })?;
    if let Err(error) = fuse::mount::set_read_ahead(&directory, READ_AHEAD_KIB) {
        tracing::info!(%error, "cannot set the kernel's read-ahead; it reads at most 128 KiB ahead");
    }
    Ok((serving, directory))
}

fn mount_options(plan: &Plan) -> fuse::mount::Options {
    let options = &plan.options;
    let allow_other = options.allows_others(rustix::process::geteuid().is_root());
    fuse::mount::Options {
        source: text(&plan.url),
        subtype: "enfys".to_owned(),
        read_only: options.read_only,
        allow_other,
        default_permissions: options.default_permissions.unwrap_or(allow_other),
        suid: options.suid,
        dev: options.dev,
        noexec: options.noexec,
    }
}

/// Returns the kinds of locks that the kernel keeps itself.
fn own_locks(wanted: Option<LocalLock>) -> Capabilities {
    match wanted {
        Some(LocalLock::All) => Capabilities::POSIX_LOCKS | Capabilities::FLOCK_LOCKS,
        Some(LocalLock::Posix) => Capabilities::POSIX_LOCKS,
        Some(LocalLock::Flock) => Capabilities::FLOCK_LOCKS,
        Some(LocalLock::None) | None => Capabilities::empty(),
    }
}

fn config(plan: &Plan) -> Config {
    let mut config = Config::default();
    // The kernel then truncates by SETATTR, after it has looked for programs that run the file (ETXTBSY).
    config.capabilities -= Capabilities::ATOMIC_O_TRUNC;
    config.capabilities -= own_locks(plan.url.options.local_lock);
    match plan.url.options.readdir_plus {
        Some(ReaddirPlus::Never) => config.capabilities -= Capabilities::DO_READDIRPLUS,
        Some(ReaddirPlus::Force) => config.capabilities -= Capabilities::READDIRPLUS_AUTO,
        _ => {}
    }
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let usual = NonZeroUsize::new(cores.clamp(THREADS.0, THREADS.1)).unwrap_or(NonZeroUsize::MIN);
    config.workers = plan.threads.unwrap_or(usual);
    config
}

/// Serves until the file system is unmounted. A signal unmounts it.
async fn wait(serving: Serving, signals: &mut Signals, directory: &Path) -> io::Result<()> {
    let mut ended = spawn_blocking(move || serving.wait());
    loop {
        tokio::select! {
            result = &mut ended => return result.unwrap_or_else(|error| Err(io::Error::other(error))),
            () = signals.stop() => unmount(directory.to_owned()).await,
        }
    }
}

/// Unmounts; a mount that is in use disappears, and ends with its last user.
async fn unmount(directory: PathBuf) {
    // The kernel may send requests meanwhile, which this thread answers.
    let unmounted = spawn_blocking(move || {
        fuse::mount::unmount(&directory, false).or_else(|_| fuse::mount::unmount(&directory, true))
    });
    if let Ok(Err(error)) = unmounted.await {
        tracing::error!(%error, "cannot unmount");
    }
}
