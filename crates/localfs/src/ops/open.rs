use std::sync::Arc;

use vfs::{Authority, Context, Error, FileKind, Handle, OpenAccess, Opened, Pin, Result};

use crate::object::Object;
use crate::permission::{EXECUTE, READ, WRITE};
use crate::volume::Volume;

/// Keeps an object, and with it its descriptor and content, after its last name is gone.
#[derive(Debug)]
struct Held {
    volume: Arc<Volume>,
    object: Arc<Object>,
}

impl Pin for Held {}

impl Drop for Held {
    fn drop(&mut self) {
        if self.object.unpin() {
            // The last name may have gone meanwhile; then this is the end of it.
            self.volume.forget_if_gone(&self.object.handle);
        }
    }
}

impl Volume {
    pub(crate) fn open(
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
        let snapshot = self.stat(&object)?;
        if access.write {
            self.require_writable()?;
            if snapshot.sealed {
                return Err(Error::NotPermitted);
            }
        }
        if authority == Authority::Caller {
            // RFC 8881 §6.2.1.3.2: "Servers SHOULD allow a user the ability to read the data of the file when only the
            // ACE4_EXECUTE access mask bit is set."
            if access.read && !self.may(context, &object, &snapshot, EXECUTE)? {
                self.require(context, &object, &snapshot, READ)?;
            }
            if access.write {
                self.require(context, &object, &snapshot, WRITE)?;
            }
        }
        // Now, so that what cannot be opened fails here and not at the first READ or WRITE.
        if access.write {
            self.begin_open_for_writing(&object)?;
        } else if access.read && !object.file().reach.reads() {
            self.readable(&object)?;
        }
        object.pin();
        let pin = Arc::new(Held { volume: Arc::clone(self), object });
        Ok(Opened { pin, attributes: snapshot.attributes })
    }

    fn begin_open_for_writing(&self, object: &Object) -> Result<()> {
        if object.file().reach.writes() {
            return Ok(());
        }
        self.make_writable(object)
    }
}
