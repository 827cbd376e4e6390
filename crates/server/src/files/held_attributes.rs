//! Attributes that the holder of a write delegation keeps.

use std::sync::Arc;

use vfs::{Authority, Change, Context, Credentials, Error, Handle, SetAttributes, SetTime};

use super::object::File;
use super::recall::{announce_change, recall_held, wait_for};
use super::rights::Right;
use crate::Export;
use crate::request::Request;
use crate::state::{Client, Conflict, HeldAttributes, HolderQuery};

/// Asks the holder of a write delegation for the attributes that it keeps, before the file's attributes are sent to `client`. Returns
/// the attributes that differ from the backend, and the change attribute that belongs to them. Take the other attributes from [`Backend::getattr`](vfs::Backend::getattr) after this, and combine
/// both by [`State::apply_held_attributes`](crate::state::State::apply_held_attributes).
///
/// # Errors
/// As [`recall_conflicts`](super::recall::recall_conflicts): a holder that does not answer loses its delegation first. Those of
/// [`Backend::getattr`](vfs::Backend::getattr).
pub(crate) async fn ask_holder(
    request: &Request<'_>,
    client: Option<&Client>,
    (export, handle): (&Export, &Handle),
) -> Result<Option<HeldAttributes>, Error> {
    if !request.server.state.has_delegations(Conflict::Write) {
        return Ok(None);
    }
    Box::pin(ask(request, client, (export, handle))).await
}

async fn ask(
    request: &Request<'_>,
    client: Option<&Client>,
    (export, handle): (&Export, &Handle),
) -> Result<Option<HeldAttributes>, Error> {
    let (state, now) = (&request.server.state, request.now);
    let file = File::new(export, *handle).key(request.server);
    if !state.has_conflicting_delegation(client, file, Conflict::Write) {
        return Ok(None);
    }
    let context = request.context(export);
    let change = export.backend.getattr(&context, handle).await?.change;
    let deadline = state.getattr_deadline(now.monotonic);
    let mut number = None;
    loop {
        let waiter = match state.query_holder(now, deadline, client, (file, change), number) {
            HolderQuery::NoHolder => return Ok(None),
            HolderQuery::Answered(mut held) => {
                if held.is_changed {
                    // No delegation is granted with the old attributes. A holder that just returned it has set the times.
                    let _changing = announce_change(request, handle);
                    if state.is_still_delegated(&held) {
                        show_change(request, (export, handle), &mut held).await;
                    }
                }
                return Ok(Some(held));
            }
            HolderQuery::Refused => break,
            HolderQuery::Pending(asked, waiter) => {
                number = Some(asked);
                waiter
            }
        };
        if !wait_for(request, file, waiter).await {
            break;
        }
    }
    // Every caller may read attributes.
    recall_held(request, client, (export, handle), Conflict::Write, (&context, Right::Given))
        .await
        .map(|()| None)
}

/// Gives the file a new change attribute, which is shown with the holder's answer. If that fails, the size still shows that something has
/// changed.
async fn show_change(request: &Request<'_>, object: (&Export, &Handle), held: &mut HeldAttributes) {
    let Ok(shown) = touch(request, object).await else { return };
    // If the holder has sent changes since it was asked, the answer may lack them. The file then has the new change attribute with
    // them: it gets another one, so that this one belongs to the answer alone. To ask again instead might never end while the
    // holder writes.
    let is_answer_complete = shown.atomic && shown.before.change == held.change;
    if is_answer_complete || touch(request, object).await.is_ok() {
        request.server.state.change_shown(held, shown.after.change);
    }
}

/// Advances the file's times and change attribute, as the holder's changes do. RFC 8881 §10.4.3 has the server invent a change
/// attribute that no later state of the file may have. Like Linux's server, this one gives the file itself the next value.
async fn touch(request: &Request<'_>, (export, handle): (&Export, &Handle)) -> Result<Change, Error> {
    let set = SetAttributes { modified: Some(SetTime::Now), ..SetAttributes::default() };
    let root = Context::new(Arc::new(Credentials::root()), request.now.wall);
    let context = Context { peer: request.peer(), ..root };
    export.backend.setattr(&context, handle, &set, None, Authority::Opened).await
}
