//! One run: its files, its clients, and their results.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::{Either, join_all};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use super::assemble::{Measured, Share, assemble};
use super::recorder::Meter;
use super::task::{Task, Who};
use super::window::Window;
use crate::kernel_counters::Snapshot;
use crate::plan::Run;
use crate::process;
use crate::result::{ClientCounters, RequestCounters, RunResult};
use crate::server_counters::{Before, Exchanged};
use crate::targets::directory::DirectoryFiles;
use crate::targets::nfs::{NfsFiles, Server};
use crate::targets::{Fault, Files};
use crate::trace::{Recorded, TraceWriter};
use crate::workloads::{Any, Parameters, make_directory, remove_tree};

/// The directory below a target that holds all files of the bench.
pub(super) const BASE: &str = "enfys-bench";

/// Time without the end of any operation of a client after which a run fails.
const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Time between two checks of a run.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How the clients of a run reach their target.
#[derive(Clone, Debug)]
pub enum Access {
    /// Each by a client of its own.
    Nfs(Box<Server>),
    /// By system calls.
    Directory(PathBuf),
}

/// Where a run takes place.
#[derive(Clone, Debug)]
pub struct Place {
    /// How its clients reach the target.
    pub access: Access,
    /// The server's process, if it is on this machine and known.
    pub server_pid: Option<u32>,
    /// Name and version of the server, if they are known.
    pub server_version: Option<String>,
    /// Options of client, link and server for the result.
    pub options: BTreeMap<String, String>,
    /// Where the server's counters are, if they are read.
    pub metrics: Option<String>,
    /// The directory that the server exports, or that is measured, if it is on this machine.
    pub export: Option<PathBuf>,
    /// Name of the plan.
    pub plan: String,
    /// Where the operations of the measured clients are recorded.
    pub recording: Option<Arc<TraceWriter>>,
    /// Ends runs from outside.
    pub interrupted: Arc<AtomicBool>,
}

impl Place {
    /// Creates a place of which nothing else is known.
    #[must_use]
    pub fn new(access: Access, plan: &str, interrupted: Arc<AtomicBool>) -> Self {
        Self {
            access,
            server_pid: None,
            server_version: None,
            options: BTreeMap::new(),
            metrics: None,
            export: None,
            plan: plan.to_owned(),
            recording: None,
            interrupted,
        }
    }
}

/// The clients of a run that this process has.
pub(super) struct Clients<'g> {
    /// Their numbers.
    pub(super) own: Range<u32>,
    /// Called when all of them are ready; returns when they may begin. `None` if they begin at once.
    pub(super) gate: Option<&'g dyn Fn() -> Result<(), String>>,
}

/// Makes the clients of one kind of target.
#[allow(async_fn_in_trait, reason = "called in this module alone")]
trait Connect: Clone + Send + 'static {
    type Files: Files;
    /// Whether operations block their thread, so that each thread of a client needs one of the system.
    const BLOCKS: bool;
    /// Returns the directory whose mount, disk and system are observed.
    fn observed(&self) -> Option<&Path>;
    /// Connects a client whose operations are recorded in a trace, if there is one.
    async fn connect(&self, recording: Option<Arc<TraceWriter>>) -> Result<Self::Files, Fault>;
}

impl Connect for Server {
    type Files = Recorded<NfsFiles>;
    const BLOCKS: bool = false;

    fn observed(&self) -> Option<&Path> {
        None
    }

    async fn connect(&self, recording: Option<Arc<TraceWriter>>) -> Result<Self::Files, Fault> {
        self.connect().await.map(|files| Recorded::new(files, recording))
    }
}

impl Connect for PathBuf {
    type Files = Recorded<DirectoryFiles>;
    const BLOCKS: bool = true;

    fn observed(&self) -> Option<&Path> {
        Some(self)
    }

