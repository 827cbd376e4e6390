use std::ops::ControlFlow;

use super::inode::{Body, Inode, SETGID, SETUID};
use super::permission::{self, EXECUTE, READ};
use super::space::Space;
use super::table::Table;
use super::unstable::Unstable;
use crate::{
    Access, Attributes, Context, Credentials, Entry, Error, Found, FsStat, Handle, ReadDir, ReadDirEnd,
    Result, Timestamp, Verifier,
};
use bytes::Bytes;

/// The file id of the root directory.
pub(super) const ROOT: u64 = 1;

/// Constant, because cookies stay valid as long as the directory.
const COOKIE_VERIFIER: Verifier = [0; 8];

/// An access time is updated after at most this many seconds: as Linux's `relatime` does, so that reads take an
/// exclusive lock once a day and not at each READ.
const ACCESSED_STALE_S: i64 = 24 * 60 * 60;

/// The file system, under one lock. Everything here is synchronous and uses only memory.
#[derive(Debug)]
pub(super) struct State {
    pub(super) table: Table,
    pub(super) space: Space,
    pub(super) unstable: Option<Unstable>,
    pub(super) fsid: u64,
    pub(super) max_file_size: u64,
    pub(super) read_only: bool,
}

impl State {
    /// Returns the number of changes that were refused because of space or objects.
    pub(super) fn refusals(&self) -> u64 {
        self.space.refusals() + self.table.refusals()
    }

    /// Remembers the `length` bytes at `offset` that are about to be replaced, if a crash would restore them.
    pub(super) fn keep_for_undo(&mut self, fileid: u64, offset: u64, length: u64) {
        let Some(unstable) = &mut self.unstable else { return };
        let inode = self.table.get(fileid).expect("the file was resolved");
        if let Ok(pages) = inode.pages() {
            unstable.keep_for_undo(fileid, pages, offset, length);
        }
    }

    /// Notes that the whole file is on stable storage, or removed. More than the requested range is allowed: a system
    /// may make unstable data durable at any time.
    pub(super) fn made_stable(&mut self, fileid: u64) {
        if let Some(unstable) = &mut self.unstable {
            unstable.made_stable(fileid);
        }
    }

    /// Notes that everything is stable.
    pub(super) fn made_all_stable(&mut self) {
        if let Some(unstable) = &mut self.unstable {
            unstable.made_all_stable();
        }
    }

    /// Loses unstable data.
    pub(super) fn crash(&mut self) {
        if let Some(unstable) = &mut self.unstable {
            unstable.crash(&mut self.table, &mut self.space);
        }
    }

    pub(super) fn resolve(&self, handle: &Handle) -> Result<u64> {
        self.table.resolve(handle)
    }

    /// Returns the object of a handle or an entry.
    pub(super) fn inode(&self, fileid: u64) -> &Inode {
        self.table.get(fileid).expect("an entry leads to an object that exists")
    }

    pub(super) fn inode_mut(&mut self, fileid: u64) -> &mut Inode {
        self.table.get_mut(fileid).expect("an entry leads to an object that exists")
    }

    pub(super) fn attributes(&self, fileid: u64) -> Attributes {
        self.inode(fileid).attributes(self.fsid, fileid)
    }

    /// Returns the object of `name` in a directory that the caller may search.
    pub(super) fn search(&self, who: &Credentials, directory: u64, name: &[u8]) -> Result<Option<u64>> {
        let inode = self.inode(directory);
        let entries = inode.directory()?;
        super::check_name(name)?;
        permission::require(who, inode, EXECUTE)?;
        Ok(entries.find(name))
    }

    pub(super) fn lookup(&self, context: &Context, directory: u64, name: &[u8]) -> Result<Found> {
        let found = self.search(&context.credentials, directory, name)?.ok_or(Error::NotFound)?;
        Ok(self.found(found, directory))
    }

