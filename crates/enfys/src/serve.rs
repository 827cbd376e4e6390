//! `enfys serve`.

use std::io::IsTerminal;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;

use net::{Limits, Listeners, Registered};
use sd_notify::NotifyState;
use server::{HandleKey, Server, Settings};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

use crate::backends::Backends;
use crate::cli::ServeArguments;
use crate::metrics::{Latencies, MetricsServer};
use crate::plan::{self, Plan, PortMapper};
use crate::state_dir::{self, Identity};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// Serves until told to stop.
///
/// # Errors
/// One line that names what is wrong.
pub fn run(arguments: &ServeArguments) -> Result<(), String> {
    start_log(&arguments.log)?;
    let plan = Plan::new(arguments)?;
    raise_descriptor_limit();
    let (identity, state_dir) = identity(&plan)?;
    let instance = u64::from_be_bytes(state_dir::random()?);
    let mut backends = Backends::new(instance, state_dir);
    let exports = backends.exports(&plan.exports)?;
    let listeners = listen(&plan)?;
    let mut settings = Settings::new(
        HandleKey(identity.handle_key),
        instance,
        state_dir::random()?,
        identity.server_id.to_vec(),
    );
    plan::apply(&plan.limits, &mut settings);
    settings.portmap = (plan.port_mapper == PortMapper::Own).then(|| plan.port());
    let server = Arc::new(Server::new(settings, exports));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no event queue: {error}"))?;
    let latencies = plan.metrics.map(|_| Arc::new(Latencies::default()));
    let observer = latencies.clone().map(|latencies| latencies as Arc<dyn net::Observe>);
    let running = net::serve(Arc::clone(&server), listeners, limits(&plan), observer)
        .map_err(|error| format!("cannot start threads: {error}"))?;
    if let (Some(address), Some(latencies)) = (plan.metrics, latencies) {
        let metrics = MetricsServer::new(Arc::clone(&server), latencies, running.connections());
        runtime.block_on(metrics.start(address)).map_err(|error| format!("metrics on {address}: {error}"))?;
    }
    let registered = register(&plan)?;
    announce(&plan);
    notify(&[NotifyState::Ready]);
    runtime.block_on(wait(arguments, &server, &mut backends));
    notify(&[NotifyState::Stopping]);
    info!("stopping: no new calls; what was taken is answered, then everything is flushed");
    drop(registered);
    running.shut_down();
    flush(&runtime, &backends)
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

/// Who this server is, and where what it keeps lives.
fn identity(plan: &Plan) -> Result<(Identity, Option<PathBuf>), String> {
    match &plan.state_dir {
        None if plan.is_transient() => Ok((Identity::transient()?, None)),
        None => {
            let path = state_dir::default_path()?;
            Ok((Identity::durable(&path)?, Some(path)))
        }
        Some(path) => Ok((Identity::durable(path)?, Some(path.clone()))),
    }
}

/// Each connection and each cached file is a descriptor: take as many as the system allows.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        warn!("the limit on open files stays at {:?}: {error}", limit.current);
    }
}

/// Takes the sockets that systemd opened, if it did; binds the planned ones otherwise.
fn listen(plan: &Plan) -> Result<Listeners, String> {
    let mut passed = listenfd::ListenFd::from_env();
    let mut listeners = Listeners::default();
    for index in 0..passed.len() {
        match passed.take_tcp_listener(index) {
            Ok(Some(listener)) => listeners.tcp.push(listener),
            Ok(None) => {}
            Err(error) => return Err(format!("socket {index} passed at start: {error}")),
        }
    }
    if listeners.tcp.is_empty() {
        for address in &plan.listen {
            listeners.tcp.push(bind_tcp(*address)?);
        }
    }
    if plan.port_mapper == PortMapper::Own {
        for address in
            plan.listen.iter().map(|address| SocketAddr::new(address.ip(), protocol::portmap::PORT))
        {
            listeners.tcp.push(bind_tcp(address)?);
            let socket = UdpSocket::bind(address)
                .map_err(|error| format!("cannot listen on udp {address}: {error}"))?;
            socket.set_nonblocking(true).map_err(|error| format!("udp {address}: {error}"))?;
            listeners.udp.push(socket);
        }
    }
    for listener in &listeners.tcp {
        listener.set_nonblocking(true).map_err(|error| format!("listening socket: {error}"))?;
        rustix::net::listen(listener, BACKLOG).map_err(|error| format!("listening socket: {error}"))?;
    }
    Ok(listeners)
}

