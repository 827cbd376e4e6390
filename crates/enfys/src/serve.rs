//! `enfys serve`.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use net::{Clock, Limits, Registered, Running};
use server::{HandleKey, Server, Settings, Versions};
use store::reply_log::{self, FileReplyLog, RecoveredCalls};
use store::state_dir::{self, Identity, StateDir};
use store::state_log::{self, FileStateLog, RecoveredState};
use store::synced_reply_log::SyncedReplyLog;
use store::{error_text, random};
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

use crate::address::Address;
use crate::announce::announce;
use crate::backends::Backends;
use crate::cli::ServeArguments;
use crate::control::{self, ControlServer};
use crate::descriptors::Shares;
use crate::export_plan::ExportPlan;
use crate::id_names;
use crate::kerberos;
use crate::latency::Latencies;
use crate::listen::{self, Bound, PortMapper};
use crate::metrics::{MetricsServer, Sources};
use crate::name_services;
use crate::plan::Plan;
use crate::sandbox;
use crate::service;
use crate::signals::{Signals, Wish};

/// Serves until told to stop.
///
/// # Errors
/// One line that names what is wrong.
pub fn run(arguments: &ServeArguments) -> Result<(), String> {
    start_log(&arguments.log)?;
    let plan = Plan::new(arguments)?;
    plan.warnings.iter().for_each(|warning| warn!("{warning}"));
    let wanted = plan.network_limits();
    let shares = Shares::take(wanted.max_connections);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .build()
        .map_err(|error| format!("no event queue: {}", error_text(&error)))?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    plan.state_dir.as_deref().map_or(Ok(()), state_dir::make).map_err(|why| plan.blame("state-dir", why))?;
    // Before any thread is started, and behind what makes the state directory: Landlock wants it to be there.
    sandbox::apply(&plan, arguments);
    let mut state = State::open(&plan).map_err(|why| plan.blame("state-dir", why))?;
    let state_dir = state.directory.as_ref().map(|directory| directory.path().into());
    let backends = Backends::new(state.instance, state.verifier, state_dir, plan.control.clone());
    let mut backends = backends.with_files(shares.files);
    let prepared = backends.prepare(&plan.exports)?;
    let bound = listen::bind(&plan)?;
    let (exports, _) = backends.take(&plan.exports, prepared);
    let (server, latencies) = new_server(&plan, &bound, &mut state, exports)?;
    // Before connections are taken: where it fails, no client has been answered.
    let metrics = plan.metrics.as_ref().map(|address| runtime.block_on(bind_metrics(address)));
    let metrics = metrics.transpose().map_err(|why| plan.blame("metrics", why))?;
    let control = control_socket(&plan)?;
    let addresses = bound.addresses.clone();
    let port_mapper = bound.port_mapper;
    let observer = latencies.clone().map(|latencies| latencies as Arc<dyn net::Observe>);
    let peers = Some(name_services::policy(&plan));
    let limits = within(shares, wanted);
    let running = net::serve(Arc::clone(&server), bound.listeners, limits, observer, peers)
        .map_err(|error| format!("cannot start threads: {}", error_text(&error)))?;
    let registered = register(port_mapper, plan.versions, &addresses)?;
    let mut metrics_address = None;
    if let (Some(metrics), Some(latencies)) = (metrics, latencies) {
        metrics_address = Some(metrics.address());
        let _context = runtime.enter();
        metrics.start(Sources {
            server: Arc::clone(&server),
            latencies,
            connections: running.connections(),
            max_connections: shares.connections,
            files: backends.descriptors(),
            clock: running.clock(),
        });
    }
    let answering = control.map(|control| {
        let _context = runtime.enter();
        control.start(Arc::clone(&server), running.clock())
    });
    let _answering = answering.transpose()?;
    announce(&plan.exports, &addresses, metrics_address);
    service::ready();
    runtime.block_on(serve(arguments, plan, &mut signals, (&server, &running), &mut backends));
    service::stopping();
    info!("stopping: finishing requests in progress, then flushing");
    runtime.block_on(stop(running, registered, &mut signals, &server, &backends, &state))
}

/// Threads of the main runtime for what blocks; the cores have their own.
const BLOCKING_THREADS: usize = 4;

/// Exit status after a second signal, when not everything was flushed.
const CUT_SHORT: i32 = 1;
/// How long a reload waits for calls that began before it, and how often it looks for them.
const OLD_CALLS_FOR: Duration = Duration::from_secs(10);
const OLD_CALLS_LOOK: Duration = Duration::from_millis(10);

