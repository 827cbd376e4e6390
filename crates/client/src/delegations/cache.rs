//! What delegations ask of the caches of data under them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use protocol::nfs4::types::Handle;

use crate::attributes::{Changed, Timestamp};
use crate::error::OpError;

/// What a cache has of a file under a delegation for writing, for CB_GETATTR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cached {
    /// The size that programs see.
    pub(crate) size: u64,
    /// Whether there are data that the server does not have.
    pub(crate) is_modified: bool,
    /// The time of the last access.
    pub(crate) accessed: Timestamp,
    /// The time of the last change.
    pub(crate) modified: Timestamp,
}

/// A future of a cache's work.
pub(crate) type CacheWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tells a cache the outcome of a request that changes a file.
pub(crate) type ChangeEnd = Box<dyn FnOnce(Result<Changed, OpError>) + Send>;

/// A cache of data under delegations: a mount.
pub(crate) trait DelegatedCache: Send + Sync {
    /// Writes a file's data back, and waits until they are stable or have failed. The delegation is being returned, or lost.
    fn write_back(self: Arc<Self>, handle: Handle) -> CacheWork;

    /// Closes opens of a file that programs have closed, after [`Self::write_back`].
    fn close_unused(self: Arc<Self>, handle: Handle) -> CacheWork;

    /// Decides about a file's data after its delegation was revoked: if another client may have changed the file, they are
    /// dropped, and the file's users get EIO (RFC 8881 §10.5).
    fn check_revoked(self: Arc<Self>, handle: Handle) -> Pin<Box<dyn Future<Output = Verdict> + Send>>;

    /// Drops the data of a file that are not stable: a lock is lost under which they may have been written. The file's users get EIO.
    fn lock_lost(self: Arc<Self>, handle: &Handle);

    /// Waits until no WRITE of a file is under way, after [`Verdict::Discard`].
    fn writes_ended(self: Arc<Self>, handle: Handle) -> CacheWork;

    /// Notes that a request that changes a file is sent now; `None` if the cache has nothing of the file.
    fn start_change(self: Arc<Self>, handle: &Handle) -> Option<ChangeEnd>;

    /// Notes that the delegation of a file or directory has ended: others may change it.
    fn ended(&self, handle: &Handle);

    /// Notes that names of a directory were changed by a request of this client. The server does not recall the delegation, and the
    /// request may not be the cache's.
    fn names_changed(&self, directory: &Handle);

    /// Returns what the cache has of a file; `None` if nothing.
    fn cached(&self, handle: &Handle) -> Option<Cached>;
}

/// Whether data that were written under a delegation may be written back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No other client can have changed the file.
    Write,
    /// It is not decided yet: the delegation was revoked.
    Awaited,
    /// Other clients may have changed the file.
    Discard,
}

impl std::fmt::Debug for dyn DelegatedCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DelegatedCache")
    }
}
