use core::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::caller::CallerCache;
use crate::client_log::UsedExports;
use crate::peer::{FIRST_UNPRIVILEGED_PORT, PeerOwner};
use crate::state::connection_owner::Tenant;
use crate::wait_limit::WaitLimit;
use crate::{ConnectionId, Outbox, Transport};

/// What the server knows of a connection.
#[derive(Debug)]
pub struct Connection {
    /// Its number.
    pub id: ConnectionId,
    /// The client's address.
    pub peer: SocketAddr,
    /// Our address on it.
    pub local: SocketAddr,
    /// Who owns the socket at the other end: decides whom AUTH_SYS may claim to be.
    pub owner: PeerOwner,
    /// What carries it.
    pub transport: Transport,
    /// Whether large READs may be answered with file ranges.
    pub can_splice: bool,
    /// Whether the call that begins is the only one that waits for the thread that serves it, as far as is known: see
    /// [`vfs::Thread::Exclusive`].
    pub is_alone: AtomicBool,
    /// Calls of ours to the client.
    pub outbox: Arc<Outbox>,
    pub(crate) callers: Mutex<CallerCache>,
    /// Operations that wait for delegations.
    pub(crate) recall_waits: WaitLimit,
    /// Operations that wait for another server.
    pub(crate) copy_waits: WaitLimit,
    pub(crate) tenant: Tenant,
    /// By compounds of version 4.0.
    pub(crate) used_exports: UsedExports,
    /// Whether a refusal of this connection's calls was logged.
    pub(crate) is_refusal_logged: AtomicBool,
}

impl Connection {
    /// A connection that just opened, to a peer on another machine; see [`Self::owned_by`].
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
        let (tenant, used_exports) = (Tenant::default(), UsedExports::default());
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
            tenant,
            used_exports,
            is_refusal_logged,
        }
    }

    /// The same connection, with `owner` at its other end.
    #[must_use]
    pub fn owned_by(self, owner: PeerOwner) -> Self {
        Self { owner, ..self }
    }

    /// Whether any user of another machine may send from the peer's port.
    pub(crate) fn has_unprivileged_port(&self) -> bool {
        self.owner == PeerOwner::Remote && self.peer.port() >= FIRST_UNPRIVILEGED_PORT
    }

    /// Whether a superuser, here or on another machine, vouches for what the peer claims.
    pub(crate) fn is_superusers(&self) -> bool {
        match self.owner {
            PeerOwner::Remote => self.peer.port() < FIRST_UNPRIVILEGED_PORT,
            PeerOwner::Superuser => true,
            _ => false,
        }
    }

    /// Whether this is the connection's first refusal, which is to be logged.
    pub(crate) fn is_first_refusal(&self) -> bool {
        !self.is_refusal_logged.swap(true, Relaxed)
    }
}
