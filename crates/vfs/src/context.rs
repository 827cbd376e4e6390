use std::sync::Arc;

use crate::{GroupCommit, Peer, Thread, Timestamp};

/// Maximum number of supplementary groups of a caller. AUTH_SYS carries 16 (RFC 5531 Appendix A); a server that looks groups
/// up may find more, up to the limit of Linux.
pub const MAX_GROUPS: usize = 65_536;

/// The caller after squashing: determines permissions, and the owner of new objects.
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
    /// Returns root's credentials, without supplementary groups.
    #[must_use]
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Arc::from([]) }
    }

    /// Returns whether the caller is in `group`, primary or supplementary.
    #[must_use]
    pub fn is_in_group(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }

    /// Returns whether the caller is root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }
}

/// The context of a request, for every operation.
#[derive(Debug, Clone)]
pub struct Context {
    /// The caller.
    pub credentials: Arc<Credentials>,
    /// The time of day, for backends without a clock. Requests that came with one read of a connection have the same
    /// time; other requests mostly do not.
    pub now: Timestamp,
    /// The permitted uses of the calling thread.
    pub thread: Thread,
    /// The origin of the request.
    pub peer: Peer,
    /// Collects deferred changes, which the caller makes durable before it answers; `None` if an answer says that the
    /// change is durable.
    pub group: Option<Arc<GroupCommit>>,
}

impl Context {
    /// Creates a context for the server's own work, on a shared thread.
    #[must_use]
    pub fn new(credentials: Arc<Credentials>, now: Timestamp) -> Self {
        Self { credentials, now, thread: Thread::Shared, peer: Peer::default(), group: None }
    }
}
