//! Calls over UDP: a datagram holds one call or reply without a record mark, which RFC 5531 §11 has for streams only.
//!
//! Datagrams are received and replies sent in batches, and a reply leaves from the address that was asked. Each call is polled once in
//! place; pending ones join a bounded set. A datagram that finds no room is dropped, as the network may do: its sender repeats it.

mod messages;

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rustix::net::sockopt;
use server::{Connection, ConnectionId, Disposition, Outcome, PeerOwner, Transport, host_of};
use tokio::io::Interest;
use tracing::{debug, error};
use xdr::Writer;

use self::messages::{BATCH, Datagram, Local, Received};
use crate::connection::Shared;
use crate::output::gather;
use crate::{Call, PeerPolicy};

/// Maximum bytes of a datagram of UDP over IPv4.
const MAX_DATAGRAM: usize = 65_507;

/// The part of the pending calls, as a divisor, that one host may have.
const HOST_PART: usize = 4;

/// Peers whose credentials are remembered. When there are more, all are forgotten that have no pending call.
const PEERS_MAX: usize = 1024;

/// Bytes that the kernel may keep for the socket in each direction, if its own limit allows that.
const SOCKET_BUFFER: usize = 4 << 20;

/// A call in progress: its host, and its reply, if there is one.
type Answer = Pin<Box<dyn Future<Output = (IpAddr, Option<Datagram>)>>>;

/// Prepares a socket. Datagrams that arrive before are lost: the address that they were sent to is unknown.
pub(crate) fn prepare(socket: &UdpSocket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    messages::report_addresses(socket.as_fd(), socket.local_addr()?.is_ipv6())
}

/// Serves datagrams until it is dropped.
pub(crate) async fn serve(shared: Arc<Shared>, socket: UdpSocket, id: ConnectionId) {
    match Socket::new(shared, socket, id) {
        Ok(mut socket) => socket.run().await,
        Err(error) => error!("cannot receive datagrams: {error}"),
    }
}

/// A socket and its calls.
struct Socket {
    shared: Arc<Shared>,
    socket: tokio::net::UdpSocket,
    id: ConnectionId,
    port: u16,
    is_ipv6: bool,
    /// Whether only the port mapper is served here: every sender gets the same answer, so senders are not checked.
    is_port_mappers: bool,
    peers: Peers,
    pending: FuturesUnordered<Answer>,
    /// Pending calls by [`host_of`] their senders.
    pending_of: HashMap<IpAddr, usize>,
    replies: Vec<Datagram>,
}

impl Socket {
    fn new(shared: Arc<Shared>, socket: UdpSocket, id: ConnectionId) -> io::Result<Self> {
        let local = socket.local_addr()?;
        // The kernel limits both; a smaller buffer only loses more datagrams.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER);
        let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER);
        Ok(Self {
            is_port_mappers: shared.server.is_port_mapper_only(local.port()),
            is_ipv6: local.is_ipv6(),
            shared,
            socket: tokio::net::UdpSocket::from_std(socket)?,
            id,
            port: local.port(),
            peers: Peers::default(),
            pending: FuturesUnordered::new(),
            pending_of: HashMap::new(),
            replies: Vec::new(),
        })
    }

    async fn run(&mut self) {
        let mut buffers = vec![vec![0; MAX_DATAGRAM + 1]; BATCH];
        loop {
            let socket = &self.socket;
            let receive = || messages::receive(socket.as_fd(), &mut buffers);
            tokio::select! {
                received = socket.async_io(Interest::READABLE, receive) => match received {
                    Ok(received) => {
                        for (received, buffer) in received.into_iter().zip(&buffers) {
                            self.begin(received, buffer).await;
                        }
                    }
                    // An error of an earlier reply, to a port that is closed now; the socket works.
                    Err(error) => debug!("datagram lost: {error}"),
                },
                Some((host, reply)) = self.pending.next(), if !self.pending.is_empty() => {
                    self.ended(host);
                    self.replies.extend(reply);
                }
            }
            self.flush().await;
        }
    }

    /// Begins the call in a datagram. If it does not end at once, it becomes pending.
    async fn begin(&mut self, received: Option<Received>, buffer: &[u8]) {
        let Some(Received { length, peer, local }) = received else { return };
        let host = host_of(peer.ip());
        let most = self.shared.limits.max_waiting_calls;
        let of_host = self.pending_of.get(&host).copied().unwrap_or(0);
        if length > MAX_DATAGRAM || self.pending.len() >= most || of_host >= (most / HOST_PART).max(1) {
            return;
        }
        let policy = self.shared.peers.as_ref().filter(|_| !self.is_port_mappers);
        let owner = || policy.map_or(PeerOwner::Remote, |policy| policy.sender(peer, local.ip));
        let connection = self.peers.connection(self.id, peer, SocketAddr::new(local.ip, self.port), owner);
        let record = Bytes::copy_from_slice(&buffer[..length]);
        let policy = policy.cloned();
        let reply = answer(Arc::clone(&self.shared), policy, connection, record, (peer, local));
        let mut call: Answer = Box::pin(async move { (host, reply.await) });
        match poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await {
            Poll::Ready((_, reply)) => self.replies.extend(reply),
            Poll::Pending => {
                *self.pending_of.entry(host).or_default() += 1;
                self.pending.push(call);
            }
        }
    }

    /// Notes that a pending call has ended.
    fn ended(&mut self, host: IpAddr) {
        if let Some(count) = self.pending_of.get_mut(&host) {
            *count -= 1;
            if *count == 0 {
                self.pending_of.remove(&host);
            }
        }
    }

    /// Sends the replies. One that cannot be sent is dropped: its client repeats the call.
    async fn flush(&mut self) {
        let mut left = &self.replies[..];
        while !left.is_empty() {
            let (socket, is_ipv6) = (&self.socket, self.is_ipv6);
            let sent =
                socket.async_io(Interest::WRITABLE, || messages::send(socket.as_fd(), is_ipv6, left)).await;
            let done = sent.unwrap_or_else(|error| {
                debug!(peer = %left[0].peer, "reply lost: {error}");
                1
            });
            left = &left[done.max(1)..];
        }
        self.replies.clear();
    }
}

