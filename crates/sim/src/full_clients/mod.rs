//! The client's core (`client::Client` on its engine) against the server's core, over connections that break, kills of both sides and
//! power failures.
//!
//! Programs on two or three client machines share a directory. Each changes its own names, with only expected results, and
//! writes files in turn under lock files. Invariants: a change of names is made exactly once; committed data are
//! present; an OPEN finds data that were synced before; a lock file has one creator; and every operation ends.

pub mod altered;
mod cached;
mod data;
mod directory;
mod host;
mod host_calls;
mod link;
mod model;
mod names;
mod program;
mod silences;
mod world;

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use client::block_store::MemoryBlocks;
use client::config::{Caches, CallbackAddress, Config, JUKEBOX_PAUSE, Version};
use client::engine::{Engine, RetryPolicy};
use client::error::OpError;
use client::fs::FileSystem;
use client::results::Object;
use client::url::{LocalLock, Transport};
use futures_util::stream::{FuturesUnordered, StreamExt};
use vfs::{Backend, Context, Create, CreateMode, Credentials, SetAttributes, Stability, Timestamp};

use crate::backend::Clock;
use crate::rng::Rng;
use crate::scenario::Report;
use directory::Directory;
use host::Programs;
use model::{Model, Presence, SharedModel};
use program::{Program, caller};
use world::{Memory, World};

/// Files that are written in turn.
const FILES: usize = 2;
/// Programs of each kind on a machine.
const PROGRAMS: usize = 2;
/// Size of a machine's disk cache: about ten versions of a file.
const DISK_CACHE_BYTES: u64 = 20 << 10;
/// Steps of each program.
const NAME_STEPS: u32 = 14;
const DATA_ROUNDS: u32 = 8;
const CACHED_ROUNDS: u32 = 14;
const LOOKS: u32 = 80;
/// A lease time in which every recall is answered: nothing is revoked.
const LONG_LEASE: Duration = Duration::from_secs(900);
/// A lease time that ends while a host is silent.
const SHORT_LEASE: Duration = Duration::from_secs(20);
/// The part of a run in which the network is faulty and processes are killed.
const FAULTS_WITHIN: Duration = Duration::from_secs(120);
/// As [`FAULTS_WITHIN`], for programs that look at names.
const LOOKS_WITHIN: Duration = Duration::from_secs(600);

/// What the clients of a run do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Without caches, programs change names, and write files under lock files.
    Uncached,
    /// With caches and delegations, programs change names, and write files through the cache under byte-range locks.
    Cached,
    /// As `Cached`: programs look at each other's names in a directory that the server delegates, and which has no timeouts.
    Directories,
    /// As `Cached`, without changes of names; clients of version 3 lock by NLM.
    Nlm,
    /// As `Cached`, without changes of names; hosts fall silent for longer than the lease time.
    Revoked,
}

/// Runs clients of `versions`, one machine each.
///
/// # Errors
/// Returns the failure.
pub(crate) fn run(seed: u64, versions: &'static [Version]) -> Result<Report, String> {
    run_with(seed, versions, Kind::Uncached)
}

/// As [`run`], with caches and delegations: programs lock byte ranges of the files and write through the cache.
///
/// # Errors
/// Returns the failure.
pub(crate) fn run_cached(seed: u64, versions: &'static [Version]) -> Result<Report, String> {
    run_with(seed, versions, Kind::Cached)
}

/// As [`run_cached`], with programs that look at each other's names under delegations of their directory.
///
/// # Errors
/// Returns the failure.
pub(crate) fn run_directories(seed: u64, versions: &'static [Version]) -> Result<Report, String> {
    run_with(seed, versions, Kind::Directories)
}

/// As [`run_cached`], with clients of version 3 that lock by NLM.
///
/// # Errors
/// Returns the failure.
pub(crate) fn run_nlm(seed: u64, versions: &'static [Version]) -> Result<Report, String> {
    run_with(seed, versions, Kind::Nlm)
}

/// As [`run_cached`], with a short lease and hosts that fall silent, so that the server revokes their state. The network is reliable
/// otherwise.
///
/// # Errors
/// Returns the failure.
pub(crate) fn run_revoked(seed: u64, versions: &'static [Version]) -> Result<Report, String> {
    run_with(seed, versions, Kind::Revoked)
}

