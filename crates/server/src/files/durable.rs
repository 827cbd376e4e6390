//! Waits for revocations to be durable.

use vfs::Thread;

use crate::request::Request;
use crate::shared::Shared;

/// Waits until revocations are durable. Usually a no-op.
///
/// A caller may make a change because a client lost an open, a lock or a delegation. If a crash undid the revocation but not the
/// change, the client would reclaim the state that had prevented the change (RFC 8881 §8.4.3).
pub(crate) async fn wait_durable(request: &Request<'_>) {
    request.server.wait_durable(request.thread()).await;
}

impl Shared {
    /// Waits like the function of that name; `thread` has the permitted uses of the calling thread.
    pub(crate) async fn wait_durable(&self, thread: Thread) {
        if let Some(change) = self.state.pending_change(None) {
            // It never fails: see [`StateLog`](crate::StateLog).
            let _ = self.state.wait_durable(change, thread).await;
        }
    }
}
