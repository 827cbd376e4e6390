//! Operations on names of a directory.

use protocol::nfs4::types::Status;

use super::{Inode, OpenFile, OpenFlags};
use crate::attributes::{Attributes, Before, Changed, FileKind, SetAttributes};
use crate::cache::FileId;
use crate::cache::attributes::Started;
use crate::cache::names::{Lookup, LookupStarted};
use crate::config::Caller;
use crate::error::OpError;
use crate::results::{Creation, NewObject, Object, access};

impl OpenFile {
    /// Drops the content if `empties` (O_TRUNC). The file is released if this fails.
    async fn emptied_if(self, empties: bool) -> Result<Self, OpError> {
        if empties {
            let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
            if let Err(error) = self.set_attributes(&set).await {
                let _ = self.release().await;
                return Err(error);
            }
        }
        Ok(self)
    }
}

impl Inode {
    /// Looks up a name, and returns its object with the attributes. Names and absent names are cached.
    ///
    /// # Errors
    /// [`Status::NOENT`] if there is none.
    pub async fn lookup(&self, caller: &Caller, name: &[u8]) -> Result<(Self, Attributes), OpError> {
        self.mount.check_name(name)?;
        if let Some(found) = self.lookup_cached(caller, name).await? {
            return Ok(found);
        }
        self.lookup_at_server(caller, name).await
    }