/// Serves one call. Returns the reply, if there is one. With `policy`, the names of the sender's host are looked up if exports need them.
async fn answer(
    shared: Arc<Shared>,
    policy: Option<Arc<PeerPolicy>>,
    connection: Arc<Connection>,
    record: Bytes,
    (peer, local): (SocketAddr, Local),
) -> Option<Datagram> {
    if let Some(policy) = policy
        && !policy.try_introduce(&shared.server, &shared.server.exports(), peer.ip()).await
    {
        return None;
    }
    let mut reply = Writer::new();
    let (began, received) = (Instant::now(), record.len());
    let outcome = shared.server.handle(&connection, shared.clock.now(), record, &mut reply).await;
    let Outcome { disposition, operation, is_error } = outcome;
    let is_sent = disposition == Disposition::Reply && reply.length() <= MAX_DATAGRAM;
    if let Some(observer) = &shared.observer {
        let (took, sent) = (began.elapsed(), if is_sent { reply.length() } else { 0 });
        observer.observe(Call { operation, took, is_error, received, sent });
    }
    is_sent.then(|| {
        let mut bytes = Vec::new();
        gather(&reply, &mut bytes);
        Datagram { bytes, peer, local }
    })
}

/// The peers of a socket, each like a connection.
#[derive(Default)]
struct Peers(HashMap<(SocketAddr, SocketAddr), Arc<Connection>>);

impl Peers {
    /// Returns the connection of a peer; `owner` is called for a new one.
    fn connection(
        &mut self,
        id: ConnectionId,
        peer: SocketAddr,
        local: SocketAddr,
        owner: impl FnOnce() -> PeerOwner,
    ) -> Arc<Connection> {
        if let Some(connection) = self.0.get(&(peer, local)) {
            return Arc::clone(connection);
        }
        if self.0.len() >= PEERS_MAX {
            self.0.retain(|_, connection| Arc::strong_count(connection) > 1);
        }
        let connection = Connection::new(id, peer, local, Transport::Udp, false).owned_by(owner());
        let connection = Arc::new(connection);
        self.0.insert((peer, local), Arc::clone(&connection));
        connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_peers_is_remembered() {
        let mut peers = Peers::default();
        let local: SocketAddr = "127.0.0.1:2049".parse().unwrap();
        let mut connection = |port: u16| {
            let peer = SocketAddr::from(([192, 0, 2, 1], port));
            peers.connection(ConnectionId(1), peer, local, || PeerOwner::Remote)
        };
        let busy = connection(1);
        assert!(Arc::ptr_eq(&busy, &connection(1)));
        for port in 2..3 * PEERS_MAX as u16 {
            drop(connection(port));
        }
        assert!(Arc::ptr_eq(&busy, &connection(1)), "it has a pending call");
        assert!(peers.0.len() <= PEERS_MAX);
    }
}
