//! Accepts connections, connects each to the target, and relays both directions.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use server::Throttle;
use tokio::net::{TcpSocket, TcpStream};
use tracing::{debug, warn};

use super::direction::Direction;
use super::link::Link;
use super::relay::Relay;
use super::statistics::Statistics;
use crate::accept::{AcceptLog, accept};
use crate::{Clock, reserved};

/// Time limit for the target to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Ports below it belong to a machine's superuser; NFS servers check them.
const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// A relay with the behavior of a [`Link`].
#[derive(Debug)]
pub struct Proxy {
    targets: Vec<SocketAddr>,
    max_connections: usize,
    start: Instant,
    link: Link,
    up: RefCell<Direction>,
    down: RefCell<Direction>,
    connections: Cell<u64>,
    open: Cell<usize>,
    broken: Cell<u64>,
    refused: Cell<u64>,
    unreachable: Cell<u64>,
    clock: Clock,
    throttle: Throttle,
}

impl Proxy {
    /// Creates a proxy to the first of `targets` that answers. Its time starts now. Jitter and losses follow from `seed`.
    #[must_use]
    pub fn new(targets: Vec<SocketAddr>, link: Link, max_connections: usize, seed: u64) -> Self {
        Self {
            targets,
            max_connections,
            start: Instant::now(),
            up: RefCell::new(Direction::new(link.clone(), seed)),
            // The directions differ in their losses, and both follow from the seed.
            down: RefCell::new(Direction::new(link.clone(), !seed)),
            link,
            connections: Cell::new(0),
            open: Cell::new(0),
            broken: Cell::new(0),
            refused: Cell::new(0),
            unreachable: Cell::new(0),
            clock: Clock::start(),
            throttle: Throttle::default(),
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        Statistics {
            connections: self.connections.get(),
            open: self.open.get() as u64,
            broken: self.broken.get(),
            refused: self.refused.get(),
            unreachable: self.unreachable.get(),
            up: self.up.borrow().counts.clone(),
            down: self.down.borrow().counts.clone(),
        }
    }

    /// Serves the connections of one listener; ends only when dropped. Must run inside a [`tokio::task::LocalSet`].
    ///
    /// # Errors
    /// Returns the error of a listener that the runtime cannot use.
    pub async fn serve(self: Rc<Self>, listener: TcpListener) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let log = AcceptLog::new("proxy", self.clock);
        loop {
            let (stream, client) = accept(|| listener.accept(), |error| log.failed(error)).await;
            let Some(place) = Place::take(&self) else {
                self.refused.set(self.refused.get() + 1);
                self.warn(client, "too many connections: see --max-connections");
                continue;
            };
            tokio::task::spawn_local(place.connection(stream, client));
        }
    }

    /// Logs a failed connection, at most once a second.
    fn warn(&self, client: SocketAddr, why: &str) {
        if let Some(suppressed) = self.throttle.admit(self.clock.now()) {
            warn!(%client, suppressed, "connection closed: {why}");
        }
    }

    /// Connects to the first target that answers, from a reserved port if the client has one.
    async fn connect(&self, client: SocketAddr) -> io::Result<TcpStream> {
        let mut result = Err(io::ErrorKind::AddrNotAvailable.into());
        for target in &self.targets {
            let attempt = connect_to(*target, client.port() < FIRST_UNPRIVILEGED_PORT);
            result = match tokio::time::timeout(CONNECT_TIMEOUT, attempt).await {
                Ok(result) => {
                    result.map_err(|error| io::Error::new(error.kind(), format!("{target}: {error}")))
                }
                Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{target}: no answer"))),
            };
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

async fn connect_to(target: SocketAddr, reserved: bool) -> io::Result<TcpStream> {
    if !reserved {
        let socket = if target.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        return socket.connect(target).await;
    }
    let any = if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    reserved::connect(SocketAddr::new(any, 0), target).await
}

/// A permit for an open connection.
struct Place(Rc<Proxy>);

impl Place {
    fn take(proxy: &Rc<Proxy>) -> Option<Self> {
        let open = proxy.open.get();
        if open >= proxy.max_connections {
            return None;
        }
        proxy.open.set(open + 1);
        Some(Self(Rc::clone(proxy)))
    }

    /// Relays a connection until both sides have closed it, or one has failed.
    async fn connection(self, stream: TcpStream, client: SocketAddr) {
        let proxy = &*self.0;
        // The handshake needs a round trip, and fails during an outage.
        let opens_at = proxy.link.after_outages(proxy.start.elapsed()) + proxy.link.delay;
        let target = match proxy.connect(client).await {
            Ok(target) => target,
            Err(error) => {
                proxy.unreachable.set(proxy.unreachable.get() + 1);
                proxy.warn(client, &error.to_string());
                reset(&stream);
                return;
            }
        };
        proxy.connections.set(proxy.connections.get() + 1);
        let start = proxy.start;
        let up = Relay { from: &stream, to: &target, direction: &proxy.up, start, opens_at };
        let down = Relay { from: &target, to: &stream, direction: &proxy.down, start, opens_at };
        let done = match prepare(&stream).and_then(|()| prepare(&target)) {
            Ok(()) => tokio::try_join!(up.run(), down.run()).map(|_| ()),
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            debug!(%client, "connection broken: {error}");
            proxy.broken.set(proxy.broken.get() + 1);
            reset(&stream);
            reset(&target);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
    }
}

/// Sets the options of a socket: no coalescing, and probes that detect an unreachable peer.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    Ok(sockopt::set_socket_keepalive(stream, true)?)
}

/// Makes closing a connection reset it, so that its peer learns of a failure.
fn reset(stream: &TcpStream) {
    // If the socket refuses this, it is closed in order.
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}