    async fn connect(&self, recording: Option<Arc<TraceWriter>>) -> Result<Self::Files, Fault> {
        DirectoryFiles::open(self).map(|files| Recorded::new(files, recording))
    }
}

/// Makes the files of a run, by a client of its own, so that the measured clients have nothing in their caches.
///
/// # Errors
/// Why it failed.
pub fn prepare(run: &Run, place: &Place) -> Result<(), String> {
    let workload = workload(run)?;
    let directory = directory(run, &workload);
    let clients = run.case.clients;
    let threads = run.case.threads;
    with_client(&place.access, &Preparation { workload, directory, clients, threads })
        .map_err(|why| format!("preparation: {why}"))
}

/// Removes the files of a run that no other run can use.
///
/// # Errors
/// Why it failed.
pub(super) fn clean(run: &Run, place: &Place) -> Result<(), String> {
    let workload = workload(run)?;
    if workload.keeps_files() {
        return Ok(());
    }
    with_client(&place.access, &Removal(format!("{BASE}/{}", directory(run, &workload))))
}

/// Removes all files of the bench at a target.
///
/// # Errors
/// Why it failed.
pub(super) fn clean_all(place: &Place) -> Result<(), String> {
    with_client(&place.access, &Removal(BASE.to_owned()))
}

pub(super) fn workload(run: &Run) -> Result<Any, String> {
    let name = &run.case.workload;
    Any::new(name, &Parameters(&run.case.parameters)).ok_or_else(|| format!("no workload `{name}`"))
}

/// Returns the directory of a run below [`BASE`]. Workloads that keep their files share it with later runs that have the same
/// parameters.
pub(super) fn directory(run: &Run, workload: &Any) -> String {
    if !workload.keeps_files() {
        return run.id.clone();
    }
    let parameters = run.case.parameters.values().map(ToString::to_string).collect::<Vec<_>>();
    format!("{}-{}-c{}", run.case.workload, parameters.join("-"), run.case.clients)
}

/// Work that one client does before or after the measured time.
pub(super) trait ClientWork {
    async fn run<F: Files>(&self, files: &F) -> Result<(), Fault>;
}

pub(super) struct Preparation {
    pub(super) workload: Any,
    pub(super) directory: String,
    pub(super) clients: u32,
    pub(super) threads: u32,
}

impl ClientWork for Preparation {
    async fn run<F: Files>(&self, files: &F) -> Result<(), Fault> {
        let path = format!("{BASE}/{}", self.directory);
        make_directory(files, BASE).await?;
        make_directory(files, &path).await?;
        let files = files.enter(&path).await?;
        for client in 0..self.clients {
            let who = Who { client, thread: 0, threads: self.threads, clients: self.clients };
            self.workload.prepare(&files, who).await?;
        }
        Ok(())
    }
}

struct Removal(String);

impl ClientWork for Removal {
    async fn run<F: Files>(&self, files: &F) -> Result<(), Fault> {
        remove_tree(files, &self.0).await
    }
}

/// Connects a client, lets it do something, and leaves.
fn with_client(access: &Access, work: &impl ClientWork) -> Result<(), String> {
    match access {
        Access::Nfs(server) => with_client_of(&**server, work),
        Access::Directory(path) => with_client_of(path, work),
    }
}

fn with_client_of<C: Connect>(connect: &C, work: &impl ClientWork) -> Result<(), String> {
    let runtime = runtime(C::BLOCKS).map_err(|error| error.to_string())?;
    let done = runtime.block_on(LocalSet::new().run_until(async {
        let files = connect.connect(None).await?;
        let done = work.run(&files).await;
        files.leave().await;
        done
    }));
    done.map_err(|fault| fault.to_string())
}

/// Makes the runtime of a thread; without sockets if operations block.
fn runtime(blocks: bool) -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    if blocks {
        builder.enable_time();
    } else {
        builder.enable_all();
    }
    builder.build()
}

/// Counters at one moment.
pub(super) struct Counters {
    requests: BTreeMap<String, RequestCounters>,
    client: Option<ClientCounters>,
}

