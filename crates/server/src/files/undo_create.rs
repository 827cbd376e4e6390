//! What a failed operation made, removed again.

use vfs::{Attributes, Removal};

use super::object::File;
use crate::programs::nfs4::compound::Compound;
use crate::state::Entries;

/// Removes an object that this compound made. Best effort, and only while the name is still that object's, and the object as
/// it was `created`: others may have found it meanwhile, opened it and written to it.
pub(crate) async fn take_back(
    compound: &Compound<'_>,
    (directory, name): (&File<'_>, &[u8]),
    made: &File<'_>,
    created: &Attributes,
) {
    let context = compound.context(directory.export);
    let backend = &directory.export.backend;
    // Nothing is delegated from here on; and what a holder has changed may not have come here yet.
    let _changing = (compound.changing(made), compound.changing(directory));
    let Ok(found) = backend.lookup(&context, &directory.handle, name).await else { return };
    let state = |attributes: &Attributes| (attributes.change, attributes.size);
    let is_untouched = found.handle == made.handle && state(&found.attributes) == state(created);
    if is_untouched && !compound.state().is_file_held(made.key(compound.server())) {
        let removed = backend.remove(&context, &directory.handle, name, Removal::Any).await;
        if let Ok(change) = removed {
            let key = directory.key(compound.server());
            let (state, now, who) = (compound.state(), compound.now(), compound.who());
            state.entries_changed(now, who, key, &change, &Entries::Removed { name });
        }
    }
}
