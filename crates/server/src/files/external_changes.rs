//! Changes that local processes make to delegated objects. The watch begins before the grant; a change recalls the delegation.

use std::sync::Arc;

use vfs::{Attributes, ChangeListener, Interest};

use super::object::File;
use crate::request::Request;
use crate::state::{Client, DelegationKind, DelegationWatch, NotDelegated};

/// Watches an object that may be delegated to `client`. Returns no watch if the backend cannot see changes by others, or the export disables
/// this. Read the attributes for the reply after this call.
///
/// # Errors
/// The reason why nothing is delegated.
pub(crate) async fn watch(
    request: &Request<'_>,
    client: &Arc<Client>,
    file: &File<'_>,
    (kind, reclaim): (DelegationKind, bool),
) -> Result<Option<DelegationWatch>, NotDelegated> {
    let key = file.key(request.server);
    if !file.export.options.recall_local_changes {
        return Ok(None);
    }
    let state = &request.server.state;
    // A watch costs system calls: check first whether a delegation is possible.
    state.can_grant_delegation(request.now.monotonic, client, key, kind, reclaim)?;
    // A holder that may write keeps data that others would read.
    let interest = if kind.is_write() { Interest::Uses } else { Interest::Changes };
    let notifier = state.change_notifier(client, key);
    let listener: Arc<dyn ChangeListener> = notifier.clone();
    let context = request.context(file.export);
    let watch = file.export.backend.watch(&context, &file.handle, interest, &listener).await;
    // Too many watches, or the object is gone. A delegation that could not be recalled is not granted.
    let watch = watch.map_err(|_| NotDelegated::Resource)?;
    Ok(watch.map(|watch| DelegationWatch::new(notifier, watch)))
}

/// Reads the attributes again after the watch began, to see changes made since they were read before.
///
/// # Errors
/// Why nothing is delegated: another user changes the object. A reclaim is granted anyway.
pub(crate) async fn look_again(
    request: &Request<'_>,
    file: &File<'_>,
    before: &Attributes,
    reclaim: bool,
) -> Result<Attributes, NotDelegated> {
    let context = request.context(file.export);
    let looked = file.export.backend.getattr(&context, &file.handle).await;
    let now = looked.map_err(|_| NotDelegated::Resource)?;
    if reclaim || is_same(before, &now) { Ok(now) } else { Err(NotDelegated::Contention) }
}

/// Returns whether an object is unchanged between two reads. With coarse kernel timestamps the change attribute of the current tick moves by
/// itself (see `localfs`); the client gets the later one.
pub(crate) fn is_same(before: &Attributes, now: &Attributes) -> bool {
    let of_content = |attributes: &Attributes| (attributes.changed, attributes.modified, attributes.size);
    before.change == now.change || of_content(before) == of_content(now)
}