/// Tells a port mapper that runs already where this server is, if it shall be told.
fn register(plan: &Plan) -> Result<Option<Registered>, String> {
    if plan.port_mapper != PortMapper::Other {
        return Ok(None);
    }
    info!("a port mapper runs on this machine: registering with it");
    let registered = Registered::new(plan.port());
    registered.map(Some).map_err(|error| format!("cannot register with the port mapper that runs: {error}"))
}

fn bind_tcp(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("cannot listen on {address}: the port is in use; give another with --listen")
        }
        _ => format!("cannot listen on {address}: {error}"),
    })
}

fn limits(plan: &Plan) -> Limits {
    let defaults = Limits::default();
    Limits {
        cores: plan.limits.cores.unwrap_or(defaults.cores),
        max_connections: plan.limits.connections.unwrap_or(defaults.max_connections),
        ..defaults
    }
}

/// Says on standard output how to mount what is served.
fn announce(plan: &Plan) {
    for export in &plan.exports {
        println!("serving {}", export.describe());
        for address in &plan.listen {
            let (host, port) = (host(*address), address.port());
            let path = &export.pseudo;
            println!("  mount -t nfs -o vers=4.1,port={port} {host}:{path} /mnt");
            println!(
                "  mount -t nfs -o vers=3,tcp,port={port},mountport={port},mountproto=tcp,nolock {host}:{path} /mnt"
            );
            println!("  nfs://{host}{path}?version=3&nfsport={port}&mountport={port}");
        }
    }
    let is_open = plan.listen.iter().any(|address| !address.ip().is_loopback());
    if is_open && plan.exports.iter().any(|export| export.options.clients.is_empty()) {
        warn!("an export without `clients` is open to every machine that reaches the listening address");
    }
}

/// The address as a client would write it.
fn host(address: SocketAddr) -> String {
    match address {
        _ if address.ip().is_unspecified() => "HOST".into(),
        SocketAddr::V4(address) => address.ip().to_string(),
        SocketAddr::V6(address) => format!("[{}]", address.ip()),
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!("the service manager could not be told: {error}");
    }
}

/// Waits for the signal to stop; reads exports again at SIGHUP.
async fn wait(arguments: &ServeArguments, server: &Server, backends: &mut Backends) {
    let signals = [SignalKind::hangup(), SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    let [Ok(mut hangup), Ok(mut terminate), Ok(mut interrupt)] = signals else {
        return error!("signals cannot be received");
    };
    loop {
        tokio::select! {
            _ = hangup.recv() => reload(arguments, server, backends),
            _ = terminate.recv() => return,
            _ = interrupt.recv() => return,
        }
    }
}

/// Replaces the exports; on any error everything stays as it is.
fn reload(arguments: &ServeArguments, server: &Server, backends: &mut Backends) {
    let exports = Plan::new(arguments).and_then(|plan| Ok((backends.exports(&plan.exports)?, plan)));
    match exports {
        Ok((exports, plan)) => {
            server.replace_exports(exports);
            for export in &plan.exports {
                info!("reloaded: serving {}", export.describe());
            }
        }
        Err(why) => error!("not reloaded, everything stays as it was: {why}"),
    }
}

/// Brings everything to stable storage before the process ends.
fn flush(runtime: &tokio::runtime::Runtime, backends: &Backends) -> Result<(), String> {
    let mut result = Ok(());
    for backend in backends.iter() {
        if let Err(error) = runtime.block_on(backend.sync()) {
            result = Err(format!("flushing at the end: {error}"));
        }
    }
    result
}
