use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::caller::CallerCache;
use crate::client_log::UsedExports;
use crate::peer::{FIRST_UNPRIVILEGED_PORT, PeerOwner};
use crate::state::connection_owner::V40ConnectionOwner;
use crate::wait_limit::WaitLimit;
use crate::{ConnectionId, Outbox, Transport};

/// A connection to a client.
#[derive(Debug)]
pub struct Connection {
    /// Its number.
    pub id: ConnectionId,
    /// The client's address.
    pub peer: SocketAddr,
    /// The server's address on it.
    pub local: SocketAddr,
    /// The owner of the socket at the other end, which decides the permitted claims of AUTH_SYS.
    pub owner: PeerOwner,
    /// Its transport.
    pub transport: Transport,
    /// Whether large READs may be answered with file ranges.
    pub can_splice: bool,
    /// Whether the call that begins is the only one that waits for its thread, as far as is known: see
    /// [`vfs::Thread::Exclusive`].
    pub is_alone: AtomicBool,
    /// Calls of the server to the client.
    pub outbox: Arc<Outbox>,
    pub(crate) callers: Mutex<CallerCache>,
    /// Operations that wait for delegations.
    pub(crate) recall_waits: WaitLimit,
    /// Operations that wait for another server.
    pub(crate) copy_waits: WaitLimit,
    pub(crate) v40_owner: V40ConnectionOwner,
    /// Exports used by compounds of version 4.0.
    pub(crate) used_exports: UsedExports,
    /// Whether a refused call of this connection was logged.
    pub(crate) is_refusal_logged: AtomicBool,
}

impl Connection {
    /// Makes a connection to a peer on another machine; see [`Self::owned_by`].
    #[must_use]
    pub fn new(
        id: ConnectionId,
        peer: SocketAddr,
        local: SocketAddr,
        transport: Transport,
        can_splice: bool,
    ) -> Self {
        let (outbox, callers) = (Arc::default(), Mutex::new(CallerCache::default()));
        let (recall_waits, copy_waits) = (WaitLimit::default(), WaitLimit::default());
        let (v40_owner, used_exports) = (V40ConnectionOwner::default(), UsedExports::default());
        let (is_alone, is_refusal_logged) = (AtomicBool::new(false), AtomicBool::new(false));
        Self {
            id,
            peer,
            local,
            owner: PeerOwner::Remote,
            transport,
            can_splice,
            is_alone,
            outbox,
            callers,
            recall_waits,
            copy_waits,
            v40_owner,
            used_exports,
            is_refusal_logged,
        }
    }

    /// Sets the owner of the other end.
    #[must_use]
    pub fn owned_by(self, owner: PeerOwner) -> Self {
        Self { owner, ..self }
    }

    /// Returns whether any user of another machine may send from the peer's port.
    pub(crate) fn has_unprivileged_port(&self) -> bool {
        self.owner == PeerOwner::Remote && self.peer.port() >= FIRST_UNPRIVILEGED_PORT
    }

    /// Returns whether a superuser, here or on another machine, authenticates the claims of the peer.
    pub(crate) fn is_from_superuser(&self) -> bool {
        match self.owner {
            PeerOwner::Remote => self.peer.port() < FIRST_UNPRIVILEGED_PORT,
            PeerOwner::Superuser => true,
            _ => false,
        }
    }

    /// Returns true for the connection's first refused call, which must be logged.
    pub(crate) fn is_first_refusal(&self) -> bool {
        !self.is_refusal_logged.swap(true, Relaxed)
    }
}
