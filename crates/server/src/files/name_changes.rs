//! CREATE, REMOVE, RENAME and LINK, for versions 3 and 4: changes of the names in a directory. A holder of the directory's delegation
//! returns it before the change, or is notified after it. A holder of a delegation of the named file returns that.
//!
//! Each operation is announced first, so that no delegation is granted until it is done ([`Changer::announce`]). It waits for
//! recalls, is executed, and notifies ([`Announced::end`]). While no directory is delegated, this costs two additions and a check of a
//! counter; otherwise also a lookup of the directory's record.

use vfs::{Change, Context, Create, Created, Error, Handle, Linked, Removal, Renamed, SetAttributes};

use super::durable::wait_durable;
use super::named_object::{NamedObject, announce_name, is_absent};
use super::object::File;
use super::recall::{announce_change, recall_after_change, recall_conflicts};
use crate::Export;
use crate::files::rights::Right;
use crate::replay::crash_replay::{Directory, LoggedOps};
use crate::request::Request;
use crate::state::{ChangeGuard, Client, Conflict, EntryChange, EntryChangeKind};

/// The caller of a change, and the log through which it executes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Changer<'c> {
    pub(crate) request: &'c Request<'c>,
    /// `None` for callers of version 3.
    pub(crate) client: Option<&'c Client>,
    pub(crate) ops: LoggedOps<'c>,
}

/// The backend's result, or [`Error::Later`] if delegations were not returned in time.
type Changed<T> = Result<T, Error>;

/// An announced change of a directory. Call [`Self::end`] once it has begun. If it is dropped instead (the connection closed), it is
/// unknown whether the change was made.
#[must_use]
struct Announced<'c> {
    changer: Changer<'c>,
    place: Directory<'c>,
    /// Whether any client holds a delegation of the directory. No further one is granted meanwhile.
    is_watched: bool,
    /// The change is being made.
    is_under_way: bool,
    _changing: ChangeGuard<'c>,
}

impl<'c> Changer<'c> {
    /// Creates an object, as [`LoggedOps::create`].
    pub(crate) async fn create(
        self,
        place: Directory<'c>,
        name: &[u8],
        what: &Create,
        set: &SetAttributes,
    ) -> Changed<Created> {
        let mut announced = self.announce(place);
        // The directory does not change if the object exists.
        let is_there = announced.is_watched
            && Box::pin(exists(place.export, place.context, place.directory, name)).await;
        if !is_there {
            announced.recall_conflicts(EntryChangeKind::Add, Right::Entries(place.directory)).await?;
        }
        wait_durable(self.request).await;
        announced.begin();
        let created = self.ops.create(place, name, what, set).await;
        let made = created.as_ref().ok().filter(|created| created.is_new);
        let done = made.map(|made| (&made.directory, EntryChange::Added { name, replaced: false }));
        announced.end(created.as_ref().err(), done);
        if is_there && made.is_some() {
            // The object was removed just then.
            announced.recall_after_change(EntryChangeKind::Add).await;
        }
        created
    }

    /// Removes a name, as [`LoggedOps::remove`].
    pub(crate) async fn remove(self, place: Directory<'c>, name: &[u8], removal: Removal) -> Changed<Change> {
        // RFC 8881 §10.4.4: "REMOVE request for the file".
        let file = announce_name(self.request, place, name).await?;
        file.recall_conflicts(self.request, self.client, place).await?;
        let mut announced = self.announce(place);
        if file.may_be_there() {
            announced.recall_conflicts(EntryChangeKind::Remove, file.right(place.directory)).await?;
        }
        wait_durable(self.request).await;
        announced.begin();
        let removed = self.ops.remove(place, name, removal).await;
        let done = removed.as_ref().ok().map(|change| (change, EntryChange::Removed { name }));
        announced.end(removed.as_ref().err(), done);
        if removed.is_ok() && !file.may_be_there() {
            // The object was created just then.
            announced.recall_after_change(EntryChangeKind::Remove).await;
        }
        removed
    }

