use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::net::sockopt;
use server::{
    Connect, Connection, ConnectionId, ExportTable, PeerOwner, Server, Throttle, Transport, Work, host_of,
};
use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tracing::{debug, error, warn};

use crate::accept::{AcceptLog, accept};
use crate::budget::Budget;
use crate::connection::{self, Control, Shared};
use crate::peers::Found;
use crate::sources::Sources;
use crate::{Clock, Limits, Observe, PeerPolicy, host_calls, udp};

/// Unanswered probes after which the kernel closes a connection. They take the last third of [`Limits::silence`].
const KEEPALIVE_PROBES: u32 = 3;

/// Interval of [`Server::maintain`]; leases are tens of seconds.
const MAINTENANCE_PERIOD: Duration = Duration::from_secs(1);

/// Pause after a panic of [`Server::poll_work`], which may panic again at once.
const POLL_PANIC_PAUSE: Duration = Duration::from_secs(1);

/// Threads of a core for blocking work other than a file system's, which has its own threads: Kerberos.
const BLOCKING_THREADS_PER_CORE: usize = 32;

/// The time that a shutdown waits for peers to take their replies.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);

/// One descriptor in this number may be a connection; the others are for files and the system.
const DESCRIPTORS_PER_CONNECTION: usize = 3;

/// The time that a reload waits for the names of all connected hosts.
const HOST_NAMES_TIMEOUT: Duration = Duration::from_secs(30);

/// The time that a client may take to accept a callback connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Bound sockets.
#[derive(Debug, Default)]
pub struct Listeners {
    /// For record-marked streams.
    pub tcp: Vec<TcpListener>,
    /// For datagrams.
    pub udp: Vec<UdpSocket>,
}

/// A message to a core: a connection, or the order to stop.
enum Message {
    Connection(TcpStream, Box<Connection>, Found, Permit),
    Stop,
}

/// Counts an open connection until it is dropped.
struct Permit {
    total: Arc<AtomicUsize>,
    core: Arc<AtomicUsize>,
    _counted: CountedConnection,
}

impl Permit {
    fn new(total: &Arc<AtomicUsize>, core: &Arc<AtomicUsize>, counted: CountedConnection) -> Self {
        total.fetch_add(1, Relaxed);
        core.fetch_add(1, Relaxed);
        Self { total: Arc::clone(total), core: Arc::clone(core), _counted: counted }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.total.fetch_sub(1, Relaxed);
        self.core.fetch_sub(1, Relaxed);
    }
}

/// Open connections by client.
#[derive(Debug, Clone, Default)]
struct ConnectionCounts(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    /// By [`host_of`]: a client may use any address of its IPv6 network.
    hosts: HashMap<IpAddr, usize>,
    addresses: HashMap<IpAddr, usize>,
}

/// A connection that is counted for its client.
struct CountedConnection {
    counts: ConnectionCounts,
    address: IpAddr,
}

impl ConnectionCounts {
    /// Counts one more connection, unless the address's host has `limit` already.
    fn enter(&self, address: IpAddr, limit: usize) -> Option<CountedConnection> {
        let (address, mut counts) = (address.to_canonical(), self.lock());
        if counts.hosts.get(&host_of(address)).copied().unwrap_or(0) >= limit {
            return None;
        }
        *counts.hosts.entry(host_of(address)).or_default() += 1;
        *counts.addresses.entry(address).or_default() += 1;
        Some(CountedConnection { counts: self.clone(), address })
    }

    /// Returns the addresses of all connected clients.
    fn addresses(&self) -> Vec<IpAddr> {
        self.lock().addresses.keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // No code in here can panic in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        decrement(&mut counts.hosts, host_of(self.address));
        decrement(&mut counts.addresses, self.address);
    }
}

fn decrement(counts: &mut HashMap<IpAddr, usize>, key: IpAddr) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// The acceptor's end of a core.
#[derive(Clone)]
struct Core {
    inbox: mpsc::UnboundedSender<Message>,
    connections: Arc<AtomicUsize>,
}

