//! What local processes do to what is delegated: watched from before the grant on, recalled behind it, and shown to the holder when it
//! has given the delegation back.

use std::sync::Arc;

use protocol::nfs4::attributes::number;
use protocol::nfs4::types::{Bitmap, ClientId};
use vfs::{Alarm, Attributes, Entry, Interest};

use super::object::File;
use crate::listing_cache::Holder;
use crate::programs::nfs4::compound::Compound;
use crate::state::{Client, DelegationKind, Lookout, NotDelegated};

/// Watches what may be delegated to `client`, where that is wanted and nothing speaks against the delegation; nothing where changes by
/// others cannot be seen, or nobody wants to see them. What is told of the object beside the delegation is to be looked at behind this.
///
/// # Errors
/// Why nothing is delegated.
pub(crate) async fn watch(
    compound: &Compound<'_>,
    client: &Arc<Client>,
    file: &File<'_>,
    (kind, reclaim): (DelegationKind, bool),
) -> Result<Option<Lookout>, NotDelegated> {
    let key = file.key(compound.server());
    if !file.export.options.recall_local_changes {
        return Ok(None);
    }
    let state = compound.state();
    // A watch takes system calls: not for what will not be delegated anyway.
    state.would_delegate(compound.now(), client, key, kind, reclaim)?;
    // Whoever may write keeps back what others would read.
    let interest = if kind.is_write() { Interest::Uses } else { Interest::Changes };
    let bell = state.bell(client, key);
    let alarm: Arc<dyn Alarm> = bell.clone();
    let context = compound.context(file.export);
    let watch = file.export.backend.watch(&context, &file.handle, interest, &alarm).await;
    // As many as may be, or the object is gone: what could not be recalled is not delegated.
    let watch = watch.map_err(|_| NotDelegated::Resource)?;
    Ok(watch.map(|watch| Lookout::new(bell, watch)))
}

/// Looks again at what is watched by now, for what was done between the look before and the watch.
///
/// # Errors
/// Why nothing is delegated: somebody changes it. What is reclaimed is delegated all the same.
pub(crate) async fn look_again(
    compound: &Compound<'_>,
    file: &File<'_>,
    before: &Attributes,
    reclaim: bool,
) -> Result<Attributes, NotDelegated> {
    let context = compound.context(file.export);
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

impl Compound<'_> {
    /// Where the caller has a file delegated, the change attribute of the grant may be what it is told in place of the present one.
    pub(crate) fn change_of_grant(&self, file: &File<'_>, mask: Bitmap) -> Option<u64> {
        let client = self.who().filter(|client| self.may_hide_changes_from(client, mask))?;
        self.state().change_of_grant(client, file.key(self.server()))
    }

    /// The caller, where that may be so of any file.
    pub(crate) fn holder(&self, mask: Bitmap) -> Option<Holder> {
        let client = self.who().filter(|client| self.may_hide_changes_from(client, mask))?;
        Some(Holder { client: client.id(), last_grant: client.last_grant() })
    }

    fn may_hide_changes_from(&self, client: &Client, mask: Bitmap) -> bool {
        mask.has(number::CHANGE) && self.state().may_hide_changes(client)
    }

    /// Puts it over what a listing has met in `directory`; whether it is another.
    pub(crate) fn hide_changes_of_entry(
        &self,
        directory: File<'_>,
        mask: Bitmap,
        entry: &mut Entry<'_>,
    ) -> bool {
        let Some((handle, attributes)) = &mut entry.object else { return false };
        let Some(change) = self.change_of_grant(&directory.with(*handle), mask) else { return false };
        std::mem::replace(&mut attributes.change, change) != change
    }

    /// Tells of all clients that may be told of another change attribute than what a listing has met in `directory` has.
    pub(crate) fn told_otherwise(
        &self,
        directory: File<'_>,
        mask: Bitmap,
        entry: &Entry<'_>,
        tell: impl FnMut(ClientId),
    ) {
        if let Some((handle, attributes)) = &entry.object
            && mask.has(number::CHANGE)
            && self.state().is_anything_watched()
        {
            let file = directory.with(*handle).key(self.server());
            self.state().told_otherwise(file, attributes.change, tell);
        }
    }
}