    /// Renames within one export, as [`LoggedOps::rename`].
    pub(crate) async fn rename(
        self,
        export: &'c Export,
        context: &'c Context,
        (from, old): (&'c Handle, &[u8]),
        (to, new): (&'c Handle, &[u8]),
    ) -> Changed<Renamed> {
        // RFC 8881 §10.4.4: "RENAME request for the file as either the source or target of the RENAME".
        let place = |directory| Directory { export, context, directory };
        let mut target = self.announce(place(to));
        let mut source = (from != to).then(|| self.announce(place(from)));
        // §20.4.3: "This notification is only sent if both entries are in the same directory."
        let kinds = if source.is_some() {
            (EntryChangeKind::Remove, EntryChangeKind::Add)
        } else {
            (EntryChangeKind::Rename, EntryChangeKind::Rename)
        };
        let first = source.as_ref().unwrap_or(&target);
        let old_file = announce_name(self.request, place(from), old).await?;
        let mut new_file = announce_name(self.request, place(to), new).await?;
        let is_held = |file: &NamedObject<'_>| file.is_held(self.request, self.client, export);
        let is_old_held = is_held(&old_file);
        let is_in_the_way =
            is_old_held || is_held(&new_file) || first.is_held(kinds.0) || target.is_held(kinds.1);
        if old_file.may_be_there() && is_in_the_way {
            // A caller who lacks one right causes no recall for the other.
            let rights = [old_file.right(from), new_file.right(to)];
            Box::pin(check_both(export, context, rights, from)).await?;
        }
        old_file.recall_conflicts(self.request, self.client, place(from)).await?;
        if is_old_held {
            // The wait may have been long: look up again.
            new_file = announce_name(self.request, place(to), new).await?;
        }
        new_file.recall_conflicts(self.request, self.client, place(to)).await?;
        if old_file.may_be_there() {
            // Within one directory both rights are the same.
            first.recall_conflicts(kinds.0, old_file.right(from)).await?;
            target.recall_conflicts(kinds.1, new_file.right(to)).await?;
        }
        wait_durable(self.request).await;
        let occupant = target.occupant(new).await;
        if let Some(source) = &mut source {
            source.begin();
        }
        target.begin();
        let renamed = self.ops.rename(export, context, (from, old), (to, new)).await;
        let (made, failed) = (renamed.as_ref().ok(), renamed.as_ref().err());
        let is_within = source.is_none();
        if let Some(source) = &mut source {
            source.end(failed, made.map(|made| (&made.from, EntryChange::Removed { name: old })));
        }
        let Some(made) = made else {
            target.end(failed, None);
            return renamed;
        };
        match occupant.map_or(Some(false), |occupant| occupant.at(made)) {
            // The content of a notification would be uncertain: drop the change without ending it.
            None => {}
            Some(replaced) if is_within => {
                target.end(None, Some((&made.to, EntryChange::Renamed { from: old, to: new, replaced })));
            }
            Some(replaced) => target.end(None, Some((&made.to, EntryChange::Added { name: new, replaced }))),
        }
        if !old_file.may_be_there() {
            // The object was created just then.
            if let Some(source) = &source {
                source.recall_after_change(kinds.0).await;
            }
            target.recall_after_change(kinds.1).await;
        }
        renamed
    }

    /// Adds a name to a file, as [`LoggedOps::link`].
    pub(crate) async fn link(self, place: Directory<'c>, file: &'c Handle, name: &[u8]) -> Changed<Linked> {
        // Another name changes the file's attributes.
        let _file = announce_change(self.request, file);
        let right = Right::Entries(place.directory);
        let object = (place.export, file);
        recall_conflicts(self.request, self.client, object, Conflict::Any, (place.context, right)).await?;
        let mut announced = self.announce(place);
        announced.recall_conflicts(EntryChangeKind::Add, right).await?;
        wait_durable(self.request).await;
        announced.begin();
        let linked = self.ops.link(place, file, name).await;
        let made = linked.as_ref().ok();
        let done = made.map(|made| (&made.directory, EntryChange::Added { name, replaced: false }));
        announced.end(linked.as_ref().err(), done);
        linked
    }

    /// Announces a change: from now on no delegation of the directory is granted.
    fn announce(self, place: Directory<'c>) -> Announced<'c> {
        let _changing = announce_change(self.request, place.directory);
        // In this order, either the announcement sees the delegation, or the grant sees the change.
        let server = self.request.server;
        let key = || File::new(place.export, *place.directory).key(server);
        let is_watched = server.state.has_delegations(Conflict::Directory(EntryChangeKind::Add))
            && server.state.is_directory_delegated(key());
        Announced { changer: self, place, is_watched, is_under_way: false, _changing }
    }
}

/// Whether the new name of a RENAME existed, looked up before it.
///
/// RFC 8881 §20.4.3 has the notification name the entry that is deleted "atomically with the addition". The backend does not report it. If
/// the directory did not change between lookup and RENAME, it is the entry that was found. Otherwise the holders must look it up.
struct Occupant {
    /// The directory's change attribute then; `None` if it or the entry could not be read.
    change: Option<u64>,
    is_there: bool,
}

impl Occupant {
    /// Returns whether the RENAME replaced it; `None` if unknown.
    fn at(&self, renamed: &Renamed) -> Option<bool> {
        (self.change == Some(renamed.to.before.change)).then_some(self.is_there)
    }
}

impl Announced<'_> {
    /// Returns whether any other holder of the directory does not take notifications of such a change.
    fn is_held(&self, change: EntryChangeKind) -> bool {
        let Changer { request, client, .. } = self.changer;
        let against = Conflict::Directory(change);
        self.is_watched
            && request.server.state.has_conflicting_delegation(
                client,
                self.file().key(request.server),
                against,
            )
    }

    /// Recalls the delegations whose holders do not take notifications of such a change, for which the caller needs `right`.
    async fn recall_conflicts(&self, change: EntryChangeKind, right: Right<'_>) -> Result<(), Error> {
        if !self.is_watched {
            return Ok(());
        }
        let Directory { export, context, directory } = self.place;
        let Changer { request, client, .. } = self.changer;
        recall_conflicts(request, client, (export, directory), Conflict::Directory(change), (context, right))
            .await
    }

    /// As [`recall_conflicts`](Self::recall_conflicts), after the change was made. Called after [`end`](Self::end), so that other
    /// holders are notified without waiting for the recall. Best effort: it gives up if too many of the connection's operations wait.
    async fn recall_after_change(&self, change: EntryChangeKind) {
        if self.is_watched {
            let (Changer { request, client, .. }, Directory { export, directory, .. }) =
                (self.changer, self.place);
            let _ =
                recall_after_change(request, client, (export, directory), Conflict::Directory(change)).await;
        }
    }

    /// Looks up a name in the directory; returns `None` if no holder must be notified.
    async fn occupant(&self, name: &[u8]) -> Option<Occupant> {
        if !self.is_watched {
            return None;
        }
        let Directory { export, context, directory } = self.place;
        // Before the lookup: if the name is created or removed after it, the directory has changed.
        let change =
            export.backend.getattr(context, directory).await.ok().map(|attributes| attributes.change);
        let found = export.backend.lookup(context, directory, name).await;
        // A failed lookup has no information about the name.
        let change = change.filter(|_| found.as_ref().err().is_none_or(|error| is_absent(*error)));
        Some(Occupant { change, is_there: found.is_ok() })
    }

    /// Marks the change as begun.
    fn begin(&mut self) {
        self.is_under_way = true;
    }

    /// Notifies of the change, if one was made. A change that failed on its way to the disk may have been made.
    fn end(&mut self, failed: Option<&Error>, done: Option<(&Change, EntryChange<'_>)>) {
        self.is_under_way =
            matches!(failed, Some(Error::Io | Error::ServerFault | Error::NoSpace | Error::Quota));
        if !self.is_watched {
            return;
        }
        let Changer { request, client, .. } = self.changer;
        if let Some((change, entries)) = done {
            let directory = self.file().key(request.server);
            request.server.state.notify_entry_change(
                request.now.monotonic,
                client,
                directory,
                change,
                &entries,
            );
        }
    }

    fn file(&self) -> File<'_> {
        File::new(self.place.export, *self.place.directory)
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        if self.is_watched && self.is_under_way {
            let request = self.changer.request;
            request.server.state.recall_directory(request.now.monotonic, self.file().key(request.server));
        }
    }
}

async fn exists(export: &Export, context: &Context, directory: &Handle, name: &[u8]) -> bool {
    export.backend.lookup(context, directory, name).await.is_ok()
}

/// Checks both rights, on the directories that they name.
async fn check_both(
    export: &Export,
    context: &Context,
    rights: [Right<'_>; 2],
    directory: &Handle,
) -> Result<(), Error> {
    for right in rights {
        right.check(export, context, directory).await?;
    }
    Ok(())
}
