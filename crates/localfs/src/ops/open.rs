use std::sync::Arc;

use vfs::{Authority, Context, Error, FileKind, Handle, Op, OpenAccess, Opened, Pin, Result};

use crate::object::Object;
use crate::permission::{EXECUTE, READ, WRITE};
use crate::volume::Volume;

/// Keeps an object, and with it its descriptor and content, after its last name is gone.
#[derive(Debug)]
struct Held {
    volume: Arc<Volume>,
    /// There until it is dropped.
    object: Option<Arc<Object>>,
}

impl Pin for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(object) = self.object.take()
            && object.unpin()
        {
            // The last name may have gone meanwhile; then this is the end of it.
            self.volume.let_go_if_gone(object);
        }
    }
}

impl Volume {
    pub(crate) fn open<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        access: OpenAccess,
        authority: Authority,
    ) -> Op<'a, Opened> {
        let later = || {
            let (context, file) = (context.clone(), *file);
            move |volume: &Arc<Self>| volume.open_now(&context, &file, access, authority)
        };
        self.look(|| self.open_now(context, file, access, authority), later)
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
        // Held before it is looked at, and let go again where anything fails: a REMOVE after this look keeps it.
        let pin = self.hold(Arc::clone(&object));
        let object = &object;
        let snapshot = self.stat(object)?;
        if snapshot.attributes.links == 0 && self.counts_links && !self.is_kept_by_another(object) {
            return Err(Error::Stale);
        }
        if access.write {
            self.require_writable()?;
            if self.is_sealed(object, &snapshot)? {
                return Err(Error::NotPermitted);
            }
        }
        if authority == Authority::Caller {
            // RFC 8881 §6.2.1.3.2: "Servers SHOULD allow a user the ability to read the data of the file when only the
            // ACE4_EXECUTE access mask bit is set."
            if access.read && !self.may(context, object, &snapshot, READ)? {
                self.require(context, object, &snapshot, EXECUTE)?;
            }
            if access.write {
                self.require(context, object, &snapshot, WRITE)?;
            }
        }
        // Now, so that what cannot be opened fails here and not at the first READ or WRITE.
        if access.write {
            self.begin_open_for_writing(object)?;
        } else if access.read && !object.file().reach.reads() {
            self.readable(object)?;
        }
        Ok(Opened { pin: Arc::new(pin), attributes: snapshot.attributes })
    }

    fn hold(self: &Arc<Self>, object: Arc<Object>) -> Held {
        object.pin();
        Held { volume: Arc::clone(self), object: Some(object) }
    }

    /// Whether an object without names, which the caller has pinned, is one that an earlier open keeps, and so still found
    /// by its handle.
    fn is_kept_by_another(&self, object: &Arc<Object>) -> bool {
        object.pins() > 1 && self.objects.peek(&object.handle).is_some_and(|kept| Arc::ptr_eq(&kept, object))
    }

    fn begin_open_for_writing(&self, object: &Object) -> Result<()> {
        if object.file().reach.writes() {
            return Ok(());
        }
        self.make_writable(object)
    }
}
