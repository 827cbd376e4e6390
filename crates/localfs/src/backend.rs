//! The implementation of [`Backend`]: each operation calls its own file.

use std::collections::HashSet;
use std::ffi::CStr;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use vfs::{
    Access, Acl, AclKind, Advice, Attributes, Authority, Backend, Change, ChangeListener, Context, Copied,
    CopyRange, Create, Created, EntriesWatch, Entry, Found, FsStat, GroupCommit, Handle, Interest, Linked,
    Op, OpenAccess, Opened, Properties, Quota, QuotaKind, Read, ReadDir, ReadDirEnd, ReadRequest, Removal,
    Renamed, Result, Seek, SetAttributes, SetXattr, Stability, Timestamp, Verifier, Watch, Written,
};

use crate::config::{Config, Durability, OpenError};
use crate::durable::Deferred;
use crate::mounts::MountPoint;
use crate::pool::Lane;
use crate::volume::{Actor, Handles, Volume};

/// A file system that is a directory of this machine, with everything below it on the same mount.
///
/// Operations run on the calling thread and change its file-system identity (see
/// [`become_server`](crate::become_server)); operations that would block run on the file system's own threads. The
/// returned [`Op`] must be polled in the context of a tokio runtime.
#[derive(Debug, Clone)]
pub struct LocalFs {
    volume: Arc<Volume>,
}

impl LocalFs {
    /// Opens a directory.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(config: &Config) -> std::result::Result<Self, OpenError> {
        crate::probe::open(config).map(|volume| Self { volume })
    }

    /// Returns whether the kernel checks permissions of every caller. Otherwise the server acts as its own user, and callers
    /// get the access that permission bits and ACLs grant, as far as the server itself has access.
    #[must_use]
    pub fn acts_as_callers(&self) -> bool {
        matches!(self.volume.actor, Actor::Callers)
    }

    /// Changes the durability for requests from now on. Blocks until the changes that were answered under
    /// [`Durability::Async`] are on stable storage.
    ///
    /// # Errors
    /// The error of the sync. The new durability applies to new requests anyway.
    pub fn set_durability(&self, durability: Durability) -> Result<()> {
        self.volume.set_durability(durability)
    }

    /// Returns whether handles are found through the index of the state directory, not by kernel handles.
    #[must_use]
    pub fn uses_index(&self) -> bool {
        matches!(self.volume.handles, Handles::Indexed { .. })
    }

    /// Returns whether `path` leads to the exported directory: not to another one, nor to a file system that was mounted over
    /// it or unmounted from it since. With an index, another mount of the same file system counts as the same.
    ///
    /// # Errors
    /// The errors of looking up the path.
    pub fn is_at(&self, path: &Path) -> std::io::Result<bool> {
        crate::probe::is_at(&self.volume, path)
    }

    /// Returns whether both are clones of one file system object.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.volume, &other.volume)
    }

    /// Returns whether a change attribute stands until the next change. With the coarse timestamps of kernels before Linux
    /// 6.13 it moves again when the tick of the last change is over, because a local process may have changed the
    /// file within that tick.
    #[must_use]
    pub fn has_steady_changes(&self) -> bool {
        self.volume.changes.is_steady()
    }

    /// Returns the reason why changes of watched objects by other processes are not seen; `None` if they are.
    #[must_use]
    pub fn why_unwatched(&self) -> Option<&str> {
        self.volume.watches().err()
    }

    /// Returns the mount point at the path `below` the exported directory, which must be relative and without
    /// symbolic links.
    ///
    /// # Errors
    /// Those of looking it up.
    pub fn mount_point(&self, below: &Path) -> Result<MountPoint> {
        self.volume.mount_point(below)
    }

    /// Replaces the paths of the mount points that other volumes serve. This volume refuses them without a line in
    /// the log.
    pub fn set_served_mounts(&self, paths: HashSet<PathBuf>) {
        self.volume.logged_mounts.set_served(paths);
    }

    /// Returns whether an object has an extended attribute, named with its name space. Asks as the server's user, for any caller.
    pub fn has_xattr(&self, peer: vfs::Peer, file: &Handle, name: &CStr) -> Op<'_, bool> {
        self.volume.has_xattr(peer, file, name)
    }

    /// Returns a descriptor of an object, which only names it (O_PATH), and a path that leads to it at this moment. Blocks.
    ///
    /// # Errors
    /// [`vfs::Error::Stale`] if it has no name.
    pub fn named(&self, file: &Handle) -> Result<(OwnedFd, PathBuf)> {
        self.volume.named(file)
    }

    /// Answers `operation` when the handles in its result are on stable storage, or as soon as their sync is deferred.
    fn when_index_durable<'a, T: Send + 'a>(&'a self, context: &Context, operation: Op<'a, T>) -> Op<'a, T> {
        match &operation {
            Op::Ready(_) if !self.volume.must_sync_index() => operation,
            Op::Pending(_) if !self.uses_index() => operation,
            _ => Op::pending(self.after_index_sync(context.group.clone(), operation)),
        }
    }

    async fn after_index_sync<'a, T: Send + 'a>(
        &'a self,
        group: Option<Arc<GroupCommit>>,
        operation: Op<'a, T>,
    ) -> Result<T> {
        let value = operation.await?;
        if !self.volume.must_sync_index() {
            return Ok(value);
        }
        if let Some(group) = group {
            group.defer(&self.volume, Deferred::Index);
            return Ok(value);
        }
        self.volume.do_on_pool(Lane::Sync, |volume| volume.sync_index()).await?;
        Ok(value)
    }
}

