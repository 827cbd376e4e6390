//! Changes of a directory's entries without a future: where nobody has to be asked or told, and no log is waited for.
//!
//! What the backend has begun and not answered can be awaited, and is not to be asked again. Nobody comes to have anything of it
//! delegated meanwhile.

use vfs::{Change, Context, Create, Created, Op, Removal, SetAttributes};

use crate::files::object::{File, Object};
use crate::files::settle::changing;
use crate::programs::nfs4::compound::Compound;
use crate::replay::crash_replay::Once;
use crate::state::{Against, Changing, EntryChange};

/// Whether a change of the current directory is worth a try: asked before anything is decoded for it.
pub(crate) fn is_worth_a_try(compound: &Compound<'_>) -> bool {
    let Ok(Object::File(directory)) = compound.current() else { return false };
    let waits = || compound.state().has_delegations(Against::Entries(EntryChange::Add));
    let journal = compound.server().journal.as_ref();
    journal.is_none_or(|journal| journal.is_immediate(directory.export)) && !waits()
}

/// As [`Changer::create`](super::Changer::create); nothing, and nothing done, where somebody may have to be waited for first.
pub(crate) fn create<'r>(
    once: Once<'r>,
    (directory, context): (&File<'r>, &Context),
    name: &[u8],
    what: (&Create, &SetAttributes),
) -> Option<Op<'r, Created>> {
    let announced = announce(once, directory)?;
    let created = once.create_at_once(directory.export, (context, &directory.handle), name, what);
    Some(until_answered(created, announced))
}

/// As [`Changer::remove`](super::Changer::remove); nothing, and nothing done, where somebody may have to be waited for first.
pub(crate) fn remove<'r>(
    once: Once<'r>,
    (directory, context): (&File<'r>, &Context),
    name: &[u8],
    removal: Removal,
) -> Option<Op<'r, Change>> {
    // What the name leads to was never delegated, and will not be.
    let file = once.request().server.nfs4.changing_unnamed()?;
    let announced = announce(once, directory)?;
    let removed = once.remove_at_once(directory.export, (context, &directory.handle), name, removal);
    Some(until_answered(removed, (file, announced)))
}

/// Announces a change of a directory that nobody has delegated.
fn announce<'r>(once: Once<'r>, directory: &File<'r>) -> Option<Changing<'r>> {
    if !once.is_immediate(directory.export) {
        return None;
    }
    let changing = changing(once.request(), &directory.handle);
    // Behind the announcement: either this sees a delegation, or its grant sees the change.
    let state = &once.request().server.nfs4;
    let is_watched = state.has_delegations(Against::Entries(EntryChange::Add));
    (!is_watched && state.unsettled(None).is_none()).then_some(changing)
}

/// Keeps what was announced until the backend has answered.
fn until_answered<'r, T: Send + 'r>(change: Op<'r, T>, announced: impl Send + 'r) -> Op<'r, T> {
    match change {
        Op::Ready(_) => change,
        Op::Pending(later) => Op::pending(async move {
            let done = later.await;
            drop(announced);
            done
        }),
    }
}
