//! Changes of a directory's entries without a future: where nobody has to be asked or told, and no log is waited for.

use vfs::{Change, Context, Create, Created, Removal, SetAttributes};

use super::Changed;
use crate::nfs4::object::File;
use crate::nfs4::settle::changing;
use crate::nfs4::state::{Against, Changing, EntryChange};
use crate::once::{self, AtOnce, Once};

/// A change that its backend has not answered yet. Nobody comes to have anything of it delegated meanwhile.
pub(crate) struct Underway<'r, T> {
    change: once::Underway<'r, T>,
    _changing: [Option<Changing<'r>>; 2],
}

impl<T> Underway<'_, T> {
    /// Waits for the outcome.
    pub(crate) async fn outcome(self) -> Changed<T> {
        self.change.outcome().await
    }
}

/// As [`Changer::create`](super::Changer::create); nothing, and nothing done, where somebody may have to be waited for first.
pub(crate) fn create<'r>(
    once: Once<'r>,
    (directory, context): (&File<'r>, &Context),
    name: &[u8],
    what: (&Create, &SetAttributes),
) -> Option<AtOnce<Created, Underway<'r, Created>>> {
    let _changing = [Some(announce(once, directory)?), None];
    let created = once.create_at_once(directory.export, (context, &directory.handle), name, what);
    Some(created.map_err(|change| Underway { change, _changing }))
}

/// As [`Changer::remove`](super::Changer::remove); nothing, and nothing done, where somebody may have to be waited for first.
pub(crate) fn remove<'r>(
    once: Once<'r>,
    (directory, context): (&File<'r>, &Context),
    name: &[u8],
    removal: Removal,
) -> Option<AtOnce<Change, Underway<'r, Change>>> {
    // What the name leads to was never delegated, and will not be.
    let file = Some(once.request().server.nfs4.changing_unnamed()?);
    let _changing = [Some(announce(once, directory)?), file];
    let removed = once.remove_at_once(directory.export, (context, &directory.handle), name, removal);
    Some(removed.map_err(|change| Underway { change, _changing }))
}

/// Announces a change of a directory that nobody has delegated.
fn announce<'r>(once: Once<'r>, directory: &File<'r>) -> Option<Changing<'r>> {
    if !once.is_immediate(directory.export) {
        return None;
    }
    let changing = changing(once.request(), &directory.handle);
    // Behind the announcement: either this sees a delegation, or its grant sees the change.
    let is_watched = once.request().server.nfs4.has_delegations(Against::Entries(EntryChange::Add));
    (!is_watched).then_some(changing)
}