impl Backend for LocalFs {
    fn root(&self) -> Handle {
        self.volume.root.handle
    }

    fn properties(&self) -> Properties {
        self.volume.properties
    }

    fn identity(&self) -> [u8; 16] {
        self.volume.identity
    }

    fn write_verifier(&self) -> Verifier {
        self.volume.verifier()
    }

    fn getattr<'a>(&'a self, context: &Context, file: &Handle) -> Op<'a, Attributes> {
        self.volume.getattr(context.peer, file)
    }

    fn setattr<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        set: &'a SetAttributes,
        guard: Option<Timestamp>,
        authority: Authority,
    ) -> Op<'a, Change> {
        self.volume.setattr(context, file, set, guard, authority)
    }

    fn lookup<'a>(&'a self, context: &Context, directory: &Handle, name: &[u8]) -> Op<'a, Found> {
        self.when_index_durable(context, self.volume.lookup(context, directory, name))
    }

    fn parent<'a>(&'a self, context: &'a Context, directory: &'a Handle) -> Op<'a, Found> {
        self.volume.parent(context, directory)
    }

    fn access<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        want: Access,
    ) -> Op<'a, (Access, Attributes)> {
        self.volume.access(context, file, want)
    }

    fn readlink<'a>(&'a self, context: &'a Context, link: &'a Handle) -> Op<'a, (Bytes, Attributes)> {
        self.volume.readlink(context.peer, link)
    }

    fn read<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        request: ReadRequest,
        into: &mut BytesMut,
    ) -> Op<'a, Read> {
        self.volume.read(context, file, request, into)
    }

    fn read_seen<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        seen: &Attributes,
        request: ReadRequest,
        into: &mut BytesMut,
    ) -> Op<'a, Read> {
        self.volume.read_seen(context, file, seen, request, into)
    }

    fn write<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        offset: u64,
        data: &Bytes,
        stability: Stability,
        authority: Authority,
    ) -> Op<'a, Written> {
        self.volume.write(context, file, offset, data, stability, authority)
    }

    fn commit<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        count: u64,
    ) -> Op<'a, Change> {
        self.volume.commit(context, file, offset, count)
    }

    fn create<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        what: &Create,
        set: &SetAttributes,
    ) -> Op<'a, Created> {
        let created = self.volume.create(context, directory, name, what, set);
        self.when_index_durable(context, created)
    }

    fn remove<'a>(
        &'a self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        removal: Removal,
    ) -> Op<'a, Change> {
        self.volume.remove(context, directory, name, removal)
    }

    fn rename<'a>(
        &'a self,
        context: &'a Context,
        from: (&'a Handle, &'a [u8]),
        to: (&'a Handle, &'a [u8]),
    ) -> Op<'a, Renamed> {
        let renamed = self.volume.rename(context, from, to);
        self.when_index_durable(context, renamed)
    }

    fn link<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        directory: &'a Handle,
        name: &'a [u8],
    ) -> Op<'a, Linked> {
        let linked = self.volume.link(context, file, directory, name);
        self.when_index_durable(context, linked)
    }

    fn readdir<'a>(
        &'a self,
        context: &'a Context,
        directory: &'a Handle,
        request: ReadDir,
        visit: &'a mut (dyn FnMut(Entry<'_>) -> ControlFlow<()> + Send),
    ) -> Op<'a, ReadDirEnd> {
        self.when_index_durable(context, self.volume.readdir(context, directory, request, visit))
    }

    fn open<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        access: OpenAccess,
        authority: Authority,
    ) -> Op<'a, Opened> {
        self.volume.open(context, (file, None), access, authority)
    }

    fn open_seen<'a>(
        &'a self,
        context: &Context,
        file: &Handle,
        seen: &Attributes,
        access: OpenAccess,
        authority: Authority,
    ) -> Op<'a, Opened> {
        self.volume.open(context, (file, Some(seen)), access, authority)
    }

    fn statfs<'a>(&'a self, context: &'a Context, file: &'a Handle) -> Op<'a, (FsStat, Attributes)> {
        self.volume.statfs(context, file)
    }

    fn quota(&self, kind: QuotaKind, id: u32) -> Op<'_, Option<Quota>> {
        self.volume.quota(kind, id)
    }

    fn sync(&self) -> Op<'_, ()> {
        Op::pending(self.volume.do_on_pool(Lane::Sync, |volume| volume.sync_everything()))
    }

    fn sync_inherited(&self) -> Op<'_, ()> {
        Op::pending(self.volume.do_on_pool(Lane::Sync, |volume| volume.sync_inherited()))
    }

    fn is_stable(&self) -> bool {
        self.volume.must_sync()
    }

    fn seek<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        what: Seek,
        authority: Authority,
    ) -> Op<'a, Option<u64>> {
        self.volume.seek(context, file, offset, what, authority)
    }

    fn allocate<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        length: u64,
        authority: Authority,
    ) -> Op<'a, Change> {
        self.volume.allocate(context, file, (offset, length), authority)
    }

    fn deallocate<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        length: u64,
        authority: Authority,
    ) -> Op<'a, Change> {
        self.volume.deallocate(context, file, (offset, length), authority)
    }

    fn write_hole<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        length: u32,
        authority: Authority,
    ) -> Op<'a, Written> {
        self.volume.write_hole(context, file, (offset, length), authority)
    }

    fn watch<'a>(
        &'a self,
        context: &'a Context,
        object: &'a Handle,
        interest: Interest,
        listener: &'a Arc<dyn ChangeListener>,
    ) -> Op<'a, Option<Box<dyn Watch>>> {
        self.volume.watch(context.peer, object, interest, listener)
    }

    fn watch_entries<'a>(
        &'a self,
        context: &'a Context,
        directory: &'a Handle,
    ) -> Op<'a, Option<Arc<dyn EntriesWatch>>> {
        self.volume.watch_entries(context.peer, directory)
    }

    fn clone_range<'a>(&'a self, context: &'a Context, range: &'a CopyRange) -> Op<'a, Change> {
        self.volume.clone_range(context, range)
    }

    fn copy_range<'a>(&'a self, context: &'a Context, range: &'a CopyRange) -> Op<'a, Copied> {
        self.volume.copy_range(context, range)
    }

    fn advise<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        offset: u64,
        count: u64,
        advice: Advice,
    ) -> Op<'a, bool> {
        self.volume.advise(context.peer, file, (offset, count), advice)
    }

    fn get_acl<'a>(&'a self, context: &'a Context, file: &'a Handle, kind: AclKind) -> Op<'a, Option<Acl>> {
        self.volume.get_acl(context.peer, file, kind)
    }

    fn set_acl<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        kind: AclKind,
        acl: Option<&'a Acl>,
    ) -> Op<'a, Change> {
        self.volume.set_acl(context, file, kind, acl)
    }

    fn get_xattr<'a>(&'a self, context: &'a Context, file: &'a Handle, name: &'a [u8]) -> Op<'a, Bytes> {
        self.volume.get_xattr(context, file, name)
    }

    fn set_xattr<'a>(
        &'a self,
        context: &'a Context,
        file: &'a Handle,
        name: &'a [u8],
        value: &'a Bytes,
        how: SetXattr,
    ) -> Op<'a, Change> {
        self.volume.set_xattr(context, file, name, value, how)
    }

    fn list_xattrs<'a>(&'a self, context: &'a Context, file: &'a Handle) -> Op<'a, Vec<Bytes>> {
        self.volume.list_xattrs(context, file)
    }

    fn remove_xattr<'a>(&'a self, context: &'a Context, file: &'a Handle, name: &'a [u8]) -> Op<'a, Change> {
        self.volume.remove_xattr(context, file, name)
    }
}