fn run_with(seed: u64, versions: &'static [Version], kind: Kind) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let memory = [Memory::All, Memory::Replies, Memory::Clients][rng.below(3) as usize];
    let memory = if kind == Kind::Revoked { Memory::All } else { memory };
    let is_cached = kind != Kind::Uncached;
    let model = SharedModel::default();
    let launched = Rc::clone(&model);
    // The disk caches of machines, which survive kills of their processes.
    let has_blocks = is_cached && rng.chance(50);
    let disks: Vec<_> = versions.iter().map(|_| MemoryBlocks::new(DISK_CACHE_BYTES)).collect();
    let launch = Box::new(move |host: usize, boot, clock: &Arc<Clock>, mut rng: Rng| {
        let blocks = has_blocks.then(|| Arc::clone(&disks[host]));
        if let Some(blocks) = &blocks {
            blocks.damage(|record| damage(record, &mut rng));
        }
        launch((host, boot), (versions[host], kind), blocks, clock, rng, &launched)
    });
    let mut world = World::new(Rng::new(rng.next_u64()), versions.len(), memory, launch);
    let is_private = memory == Memory::Clients;
    let files = if is_private { versions.len() * PROGRAMS } else { FILES };
    *model.borrow_mut() = Model {
        files: vec![model::SharedFile::default(); files],
        is_private,
        changes_names: kind != Kind::Revoked && kind != Kind::Nlm,
        waits: kind == Kind::Nlm,
        ..Model::default()
    };
    (0..files).for_each(|file| put(&world.backend, file));
    plan(&mut world, kind, memory, &mut rng, &model);
    world.run().map_err(|why| format!("{why} ({memory:?}); {}", doing(&model.borrow())))?;
    let model = model.borrow();
    check_names(&world.backend, &model)?;
    check_files(&world.backend, &model)?;
    if memory != Memory::Clients {
        check_executions(&world, &model)?;
    }
    let counts = world.server.as_ref().map(|server| server.counts()).unwrap_or_default();
    if (counts.opens, counts.locks, counts.delegations) != (0, 0, 0) {
        return Err(format!("something is left: {counts:?}"));
    }
    let checks = if kind == Kind::Directories { model.delegated_looks } else { model.checks };
    Ok(Report { time: world.now(), messages: world.messages, checks })
}

/// Sets the lease time and plans the faults of a run.
fn plan(world: &mut World, kind: Kind, memory: Memory, rng: &mut Rng, model: &SharedModel) {
    if kind == Kind::Revoked {
        world.lease = Some(SHORT_LEASE);
        world.end_faults();
        world.plan_faults(0, 0, rng.below(2), FAULTS_WITHIN);
        world.plan_silences(1 + rng.below(4), SHORT_LEASE, FAULTS_WITHIN);
        let model = Rc::clone(model);
        world.on_silence = Box::new(move |host| model.borrow_mut().lapsed(host));
        return;
    }
    if kind == Kind::Directories {
        // A client learns late that a server has restarted, which does not let it reclaim the delegation of a directory.
        world.lease = Some(LONG_LEASE);
        world.plan_faults(0, 0, rng.below(3), LOOKS_WITHIN);
        return;
    }
    let managers = Rc::clone(model);
    world.on_host_call = Box::new(move |host, record| {
        let manager = managers.borrow().clients.get(&host).cloned();
        manager?.answer_host_call(record)
    });
    world.lease = (kind == Kind::Cached || kind == Kind::Nlm).then_some(LONG_LEASE);
    let power_failures = if memory == Memory::All { rng.below(3) } else { 0 };
    world.plan_faults(rng.below(3), power_failures, rng.below(2), FAULTS_WITHIN);
}

/// Returns the current steps of programs that have not ended.
fn doing(model: &Model) -> String {
    let doing: Vec<_> = model.doing.iter().map(|(id, what)| format!("{id:?}: {what}")).collect();
    doing.join(", ")
}

/// Damages one record in four, as a disk or a crash may: a flipped bit, or a part.
fn damage(record: &mut Vec<u8>, rng: &mut Rng) {
    if record.is_empty() {
        return;
    }
    match rng.below(8) {
        0 => record.truncate(rng.below(record.len() as u64) as usize),
        1 => {
            let at = rng.below(record.len() as u64 * 8) as usize;
            record[at / 8] ^= 1 << (at % 8);
        }
        _ => {}
    }
}