/// A running server.
pub struct Running {
    cores: Vec<Core>,
    threads: Vec<JoinHandle<()>>,
    connections: Arc<AtomicUsize>,
    counts: ConnectionCounts,
    peers: Option<Arc<PeerPolicy>>,
    clock: Clock,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("connections", &self.connections).finish_non_exhaustive()
    }
}

impl Running {
    /// Returns the number of open connections.
    #[must_use]
    pub fn connections(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.connections)
    }

    /// Looks up the host names of all connected clients that `exports` depend on, for the server. Call it before `exports` replace
    /// those that are served: otherwise connected clients count as hosts without a name.
    ///
    /// Returns whether all were looked up in time.
    pub async fn introduce_hosts(&self, server: &Server, exports: &ExportTable) -> bool {
        let Some(peers) = &self.peers else { return true };
        let hosts = self.counts.addresses();
        let all = hosts.into_iter().map(|address| peers.introduce(server, exports, address));
        tokio::time::timeout(HOST_NAMES_TIMEOUT, join_all(all)).await.is_ok()
    }

    /// Returns the clock that the server is given.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Stops reading, answers the requests that were read, closes connections, and joins the threads.
    pub fn shut_down(self) {
        for core in &self.cores {
            // A core whose thread has ended needs no order to stop.
            let _ = core.inbox.send(Message::Stop);
        }
        for thread in self.threads {
            if thread.join().is_err() {
                error!("a serving thread panicked");
            }
        }
    }
}

/// Starts threads that serve `listeners` until [`Running::shut_down`].
///
/// `peers` decides which users local peers may claim. Without it they are treated like other machines, of which only the source
/// port is known.
///
/// # Errors
/// Returns an error if a thread or its event queue cannot be created, or a descriptor is not a listener.
pub fn serve(
    server: Arc<Server>,
    listeners: Listeners,
    limits: Limits,
    observer: Option<Arc<dyn Observe>>,
    peers: Option<Arc<PeerPolicy>>,
) -> io::Result<Running> {
    let count = limits.cores.max(1);
    // The caller may have bound blocking sockets.
    listeners.tcp.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
    listeners.udp.iter().try_for_each(crate::udp::prepare)?;
    let mut limits = limits;
    limits.max_connections = limits.max_connections.min(descriptors() / DESCRIPTORS_PER_CONNECTION).max(1);
    let budget = Budget::new(limits.request_memory_bytes);
    let throttle = Throttle::default();
    let clock = Clock::start();
    let shared = Arc::new(Shared { server, clock, limits, budget, throttle, observer, peers });
    let (connections, counts) = (Arc::new(AtomicUsize::new(0)), ConnectionCounts::default());
    let peers = shared.peers.clone();
    let (mut cores, mut inboxes) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let (inbox, receiver) = mpsc::unbounded_channel();
        cores.push(Core { inbox, connections: Arc::default() });
        inboxes.push(receiver);
    }
    // The first core accepts for all: a hand-over costs once per connection, not per call.
    let mut acceptor = Some(Acceptor {
        listeners,
        cores: cores.clone(),
        connections: Arc::clone(&connections),
        next_id: AtomicU64::new(1),
        counts: counts.clone(),
    });
    let mut threads = Vec::new();
    for (index, inbox) in inboxes.into_iter().enumerate() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(BLOCKING_THREADS_PER_CORE)
            .build()?;
        let (shared, acceptor) = (Arc::clone(&shared), acceptor.take());
        let thread = std::thread::Builder::new().name(format!("enfys-{index}"));
        threads.push(thread.spawn(move || {
            LocalSet::new().block_on(&runtime, run_core(shared, inbox, acceptor));
            runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
        })?);
    }
    Ok(Running { cores, threads, connections, counts, peers, clock })
}

