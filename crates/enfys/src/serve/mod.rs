//! `enfys serve`: starts a server, and runs until a signal stops it.

mod create;
mod reload;
mod stop;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::Arc;

use net::{Limits, Registered, Running};
use server::Server;
use store::{error_text, state_dir};
use tokio::runtime::Runtime;
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

use crate::address::Address;
use crate::cli::ServeArguments;
use crate::control::{self, ControlServer};
use crate::descriptor_limits::DescriptorLimits;
use crate::exports::Backends;
use crate::listen::{self, PortMapper};
use crate::metrics::{MetricsServer, Sources};
use crate::name_services;
use crate::plan::Plan;
use crate::quotas;
use crate::sandbox;
use crate::signals::{SignalAction, Signals};
use crate::startup_code;
use crate::startup_message;
use crate::systemd;
use create::DurableState;

/// Maximum number of threads of the main runtime for blocking work; the serving threads have their own runtimes.
const BLOCKING_THREADS_MAX: usize = 4;

/// Serves until a signal stops the server.
///
/// # Errors
/// One line that names the error.
pub fn run(arguments: &ServeArguments) -> Result<(), String> {
    start_log(&arguments.log)?;
    let plan = Plan::new(arguments)?;
    plan.warnings.iter().for_each(|warning| warn!("{warning}"));
    let wanted = plan.network_limits();
    let descriptors = DescriptorLimits::raise_and_divide(wanted.max_connections);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .map_err(|error| format!("cannot start the runtime: {}", error_text(&error)))?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    plan.state_dir.as_deref().map_or(Ok(()), state_dir::make).map_err(|why| plan.error("state-dir", why))?;
    // Before the sandbox: it has a capability that the server gives up.
    let quotas = quotas::start(&plan.exports);
    // Before any thread starts, and after the state directory was made: Landlock needs existing directories.
    sandbox::apply(&plan, arguments);
    let mut state = DurableState::open(&plan).map_err(|why| plan.error("state-dir", why))?;
    let mut backends = Backends::new(state.instance, state.verifier, state.path(), plan.control.clone())
        .with_files(descriptors.files)
        .with_quotas(quotas);
    let prepared = backends.prepare(&plan.exports)?;
    let bound = listen::bind(&plan, prepared.has_quotas())?;
    let (exports, _) = backends.activate(&plan.exports, prepared);
    let (server, latencies) = create::server(&plan, &bound, &mut state, exports)?;
    // Bound before connections are accepted: if it fails, no client has been answered.
    let metrics = plan.metrics.as_ref().map(|address| runtime.block_on(bind_metrics(address)));
    let metrics = metrics.transpose().map_err(|why| plan.error("metrics", why))?;
    let control = control_socket(&plan)?;
    let observer = latencies.clone().map(|latencies| latencies as Arc<dyn net::Observe>);
    let peers = Some(name_services::policy(plan.local_users));
    let limits = within(descriptors, wanted);
    let running = net::serve(Arc::clone(&server), bound.listeners, limits, observer, peers)
        .map_err(|error| format!("cannot start threads: {}", error_text(&error)))?;
    let registered = register(&server, bound.port_mapper, &bound.addresses)?;
    let metrics_address = metrics.as_ref().map(MetricsServer::address);
    if let (Some(metrics), Some(latencies)) = (metrics, latencies) {
        let sources = Sources {
            server: Arc::clone(&server),
            latencies,
            connections: running.connections(),
            max_connections: descriptors.connections,
            files: backends.descriptors(),
            journals: Arc::clone(backends.journals()),
            clock: running.clock(),
        };
        start_metrics(&runtime, metrics, sources);
    }
    let answering = control.map(|control| {
        let _context = runtime.enter();
        control.start(Arc::clone(&server), running.clock())
    });
    let _answering = answering.transpose()?;
    startup_code::unmap();
    startup_message::print(&plan, &bound.addresses, metrics_address);
    systemd::ready();
    runtime.block_on(reload_until_stopped(arguments, plan, &mut signals, (&server, &running), &mut backends));
    systemd::stopping();
    info!("stopping: finishing requests in progress, then flushing");
    runtime.block_on(stop::stop(running, registered, &mut signals, &server, &backends, &state))
}

fn start_log(filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| format!("--log `{filter}`: {error}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}

/// Listens on the first usable address of the host.
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

fn start_metrics(runtime: &Runtime, metrics: MetricsServer, sources: Sources) {
    let _context = runtime.enter();
    metrics.start(sources);
}

/// Returns the wanted limits, with no more connections than the descriptors allow.
fn within(descriptors: DescriptorLimits, wanted: Limits) -> Limits {
    let (all, of_address) = (wanted.max_connections, wanted.max_connections_per_address);
    Limits {
        max_connections: descriptors.connections,
        max_connections_per_address: descriptors.connections_of_address(of_address, all),
        ..wanted
    }
}

/// Binds the given control socket, or the one in the state directory. A failure of the latter is logged, and the server has no
/// control socket.
fn control_socket(plan: &Plan) -> Result<Option<ControlServer>, String> {
    if let Some(path) = &plan.control {
        return ControlServer::bind(path).map(Some).map_err(|why| plan.error("control.socket", why));
    }
    let Some(directory) = &plan.state_dir else { return Ok(None) };
    let bound = ControlServer::bind(&directory.join(control::IN_STATE_DIR));
    Ok(bound.inspect_err(|why| warn!("`enfys status` cannot reach this server: {why}")).ok())
}

/// Registers with the port mapper of this machine, if configured.
fn register(
    server: &Server,
    port_mapper: PortMapper,
    addresses: &[SocketAddr],
) -> Result<Option<Registered>, String> {
    if port_mapper != PortMapper::Other {
        return Ok(None);
    }
    info!("a port mapper runs on this machine: registering with it");
    let registered = Registered::new(server.registrations(), addresses);
    registered.map(Some).map_err(|error| {
        format!("cannot register with the port mapper of this machine: {}", error_text(&error))
    })
}

/// Reloads the exports on each SIGHUP, until a signal to stop.
async fn reload_until_stopped(
    arguments: &ServeArguments,
    mut plan: Plan,
    signals: &mut Signals,
    (server, running): (&Server, &Running),
    backends: &mut Backends,
) {
    while signals.next().await == SignalAction::Reload {
        systemd::reloading();
        match reload::reload(arguments, &plan, (server, running), backends).await {
            Ok(new) => plan = new,
            Err(why) => error!("reload failed, nothing was changed: {why}"),
        }
        systemd::ready();
    }
}
