//! How operations of versions 2 and 3 respect clients of version 4: their callers have no opens, locks or delegations of their own.

use vfs::{Attributes, Error, FileKind};

use super::held_attributes::ask_holder;
use super::name_changes::Changer;
use super::object::File;
use super::recall;
use super::recall::announce_change;
use super::rights::Right;
use crate::request::{Request, Target};
use crate::state::{ChangeGuard, Conflict, IoKind};

/// Why an operation cannot run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// An open of a client of version 4 denies it to others.
    Denied,
    /// [`Error::Later`] if a delegation was not returned in time; the operation's own error if the caller may not do it.
    Failed(Error),
}

/// Checks that no open of an NFSv4 client denies the I/O. An open can specify "the type of access to deny others" (RFC 8881 §9.7).
pub(crate) fn check_denials(request: &Request<'_>, target: &Target<'_>, kind: IoKind) -> Result<(), Refusal> {
    let state = &request.server.state;
    if !state.has_share_denies() {
        return Ok(());
    }
    let key = File::new(target.export, target.handle).key(request.server);
    state.check_stateless_io(request.now.monotonic, key, kind).map_err(|_| Refusal::Denied)
}

/// Recalls the delegations of NFSv4 clients that conflict with an operation on a file, for which the caller needs `right`.
pub(crate) async fn recall_conflicts(
    request: &Request<'_>,
    target: &Target<'_>,
    against: Conflict,
    right: Right<'_>,
) -> Result<(), Error> {
    let object = (target.export, &target.handle);
    recall::recall_conflicts(request, None, object, against, (&target.context, right)).await
}

/// As [`recall_conflicts`], for I/O, which opens may deny ([`check_denials`]): the present ones, and those that a client makes when it
/// returns its delegation.
pub(crate) async fn admit_io(
    request: &Request<'_>,
    target: &Target<'_>,
    kind: IoKind,
) -> Result<(), Refusal> {
    check_denials(request, target, kind)?;
    let recalled = recall_conflicts(request, target, Conflict::io(kind), Right::Content(kind)).await;
    recalled.map_err(Refusal::Failed)?;
    check_denials(request, target, kind)
}

/// As [`admit_io`], before the file of this name, if there is one, is truncated.
pub(crate) async fn admit_truncation<'s>(
    request: &Request<'s>,
    directory: &Target<'_>,
    name: &[u8],
) -> Result<Option<ChangeGuard<'s>>, Refusal> {
    let state = &request.server.state;
    let unnamed = state.begin_unnamed_change();
    if unnamed.is_some() && !state.has_share_denies() {
        return Ok(unnamed);
    }
    let backend = &directory.export.backend;
    match backend.lookup(&directory.context, &directory.handle, name).await {
        Ok(found) if found.attributes.kind == FileKind::Regular => {
            let changing = announce_change(request, &found.handle);
            let context = directory.context.clone();
            let file = Target { export: directory.export, handle: found.handle, context };
            admit_io(request, &file, IoKind::Write).await?;
            Ok(Some(changing))
        }
        // The operation itself determines the error.
        _ => Ok(None),
    }
}

/// Returns the caller of a change of names, which is not a client of version 4.
pub(crate) fn changer<'c>(request: &'c Request<'c>) -> Changer<'c> {
    Changer { request, client: None, ops: request.logged_ops() }
}

/// Returns a file's attributes, with those that the holder of a write delegation keeps.
///
/// # Errors
/// [`Error::Later`] if the holder neither answers nor returns the delegation in time. Those of
/// [`Backend::getattr`](vfs::Backend::getattr).
pub(crate) async fn attributes(request: &Request<'_>, target: &Target<'_>) -> Result<Attributes, Error> {
    let held = ask_holder(request, None, (target.export, &target.handle)).await?;
    let backend = &target.export.backend;
    let mut seen = backend.getattr(&target.context, &target.handle).await;
    if let Ok(attributes) = &mut seen
        && !request.server.state.apply_held_attributes(held, attributes)
    {
        seen = backend.getattr(&target.context, &target.handle).await;
    }
    seen
}
