use std::sync::Arc;

use vfs::{
    Attributes, Authority, Context, Error, FileKind, Handle, LocalLocks, Op, OpenAccess, Opened, Pin, Result,
};

use crate::attributes::Snapshot;
use crate::object::{Object, Unpinned};
use crate::permission::{EXECUTE, READ, WRITE};
use crate::volume::Volume;

/// Keeps an object and its content after its last name is removed. It refers to the object by handle: if descriptors
/// are short, an idle file with a name is closed, and reopened for the next request.
#[derive(Debug)]
struct PinnedFile {
    volume: Arc<Volume>,
    handle: Handle,
}

impl Pin for PinnedFile {
    fn local_locks(&self) -> Option<Arc<dyn LocalLocks>> {
        self.volume.local_locks(&self.handle)
    }
}

/// An object, and its pin.
type Pinned = (Arc<Object>, PinnedFile);

impl Drop for PinnedFile {
    fn drop(&mut self) {
        match self.volume.objects.unpin(&self.handle) {
            None | Some((_, Unpinned::Held)) => {}
            // The last reference: its space is freed.
            Some((object, Unpinned::LastOfNameless)) => self.volume.release_if_removed(object),
            // A local process may have removed the last name.
            Some((object, Unpinned::Last)) => self.volume.check_later(&object),
        }
    }
}

impl Volume {
    /// Opens a file. `seen` are attributes that the same operation has just read, if nothing blocked since.
    pub(crate) fn open<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        (file, seen): (&Handle, Option<&Attributes>),
        access: OpenAccess,
        authority: Authority,
    ) -> Op<'a, Opened> {
        let make_job = || {
            let (context, file) = (context.clone(), *file);
            move |volume: &Arc<Self>| volume.open_now(&context, &file, access, authority)
        };
        let in_place = || match seen.and_then(|seen| self.pin_seen(file, seen)) {
            Some((held, snapshot)) => self.open_pinned(context, held, &snapshot, access, authority),
            None => self.open_now(context, file, access, authority),
        };
        self.run_read(context.peer, in_place, make_job)
    }

    fn open_now(
        self: &Arc<Self>,
        context: &Context,
        file: &Handle,
        access: OpenAccess,
        authority: Authority,
    ) -> Result<Opened> {
        let object = self.object(file)?;
        if object.kind == FileKind::Symlink {
            return Err(Error::IsSymlink);
        }
        object.require_regular()?;
        // Pinned before its attributes are read, and unpinned if anything fails: a later REMOVE then keeps it.
        let Some(pin) = self.pin_object(&object) else {
            // It had lost its last name, which this reports; if not, the client's next attempt finds another object.
            self.stat(&object)?;
            return Err(Error::Later);
        };
        let snapshot = self.stat(&object)?;
        if snapshot.attributes.links == 0 && self.counts_links && !self.is_pinned_by_another(&object) {
            return Err(Error::Stale);
        }
        self.open_pinned(context, (object, pin), &snapshot, access, authority)
    }

    /// Pins a regular file that had a name when its attributes were read. If it has lost the name since, this counts
    /// as an earlier open; `None` if it has been released.
    fn pin_seen(self: &Arc<Self>, file: &Handle, seen: &Attributes) -> Option<(Pinned, Snapshot)> {
        if !self.counts_links || seen.links == 0 || seen.kind != FileKind::Regular {
            return None;
        }
        let object = self.objects.get(file)?;
        let pin = self.pin_object(&object)?;
        // With multigrain times every later change shows.
        let settled = !self.changes.is_coarse();
        Some(((object, pin), Snapshot { attributes: *seen, immutable: None, settled }))
    }

    /// Opens a pinned object with these attributes.
    fn open_pinned(
        &self,
        context: &Context,
        (object, pin): Pinned,
        snapshot: &Snapshot,
        access: OpenAccess,
        authority: Authority,
    ) -> Result<Opened> {
        let object = &object;
        if access.write {
            self.require_writable()?;
            if self.is_immutable(object, snapshot)? {
                return Err(Error::NotPermitted);
            }
        }
        if authority == Authority::Caller {
            // RFC 8881 §6.2.1.3.2: "Servers SHOULD allow a user the ability to read the data of the file when only the
            // ACE4_EXECUTE access mask bit is set."
            if access.read && !self.may(context, object, snapshot, READ)? {
                self.require(context, object, snapshot, EXECUTE)?;
            }
            if access.write {
                self.require(context, object, snapshot, WRITE)?;
            }
        }
        // Here, so that a descriptor that cannot be opened fails the open and not the first READ or WRITE.
        if access.write {
            self.begin_open_for_writing(object)?;
        } else if access.read && !object.file().reach.reads() {
            self.readable(object)?;
        }
        self.bound_pinned();
        Ok(Opened { pin: Arc::new(pin), attributes: snapshot.attributes })
    }

    /// Pins an object; `None` if it has been [released](Object::release).
    fn pin_object(self: &Arc<Self>, object: &Arc<Object>) -> Option<PinnedFile> {
        let is_kept = self.objects.pin(object);
        is_kept.then(|| PinnedFile { volume: Arc::clone(self), handle: object.handle })
    }

    /// Returns whether an object without names, which the caller has pinned, is also pinned by an earlier open, and so still
    /// found by its handle.
    fn is_pinned_by_another(&self, object: &Arc<Object>) -> bool {
        object.pins() > 1 && self.objects.peek(&object.handle).is_some_and(|kept| Arc::ptr_eq(&kept, object))
    }

    fn begin_open_for_writing(&self, object: &Object) -> Result<()> {
        if object.file().reach.writes() {
            return Ok(());
        }
        self.make_writable(object)
    }
}