/// Serves a core's connections until the order to stop.
async fn run_core(
    shared: Arc<Shared>,
    mut inbox: mpsc::UnboundedReceiver<Message>,
    acceptor: Option<Acceptor>,
) {
    let accepting = acceptor.map(|acceptor| acceptor.start(&shared)).unwrap_or_default();
    let mut controls: HashMap<ConnectionId, Rc<Control>> = HashMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            message = inbox.recv() => match message {
                Some(Message::Connection(stream, connection, found, permit)) => {
                    let stream = match tokio::net::TcpStream::from_std(stream) {
                        Ok(stream) => stream,
                        Err(error) => {
                            warn!(peer = %connection.peer, "connection lost: {error}");
                            continue;
                        }
                    };
                    let (id, control) = (connection.id, Rc::new(Control::default()));
                    controls.insert(id, Rc::clone(&control));
                    let shared = Arc::clone(&shared);
                    tasks.spawn_local(async move {
                        let connection = identify(&shared, *connection, found).await;
                        connection::serve(shared, stream, Arc::new(connection), control).await;
                        drop(permit);
                        id
                    });
                }
                Some(Message::Stop) | None => break,
            },
            Some(ended) = tasks.join_next(), if !tasks.is_empty() => match ended {
                Ok(id) => drop(controls.remove(&id)),
                Err(panic) => {
                    error!("a connection task panicked: {panic}");
                    controls.retain(|_, control| Rc::strong_count(control) > 1);
                }
            },
        }
    }
    if !accepting.is_empty() {
        // This core drives the server's work: copies must not wait for reads that no task executes now.
        shared.server.stop_fetching();
    }
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    controls.values().for_each(|control| control.stop());
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
        warn!("shutdown: connections closed before their peers took every reply");
    }
}

/// Returns the connection with the owner of its other end, after the server has learned the names of its host.
async fn identify(shared: &Shared, connection: Connection, found: Found) -> Connection {
    match &shared.peers {
        _ if connection.owner == PeerOwner::Callback => connection,
        Some(peers) => {
            peers.introduce(&shared.server, &shared.server.exports(), connection.peer.ip()).await;
            connection.owned_by(Arc::clone(peers).owner(found).await)
        }
        None => connection,
    }
}

/// Accepts connections and gives each to the core that has the fewest.
struct Acceptor {
    listeners: Listeners,
    cores: Vec<Core>,
    connections: Arc<AtomicUsize>,
    next_id: AtomicU64,
    counts: ConnectionCounts,
}

impl Acceptor {
    fn start(self, shared: &Arc<Shared>) -> Vec<tokio::task::JoinHandle<()>> {
        let Self { listeners, cores, connections, next_id, counts } = self;
        let admission =
            Rc::new(Admission { shared: Arc::clone(shared), cores, connections, next_id, counts });
        let mut tasks = vec![
            tokio::task::spawn_local(maintain(Rc::clone(&admission))),
            tokio::task::spawn_local(drive(Rc::clone(&admission))),
        ];
        for listener in listeners.tcp {
            let admission = Rc::clone(&admission);
            tasks.push(tokio::task::spawn_local(async move { accept_all(&admission, listener).await }));
        }
        for socket in listeners.udp {
            let id = ConnectionId(admission.next_id.fetch_add(1, Relaxed));
            tasks.push(tokio::task::spawn_local(udp::serve(Arc::clone(shared), socket, id)));
        }
        tasks
    }
}

/// Calls [`Server::maintain`] from time to time.
async fn maintain(admission: Rc<Admission>) {
    loop {
        tokio::time::sleep(MAINTENANCE_PERIOD).await;
        let shared = &admission.shared;
        while shared.server.maintain(shared.clock.now()) {
            // Calls go first.
            tokio::task::yield_now().await;
        }
    }
}

