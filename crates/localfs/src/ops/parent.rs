use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use vfs::{Context, Error, Found, Handle, Op, Result};

use crate::attributes::{device_of, status};
use crate::errno::translate;
use crate::handle::{self, from_kernel};
use crate::object::{Object, Reach};
use crate::permission::EXECUTE;
use crate::sys;
use crate::volume::{Handles, Volume};

/// Maximum number of parents up to the exported directory.
const MAX_PARENTS: usize = 4096;

impl Volume {
    pub(crate) fn parent<'a>(self: &'a Arc<Self>, context: &Context, directory: &Handle) -> Op<'a, Found> {
        let make_job = || {
            let (context, directory) = (context.clone(), *directory);
            move |volume: &Arc<Self>| volume.parent_now(&context, &directory)
        };
        self.run_read(context.peer, || self.parent_now(context, directory), make_job)
    }

    fn parent_now(&self, context: &Context, directory: &Handle) -> Result<Found> {
        let object = self.object(directory)?;
        object.require_directory()?;
        let snapshot = self.stat(&object)?;
        self.require(context, &object, &snapshot, EXECUTE)?;
        if object.handle == self.root.handle {
            return Err(Error::NotFound);
        }
        let parent = self.parent_object(&object)?;
        let attributes = self.stat(&parent)?.attributes;
        Ok(Found { handle: parent.handle, attributes, directory: self.stat(&object)?.attributes })
    }

    fn parent_object(&self, object: &Object) -> Result<Arc<Object>> {
        if let Handles::Indexed { index, .. } = &self.handles {
            let known = index.find(index.id_of(&object.handle)?)?.ok_or(Error::Stale)?;
            let parent = known.places.first().map(|(parent, _)| *parent).ok_or(Error::Stale)?;
            return self.object(&handle::from_index(index.identity(), parent));
        }
        // The caller's permissions have been checked.
        self.act_as_server();
        let fd = object.with_fd(|fd| self.descriptors.open(|| open_above(fd))).map_err(translate)?;
        self.require_beneath(&fd)?;
        let (kernel, _) = sys::name_to_handle_at(fd.as_fd(), c"").map_err(translate)?;
        let status = status(fd.as_fd()).map_err(translate)?;
        self.require_shown_by_handle(&status)?;
        Ok(self.cache_object(from_kernel(&kernel)?, &status, self.file_of(fd, Reach::Path)))
    }

    /// Checks that the exported directory is above: a local process may have moved the directory out of the export,
    /// and then clients must not see its parent.
    fn require_beneath(&self, directory: &OwnedFd) -> Result<()> {
        self.act_as_server();
        let mut ancestor = directory.try_clone().map_err(|_| Error::Later)?;
        let mut last = None;
        for _ in 0..MAX_PARENTS {
            let status = status(ancestor.as_fd()).map_err(translate)?;
            let here = (device_of(&status), status.stx_ino);
            if here == self.root.key {
                return Ok(());
            }
            // The parent of the root is the root.
            if last == Some(here) {
                return Err(Error::Stale);
            }
            last = Some(here);
            ancestor = open_above(ancestor.as_fd()).map_err(translate)?;
        }
        Err(Error::Stale)
    }
}

fn open_above(fd: std::os::fd::BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(fd, c"..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}
