//! Removal of an object that a failed operation created.

use vfs::{Attributes, Removal};

use super::object::File;
use super::recall::announce_change;
use crate::request::Request;
use crate::state::{Client, EntryChange};

/// Removes an object that a failed operation of `client` created. Best effort, and only while the name still leads to that object and
/// the object is as it was `created`: others may have found it meanwhile, opened it and written to it.
pub(crate) async fn undo_create(
    request: &Request<'_>,
    client: Option<&Client>,
    (directory, name): (&File<'_>, &[u8]),
    made: &File<'_>,
    created: &Attributes,
) {
    let (context, server) = (request.context(directory.export), request.server);
    let backend = &directory.export.backend;
    // Nothing is delegated from here on. A holder's changes may not have arrived yet.
    let _changing = (announce_change(request, &made.handle), announce_change(request, &directory.handle));
    let Ok(found) = backend.lookup(&context, &directory.handle, name).await else { return };
    let state = |attributes: &Attributes| (attributes.change, attributes.size);
    let is_untouched = found.handle == made.handle && state(&found.attributes) == state(created);
    if is_untouched && !server.state.is_file_held(made.key(server)) {
        let removed = backend.remove(&context, &directory.handle, name, Removal::Any).await;
        if let Ok(change) = removed {
            let (key, now) = (directory.key(server), request.now.monotonic);
            server.state.notify_entry_change(now, client, key, &change, &EntryChange::Removed { name });
        }
    }
}
