//! Finds the object of a handle.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use vfs::{Error, Handle, Result};

use crate::attributes::status;
use crate::errno::translate;
use crate::handle::{self, Meaning};
use crate::nonblocking;
use crate::object::{Object, Reach};
use crate::sys;
use crate::volume::{Handles, Volume};

impl Volume {
    /// Returns the object of a handle, opening it if necessary.
    ///
    /// # Errors
    /// [`Error::Stale`] if it no longer exists, [`Error::BadHandle`] for a handle of no object of this volume.
    pub(crate) fn object(&self, handle: &Handle) -> Result<Arc<Object>> {
        match self.objects.get(handle) {
            Some(object) => Ok(object),
            None => {
                if !self.is_in_memory {
                    nonblocking::require_blocking()?;
                }
                self.load(handle)
            }
        }
    }

    fn load(&self, handle: &Handle) -> Result<Arc<Object>> {
        let fd = match (&self.handles, handle::decode(handle)?) {
            (Handles::Kernel { usual, .. }, Meaning::Kernel(kind, bytes)) => self
                .open_by_kernel_handle(kind, bytes, OFlags::PATH | OFlags::NOFOLLOW)
                .map_err(|errno| match errno {
                    Errno::STALE | Errno::NOENT if *usual == (kind, bytes.len()) => Error::Stale,
                    Errno::STALE | Errno::NOENT | Errno::INVAL => Error::BadHandle,
                    other => translate(other),
                })?,
            (Handles::Indexed { index, .. }, Meaning::Indexed(identity, id))
                if identity == index.identity() =>
            {
                self.open_by_index(index, id)?
            }
            _ => return Err(Error::BadHandle),
        };
        if let Handles::Kernel { mount, .. } = self.handles {
            // The kernel accepts some handles with surplus bytes, but a file has one handle.
            let (kernel, on) = sys::name_to_handle_at(fd.as_fd(), c"").map_err(translate)?;
            if on != mount || handle::from_kernel(&kernel)? != *handle {
                return Err(Error::BadHandle);
            }
        }
        let status = status(fd.as_fd()).map_err(translate)?;
        self.require_shown_by_handle(&status)?;
        Ok(self.cache_object(*handle, &status, self.file_of(fd, Reach::Path)))
    }
}