impl Counters {
    pub(super) fn read(files: &impl Files) -> Self {
        Self { requests: files.traffic(), client: files.counters() }
    }

    pub(super) fn requests_since(&self, before: &Self) -> BTreeMap<String, RequestCounters> {
        let since = |(name, now): (&String, &RequestCounters)| {
            let since = now.since(before.requests.get(name).unwrap_or(&RequestCounters::default()));
            (since != RequestCounters::default()).then(|| (name.clone(), since))
        };
        self.requests.iter().filter_map(since).collect()
    }

    pub(super) fn client_since(&self, before: &Self) -> Option<ClientCounters> {
        self.client.zip(before.client).map(|(now, before)| now.since(&before))
    }
}

/// State that all shares of a run use.
struct Job<C> {
    connect: C,
    workload: Any,
    path: String,
    window: Arc<Window>,
    seed: u64,
    clients: u32,
    threads: u32,
    server_pid: Option<u32>,
    recording: Option<Arc<TraceWriter>>,
    /// The first client of this process, whose first share observes processes and the kernel.
    first_client: u32,
    /// What is known at the start of the measured time.
    begun: Mutex<Option<Begun>>,
}

impl<C: Connect> Job<C> {
    fn is_first(&self, client: u32, threads: &Range<u32>) -> bool {
        client == self.first_client && threads.start == 0
    }

    /// Notes the start of the measured time; `snapshot` reads the kernel's counters.
    fn note_begin(&self, snapshot: fn(&Path) -> Snapshot) {
        let begun = Begun {
            kernel: self.connect.observed().map(snapshot),
            has_peak: self.server_pid.is_some_and(|pid| process::reset_peak(pid).is_ok()),
            own_cpu: cpu_time(Some(std::process::id())),
            server_cpu: cpu_time(self.server_pid),
            at: Instant::now(),
        };
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(begun);
    }

    /// Adds to a result what was counted outside of the clients since the start of the measured time. All threads have ended; the
    /// process can have used `cpus` CPUs.
    fn add_observed(self, result: &mut RunResult, cpus: usize) {
        let begun = self.begun.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(Begun { kernel, has_peak, own_cpu, server_cpu, at }) = begun else { return };
        let available = at.elapsed().as_secs_f64() * cpus as f64;
        let since = |before: Option<Duration>, pid: Option<u32>| {
            let (now, before) = cpu_time(pid).zip(before)?;
            Some(now.saturating_sub(before).as_secs_f64())
        };
        result.client_cpu_seconds = since(own_cpu, Some(std::process::id()));
        result.client_busy =
            result.client_cpu_seconds.filter(|_| available > 0.0).map(|own| (own / available).min(1.0));
        result.server_cpu_seconds = since(server_cpu, self.server_pid);
        let pid = self.server_pid.filter(|_| has_peak);
        result.server_peak_bytes = pid.and_then(|pid| process::peak_bytes(pid).ok());
        if let Some((counters, operations)) = kernel.map(|before| before.until_settled()) {
            let requests = operations.into_iter().map(|(name, operation)| (name, operation.into()));
            result.add_kernel(counters, requests.collect());
        }
    }
}

/// What is known at the start of the measured time.
struct Begun {
    /// The kernel's counters, if the target is a directory.
    kernel: Option<Snapshot>,
    /// Whether the server's largest memory is that of the measured time.
    has_peak: bool,
    own_cpu: Option<Duration>,
    server_cpu: Option<Duration>,
    at: Instant,
}

fn cpu_time(pid: Option<u32>) -> Option<Duration> {
    pid.and_then(|pid| process::cpu_time(pid).ok())
}

