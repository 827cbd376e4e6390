//! The client's connections: sockets and time for a [`client::engine::Engine`].

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use client::attributes::Timestamp;
use client::engine::{Action, Clock, ConnectError, ConnectionId, Engine};
use tokio::task::{AbortHandle, JoinSet};

mod callbacks;
mod connection;
mod datagrams;

use callbacks::Listening;
pub use connection::Carrier;

/// The time that an attempt to connect may take, for each address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A server's addresses, and how it is reached.
#[derive(Debug, Clone)]
pub struct Route {
    /// Addresses, tried in this order.
    pub addresses: Vec<IpAddr>,
    /// Whether to call from a port below 1024 if this process may (`resvport`).
    pub reserved_port: bool,
    /// Maximum bytes of a record from the server.
    pub record_max: usize,
}

/// The clock of this machine, from its creation on.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }

    fn time_of_day(&self) -> Option<Timestamp> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Some(Timestamp { seconds: i64::try_from(since.as_secs()).ok()?, nanoseconds: since.subsec_nanos() })
    }
}

/// Carries the engine's records until the engine is shut down. Must run in a [`tokio::task::LocalSet`].
pub async fn run_transport(engine: Arc<Engine>, route: Route) {
    let (route, mut tasks) = (Arc::new(route), JoinSet::new());
    let (local, mut listening) = (LocalAddress::default(), Listening::default());
    let mut running: Vec<Option<AbortHandle>> = Vec::new();
    while let Some(action) = next_action(&engine).await {
        match action {
            Action::Connect { connection, port } => {
                let index = connection.index();
                running.resize_with(running.len().max(index + 1), || None);
                end(&mut running[index]);
                let (engine, route, local) = (Arc::clone(&engine), Arc::clone(&route), local.clone());
                let work = connect_and_serve(engine, route, local, connection, port);
                running[index] = Some(tasks.spawn_local(work));
            }
            Action::Disconnect { connection } => {
                if let Some(task) = running.get_mut(connection.index()) {
                    end(task);
                }
            }
            Action::Listen { port } => listening.listen(&engine, &route, local.get(), port).await,
        }
        // Tasks that have ended.
        while tasks.try_join_next().is_some() {}
    }
}

fn end(task: &mut Option<AbortHandle>) {
    if let Some(task) = task.take() {
        task.abort();
    }
}

/// Waits for the engine's next action, and tells it when deadlines have passed.
async fn next_action(engine: &Engine) -> Option<Action> {
    let mut timer = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    poll_fn(|context| {
        loop {
            if let Poll::Ready(action) = engine.poll_action(context) {
                return Poll::Ready(action);
            }
            // Asked for after the waker is in place: a deadline that comes up later wakes this task.
            let Some(deadline) = engine.deadline() else { return Poll::Pending };
            let left = deadline.saturating_sub(engine.now());
            if !left.is_zero() {
                timer.as_mut().reset(tokio::time::Instant::now() + left);
                if timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
            engine.handle_timeout();
        }
    })
    .await
}

/// This machine's address on the connection that was made last.
type LocalAddress = Rc<Cell<Option<IpAddr>>>;

async fn connect_and_serve(
    engine: Arc<Engine>,
    route: Arc<Route>,
    local: LocalAddress,
    id: ConnectionId,
    port: u16,
) {
    if engine.has_datagrams(id) {
        return carry_datagrams(&engine, &route, id, port).await;
    }
    match connect(&route, port).await {
        Ok(stream) => {
            let address = stream.local_addr().ok();
            local.set(address.map(|address| address.ip()));
            address.iter().for_each(|address| engine.note_local_port(address.port()));
            engine.handle_connected(id);
            // The outcome is ignored: calls without a reply are sent again.
            let _ = Carrier::new(stream, route.record_max).serve(&engine, id).await;
            engine.handle_disconnected(id);
        }
        Err(reason) => engine.handle_connect_failed(id, ConnectError { reason: reason.into() }),
    }
}

async fn carry_datagrams(engine: &Engine, route: &Route, id: ConnectionId, port: u16) {
    match datagrams::open(route, port).await {
        Ok(socket) => {
            socket.local_addr().iter().for_each(|address| engine.note_local_port(address.port()));
            engine.handle_connected(id);
            datagrams::serve(engine, id, &socket).await;
            engine.handle_disconnected(id);
        }
        Err(reason) => engine.handle_connect_failed(id, ConnectError { reason: reason.into() }),
    }
}

/// Connects to the first of the addresses that answers. The error is about the last.
async fn connect(route: &Route, port: u16) -> Result<tokio::net::TcpStream, String> {
    let mut reason = String::from("the server has no address");
    for address in &route.addresses {
        let address = SocketAddr::new(*address, port);
        let attempt = tokio::time::timeout(CONNECT_TIMEOUT, connect_to(address, route.reserved_port)).await;
        let outcome = attempt.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match outcome {
            Ok(stream) => return Ok(stream),
            Err(error) => reason = format!("cannot connect to {address}: {error}"),
        }
    }
    Err(reason)
}

async fn connect_to(address: SocketAddr, reserved_port: bool) -> io::Result<tokio::net::TcpStream> {
    let stream = if reserved_port {
        let any: IpAddr = if address.is_ipv4() { [0, 0, 0, 0].into() } else { [0; 16].into() };
        crate::reserved::connect(SocketAddr::new(any, 0), address).await?
    } else {
        tokio::net::TcpStream::connect(address).await?
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::reserved::PORTS;

    #[tokio::test]
    async fn a_route_without_a_reserved_port_uses_any() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for reserved_port in [true, false] {
            let addresses = vec![IpAddr::from([127, 0, 0, 1])];
            let route = Route { addresses, reserved_port, record_max: 1 << 20 };
            // Only root may bind one; others get any.
            let is_reserved = reserved_port && rustix::process::geteuid().is_root();
            let stream = connect(&route, port).await.unwrap();
            assert_eq!(PORTS.contains(&stream.local_addr().unwrap().port()), is_reserved);
            let socket = datagrams::open(&route, port).await.unwrap();
            assert_eq!(PORTS.contains(&socket.local_addr().unwrap().port()), is_reserved);
        }
    }
}