/// Does the work that the server asks for. The server bounds the work of each kind.
async fn drive(admission: Rc<Admission>) {
    let sources = Sources::new(Arc::clone(&admission.shared));
    let mut tasks = tokio::task::JoinSet::new();
    loop {
        let shared = &admission.shared;
        match poll_surviving(POLL_PANIC_PAUSE, |context| shared.server.poll_work(context)).await {
            Work::Connect(connect) => {
                drop(tasks.spawn_local(connect_callback(Rc::clone(&admission), connect)))
            }
            Work::Read(fetch) => drop(tasks.spawn_local(Rc::clone(&sources).read(fetch))),
            Work::StepCopy(step) => {
                let shared = Arc::clone(shared);
                tasks.spawn_local(async move { shared.server.step_copy(step, shared.clock.now()).await });
            }
            Work::CallHost(call) => {
                let shared = Arc::clone(shared);
                tasks.spawn_local(async move {
                    let answer = host_calls::call(&call).await;
                    shared.server.handle_host_answer(&call, answer, shared.clock.now());
                });
            }
            Work::ExternalChange(change) => {
                let shared = Arc::clone(shared);
                tasks.spawn_local(async move {
                    shared.server.handle_external_change(&change, shared.clock.now());
                });
            }
        }
        while let Some(ended) = tasks.try_join_next() {
            if let Err(panic) = ended {
                error!("a task for the server panicked: {panic}");
            }
        }
    }
}

/// Polls until there is a result. A panic is logged, and polling continues after `pause`: the server keeps serving.
async fn poll_surviving<T>(pause: Duration, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    loop {
        let polled = std::future::poll_fn(|context| {
            // As after the panic of a task: locks are released, and calls are still served.
            match catch_unwind(AssertUnwindSafe(|| poll(context))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(result)) => Poll::Ready(Some(result)),
                Err(_) => Poll::Ready(None),
            }
        });
        match polled.await {
            Some(result) => return result,
            None => {
                error!("looking for work of the server panicked");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Connects to a client for callbacks. The connection is served like one that the client made.
async fn connect_callback(admission: Rc<Admission>, connect: Connect) {
    let peer = connect.address();
    match tokio::time::timeout(CONNECT_TIMEOUT, tokio::net::TcpStream::connect(peer)).await {
        Ok(Ok(stream)) => return admission.admit_callback(stream, connect),
        Ok(Err(error)) => debug!(%peer, "cannot connect for callbacks: {error}"),
        Err(_) => {}
    }
    admission.shared.server.handle_connect_failed(connect);
}

/// Admits connections.
struct Admission {
    shared: Arc<Shared>,
    cores: Vec<Core>,
    connections: Arc<AtomicUsize>,
    next_id: AtomicU64,
    counts: ConnectionCounts,
}

/// A connection that a core is about to serve.
struct Entry<'d> {
    stream: std::net::TcpStream,
    connection: Connection,
    core: &'d Core,
    permit: Permit,
}

impl Entry<'_> {
    fn hand_over(self, found: Found) {
        let Self { stream, connection, core, permit } = self;
        drop(core.inbox.send(Message::Connection(stream, Box::new(connection), found, permit)));
    }
}

impl Admission {
    /// Gives a connection that a client made to a core, unless there are too many.
    fn admit(&self, stream: tokio::net::TcpStream, peer: SocketAddr) {
        let Some(entry) = self.enter(stream, peer) else { return };
        let peers = self.shared.peers.as_ref();
        let unknown = |error| {
            self.shared.throttled(
                |suppressed| warn!(%peer, suppressed, "cannot find the owner of a connection: {error}"),
            );
        };
        match peers.map_or(Ok(Found::Remote), |peers| peers.find(&entry.stream, unknown)) {
            Ok(found) => {
                debug!(%peer, "connection accepted");
                entry.hand_over(found);
            }
            Err(error) => debug!(%peer, "connection lost: {error}"),
        }
    }

    /// Gives a connection that the server asked for to a core, unless there are too many.
    fn admit_callback(&self, stream: tokio::net::TcpStream, connect: Connect) {
        let (server, peer) = (&self.shared.server, connect.address());
        let Some(mut entry) = self.enter(stream, peer) else { return server.handle_connect_failed(connect) };
        debug!(%peer, "connected for callbacks");
        entry.connection.owner = PeerOwner::Callback;
        server.handle_connected(connect, &entry.connection);
        entry.hand_over(Found::Unknown);
    }

    /// Prepares a connection for the core that has the fewest, unless there are too many.
    fn enter(&self, stream: tokio::net::TcpStream, peer: SocketAddr) -> Option<Entry<'_>> {
        let shared = &self.shared;
        if self.connections.load(Relaxed) >= shared.limits.max_connections {
            shared.server.metrics().refused_connections.fetch_add(1, Relaxed);
            let limit = shared.limits.max_connections;
            shared.throttled(
                |suppressed| warn!(%peer, suppressed, "connection refused: the limit of {limit} connections is reached"),
            );
            return None;
        }
        let Some(counted) = self.counts.enter(peer.ip(), shared.limits.max_connections_per_address) else {
            shared.server.metrics().refused_connections.fetch_add(1, Relaxed);
            shared.throttled(
                |suppressed| warn!(%peer, suppressed, "connection refused: the client has too many"),
            );
            return None;
        };
        let id = ConnectionId(self.next_id.fetch_add(1, Relaxed));
        let lost = |error: io::Error| debug!(%peer, "connection lost: {error}");
        let local = prepare(&stream, shared.limits.silence).map_err(lost).ok()?;
        let stream = stream.into_std().map_err(lost).ok()?;
        let connection = Connection::new(id, peer, local, Transport::Tcp, true);
        // A core whose thread has ended has closed its inbox.
        let alive = self.cores.iter().filter(|core| !core.inbox.is_closed());
        let Some(core) = alive.min_by_key(|core| core.connections.load(Relaxed)) else {
            error!("no serving thread is left");
            return None;
        };
        let permit = Permit::new(&self.connections, &core.connections, counted);
        Some(Entry { stream, connection, core, permit })
    }
}

