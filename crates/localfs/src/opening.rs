//! Opens objects by handle and by name, and opens them again.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use vfs::{Error, Result};

use crate::errno::translate;
use crate::handle::{self, Meaning};
use crate::name::Name;
use crate::nonblocking;
use crate::object::{Object, OpenFile, Reach};
use crate::sys;
use crate::volume::{Handles, Volume};

/// Attempts of an open by handle that fails with ENOMEM, most of them a millisecond apart.
const MAX_TRIES: u32 = 50;

impl Volume {
    /// Opens the object of a kernel handle as the server.
    pub(crate) fn open_by_kernel_handle(
        &self,
        kind: i32,
        bytes: &[u8],
        flags: OFlags,
    ) -> rustix::io::Result<OwnedFd> {
        self.act_as_server();
        let mut tries = 0;
        loop {
            let opened = self
                .descriptors
                .open(|| sys::open_by_handle_at(self.root_fd.as_fd(), kind, bytes, flags.bits() as i32));
            if opened.as_ref().err() != Some(&Errno::NOMEM) || tries == MAX_TRIES {
                return opened;
            }
            // ENOMEM is not only a lack of memory: ext4 also returns it while a removed inode's number is given to a
            // new file, and ESTALE a moment later. This is rare enough to wait for in place.
            tries += 1;
            match tries {
                ..8 => std::thread::yield_now(),
                _ => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        }
    }

    /// Opens a directory stream at its start, as the server.
    pub(crate) fn open_directory(&self, directory: &Object) -> Result<OwnedFd> {
        // Not by the name `.`, which needs permission to search the directory, not only to read it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.reopen(directory, &directory.file(), flags).map_err(translate)
    }

    /// Returns a descriptor from which content can be read.
    pub(crate) fn readable(&self, object: &Object) -> Result<Arc<OpenFile>> {
        object.replace_file(|present| {
            if present.reach.reads() {
                return Ok(None);
            }
            if present.reach.writes() {
                // The only writable descriptor must remain; it could not be opened for reading too.
                return Err(Error::Access);
            }
            let fd = self.reopen(object, present, OFlags::RDONLY).map_err(translate)?;
            Ok(Some(self.file_of(fd, Reach::Read)))
        })
    }

    /// Makes the object's descriptor writable.
    pub(crate) fn make_writable(&self, object: &Object) -> Result<()> {
        object.replace_file(|present| {
            if present.reach.writes() {
                return Ok(None);
            }
            let (fd, reach) = match self.reopen(object, present, OFlags::RDWR) {
                Ok(fd) => (fd, Reach::ReadWrite),
                // The server's own user may write it, but not read it.
                Err(Errno::ACCESS) => {
                    let fd = self.reopen(object, present, OFlags::WRONLY).map_err(translate)?;
                    (fd, Reach::Write)
                }
                Err(errno) => return Err(translate(errno)),
            };
            self.cleanup_queue.wake();
            Ok(Some(self.file_of(fd, reach)))
        })?;
        Ok(())
    }

    /// Opens the same object a second time. Only for regular files and directories: opening a device or a pipe has effects.
    pub(crate) fn reopen(
        &self,
        object: &Object,
        present: &OpenFile,
        flags: OFlags,
    ) -> rustix::io::Result<OwnedFd> {
        // A local process may hold a lease; this does not wait until it is released.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        if let (Handles::Kernel { .. }, Ok(Meaning::Kernel(kind, bytes))) =
            (&self.handles, handle::decode(&object.handle))
        {
            match self.open_by_kernel_handle(kind, bytes, flags) {
                Err(Errno::STALE) => {}
                other => return other,
            }
        }
        self.act_as_server();
        let name = present.name_in_proc();
        self.descriptors.open(|| rustix::fs::open(&name, flags, Mode::empty()))
    }

    /// Opens a name as `O_PATH`, without following a symbolic link.
    pub(crate) fn open_path(&self, directory: &Object, name: &Name) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if !nonblocking::may_block() && !self.is_in_memory && self.has_cached_lookup.load(Ordering::Relaxed) {
            let cached = directory.with_fd(|fd| {
                self.descriptors.open(|| {
                    rustix::fs::openat2(fd, name.as_c_str(), flags, Mode::empty(), ResolveFlags::CACHED)
                })
            });
            match cached {
                Err(Errno::AGAIN) => nonblocking::require_blocking()?,
                // Before Linux 5.12 (5.6), or if a sandbox does not know the call.
                Err(Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
                    self.has_cached_lookup.store(false, Ordering::Relaxed);
                }
                other => return other.map_err(translate),
            }
        }
        directory
            .with_fd(|fd| {
                self.descriptors.open(|| rustix::fs::openat(fd, name.as_c_str(), flags, Mode::empty()))
            })
            .map_err(translate)
    }
}