fn start_log(filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("--log `{filter}`: {error}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}

/// Who this server is, and what it is this time.
#[derive(Debug)]
struct State {
    directory: Option<StateDir>,
    /// The log of what clients reclaim, until the server has it.
    log: Option<Result<(FileStateLog, RecoveredState), String>>,
    identity: Identity,
    /// Different at every start.
    instance: u64,
    /// Different at every start behind an end that may have lost data.
    verifier: [u8; 8],
}

impl State {
    fn open(plan: &Plan) -> Result<Self, String> {
        let instance: [u8; 8] = random()?;
        let directory = plan.state_dir.as_deref().map(StateDir::open).transpose()?;
        // Before the identity, by which the next start knows that there must be a log: where this one fails, both are there or none.
        let open_log = |directory: &StateDir| {
            FileStateLog::open(&state_log::path_in(directory.path()), directory.was_used())
        };
        let log = directory.as_ref().map(open_log);
        let (identity, verifier) = match &directory {
            Some(directory) => (directory.identity()?, directory.take_clean_verifier()?),
            None => (Identity::transient()?, None),
        };
        let verifier = verifier.unwrap_or(instance);
        Ok(Self { directory, log, identity, instance: u64::from_be_bytes(instance), verifier })
    }
}

fn new_server(
    plan: &Plan,
    bound: &Bound,
    state: &mut State,
    exports: server::ExportTable,
) -> Result<(Arc<Server>, Option<Arc<Latencies>>), String> {
    let mut settings = Settings::new(
        HandleKey(state.identity.handle_key),
        state.instance,
        random()?,
        state.identity.server_id.to_vec(),
    );
    plan.apply_limits(&mut settings);
    if let Some(domain) = &plan.id_domain {
        let names = id_names::read(domain).map_err(|why| plan.blame("id-domain", why))?;
        let (users, groups) = names.len();
        info!("{users} users and {groups} groups are told by name, in {domain}");
        settings.id_names = Some(Arc::new(names));
    }
    settings.gss = kerberos::mechanism(plan).map_err(|why| plan.blame("keytab", why))?;
    settings.portmap = (bound.port_mapper == PortMapper::Own).then(|| bound.port());
    let server = with_logs(Server::new(settings, exports), plan, state);
    let latencies = plan.metrics.as_ref().map(|_| Arc::new(Latencies::default()));
    let server = match &latencies {
        Some(latencies) => server.with_observer(Arc::clone(latencies) as Arc<dyn server::Observer>),
        None => server,
    };
    Ok((Arc::new(server), latencies))
}

/// Gives the server what outlives it. It can do without.
fn with_logs(server: Server, plan: &Plan, state: &mut State) -> Server {
    // The process before has ended: this one has the lock on the directory.
    let server = match state.log.take() {
        Some(log) => with_state_log(server, log),
        None => server,
    };
    let Some(directory) = &state.directory else { return server };
    let path = reply_log::path_in(directory.path());
    if plan.persistent_sessions { with_stable_log(server, &path) } else { with_reply_log(server, &path) }
}

/// The log of what clients reclaim. Without it, they reclaim nothing after a restart.
fn with_state_log(server: Server, log: Result<(FileStateLog, RecoveredState), String>) -> Server {
    match log {
        Ok((log, kept)) => {
            if let Some(damage) = kept.damage {
                warn!("{damage}");
            }
            let entries = kept.entries.into_iter().map(|(key, value)| (key.into(), value.into()));
            server.with_state_log(Arc::new(log), entries, Clock::start().now())
        }
        Err(why) => {
            warn!("clients will reclaim nothing after a restart: {why}");
            server
        }
    }
}

/// The log of calls. Without it, a call that was under way when the server was killed may be told that it failed.
fn with_reply_log(server: Server, path: &Path) -> Server {
    match FileReplyLog::open(path) {
        Ok((log, recovered)) => server.with_reply_log(
            Arc::new(log),
            told(recovered).into_iter().map(Into::into),
            Clock::start().now(),
        ),
        Err(why) => {
            warn!("calls are not remembered over a crash: {why}");
            server
        }
    }
}

/// The same, on stable storage. Without that, no session is persistent.
fn with_stable_log(server: Server, path: &Path) -> Server {
    match SyncedReplyLog::open(path) {
        Ok((log, recovered)) => server.with_stable_log(
            Arc::new(log),
            told(recovered).into_iter().map(Into::into),
            Clock::start().now(),
        ),
        Err(why) => {
            warn!("no session will be persistent: {why}");
            with_reply_log(server, path)
        }
    }
}

/// Says what was wrong with a log of calls; its records.
fn told(recovered: RecoveredCalls) -> Vec<Vec<u8>> {
    if let Some(damage) = recovered.damage {
        warn!("{damage}");
    }
    if let Some(outdated) = recovered.outdated {
        info!("{outdated}");
    }
    recovered.records
}

/// Listens on the first of the addresses that can be had.
async fn bind_metrics(address: &Address) -> Result<MetricsServer, String> {
    let mut result = Err(format!("metrics on {address}: no address"));
    for address in address.resolve()? {
        result = MetricsServer::bind(address).await;
        if result.is_ok() {
            break;
        }
    }
    result
}

/// No more connections than there are descriptors for.
fn within(shares: Shares, wanted: Limits) -> Limits {
    let (all, of_address) = (wanted.max_connections, wanted.max_connections_per_address);
    Limits {
        max_connections: shares.connections,
        max_connections_per_address: shares.connections_of_address(of_address, all),
        ..wanted
    }
}

/// The socket that was asked for, or one in the state directory: where that cannot have one, the server does without.
fn control_socket(plan: &Plan) -> Result<Option<ControlServer>, String> {
    if let Some(path) = &plan.control {
        return ControlServer::bind(path).map(Some).map_err(|why| plan.blame("control.socket", why));
    }
    let Some(directory) = &plan.state_dir else { return Ok(None) };
    let bound = ControlServer::bind(&directory.join(control::IN_STATE_DIR));
    Ok(bound.inspect_err(|why| warn!("`enfys status` will not find this server: {why}")).ok())
}

/// Tells a port mapper that runs already where this server is, if it shall be told.
fn register(
    port_mapper: PortMapper,
    versions: Versions,
    addresses: &[SocketAddr],
) -> Result<Option<Registered>, String> {
    if port_mapper != PortMapper::Other {
        return Ok(None);
    }
    info!("a port mapper runs on this machine: registering with it");
    let registered = Registered::new(versions, addresses);
    registered
        .map(Some)
        .map_err(|error| format!("cannot register with the port mapper that runs: {}", error_text(&error)))
}

/// Waits for the signal to stop; reads exports again at SIGHUP.
async fn serve(
    arguments: &ServeArguments,
    mut plan: Plan,
    signals: &mut Signals,
    (server, running): (&Server, &Running),
    backends: &mut Backends,
) {
    while signals.next().await == Wish::Reload {
        service::reloading();
        match reload(arguments, &plan, (server, running), backends).await {
            Ok(new) => plan = new,
            Err(why) => error!("not reloaded, everything stays as it was: {why}"),
        }
        service::ready();
    }
}

/// Replaces the exports; on any error everything stays as it is.
async fn reload(
    arguments: &ServeArguments,
    old: &Plan,
    (server, running): (&Server, &Running),
    backends: &mut Backends,
) -> Result<Plan, String> {
    let new = Plan::new(arguments)?;
    if new.wants_kerberos() && server.settings().gss.is_none() {
        return Err("Kerberos: the server's keys are read at a start: start it anew".into());
    }
    let prepared = backends.prepare(&new.exports)?;
    new.warnings.iter().for_each(|warning| warn!("{warning}"));
    let fixed = old.fixed_differences(&new);
    if !fixed.is_empty() {
        warn!("other values of {} take effect at the next start", fixed.join(", "));
    }
    let (exports, removed) = backends.take(&new.exports, prepared);
    if !running.introduce_hosts(server, &exports).await {
        warn!(
            "the names of some connected clients are not known yet: they are let in by their addresses alone until they connect again"
        );
    }
    server.replace_exports(exports);
    if !calls_are_over(server).await {
        warn!(
            "calls that began before go on for long: what they write to exports that were removed may be lost"
        );
        backends.doubt();
    }
    backends.close(removed).await;
    let is_served = |export: &ExportPlan| new.exports.iter().any(|other| other.pseudo == export.pseudo);
    for export in old.exports.iter().filter(|export| !is_served(export)) {
        info!("reloaded: no longer serving {}", export.pseudo);
    }
    for export in &new.exports {
        info!("reloaded: serving {export}");
    }
    // What is fixed is compared with what is in effect, not with what was asked for last.
    Ok(Plan { exports: new.exports, warnings: Vec::new(), ..old.clone() })
}

/// Waits until the calls are over that have exports of before; false where that takes too long.
async fn calls_are_over(server: &Server) -> bool {
    for _ in 0..OLD_CALLS_FOR.as_millis() / OLD_CALLS_LOOK.as_millis() {
        if !server.has_retired_exports() {
            return true;
        }
        tokio::time::sleep(OLD_CALLS_LOOK).await;
    }
    !server.has_retired_exports()
}

/// Ends in order, unless told once more to end.
async fn stop(
    running: Running,
    registered: Option<Registered>,
    signals: &mut Signals,
    server: &Server,
    backends: &Backends,
    state: &State,
) -> Result<(), String> {
    let clock = running.clock();
    let in_order = async {
        let ended = tokio::task::spawn_blocking(move || {
            // The port mapper may take its time: whoever asks it meanwhile finds nobody.
            running.shut_down();
            drop(registered);
        });
        let ended = ended.await;
        ended.map_err(|error| format!("stopping: {error}"))?;
        // Every call has been answered, and none follows.
        let reclaimers = server.prepare_restart(clock.now()).await;
        if state.directory.is_some() {
            info!(clients = reclaimers.count, names = %reclaimers, "clients that may reclaim after the next start");
        }
        let verifier = backends.flush().await?;
        match (&state.directory, verifier) {
            (Some(directory), Some(verifier)) => directory.store_clean_verifier(verifier),
            _ => Ok(()),
        }
    };
    tokio::select! {
        result = in_order => result,
        () = signals.stop() => {
            warn!("ending at once, as told: what was not flushed may be lost if the machine crashes");
            std::process::exit(CUT_SHORT)
        }
    }
}
