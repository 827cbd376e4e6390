//! What local processes do to what is delegated: watched from before the grant on, recalled behind it, and shown to the holder when it
//! has given the delegation back.

use std::sync::Arc;

use vfs::{Attributes, ChangeListener, Interest};

use super::object::File;
use crate::request::Request;
use crate::state::{Client, DelegationKind, DelegationWatch, NotDelegated};

/// Watches what may be delegated to `client`, where that is wanted and nothing speaks against the delegation; nothing where changes by
/// others cannot be seen, or nobody wants to see them. What is told of the object beside the delegation is to be looked at behind this.
///
/// # Errors
/// Why nothing is delegated.
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
    // A watch takes system calls: not for what will not be delegated anyway.
    state.can_grant_delegation(request.now.monotonic, client, key, kind, reclaim)?;
    // Whoever may write keeps back what others would read.
    let interest = if kind.is_write() { Interest::Uses } else { Interest::Changes };
    let notifier = state.change_notifier(client, key);
    let listener: Arc<dyn ChangeListener> = notifier.clone();
    let context = request.context(file.export);
    let watch = file.export.backend.watch(&context, &file.handle, interest, &listener).await;
    // As many as may be, or the object is gone: what could not be recalled is not delegated.
    let watch = watch.map_err(|_| NotDelegated::Resource)?;
    Ok(watch.map(|watch| DelegationWatch::new(notifier, watch)))
}

/// Looks again at what is watched by now, for what was done between the look before and the watch.
///
/// # Errors
/// Why nothing is delegated: somebody changes it. What is reclaimed is delegated all the same.
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

/// Whether nobody has changed an object between two looks. Where the kernel's timestamps are coarse a change attribute of the current tick moves by
/// itself (see `localfs`), and the client is told the later one.
pub(crate) fn is_same(before: &Attributes, now: &Attributes) -> bool {
    let of_content = |attributes: &Attributes| (attributes.changed, attributes.modified, attributes.size);
    before.change == now.change || of_content(before) == of_content(now)
}
