//! The callback path of a version 4.0 client: a connection that the server makes to the address in SETCLIENTID.

use core::net::SocketAddr;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::callback::{Callback, Outbox};
use super::wire::ClientId;
use crate::ConnectionId;

/// Time limit for a client's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Time between two attempts to connect.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(5);

/// A connection that the transport should make.
#[derive(Debug)]
pub struct ConnectRequest {
    /// The address to connect to.
    pub address: SocketAddr,
    pub(crate) client: ClientId,
}

/// Connections to clients of version 4.0: those to make, and those that were made.
#[derive(Debug, Default)]
pub(crate) struct V40Connections {
    /// At most one per client.
    requests: Mutex<VecDeque<ConnectRequest>>,
    made: Mutex<HashMap<ConnectionId, ClientId>>,
}

impl V40Connections {
    /// Takes the next connection to make.
    pub(crate) fn next_request(&self) -> Option<ConnectRequest> {
        self.requests.lock().pop_front()
    }

    /// Asks for a connection.
    pub(crate) fn request(&self, address: SocketAddr, client: ClientId) {
        self.requests.lock().push_back(ConnectRequest { address, client });
    }

    /// Withdraws a request of a client.
    pub(crate) fn withdraw(&self, client: ClientId) {
        self.requests.lock().retain(|request| request.client != client);
    }

    /// Notes that a connection was made.
    pub(crate) fn add(&self, connection: ConnectionId, client: ClientId) {
        self.made.lock().insert(connection, client);
    }

    /// Forgets a connection. Returns the client to which it was made.
    pub(crate) fn remove(&self, connection: ConnectionId) -> Option<ClientId> {
        self.made.lock().remove(&connection)
    }
}

/// The state of a client's path.
#[derive(Debug, Default)]
pub(crate) enum PathState {
    #[default]
    Down,
    /// A connection was requested from the transport.
    Connecting,
    Up(ConnectionId, Arc<Outbox>),
}

/// A client's path.
#[derive(Debug, Default)]
pub(crate) struct V40CallbackPath {
    pub(crate) state: PathState,
    /// The requested connection is no longer needed.
    pub(crate) is_stale: bool,
    /// When a connection was last requested.
    pub(crate) requested_at: Duration,
    /// Callbacks without an answer, by number, with the time of sending.
    pub(crate) sent: HashMap<u64, (Duration, Callback)>,
    /// When the unanswered probe was sent.
    pub(crate) probe_sent_at: Option<Duration>,
    /// The last callback's number.
    pub(crate) last_number: u64,
}

impl V40CallbackPath {
    /// Returns whether an answer is overdue.
    pub(crate) fn is_silent(&self, now: Duration) -> bool {
        let sent = self.sent.values().map(|(sent_at, _)| *sent_at).chain(self.probe_sent_at);
        matches!(self.state, PathState::Up(..))
            && sent.into_iter().any(|sent_at| sent_at + ANSWER_TIMEOUT <= now)
    }

    /// Returns whether another attempt to connect may be made.
    pub(crate) fn may_connect(&self, now: Duration) -> bool {
        matches!(self.state, PathState::Down) && self.requested_at + RECONNECT_INTERVAL <= now
    }

    /// Returns whether the path uses this connection.
    pub(crate) fn uses(&self, connection: ConnectionId) -> bool {
        matches!(self.state, PathState::Up(up, _) if up == connection)
    }
}