    /// Looks up a name in the cache; `None` if the server must be asked.
    pub(in crate::fs) async fn lookup_cached(
        &self,
        caller: &Caller,
        name: &[u8],
    ) -> Result<Option<(Self, Attributes)>, OpError> {
        let (mut known, is_fresh) = self.known(caller, name);
        if known != Lookup::Unknown && !is_fresh {
            // One GETATTR makes all names of the directory valid again, unless they may hide a change by another client.
            self.refresh(caller).await?;
            known = if self.is_undecided() { Lookup::Unknown } else { self.known(caller, name).0 };
        }
        self.mount.shared.counts.names.note(known != Lookup::Unknown);
        let file = match known {
            Lookup::Found(file) => file,
            Lookup::Absent => return Err(OpError::Status(Status::NOENT)),
            Lookup::Unknown => return Ok(None),
        };
        let Some(inode) = self.mount.inode_by_id(file) else { return Ok(None) };
        match inode.attributes(caller).await {
            Ok(attributes) => {
                inode.node.opens.lock().note_name(self.id(), name);
                Ok(Some((inode, attributes)))
            }
            Err(error) if error.is_stale() => {
                self.mount.shared.state.lock().metadata.names.forget(self.node.id, name);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the object of a name if it is cached.
    fn cached_inode(&self, caller: &Caller, name: &[u8]) -> Option<Self> {
        match self.known(caller, name).0 {
            Lookup::Found(file) => self.mount.inode_by_id(file),
            Lookup::Absent | Lookup::Unknown => None,
        }
    }

    /// Returns the cached entry of a name for a caller that may look it up, and whether it may be used without a request.
    fn known(&self, caller: &Caller, name: &[u8]) -> (Lookup, bool) {
        let known = self.known_under(None, caller, name);
        if known.1 || known.0 == Lookup::Unknown {
            return known;
        }
        match self.client().delegation(&self.handle()) {
            Some(held) => self.known_under(Some(held.id), caller, name),
            None => known,
        }
    }

    /// As [`Self::known`], while the delegation of the directory with this number is held.
    fn known_under(&self, delegation: Option<u64>, caller: &Caller, name: &[u8]) -> (Lookup, bool) {
        let (directory, now) = (self.node.id, self.mount.now());
        let state = self.mount.shared.state.lock();
        let attributes = &state.metadata.attributes;
        let Some(epoch) = attributes.epoch(directory) else { return (Lookup::Unknown, false) };
        // The server checks permissions of callers that are not known yet.
        if state.access.get(directory, caller, access::LOOKUP) != Some(access::LOOKUP) {
            return (Lookup::Unknown, false);
        }
        let known = state.metadata.names.lookup(directory, epoch, name);
        let is_delegated = delegation.is_some_and(|id| attributes.is_delegated(directory, id));
        (known, is_delegated || attributes.is_fresh(directory, now))
    }

    async fn lookup_at_server(&self, caller: &Caller, name: &[u8]) -> Result<(Self, Attributes), OpError> {
        let (started, names_started) = self.start_lookup();
        let looked_up = self.client().lookup(caller, self.handle(), name).await;
        let target = match &looked_up {
            Ok(object) => Some(self.mount.found(object, started)),
            Err(OpError::Status(Status::NOENT)) => None,
            Err(error) => {
                self.forget_if_stale(error);
                return Err(error.clone());
            }
        };
        let file = target.as_ref().map(|(inode, _)| inode.node.id);
        self.note_lookup(caller, names_started, name, file);
        let (inode, attributes) = target.ok_or(OpError::Status(Status::NOENT))?;
        inode.node.opens.lock().note_name(self.id(), name);
        inode.with_sent_data(caller, attributes).await
    }

    /// Returns the object's delegation, if there is one: the server would keep a file that is removed.
    pub(super) async fn give_back(&self) {
        self.client().give_back(&self.handle()).await;
    }

    /// Notes that a request that looks up a name is sent now.
    fn start_lookup(&self) -> (Started, Option<LookupStarted>) {
        let now = self.mount.now();
        let state = self.mount.shared.state.lock();
        let epoch = state.metadata.attributes.epoch(self.node.id);
        let names_started = epoch.map(|epoch| state.metadata.names.start(epoch));
        (state.metadata.attributes.start(now), names_started)
    }

    /// Notes the meaning of a name that the caller was allowed to look up.
    fn note_lookup(
        &self,
        caller: &Caller,
        started: Option<LookupStarted>,
        name: &[u8],
        file: Option<FileId>,
    ) {
        let mut state = self.mount.shared.state.lock();
        state.access.note(self.node.id, caller, access::LOOKUP, access::LOOKUP);
        if let Some(started) = started {
            state.metadata.names.looked_up(started, self.node.id, name, file);
        }
    }

    /// Returns whether a request has certainly not changed this directory, which still is as the client knows it.
    fn is_unchanged(&self, changed: Changed) -> bool {
        let state = self.mount.shared.state.lock();
        let known = state.metadata.attributes.last_known(self.node.id).and_then(|known| known.change);
        !may_have_changed(changed) && known.is_some() && known == changed.change_after
    }

    /// Notes that this client's change made a name mean `target`, or removed it.
    pub(super) fn name_changed(&self, name: &[u8], target: Option<&Self>) {
        let directory = self.node.id;
        let mut state = self.mount.shared.state.lock();
        let metadata = &mut state.metadata;
        metadata.directories.invalidate(directory);
        match metadata.attributes.epoch(directory) {
            Some(epoch) => metadata.names.changed(directory, epoch, name, target.map(|inode| inode.node.id)),
            None => metadata.names.forget(directory, name),
        }
        drop(state);
        if let Some(target) = target {
            target.node.opens.lock().note_name(directory, name);
        }
    }

    /// Drops a name after a request that may have changed its meaning.
    fn forget_name(&self, name: &[u8]) {
        let mut state = self.mount.shared.state.lock();
        state.metadata.directories.invalidate(self.node.id);
        state.metadata.names.forget(self.node.id, name);
    }

    /// Expires the attributes: an operation on a name changed them and did not return them.
    pub(super) fn expire(&self) {
        self.mount.shared.state.lock().metadata.attributes.expire(self.node.id);
    }

    /// Opens the file that has a name, and creates it if `creation` asks for it; `set` are its first attributes. A size of 0
    /// in `set` truncates an existing file.
    ///
    /// # Errors
    /// As open(2). [`Status::SYMLINK`] if the name is a symbolic link.
    pub async fn create(
        &self,
        caller: &Caller,
        name: &[u8],
        flags: OpenFlags,
        creation: Creation,
        set: &SetAttributes,
    ) -> Result<OpenFile, OpError> {
        if let Some(file) = self.create_delegated(caller, name, flags, creation, set) {
            return file.emptied_if(set.size == Some(0)).await;
        }
        // Versions 2 and 3 have no OPEN, which looks up the name anyway.
        if creation == Creation::No && set.size.is_none() && self.client().version().minor().is_none() {
            match self.open_known(caller, name, flags).await {
                Ok(Some(file)) => return Ok(file),
                // The name belongs to another file now.
                Ok(None) | Err(OpError::Status(Status::STALE | Status::BADHANDLE)) => {}
                Err(error) => return Err(error),
            }
        }
        if flags.mode.write
            && let Some(known) = self.cached_inode(caller, name)
        {
            // The OPEN may then get one for writing.
            known.client().give_back_read(&known.handle()).await;
        }
        // A file that is open may have data under way, which must not arrive after a truncation: see `set_size`.
        let is_truncated_here = self.mount.has_open_files() && set.size == Some(0);
        let sent = SetAttributes { size: set.size.filter(|_| !is_truncated_here), ..*set };
        let (started, names_started) = self.start_lookup();
        let change = self.start_change();
        let opened = match self.client().open(caller, self.handle(), name, flags.mode, creation, &sent).await
        {
            Ok(opened) => opened,
            Err(error) => {
                change.end_failed(&error);
                self.forget_name(name);
                return Err(error);
            }
        };
        let directory = opened.directory;
        let is_unchanged = directory.is_some_and(|changed| self.is_unchanged(changed));
        change.end(directory.filter(|_| !is_unchanged));
        let inode = self.mount.inode(&opened.object);
        if is_unchanged {
            // The OPEN has looked up the name.
            self.note_lookup(caller, names_started, name, Some(inode.node.id));
        }
        let size = opened.object.attributes.size;
        inode.forget_if_changing(&opened.object.attributes);
        let file = OpenFile::new(inode, caller.clone(), flags, opened, Some(started));
        if directory.is_some_and(may_have_changed) {
            self.name_changed(name, Some(file.inode()));
        }
        // O_TRUNC of an existing file: an OPEN without creation, or one whose server kept the size.
        let has_content = size > 0 || file.inode().unstable_bytes() > 0;
        file.emptied_if(set.size == Some(0) && has_content).await
    }

    /// Opens the file of a name that may be used without a request to the server.
    async fn open_known(
        &self,
        caller: &Caller,
        name: &[u8],
        flags: OpenFlags,
    ) -> Result<Option<OpenFile>, OpError> {
        let (Lookup::Found(file), true) = self.known(caller, name) else { return Ok(None) };
        let Some(inode) = self.mount.inode_by_id(file) else { return Ok(None) };
        inode.open(caller, flags).await.map(Some)
    }

    /// Opens the file of a cached name without a request, if its delegation allows it. The name is that file's as long as
    /// other clients' changes of the directory would be seen by its attributes.
    fn create_delegated(
        &self,
        caller: &Caller,
        name: &[u8],
        flags: OpenFlags,
        creation: Creation,
        set: &SetAttributes,
    ) -> Option<OpenFile> {
        if matches!(creation, Creation::Exclusive(_) | Creation::Guarded)
            || set.size.is_some() && !flags.mode.write
        {
            return None;
        }
        match self.known(caller, name) {
            (Lookup::Found(file), true) => self.mount.inode_by_id(file)?.open_delegated(caller, flags),
            _ => None,
        }
    }

    /// Creates an object that is not a regular file.
    ///
    /// # Errors
    /// As mkdir(2), symlink(2), mknod(2).
    pub async fn make(
        &self,
        caller: &Caller,
        name: &[u8],
        kind: &NewObject,
        set: &SetAttributes,
    ) -> Result<(Self, Attributes), OpError> {
        let started = self.mount.start();
        let change = self.start_change();
        match self.client().create_object(caller, self.handle(), name, kind, set).await {
            Ok((object, directory)) => {
                change.end(Some(directory));
                let found = self.mount.found(&object, started);
                self.name_changed(name, Some(&found.0));
                Ok(found)
            }
            Err(error) => {
                change.end_failed(&error);
                self.forget_name(name);
                Err(error)
            }
        }
    }

    /// Gives this object the name `name` in `directory`, and returns its attributes.
    ///
    /// # Errors
    /// As link(2).
    pub async fn link(&self, caller: &Caller, directory: &Self, name: &[u8]) -> Result<Attributes, OpError> {
        let change = directory.start_change();
        match self.client().link(caller, self.handle(), directory.handle(), name).await {
            Ok(changed) => change.end(Some(changed)),
            Err(error) => {
                change.end_failed(&error);
                directory.forget_name(name);
                return Err(error);
            }
        }
        directory.name_changed(name, Some(self));
        self.refresh(caller).await
    }

    /// Removes the name of an object that is not a directory. A file that is open stays until its last release.
    ///
    /// # Errors
    /// As unlink(2).
    pub async fn unlink(&self, caller: &Caller, name: &[u8]) -> Result<(), OpError> {
        let object = self.unlinked_object(caller, name).await?;
        if object.keep_unlinked(caller, self, name).await? {
            object.expire();
            return Ok(());
        }
        object.give_back().await;
        let removed = self.remove(caller, name, false).await;
        // Its other names show one link less.
        object.expire();
        removed
    }

    /// Returns the object that loses its name `name`. The server is asked where the cached name may be old and that matters:
    /// if the object is a directory, which REMOVE of version 4 takes too, or may be open.
    async fn unlinked_object(&self, caller: &Caller, name: &[u8]) -> Result<Self, OpError> {
        if self.client().version().minor().is_none()
            && !self.mount.has_open_files()
            && let Some(object) = self.cached_inode(caller, name)
        {
            return Ok(object);
        }
        let (object, _) = self.lookup(caller, name).await?;
        match object.kind() {
            FileKind::Directory => Err(OpError::Status(Status::ISDIR)),
            _ => Ok(object),
        }
    }

    /// Removes the name of an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub async fn rmdir(&self, caller: &Caller, name: &[u8]) -> Result<(), OpError> {
        if self.client().version().minor().is_some() {
            let (object, _) = self.lookup(caller, name).await?;
            if object.kind() != FileKind::Directory {
                return Err(OpError::Status(Status::NOTDIR));
            }
            object.give_back().await;
        }
        self.remove(caller, name, true).await
    }

    pub(super) async fn remove(&self, caller: &Caller, name: &[u8], directory: bool) -> Result<(), OpError> {
        let change = self.start_change();
        let removed = match directory {
            true => self.client().remove_directory(caller, self.handle(), name).await,
            false => self.client().remove_file(caller, self.handle(), name).await,
        };
        match removed {
            Ok(changed) => {
                change.end(Some(changed));
                self.name_changed(name, None);
                Ok(())
            }
            Err(error) => {
                change.end_failed(&error);
                self.forget_name(name);
                Err(error)
            }
        }
    }

    /// Renames the entry `name` of this directory, and replaces an object that has the new name. A replaced file that is open
    /// stays until its last release.
    ///
    /// # Errors
    /// As rename(2).
    pub async fn rename(
        &self,
        caller: &Caller,
        name: &[u8],
        to: &Self,
        new_name: &[u8],
    ) -> Result<(), OpError> {
        if self.mount.has_open_files() {
            self.keep_replaced(caller, name, to, new_name).await?;
        }
        let replaced = to.cached_inode(caller, new_name);
        if let Some(replaced) = &replaced {
            replaced.give_back().await;
        }
        let change = self.start_change();
        let to_change = (to != self).then(|| to.start_change());
        let (from, target) = ((self.handle(), name), (to.handle(), new_name));
        let moved = self.cached_inode(caller, name);
        let renamed = self.client().rename(caller, from, target).await;
        if let (Some(moved), Ok(_)) = (moved, &renamed) {
            moved.node.opens.lock().note_name(to.id(), new_name);
            if moved.kind() == FileKind::Directory {
                // The server does not recall a delegation because of its holder's change.
                moved.client().begin_give_back(&moved.handle());
            }
            // RENAME changes the ctime of the renamed object.
            moved.expire();
        }
        self.forget_name(name);
        to.forget_name(new_name);
        if let Some(replaced) = replaced {
            replaced.expire();
        }
        match renamed {
            Ok((from_changed, to_changed)) => {
                change.end(Some(from_changed));
                if let Some(to_change) = to_change {
                    to_change.end(Some(to_changed));
                }
                Ok(())
            }
            Err(error) => {
                change.end_failed(&error);
                if let Some(to_change) = to_change {
                    to_change.end_failed(&error);
                }
                Err(error)
            }
        }
    }

    /// Keeps an open file that a rename is about to replace.
    async fn keep_replaced(
        &self,
        caller: &Caller,
        name: &[u8],
        to: &Self,
        new_name: &[u8],
    ) -> Result<(), OpError> {
        let replaced = match to.lookup(caller, new_name).await {
            Ok((replaced, _)) => replaced,
            Err(OpError::Status(Status::NOENT)) => return Ok(()),
            Err(error) => return Err(error),
        };
        if replaced.kind() == FileKind::Directory {
            return Ok(());
        }
        // A missing source must not cost the target its name, and two names of one file change nothing (rename(2)).
        let (source, _) = self.lookup(caller, name).await?;
        if source != replaced && source.kind() != FileKind::Directory {
            replaced.keep_unlinked(caller, to, new_name).await?;
        }
        Ok(())
    }

    /// Returns the object with the attributes that programs see.
    pub(in crate::fs) fn object(&self, attributes: Attributes) -> Object {
        Object { handle: self.handle(), attributes }
    }
}

/// Returns whether an operation may have changed a directory. An OPEN of an existing file reports that it has not.
fn may_have_changed(changed: Changed) -> bool {
    match (changed.before, changed.change_after) {
        (Some(Before::Change(before)), Some(after)) => before != after,
        _ => true,
    }
}
