//! Conflicts with delegations, as seen by the operations of a compound; and the attributes that holders see or keep.

use protocol::nfs4::attributes::number;
use protocol::nfs4::types::{Bitmap, ClientId, Stateid};
use vfs::Entry;

use super::attributes;
use super::compound::Compound;
use super::status::Result;
use crate::files::durable::wait_durable;
use crate::files::held_attributes::ask_holder;
use crate::files::object::{File, Object};
use crate::files::recall::recall_conflicts;
use crate::files::rights::Right;
use crate::listing_cache::Holder;
use crate::state::{ChangeGuard, Client, Conflict, HeldAttributes, IoKind, IoPermit};

impl<'r> Compound<'r> {
    /// Recalls the delegations of others that conflict with an operation on `file`, for which the caller needs `right`.
    pub(crate) async fn recall_conflicts(
        &self,
        file: &File<'_>,
        against: Conflict,
        right: Right<'_>,
    ) -> Result {
        if !self.state().has_delegations(against) {
            if against.is_by_change() {
                wait_durable(self.request).await;
            }
            return Ok(());
        }
        let context = self.context(file.export);
        let object = (file.export, &file.handle);
        Ok(recall_conflicts(self.request, self.who(), object, against, (&context, right)).await?)
    }

    /// Checks that `given` permits I/O on `file`, and waits until no delegation conflicts.
    ///
    /// The check comes before the wait, so that nothing is recalled for a caller who may not do the I/O. It is repeated afterwards: a
    /// client that returns a delegation first opens what it had opened locally, and may deny this access. RFC 8881 §8.2.3: if "an
    /// existing open denies the form of access requested, then access will be denied to the request."
    pub(crate) async fn admit_io(&self, file: &File<'_>, given: Stateid, kind: IoKind) -> Result<IoPermit> {
        let permit = self.check_io(file, given, kind)?;
        let may_wait = given.is_special() && self.state().has_delegations(Conflict::io(kind));
        self.recall_for_io(file, given, kind).await?;
        if may_wait { self.check_io(file, given, kind) } else { Ok(permit) }
    }

    /// Recalls for I/O by a stateid. RFC 8881 §10.4.4: a "READ or WRITE operation done with a special stateid"
    /// recalls; an open has done so before.
    async fn recall_for_io(&self, file: &File<'_>, by: Stateid, kind: IoKind) -> Result {
        if !by.is_special() {
            if kind == IoKind::Write {
                wait_durable(self.request).await;
            }
            return Ok(());
        }
        self.recall_conflicts(file, Conflict::io(kind), Right::Content(kind)).await
    }

    /// Asks the holder of a write delegation for the attributes of `object` that it keeps. Returns the attributes that differ from the backend.
    pub(crate) async fn ask_holder(
        &mut self,
        object: &Object<'_>,
        mask: Bitmap,
    ) -> Result<Option<HeldAttributes>> {
        let Object::File(file) = object else { return Ok(None) };
        if !self.may_have_holder(mask) {
            return Ok(None);
        }
        // RFC 7530 §16.16.6 has the server "avoid querying the client" that sent the compound. On a new connection the stateid of
        // an earlier operation may be the first that names it.
        self.find_sender();
        let client = self.who();
        let held = ask_holder(self.request, client, (file.export, &file.handle)).await?;
        // It may have waited: attributes from an earlier operation may be older than the holder's last writes.
        self.forget_fresh();
        Ok(held)
    }

    /// Returns whether a holder may keep any of these attributes.
    pub(crate) fn may_have_holder(&self, mask: Bitmap) -> bool {
        self.state().has_delegations(Conflict::Write) && attributes::may_be_held(mask)
    }

    /// Announces a change of `file`: nothing is delegated until the guard is dropped.
    pub(crate) fn announce_change(&self, file: &File<'_>) -> ChangeGuard<'r> {
        self.request.server.state.begin_change(&file.handle)
    }
}

impl Compound<'_> {
    /// Returns the change attribute at the grant of the caller's delegation, if the caller must see it instead of the current one.
    pub(crate) fn granted_change(&self, file: &File<'_>, mask: Bitmap) -> Option<u64> {
        let client = self.who().filter(|client| self.may_hide_changes_from(client, mask))?;
        self.state().granted_change(client, file.key(self.server()))
    }

    /// Returns the caller if it may hold a delegation of any file.
    pub(crate) fn holder(&self, mask: Bitmap) -> Option<Holder> {
        let client = self.who().filter(|client| self.may_hide_changes_from(client, mask))?;
        Some(Holder { client: client.id(), last_grant: client.last_grant() })
    }

    fn may_hide_changes_from(&self, client: &Client, mask: Bitmap) -> bool {
        mask.has(number::CHANGE) && self.state().may_hide_changes(client)
    }

    /// Applies it to the changes that a listing has found in `directory`; returns whether it differs.
    pub(crate) fn hide_changes_of_entry(
        &self,
        directory: File<'_>,
        mask: Bitmap,
        entry: &mut Entry<'_>,
    ) -> bool {
        let Some((handle, attributes)) = &mut entry.object else { return false };
        let Some(change) = self.granted_change(&directory.with(*handle), mask) else { return false };
        std::mem::replace(&mut attributes.change, change) != change
    }

    /// Calls `visit` for all clients that may have to see another change attribute of an entry of `directory` than a listing did.
    pub(crate) fn holders_of_older_change(
        &self,
        directory: File<'_>,
        mask: Bitmap,
        entry: &Entry<'_>,
        visit: impl FnMut(ClientId),
    ) {
        if let Some((handle, attributes)) = &entry.object
            && mask.has(number::CHANGE)
            && self.state().has_watches()
        {
            let file = directory.with(*handle).key(self.server());
            self.state().holders_of_older_change(file, attributes.change, visit);
        }
    }
}
