//! The process of a mount: connects, mounts, and serves until the file system is unmounted.

use std::future::poll_fn;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::config::{Caches, Version};
use client::fs::inode::Mount;
use client::hand_over::Identity;
use client::url::{LocalLock, ReaddirPlus, Url};
use fuse::mount::MountError;
use fuse::{Capabilities, Config, HandOver, Serving};
use mount::{Adapter, DiskCache, Files, FilesState, Settings, WhileBusy};
use store::error_text;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_blocking, spawn_local};

use super::super::session::{Session, failed, machine_name, random_u64, text};
use super::MountArguments;
use super::control::protocol;
use super::control::server::Control;
use super::hand_over::{self, Offer, Outcome};
use super::options::MountOptions;
use super::stored::{self, Stored};
use super::table;
use crate::signals::Signals;
use crate::systemd;

/// Read-ahead of the kernel in KiB, if this process may set it: a few requests of 1 MiB at a time.
const READ_AHEAD_KIB: u32 = 4096;
/// Time limit at the end of a mount for a server that does not answer. Data not written by then are lost, which is logged.
const SHUTDOWN_MAX: Duration = Duration::from_secs(60);
/// Time limit at the end of a mount for writing blocks to the disk cache.
const CACHE_CLOSE_MAX: Duration = Duration::from_secs(5);
/// Time limit for an earlier mount with the same disk cache to end.
const CACHE_LOCK_MAX: Duration = Duration::from_secs(10);
/// Time limit for an earlier mount on the same device number to remove its control socket.
const CONTROL_MAX: Duration = Duration::from_secs(5);
/// Time between two attempts to create the control socket.
const CONTROL_INTERVAL: Duration = Duration::from_millis(20);
/// Minimum and maximum number of threads that read the kernel's requests, without an option.
const THREADS: (usize, usize) = (2, 8);

/// Parameters of a mount.
pub struct Plan {
    pub url: Url,
    pub directory: PathBuf,
    pub options: MountOptions,
    pub threads: Option<NonZeroUsize>,
    /// The arguments from which it was made.
    pub arguments: MountArguments,
}