async fn accept_all(admission: &Admission, listener: TcpListener) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return error!("cannot listen: {error}"),
    };
    let log = AcceptLog::new("nfs", admission.shared.clock);
    loop {
        let (stream, peer) = accept(|| listener.accept(), |error| log.failed(error)).await;
        admission.admit(stream, peer);
    }
}

/// Sets a new connection's options; returns its local address. `silence` is [`Limits::silence`].
fn prepare(stream: &tokio::net::TcpStream, silence: Duration) -> io::Result<std::net::SocketAddr> {
    // Replies leave whole; Nagle's algorithm would only delay them.
    stream.set_nodelay(true)?;
    // By default Linux notices a vanished peer after nine probes of 75 seconds, or fifteen retransmissions.
    let third = (silence / 3).max(Duration::from_secs(u64::from(KEEPALIVE_PROBES)));
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, 2 * third)?;
    sockopt::set_tcp_keepintvl(stream, third / KEEPALIVE_PROBES)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    // tcp(7): there are no probes while data are unacknowledged. This timeout covers both cases.
    sockopt::set_tcp_user_timeout(stream, u32::try_from((3 * third).as_millis()).unwrap_or(u32::MAX))?;
    stream.local_addr()
}

/// Returns the limit on this process's descriptors.
fn descriptors() -> usize {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Nofile)
        .current
        .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_is_polled_again_after_a_panic() {
        let mut polls = 0;
        let work = poll_surviving(POLL_PANIC_PAUSE, |context| {
            polls += 1;
            match polls {
                1 | 3 => panic!("poll {polls}"),
                2 => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                _ => Poll::Ready("work"),
            }
        });
        assert_eq!(work.await, "work");
        assert_eq!(polls, 4);
    }

    #[test]
    fn the_addresses_of_one_network_share_a_limit() {
        let counts = ConnectionCounts::default();
        let enter = |address: &str| counts.enter(address.parse().unwrap(), 2);
        let mut open = vec![enter("2001:db8::1").unwrap(), enter("2001:db8::2").unwrap()];
        assert!(enter("2001:db8::3").is_none());
        open.extend(
            [enter("2001:db8:0:1::1"), enter("192.0.2.1"), enter("::ffff:192.0.2.1")].map(Option::unwrap),
        );
        assert!(enter("192.0.2.1").is_none());
        assert_eq!(counts.addresses().len(), 4, "each address once");
        drop(open);
        assert!(counts.addresses().is_empty() && counts.lock().hosts.is_empty());
    }
}
