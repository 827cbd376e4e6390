use core::net::IpAddr;
use std::sync::Arc;

use crate::Timestamp;

/// Supplementary groups a caller may have. AUTH_SYS carries 16 (RFC 5531 Appendix A); a server that looks groups up by
/// itself may find more, up to what Linux allows a process.
pub const MAX_GROUPS: usize = 65_536;

/// Who asks, after squashing: what access is judged by, and who owns what is created.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary group ids, at most [`MAX_GROUPS`].
    pub groups: Arc<[u32]>,
}

impl Credentials {
    /// The superuser, without supplementary groups.
    #[must_use]
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Arc::from([]) }
    }

    /// Whether the caller is in `group`, primary or supplementary.
    #[must_use]
    pub fn is_in_group(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }

    /// Whether the caller is the superuser.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }
}

/// Whom the thread that calls a backend serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thread {
    /// Others too: it must not be made to wait.
    #[default]
    Shared,
    /// Only the caller, as far as is known: it may be made to wait for a little, where to hand over to another thread and back
    /// would take the caller longer.
    Exclusive,
}

/// Where a request comes from, for backends that share their threads among clients. It gives no rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Peer {
    /// The address of the client; `None` for work of the server itself.
    pub address: Option<IpAddr>,
    /// The number of its connection.
    pub connection: u64,
}

/// What every operation is told of its request.
#[derive(Debug, Clone)]
pub struct Context {
    /// Who asks.
    pub credentials: Arc<Credentials>,
    /// The time of day, for backends without a clock of their own. Requests that came with one read of a connection have the
    /// same, and others mostly do not.
    pub now: Timestamp,
    /// What the calling thread may be used for.
    pub thread: Thread,
    /// Where the request comes from.
    pub peer: Peer,
}

impl Context {
    /// Of a caller whose thread serves others too, for work of the server itself.
    #[must_use]
    pub fn new(credentials: Arc<Credentials>, now: Timestamp) -> Self {
        Self { credentials, now, thread: Thread::Shared, peer: Peer::default() }
    }
}