/// Mounts, calls `ready`, and serves.
///
/// # Errors
/// One line that names the failed step.
pub fn run(plan: &Plan, ready: impl FnOnce(&str) -> Result<(), String>) -> Result<(), String> {
    let stored = stored::passed();
    if matches!(stored, Ok(None)) {
        fuse::mount::check(&plan.directory).map_err(|error| error.to_string())?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the runtime: {}", error_text(&error)))?;
    LocalSet::new().block_on(&runtime, async {
        match stored {
            Ok(None) => {}
            Ok(Some(stored)) => return continue_stored(plan, stored, ready).await,
            Err(error) => abandon_stored(plan, &error),
        }
        serve(plan, ready).await
    })
}

/// Continues a mount that the service manager has stored, or mounts anew if that fails.
async fn continue_stored(
    plan: &Plan,
    stored: Stored,
    ready: impl FnOnce(&str) -> Result<(), String>,
) -> Result<(), String> {
    let session = Session::default();
    match resume_stored(&session, plan, stored).await {
        Ok((mounted, serving, mut signals)) => {
            tracing::info!("the mount continues from the service manager's store");
            mounted.files.close_others();
            if let Err(error) = ready(&mounted.started()) {
                tracing::warn!(error, "the mount continues");
            }
            mounted.run(serving, session, &mut signals).await
        }
        Err(error) => {
            session.detach().await;
            abandon_stored(plan, &error);
            serve(plan, ready).await
        }
    }
}

async fn resume_stored(
    session: &Session,
    plan: &Plan,
    stored: Stored,
) -> Result<(Mounted, Serving, Signals), String> {
    let Stored { offer, state, device, names } = stored;
    // Whatever happens, they are of no use to the next process.
    names.iter().for_each(|name| systemd::forget_stored(name));
    let plan = super::plan(&offer.arguments(&plan.arguments))?;
    let disk_cache = open_disk_cache(&plan, WhileBusy::Wait(CACHE_LOCK_MAX))?;
    let (mount, settings) = connect(session, &plan, &disk_cache, Some(offer.identity())).await?;
    let signals = Signals::new()?;
    let (mounted, serving) = resume(&plan, mount, settings, disk_cache, state, device, || Ok(())).await?;
    Ok((mounted, serving, signals))
}

/// Unmounts a mount that cannot be continued.
fn abandon_stored(plan: &Plan, error: &str) {
    tracing::error!(error, "the stored mount cannot be continued: its open files are lost; mounting anew");
    let is_ours =
        |directory: &Path| table::find(directory).is_ok_and(|found| found.is_some_and(|found| found.is_ours));
    if let Ok(directory) = table::absolute(&plan.directory)
        && is_ours(&directory)
    {
        // Another error follows if that fails.
        let _ = fuse::mount::unmount(&directory, true);
    }
}

/// Continues a mount of another process, calls `ready`, and serves.
///
/// # Errors
/// One line that names the failed step. The other process keeps the mount.
pub fn replace(
    arguments: &MountArguments,
    ready: impl FnOnce(&str) -> Result<(), String>,
) -> Result<(), String> {
    let directory = Path::new(&arguments.source);
    let mut socket = super::control::client::connect(directory)?;
    super::control::client::send(&mut socket, protocol::Command::HandOver)
        .map_err(|error| format!("{}: {}", directory.display(), error_text(&error)))?;
    let named = |why| format!("{}: {why}", directory.display());
    let offer = hand_over::read_offer(&socket).map_err(named)?;
    let plan = super::plan(&offer.arguments(arguments))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the runtime: {}", error_text(&error)))?;
    LocalSet::new().block_on(&runtime, take_over(&plan, &offer, socket, ready))
}

async fn serve(plan: &Plan, ready: impl FnOnce(&str) -> Result<(), String>) -> Result<(), String> {
    let session = Session::default();
    let disk_cache = open_disk_cache(plan, WhileBusy::Wait(CACHE_LOCK_MAX))?;
    let (mount, settings) = connect(&session, plan, &disk_cache, None).await?;
    let refused = |error| failed("mount", &plan.url, &error).to_string();
    let files = Arc::new(Files::new(mount, settings).await.map_err(refused)?);
    let mut signals = Signals::new()?;
    let (serving, adapter, directory) = mount_on(plan, &files)?;
    let mounted = Mounted::new(plan, files, adapter, directory, disk_cache).await;
    if let Err(error) = ready(&mounted.started()) {
        unmount(mounted.directory).await;
        return Err(error);
    }
    mounted.run(serving, session, &mut signals).await
}

/// Connects as the client of the other process, and takes its mount. On failure it keeps the mount, and nothing of what it has at
/// the server may be closed.
async fn take_over(
    plan: &Plan,
    offer: &Offer,
    socket: UnixStream,
    ready: impl FnOnce(&str) -> Result<(), String>,
) -> Result<(), String> {
    let session = Session::default();
    match take(&session, plan, offer, socket).await {
        Ok((mounted, serving, mut signals)) => {
            mounted.files.close_others();
            if let Err(error) = ready(&mounted.started()) {
                tracing::warn!(error, "the mount continues");
            }
            mounted.run(serving, session, &mut signals).await
        }
        Err(error) => {
            session.detach().await;
            Err(format!("{}: {error}", plan.directory.display()))
        }
    }
}

async fn take(
    session: &Session,
    plan: &Plan,
    offer: &Offer,
    socket: UnixStream,
) -> Result<(Mounted, Serving, Signals), String> {
    let disk_cache = open_disk_cache(plan, WhileBusy::WaitInBackground)?;
    let (mount, settings) = connect(session, plan, &disk_cache, Some(offer.identity())).await?;
    let signals = Signals::new()?;
    let socket = Arc::new(socket);
    let receiving = Arc::clone(&socket);
    let received = spawn_blocking(move || hand_over::take(&receiving)).await;
    let (state, device) = received.map_err(|error| error.to_string())??;
    let taken = || hand_over::taken(&socket);
    let (mounted, serving) = resume(plan, mount, settings, disk_cache, state, device, taken).await?;
    Ok((mounted, serving, signals))
}

/// Serves a mount with the state that another process had. `taken` tells that process, if there still is one.
async fn resume(
    plan: &Plan,
    mount: Mount,
    settings: Settings,
    disk_cache: Option<Arc<DiskCache>>,
    state: FilesState,
    device: HandOver,
    taken: impl FnOnce() -> Result<(), String>,
) -> Result<(Mounted, Serving), String> {
    let engine = Arc::clone(mount.client().engine());
    let files = Files::resume(mount, settings, state).await.map_err(|error| error.to_string())?;
    let files = Arc::new(files);
    let start = || {
        let session = fuse::Session::resume(device)?;
        files.set_notifier(session.notifier())?;
        Ok(session)
    };
    let begun = start().map_err(|error: io::Error| error_text(&error)).and_then(|session| {
        taken()?;
        let (adapter, executor) = Adapter::new(Arc::clone(&files));
        let adapter = Arc::new(adapter);
        spawn_local(executor.run());
        let serving = session.serve(Arc::clone(&adapter)).map_err(|error| error_text(&error))?;
        Ok((adapter, serving))
    });
    // Open files that are dropped would be closed at the server, where they are the other process's.
    let (adapter, serving) = begun.inspect_err(|_| engine.shut_down())?;
    let mounted = Mounted::new(plan, files, adapter, plan.directory.clone(), disk_cache).await;
    Ok((mounted, serving))
}

/// A mount that this process serves.
struct Mounted {
    files: Arc<Files>,
    adapter: Arc<Adapter>,
    directory: PathBuf,
    disk_cache: Option<Arc<DiskCache>>,
    identity: protocol::Identity,
    arguments: MountArguments,
    control: Option<Control>,
    successors: mpsc::Receiver<UnixStream>,
    /// Kept, so that the receiver never ends.
    sender: mpsc::Sender<UnixStream>,
    /// SIGUSR2, for which the mount goes into the service manager's store.
    stores: Option<Signal>,
}

/// Why a mount is not served any longer.
enum Ended {
    /// It was unmounted, or the device failed.
    Unmounted(io::Result<()>),
    /// Another process serves it.
    Replaced,
}

impl Mounted {
    /// Starts the control socket. The mount works without it too.
    async fn new(
        plan: &Plan,
        files: Arc<Files>,
        adapter: Arc<Adapter>,
        directory: PathBuf,
        disk_cache: Option<Arc<DiskCache>>,
    ) -> Self {
        let identity = protocol::Identity {
            software: concat!("enfys ", env!("CARGO_PKG_VERSION")).to_owned(),
            source: text(&plan.url),
            url: plan.url.to_string(),
            directory: directory.display().to_string(),
            protocol: files.version().to_string(),
            pid: std::process::id(),
        };
        let (sender, successors) = mpsc::channel(1);
        let arguments = plan.arguments.clone();
        let (control, stores) = (None, signal(SignalKind::user_defined2()).ok());
        let mut mounted = Self {
            files,
            adapter,
            directory,
            disk_cache,
            identity,
            arguments,
            control,
            successors,
            sender,
            stores,
        };
        mounted.start_control().await;
        mounted
    }

    async fn start_control(&mut self) {
        // Otherwise unmounted already.
        let Ok(Some(found)) = table::find(&self.directory) else { return };
        let begin = Instant::now();
        loop {
            match Control::start(found.device, self.identity.clone(), &self.files, self.sender.clone()) {
                Ok(control) => self.control = Some(control),
                // The kernel reuses the number of a device as soon as it is unmounted, before that mount's process has noticed.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && begin.elapsed() < CONTROL_MAX => {
                    tokio::time::sleep(CONTROL_INTERVAL).await;
                    continue;
                }
                Err(error) => {
                    tracing::warn!(error = %error_text(&error), "no control socket: `enfys stats` will not work");
                }
            }
            return;
        }
    }

    /// Returns the line that says what is mounted.
    fn started(&self) -> String {
        let protocol::Identity { source, directory, protocol, .. } = &self.identity;
        format!("{source} on {directory} (NFS {protocol})")
    }

    /// Serves until the end, and leaves the server.
    async fn run(mut self, serving: Serving, session: Session, signals: &mut Signals) -> Result<(), String> {
        let ended = self.wait(serving, signals).await;
        self.control = None;
        if let Some(disk_cache) = &self.disk_cache {
            let disk_cache = Arc::clone(disk_cache);
            // A panic there is no reason to lose data that are not written yet.
            let _ = spawn_blocking(move || disk_cache.close(CACHE_CLOSE_MAX)).await;
        }
        let result = match ended {
            Ended::Replaced => {
                tracing::info!("another process serves the mount");
                session.detach().await;
                return Ok(());
            }
            Ended::Unmounted(result) => result,
        };
        let ended = async {
            self.files.shut_down().await;
            session.close().await;
        };
        if tokio::time::timeout(SHUTDOWN_MAX, ended).await.is_err() {
            tracing::error!(
                seconds = SHUTDOWN_MAX.as_secs(),
                "the server does not answer; data that were not written are lost"
            );
        }
        result.map_err(|error| format!("{}: {}", self.directory.display(), error_text(&error)))
    }

    /// Serves until the file system is unmounted, or another process serves it. A signal unmounts it.
    async fn wait(&mut self, mut serving: Serving, signals: &mut Signals) -> Ended {
        loop {
            let socket = tokio::select! {
                () = poll_fn(|context| serving.poll_ended(context)) => return Ended::Unmounted(serving.wait()),
                () = signals.stop() => {
                    unmount(self.directory.clone()).await;
                    continue;
                }
                Some(socket) = self.successors.recv() => socket,
                () = next(&mut self.stores) => match stored::store() {
                    Ok(socket) => socket,
                    Err(error) => {
                        tracing::error!(error, "SIGUSR2: the mount cannot be stored, and continues");
                        continue;
                    }
                },
            };
            let offer = Offer::new(&self.arguments, &self.directory, &self.files);
            // Its name is for the other process.
            self.control = None;
            match hand_over::give(serving, &self.adapter, &self.files, socket, &offer).await {
                Ok(Outcome::Taken) => return Ended::Replaced,
                Ok(Outcome::Kept(kept)) => {
                    serving = kept;
                    self.start_control().await;
                }
                Err(error) => return Ended::Unmounted(Err(error)),
            }
        }
    }
}