    pub(super) fn parent(&self, context: &Context, directory: u64) -> Result<Found> {
        let inode = self.inode(directory);
        let parent = inode.directory()?.parent;
        if directory == ROOT {
            return Err(Error::NotFound);
        }
        permission::require(&context.credentials, inode, EXECUTE)?;
        Ok(self.found(parent, directory))
    }

    pub(super) fn access(&self, context: &Context, file: u64, want: Access) -> (Access, Attributes) {
        let granted = permission::access(&context.credentials, self.inode(file), want, self.read_only);
        (granted, self.attributes(file))
    }

    pub(super) fn readlink(&self, link: u64) -> Result<(Bytes, Attributes)> {
        match &self.inode(link).body {
            Body::Symlink(text) => Ok((text.clone(), self.attributes(link))),
            _ => Err(Error::Invalid),
        }
    }

    pub(super) fn statfs(&self, context: &Context, file: u64) -> (FsStat, Attributes) {
        let (total_bytes, free_bytes, available_bytes) = self.space.report(context.credentials.uid);
        let (total_files, free_files) = self.table.report();
        let available_files = free_files;
        let space =
            FsStat { total_bytes, free_bytes, available_bytes, total_files, free_files, available_files };
        (space, self.attributes(file))
    }

    pub(super) fn readdir(
        &self,
        context: &Context,
        directory: u64,
        request: ReadDir,
        visit: &mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send),
    ) -> Result<ReadDirEnd> {
        let inode = self.inode(directory);
        let entries = inode.directory()?;
        permission::require(&context.credentials, inode, READ)?;
        if !entries.gave(request.cookie) || (request.cookie != 0 && request.verifier != COOKIE_VERIFIER) {
            return Err(Error::BadCookie);
        }
        // Read permission is enough to list names; their objects need search permission too.
        let plus = request.plus && permission::permits(&context.credentials, inode, EXECUTE);
        let whole = entries.behind(request.cookie).try_for_each(|(cookie, slot)| {
            let object = plus.then(|| (self.table.handle(slot.fileid), self.attributes(slot.fileid)));
            visit(Entry { name: &slot.name, fileid: slot.fileid, cookie, object })
        });
        let attributes = inode.attributes(self.fsid, directory);
        Ok(ReadDirEnd { eof: whole.is_continue(), verifier: COOKIE_VERIFIER, directory: attributes })
    }

    /// Returns whether a read of the object at `now` moves its access time.
    pub(super) fn is_access_time_due(&self, fileid: u64, now: Timestamp) -> bool {
        let inode = self.inode(fileid);
        let accessed = inode.accessed;
        !self.read_only
            && now != accessed
            && (accessed <= inode.modified
                || accessed <= inode.changed
                || now.seconds.saturating_sub(accessed.seconds) >= ACCESSED_STALE_S)
    }

    /// Removes the object if it has neither a name nor a pin.
    pub(super) fn release(&mut self, fileid: u64) {
        let inode = self.inode(fileid);
        if inode.names > 0 || inode.pins > 0 {
            return;
        }
        if let Some(inode) = self.table.remove(fileid) {
            self.space.refund(inode.uid, inode.charged());
        }
        self.made_stable(fileid);
    }

    fn found(&self, fileid: u64, directory: u64) -> Found {
        Found {
            handle: self.table.handle(fileid),
            attributes: self.attributes(fileid),
            directory: self.attributes(directory),
        }
    }
}

/// Clears set-user-ID and set-group-ID of a regular file whose content `who` changed. POSIX.1-2024 write() allows it;
/// as on Linux, root keeps them.
pub(super) fn drop_privileges(who: &Credentials, inode: &mut Inode) {
    if !who.is_root() {
        clear_set_id(who, inode);
    }
}

/// As on Linux: set-group-ID without group execution was once mandatory locking, so a member of the group keeps it.
pub(super) fn clear_set_id(who: &Credentials, inode: &mut Inode) {
    inode.mode &= !SETUID;
    if inode.mode & 0o010 != 0 || !(who.is_root() || who.is_in_group(inode.gid)) {
        inode.mode &= !SETGID;
    }
}
