//! Recall of delegations that conflict with an operation. The operation waits here until they are returned.
//!
//! RFC 8881 §10.4.4 lets a server answer DELAY at once. A client then sleeps for a fixed time, even if the delegation is returned
//! sooner: the paper of 2015 (§5.3) lost a hundred seconds on a thousand files. So the operation waits in the server, as it waits for
//! the disk, and is answered DELAY (JUKEBOX in version 3) only when that takes too long.
//!
//! An operation that changes a file announces that first ([`announce_change`]), so that no delegation is granted until it is done.
//! While no delegation is held at all, this costs two additions and a check of a counter.

use std::sync::Arc;
use std::time::Duration;

use protocol::nfs4::types::Status;
use vfs::{Context, Error, Handle, Thread};

use super::durable::wait_durable;
use super::object::File;
use super::rights::Right;
use crate::request::Request;
use crate::shared::Shared;
use crate::state::{ChangeGuard, Client, Conflict, DelegationWaiter, FileKey, State};
use crate::{Export, Transport};

/// Operations of one connection that may wait for delegations. Fewer than the calls that may wait there, so that the server always
/// reads the requests that return delegations: DELEGRETURN, or the reply to a recall, perhaps over the same connection.
const WAITING_MAX: u32 = 48;

/// An operation's waiter. Dropping it removes the waiter, also when the call is dropped.
struct Waiting<'s> {
    state: &'s State,
    file: FileKey,
    waiter: Arc<DelegationWaiter>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.state.forget_waiter(self.file, &self.waiter);
    }
}

/// Announces a change of a file; see [`State::begin_change`].
pub(crate) fn announce_change<'s>(request: &Request<'s>, handle: &Handle) -> ChangeGuard<'s> {
    request.server.state.begin_change(handle)
}

/// Recalls the delegations of others than `client` that conflict with an operation on an object, and waits until they are returned.
/// Recalls nothing if the caller in `context` lacks the right for the operation.
///
/// # Errors
/// [`Error::Later`] if that takes too long, or too many of the connection's operations wait. The operation's own error if the caller
/// may not do it; that is checked only if a delegation conflicts.
pub(crate) async fn recall_conflicts(
    request: &Request<'_>,
    client: Option<&Client>,
    object: (&Export, &Handle),
    against: Conflict,
    need: (&Context, Right<'_>),
) -> Result<(), Error> {
    if request.server.state.has_delegations(against) {
        // Boxed: the futures of READ and WRITE stay small.
        Box::pin(recall_held(request, client, object, against, need)).await?;
    }
    if against.is_by_change() {
        wait_durable(request).await;
    }
    Ok(())
}

/// Recalls like [`recall_conflicts`], after a change that was already made and can no longer be refused. A delegation that is not
/// returned is revoked. That may take longer than the lease of a version 4.0 client whose operation waits here: the client sends
/// RENEW meanwhile, and otherwise keeps its state until another client needs it.
///
/// # Errors
/// [`Error::Later`] if too many of the connection's operations wait.
pub(crate) async fn recall_after_change(
    request: &Request<'_>,
    client: Option<&Client>,
    (export, handle): (&Export, &Handle),
    against: Conflict,
) -> Result<(), Error> {
    let file = File::new(export, *handle).key(request.server);
    let deadline = request.server.state.revocation_deadline(request.now.monotonic);
    Box::pin(recall_until(deadline, request, client, file, against)).await
}

/// Runs the slow part of [`recall_conflicts`].
pub(super) async fn recall_held(
    request: &Request<'_>,
    client: Option<&Client>,
    (export, handle): (&Export, &Handle),
    against: Conflict,
    (context, right): (&Context, Right<'_>),
) -> Result<(), Error> {
    let (state, now) = (&request.server.state, request.now.monotonic);
    let file = File::new(export, *handle).key(request.server);
    if !state.has_conflicting_delegation(client, file, against) {
        return Ok(());
    }
    right.check(export, context, handle).await?;
    recall_until(state.recall_wait_deadline(now), request, client, file, against).await
}

async fn recall_until(
    deadline: Duration,
    request: &Request<'_>,
    client: Option<&Client>,
    file: FileKey,
    against: Conflict,
) -> Result<(), Error> {
    let (state, now) = (&request.server.state, request.now.monotonic);
    loop {
        let Some(waiter) = state.recall_conflicting(now, deadline, client, file, against) else {
            return Ok(());
        };
        if !wait_for(request, file, waiter).await {
            return Err(Error::Later);
        }
    }
}

/// Recalls like [`recall_conflicts`], for work without a call. Such work counts in no connection's limit of waiting operations.
///
/// # Errors
/// DELAY if that takes too long.
pub(crate) async fn recall_in_background(
    (server, now): (&Shared, Duration),
    client: &Client,
    file: FileKey,
    against: Conflict,
) -> Result<(), Status> {
    let state = &server.state;
    let deadline = state.recall_wait_deadline(now);
    while state.has_delegations(against)
        && let Some(waiter) = state.recall_conflicting(now, deadline, Some(client), file, against)
    {
        let waiting = Waiting { state, file, waiter };
        if !(&*waiting.waiter).await {
            return Err(Status::DELAY);
        }
    }
    if against.is_by_change() {
        server.wait_durable(Thread::Shared).await;
    }
    Ok(())
}

/// Waits. Returns false if that took too long, or too many operations of the connection wait.
pub(super) async fn wait_for(request: &Request<'_>, file: FileKey, waiter: Arc<DelegationWaiter>) -> bool {
    let waiting = Waiting { state: &request.server.state, file, waiter };
    // The sender of a datagram repeats it by itself, and would then wait twice.
    let is_stream = request.connection.transport == Transport::Tcp;
    let permit = is_stream.then(|| request.connection.recall_waits.enter(WAITING_MAX)).flatten();
    permit.is_some() && (&*waiting.waiter).await
}