/// Opens the disk cache, if there is one.
fn open_disk_cache(plan: &Plan, busy: WhileBusy) -> Result<Option<Arc<DiskCache>>, String> {
    let Some((directory, bytes)) = plan.options.disk_cache()? else { return Ok(None) };
    if directory.starts_with(&plan.directory) {
        return Err(format!("the disk cache {} is inside the mount", directory.display()));
    }
    let cache = DiskCache::open(&directory, bytes, busy).map_err(|error| error.to_string())?;
    Ok(Some(cache))
}

/// Waits for the next signal.
async fn next(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => _ = signal.recv().await,
        None => std::future::pending().await,
    }
}

/// Connects to the server, and finds the directory to mount.
async fn connect(
    session: &Session,
    plan: &Plan,
    disk_cache: &Option<Arc<DiskCache>>,
    as_client: Option<&Identity>,
) -> Result<(Mount, Settings), String> {
    let url = &plan.url;
    let blocks = disk_cache.as_ref().map(|cache| Arc::clone(cache) as Arc<_>);
    let caches = Caches { blocks, ..plan.options.caches(machine_memory()) };
    let (client, caller) =
        session.connect_as(url, caches, as_client).await.map_err(|failure| failure.to_string())?;
    session.record_locks(&client);
    let path: Vec<&[u8]> = url.path().split(|byte| *byte == b'/').filter(|name| !name.is_empty()).collect();
    let refused = |error| failed("mount", url, &error).to_string();
    let root = Mount::new(client, &caller, &path).await.map_err(refused)?;
    let has_fixed_user = url.options.uid.is_some() || url.options.gid.is_some();
    let identity = if has_fixed_user {
        mount::Identity::Fixed(caller.clone())
    } else {
        mount::Identity::PerProgram { machine_name: machine_name() }
    };
    let settings = Settings {
        identity,
        users: plan.options.users.clone(),
        groups: plan.options.groups.clone(),
        caches_missing_names: plan.options.caches_missing_names(),
        has_lists: plan.options.acl,
        machine: caller,
        seed: random_u64(),
    };
    Ok((root, settings))
}