/// Creates a client process.
fn launch(
    (host, boot): (usize, u64),
    (version, kind): (Version, Kind),
    blocks: Option<Arc<MemoryBlocks>>,
    clock: &Arc<Clock>,
    mut rng: Rng,
    model: &SharedModel,
) -> (Arc<Engine>, Programs) {
    let engine = Arc::new(Engine::new(Arc::clone(clock) as Arc<_>, rng.next_u64() as u32));
    let config = Config {
        server: "server".into(),
        port: 2049,
        mount_port: Some(2049),
        nlm_port: Some(2049),
        version: Some(version),
        transport: Transport::Tcp,
        mount_transport: Transport::Tcp,
        retry: RetryPolicy {
            timeout: Duration::from_secs(20 + rng.below(40)),
            retries: None,
            fails_fast: false,
        },
        jukebox_pause: JUKEBOX_PAUSE,
        connections: 1 + rng.below(3) as usize,
        owner: Bytes::from(format!("client-{host}")),
        host_name: Bytes::from(host_name(host, boot)),
        verifier: (boot << 8 | host as u64).to_be_bytes(),
        continues: None,
        machine: caller(),
        slots: 2 + rng.below(8) as u32,
        v3_calls: 2 + rng.below(8) as u32,
        read_size: 4096,
        write_size: 4096,
        local_lock: LocalLock::None,
        callbacks: CallbackAddress { accepts: true, ..CallbackAddress::default() },
        caches: caches(kind, blocks),
    };
    let (of_programs, model) = (Arc::clone(&engine), Rc::clone(model));
    (engine, Box::pin(run_machine((host, boot), kind, of_programs, config, rng, model)))
}

fn caches(kind: Kind, blocks: Option<Arc<MemoryBlocks>>) -> Caches {
    if kind == Kind::Uncached {
        return Caches::none();
    }
    let mut caches =
        Caches { delegations: true, blocks: blocks.map(|blocks| blocks as _), ..Caches::default() };
    if kind == Kind::Directories {
        let timeouts = &mut caches.metadata.timeouts;
        (timeouts.acdirmin, timeouts.acdirmax) = (Duration::ZERO, Duration::ZERO);
    }
    caches
}

/// Returns the name of a client process in NLM.
fn host_name(host: usize, boot: u64) -> String {
    format!("client-{host}-{boot}")
}

type Running = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// Notes the end of a host's process.
struct Alive {
    host: usize,
    model: SharedModel,
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.model.borrow_mut().killed(self.host);
    }
}

/// Runs all programs of a machine, and leaves the server.
async fn run_machine(
    (host, boot): (usize, u64),
    kind: Kind,
    engine: Arc<Engine>,
    config: Config,
    mut rng: Rng,
    model: SharedModel,
) -> Result<(), String> {
    let failed = |what: &str, error: OpError| format!("host {host}, boot {boot}: {what}: {error:?}");
    model.borrow_mut().doing.retain(|(of, ..), _| *of != host);
    model.borrow_mut().doing.insert((host, boot, usize::MAX), "connect".into());
    let _alive = Alive { host, model: Rc::clone(&model) };
    let client = Client::connect(engine, config).await.map_err(|error| failed("connect", error))?;
    model.borrow_mut().clients.insert(host, client.clone());
    let keeper = client.clone();
    let programs = async {
        model.borrow_mut().doing.insert((host, boot, usize::MAX), "mount".into());
        let root = mount(&client).await.map_err(|error| failed("mount", error))?;
        if boot > 1 {
            model.borrow_mut().doing.insert((host, boot, usize::MAX), "free old locks".into());
            free_locks_of(&client, &host_name(host, boot - 1)).await;
        }
        let mut fs = None;
        if client.config().caches.delegations {
            fs = Some(mount_fs(&client).await.map_err(|error| failed("mount", error))?);
        }
        let mut running = FuturesUnordered::<Running>::new();
        for number in 0..2 * PROGRAMS {
            let (id, rng) = ((host, boot, number), Rng::new(rng.next_u64()));
            let program = Program::new(id, client.clone(), root.handle, rng, Rc::clone(&model));
            let own = (host * PROGRAMS + number).saturating_sub(PROGRAMS);
            let directory =
                Directory { client: client.clone(), caller: caller(), handle: root.handle, fs: fs.clone() };
            if number < PROGRAMS && !model.borrow().changes_names {
                continue;
            }
            running.push(match &fs {
                _ if kind == Kind::Directories => Box::pin(names::run_looking(program, directory, LOOKS)),
                _ if number < PROGRAMS => Box::pin(names::run(program, directory, NAME_STEPS)),
                Some(fs) => Box::pin(cached::run(program, fs.clone(), own, CACHED_ROUNDS)),
                None => Box::pin(data::run(program, own, DATA_ROUNDS)),
            });
        }
        drop(fs);
        model.borrow_mut().doing.remove(&(host, boot, usize::MAX));
        while let Some(outcome) = running.next().await {
            outcome?;
        }
        model.borrow_mut().doing.retain(|(of, ..), _| *of != host);
        model.borrow_mut().doing.insert((host, boot, usize::MAX), "leave".into());
        client.close().await.map_err(|error| failed("leave", error))?;
        model.borrow_mut().left(host);
        Ok(())
    };
    let kept = async {
        keeper.run().await;
        Ok(())
    };
    let mut both = FuturesUnordered::<Pin<Box<dyn Future<Output = Result<(), String>> + '_>>>::new();
    both.push(Box::pin(programs));
    both.push(Box::pin(kept));
    while let Some(outcome) = both.next().await {
        outcome?;
    }
    model.borrow_mut().doing.retain(|(of, ..), _| *of != host);
    Ok(())
}