/// Does a run whose files are prepared; `None` if it was interrupted.
///
/// A run that fails has its results until then, and no rates.
#[must_use]
pub fn measure(run: &Run, place: &Place) -> Option<RunResult> {
    let counters = place.metrics.as_deref().map(Before::read);
    let part = measure_part(run, place, &Clients { own: 0..run.case.clients, gate: None })?;
    let server_counters = counters.map(|before| before.until_now(part.exchanged));
    Some(RunResult { server_counters, ..part.result })
}

/// Does some clients' part of a run whose files are prepared; `None` if it was interrupted.
pub(super) fn measure_part(run: &Run, place: &Place, clients: &Clients<'_>) -> Option<Measured> {
    match &place.access {
        Access::Nfs(server) => measure_with(&**server, run, place, clients),
        Access::Directory(path) => measure_with(path, run, place, clients),
    }
}

fn measure_with<C: Connect + Sync>(
    connect: &C,
    run: &Run,
    place: &Place,
    clients: &Clients<'_>,
) -> Option<Measured> {
    let workload = match workload(run) {
        Ok(workload) => workload,
        Err(why) => return Some(Measured::failed(run, place, why)),
    };
    let (own, threads) = (clients.own.clone(), run.case.threads);
    let gates = usize::from(clients.gate.is_some());
    let meeting = own.len() * threads as usize;
    let shares: Vec<(u32, Range<u32>)> = if C::BLOCKS {
        own.flat_map(|client| (0..threads).map(move |thread| (client, thread..thread + 1))).collect()
    } else {
        own.map(|client| (client, 0..threads)).collect()
    };
    let meeting = meeting + shares.len() + gates;
    let ends = workload.ends();
    let times = (run.warm_up, run.duration);
    let window = Arc::new(Window::new(ends, times, meeting, Arc::clone(&place.interrupted)));
    let job = Job {
        connect: connect.clone(),
        path: format!("{BASE}/{}", directory(run, &workload)),
        workload,
        window: Arc::clone(&window),
        seed: run.seed,
        clients: run.case.clients,
        threads,
        server_pid: place.server_pid,
        recording: place.recording.clone(),
        first_client: clients.own.start,
        begun: Mutex::default(),
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let system_threads = if C::BLOCKS { shares.len() } else { shares.len().min(cores) };
    let started = SystemTime::now();
    let done = run_shares(&job, &shares, system_threads, clients);
    if window.is_interrupted() {
        return None;
    }
    let mut measured = assemble(run, place, &window, ends, started, done);
    measured.result.compared = window.compared();
    job.add_observed(&mut measured.result, system_threads.min(cores));
    Some(measured)
}

/// Runs all shares on some threads of the system, and returns their results.
fn run_shares<C: Connect + Sync>(
    job: &Job<C>,
    shares: &[(u32, Range<u32>)],
    system_threads: usize,
    clients: &Clients<'_>,
) -> Vec<Share> {
    // All threads wait for each other at the start: none may begin before all are ready.
    let may_start = OnceLock::new();
    thread::scope(|scope| {
        let may_start = &may_start;
        let start = |number: usize| {
            let own: Vec<_> = shares.iter().skip(number).step_by(system_threads).cloned().collect();
            let runtime = runtime(C::BLOCKS)?;
            thread::Builder::new().spawn_scoped(scope, move || {
                if *may_start.wait() { runtime.block_on(run_own(job, own)) } else { Vec::new() }
            })
        };
        let gate = clients.gate.map(|gate| runtime(true).map(|runtime| (gate, runtime))).transpose();
        let running = gate.and_then(|gate| {
            (0..system_threads).map(start).collect::<io::Result<Vec<_>>>().map(|threads| (gate, threads))
        });
        let _ = may_start.set(running.is_ok());
        match running {
            Ok((gate, threads)) => {
                if let Some((gate, runtime)) = gate {
                    runtime.block_on(job.window.hold(gate));
                }
                threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
            }
            Err(error) => {
                job.window.fail(format!("cannot start {system_threads} threads: {error}"));
                Vec::new()
            }
        }
    })
}

/// Runs the shares of one thread of the system.
async fn run_own<C: Connect>(job: &Job<C>, own: Vec<(u32, Range<u32>)>) -> Vec<Share> {
    let all = own.into_iter().map(|(client, threads)| run_share(job, client, threads));
    LocalSet::new().run_until(async { join_all(all).await.into_iter().flatten().collect() }).await
}

/// Connects a client and runs some of its threads; `None` if it could not connect.
async fn run_share<C: Connect>(job: &Job<C>, client: u32, threads: Range<u32>) -> Option<Share> {
    let window = &job.window;
    let connected = async {
        let files = job.connect.connect(job.recording.clone()).await?;
        let inner = files.enter(&job.path).await?;
        Ok::<_, Fault>((files, inner))
    };
    let (files, inner) = match connected.await {
        Ok(connected) => connected,
        Err(fault) => {
            window.fail(fault.to_string());
            // The other clients wait for these threads, and for this one.
            join_all((0..=threads.len()).map(|_| window.meet(|| {}))).await;
            return None;
        }
    };
    let meter = Meter::new(Arc::clone(window));
    let work = threads.clone().map(|thread| {
        let who = Who { client, thread, threads: job.threads, clients: job.clients };
        let task = Task::new(inner.for_thread(client, thread), who, job.seed, meter.clone());
        async move {
            if let Err(fault) = task.run(job.workload.work(&task)).await {
                window.fail(fault.to_string());
            }
            Instant::now()
        }
    });
    let is_first = job.is_first(client, &threads);
    let counters = || Counters::read(&files);
    let begin = |snapshot| {
        if is_first {
            job.note_begin(snapshot);
        }
        Some(counters())
    };
    let watch = async {
        let mut before = None;
        window.meet(|| before = begin(Snapshot::settled)).await;
        if let Some(start) = window.begin().filter(|start| *start > Instant::now()) {
            tokio::time::sleep_until(start.into()).await;
            // Other agents may have begun, so that the mount is not quiet.
            before = begin(Snapshot::read);
        }
        before
    };
    let working = std::pin::pin!(futures_util::future::join(watch, join_all(work)));
    let guard = std::pin::pin!(guard(&meter, job.server_pid));
    let (before, ended) = match futures_util::future::select(working, guard).await {
        Either::Left((done, _)) => done,
        Either::Right((why, _)) => {
            window.fail(why);
            (Some(counters()), Vec::new())
        }
    };
    let (before, after) = (before?, counters());
    let ended = ended.into_iter().max().unwrap_or_else(Instant::now);
    let mut share = Share {
        client,
        record: meter.take(),
        requests: after.requests_since(&before),
        client_counters: after.client_since(&before),
        exchanged: Exchanged::default(),
        ended,
    };
    drop(inner);
    // Abandoned tasks may still use the files.
    files.clone().leave().await;
    for counters in files.traffic().values() {
        share.exchanged.combine(&Exchanged {
            requests: counters.requests + counters.retransmissions,
            call_bytes: counters.bytes_sent,
            reply_bytes: counters.bytes_received,
        });
    }
    Some(share)
}

/// Waits until a run cannot continue: its server has ended, or no operation ends for [`SILENCE_MAX`]. Returns which.
async fn guard(meter: &Meter, server_pid: Option<u32>) -> String {
    let mut progress = (meter.ended_operations(), Instant::now());
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if server_pid.is_some_and(|pid| !process::is_running(pid)) {
            // Errors of failed calls are more precise: they take precedence.
            tokio::time::sleep(LOOK_EVERY).await;
            return "the server has ended".to_owned();
        }
        let ended = meter.ended_operations();
        if ended != progress.0 || meter.window().begin().is_none() {
            progress = (ended, Instant::now());
        } else if progress.1.elapsed() >= SILENCE_MAX {
            return format!("no operation ended for {} s", SILENCE_MAX.as_secs());
        }
    }
}