/// Returns the bytes of memory of this machine; 0 if that is unknown.
fn machine_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap_or_default();
    let kib: u64 = line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
    kib << 10
}

/// Mounts, and starts the threads that serve. Returns the whole path of the directory too.
fn mount_on(plan: &Plan, files: &Arc<Files>) -> Result<(Serving, Arc<Adapter>, PathBuf), String> {
    let directory = fuse::mount::check(&plan.directory).map_err(|error| error.to_string())?;
    let device = fuse::mount::mount(&directory, &mount_options(plan)).map_err(|error| error.to_string())?;
    let failed = |error: io::Error| MountError::Io(directory.clone(), error).to_string();
    let start = || {
        let session = fuse::Session::new(device, &config(plan, files.version()))?;
        files.set_notifier(session.notifier())?;
        let (adapter, executor) = Adapter::new(Arc::clone(files));
        spawn_local(executor.run());
        let adapter = Arc::new(adapter);
        Ok((session.serve(Arc::clone(&adapter))?, adapter))
    };
    let (serving, adapter) = start().map_err(failed).inspect_err(|_| {
        // The error of the session takes precedence.
        let _ = fuse::mount::unmount(&directory, true);
    })?;
    if let Err(error) = fuse::mount::set_read_ahead(&directory, READ_AHEAD_KIB) {
        tracing::info!(%error, "cannot set the kernel's read-ahead; it reads at most 128 KiB ahead");
    }
    Ok((serving, adapter, directory))
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

fn config(plan: &Plan, version: Version) -> Config {
    let mut config = Config::default();
    // The kernel then truncates by SETATTR, after it has looked for programs that run the file (ETXTBSY).
    config.capabilities -= Capabilities::ATOMIC_O_TRUNC;
    // The kernel checks by the lists, and not only by the modes.
    if version == Version::V3 && plan.options.acl && plan.options.default_permissions != Some(false) {
        config.capabilities |= Capabilities::POSIX_ACL;
    }
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