/// Frees the locks of an earlier process of the host. The lock manager does not wait for a server that is down.
async fn free_locks_of(client: &Client, host_name: &str) {
    while client.free_locks_of(host_name.as_bytes()).await.is_err() {
        client.engine().sleep(Duration::from_secs(5)).await;
    }
}

/// Mounts the export. MOUNT and the port mapper do not wait for a server that is down.
async fn mount(client: &Client) -> Result<Object, OpError> {
    loop {
        match client.mount(&caller(), &[b"export"]).await {
            Err(OpError::Call(_)) => client.engine().sleep(Duration::from_secs(5)).await,
            outcome => return outcome,
        }
    }
}

/// As [`mount`], for a file system.
async fn mount_fs(client: &Client) -> Result<FileSystem, OpError> {
    loop {
        match FileSystem::mount(client.clone(), caller(), b"/export").await {
            Err(error) if matches!(error.cause, OpError::Call(_)) => {
                client.engine().sleep(Duration::from_secs(5)).await;
            }
            outcome => return outcome.map(|(fs, _)| fs).map_err(|error| error.cause),
        }
    }
}

fn context() -> Context {
    let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
    Context::new(Arc::new(Credentials::root()), now)
}

/// Creates a file with the first version of its content.
fn put(backend: &crate::backend::SlowFs, file: usize) {
    let (files, context) = (backend.inner(), context());
    let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let (name, what) = (data::file_name(file), Create::File(CreateMode::Guarded));
    let made = files.create(&context, &files.root(), name.as_bytes(), &what, &set).now().expect("a new file");
    let content = Bytes::from(data::content(file, 0));
    let authority = vfs::Authority::Opened;
    let written = files.write(&context, &made.handle, 0, &content, Stability::FileSync, authority).now();
    assert_eq!(written.expect("room for it").count as usize, content.len());
}

/// Checks that the directory has all names that programs know to exist, and none that they know to be removed.
fn check_names(backend: &crate::backend::SlowFs, model: &Model) -> Result<(), String> {
    let (files, context) = (backend.inner(), context());
    for (name, presence) in &model.names {
        let found = files.lookup(&context, &files.root(), name.as_bytes()).now();
        let is_right = match presence {
            Presence::Present(_) => found.is_ok(),
            Presence::Absent => found.is_err(),
            Presence::Unknown => true,
        };
        if !is_right {
            return Err(format!("in the end {name} is not {presence:?}"));
        }
    }
    Ok(())
}

/// Checks that synced versions exist.
fn check_files(backend: &crate::backend::SlowFs, model: &Model) -> Result<(), String> {
    for (file, shared) in model.files.iter().enumerate().filter(|(_, shared)| shared.is_exact()) {
        let found = crate::backend::content(backend.inner(), &data::file_name(file), u32::MAX);
        if found.as_ref() != Some(&data::content(file, shared.synced)) {
            return Err(format!("in the end {} is not version {}", data::file_name(file), shared.synced));
        }
    }
    for (file, _) in model.files.iter().enumerate() {
        let found = crate::backend::content(backend.inner(), &data::file_name(file), u32::MAX);
        let found = data::describe(&found.unwrap_or_default());
        if found.iter().any(|version| model.dead.contains_key(&(file, *version))) {
            let name = data::file_name(file);
            return Err(format!("in the end {name} has data written without the lock: {found:?}"));
        }
    }
    Ok(())
}

/// Checks that changes with a result were made exactly once.
fn check_executions(world: &World, model: &Model) -> Result<(), String> {
    let done = world.backend.around().done();
    for note in &model.once {
        match done.get(note) {
            Some(1) => {}
            times => return Err(format!("`{note}` was done {} times", times.unwrap_or(&0))),
        }
    }
    Ok(())
}
