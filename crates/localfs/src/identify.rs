//! Finds handle and object of an open descriptor.

use std::hash::Hasher;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::Statx;
use vfs::{Attributes, Error, FileKind, Handle, Result};

use crate::attributes::{Snapshot, created, device_of, kind_of, status, status_and_mount};
use crate::errno::translate;
use crate::handle::{self, handle_on};
use crate::index::FileName;
use crate::name::Name;
use crate::object::{Object, OpenFile};
use crate::sync_state::SyncState;
use crate::sys::{self, KernelHandle};
use crate::volume::{Handles, Volume, mount_of};

/// File systems inside one export (btrfs subvolumes) whose ids are remembered; the ids of others are computed each
/// time.
const MAX_FSIDS: usize = 1024;

impl Volume {
    /// Returns the object of a descriptor that was opened as `name` of `directory`.
    pub(crate) fn insert_opened(
        &self,
        file: OpenFile,
        directory: &Object,
        name: &Name,
    ) -> Result<Arc<Object>> {
        let (handle, status) = self.identify(file.as_fd(), directory, name)?;
        Ok(self.cache_object(handle, &status, file))
    }

    /// As [`Self::insert_opened`], for an object that this server has just created.
    pub(crate) fn insert_created(
        &self,
        file: OpenFile,
        directory: &Object,
        name: &Name,
    ) -> Result<(Arc<Object>, Snapshot)> {
        let moment = self.changes.coarse_time();
        let (handle, status) = match self.identify_new(file.as_fd())? {
            Some(new) => new,
            None => self.identify(file.as_fd(), directory, name)?,
        };
        let object = self.cache_object(handle, &status, file);
        let snapshot = self.snapshot(&object, &status, moment, true);
        Ok((object, snapshot))
    }

    /// As [`identify`](Self::identify), for a file that this server created in a directory of the export, and so on
    /// no other mount. `None` if `identify` has to be called.
    fn identify_new(&self, fd: BorrowedFd<'_>) -> Result<Option<(Handle, Statx)>> {
        let Handles::Kernel { mount, usual, generations: Some(generations) } = &self.handles else {
            return Ok(None);
        };
        let result = generations.trial.result();
        if result == Some(false) {
            return Ok(None);
        }
        let (generation, status) = (sys::generation(fd).ok(), status(fd).map_err(translate)?);
        let made = generation.and_then(|generation| KernelHandle::of(*usual, status.stx_ino, generation));
        let kernel = match made.filter(|_| result.is_some()) {
            Some(made) => made,
            None => {
                let held = handle_on(*mount, fd, c"")?.ok_or(Error::Access)?;
                if result.is_none() {
                    generations.trial.record(generation.filter(|_| made.is_some_and(|made| made.is(&held))));
                }
                held
            }
        };
        Ok(Some((handle::from_kernel(&kernel)?, status)))
    }

    /// Returns handle and attributes of a descriptor that was opened as `name` of `directory`, without caching the
    /// object.
    ///
    /// # Errors
    /// [`Error::Access`] for a mount point: an export ends there.
    pub(crate) fn identify_opened(
        &self,
        fd: BorrowedFd<'_>,
        directory: &Object,
        name: &Name,
    ) -> Result<(Handle, Attributes)> {
        let moment = self.changes.coarse_time();
        let (handle, status) = self.identify(fd, directory, name)?;
        let fsid = self.fsid_of(fd, device_of(&status));
        Ok((handle, self.attributes_of_status(moment, &status, fsid)))
    }

    fn identify(&self, fd: BorrowedFd<'_>, directory: &Object, name: &Name) -> Result<(Handle, Statx)> {
        match &self.handles {
            Handles::Kernel { mount, .. } => {
                let kernel =
                    handle_on(*mount, fd, c"")?.ok_or_else(|| self.refuse_mount_in(directory, name))?;
                let status = status(fd).map_err(translate)?;
                self.require_shown(&status)?;
                Ok((handle::from_kernel(&kernel)?, status))
            }
            Handles::Indexed { index, mount } => {
                let status = status_and_mount(fd).map_err(translate)?;
                if mount_of(&status, self.root.key.0) != *mount {
                    return Err(self.refuse_mount_in(directory, name));
                }
                self.require_shown(&status)?;
                let key = self.file_key(&status, self.fsid_of(fd, device_of(&status)));
                let place = FileName { parent: index.id_of(&directory.handle)?, name: name.as_bytes() };
                // Directories have one name; their links count subdirectories.
                let is_linked = status.stx_nlink > 1 && kind_of(status.stx_mode) != FileKind::Directory;
                let id = index.remember(&key, &place, is_linked)?;
                if index.is_unsynced() {
                    self.cleanup_queue.wake();
                }
                Ok((handle::from_index(index.identity(), id), status))
            }
        }
    }

    /// Puts an object into the cache, or returns the existing one.
    pub(crate) fn cache_object(&self, handle: Handle, status: &Statx, file: OpenFile) -> Arc<Object> {
        let fsid = self.fsid_of(file.as_fd(), device_of(status));
        let make = |file| {
            let (key, sync_state) =
                ((device_of(status), status.stx_ino), SyncState::new(&self.dirty_objects));
            Object::new(handle, kind_of(status.stx_mode), fsid, (key, created(status)), file, sync_state)
        };
        let (present, file) = match self.objects.get_or_make(&handle, file, make) {
            Ok(made) => {
                if made.is_pinned() {
                    // Its descriptor had been closed.
                    self.bound_pinned();
                }
                return made;
            }
            Err(there) => there,
        };
        if file.reach.writes() {
            // Another request has looked up the new file already. This cannot fail.
            let _ = present.replace_file(|present| Ok((!present.reach.writes()).then_some(file)));
        }
        present
    }

    pub(crate) fn fsid_of(&self, fd: BorrowedFd<'_>, device: u64) -> u64 {
        if device == self.root.key.0 {
            return self.fsid;
        }
        let mut fsids = self.fsids.lock();
        if let Some(fsid) = fsids.get(&device) {
            return *fsid;
        }
        let fsid = nested_fsid(fd, self.fsid);
        if fsids.len() < MAX_FSIDS {
            fsids.insert(device, fsid);
        }
        fsid
    }
}

/// Returns the id of a file system inside the export (a btrfs subvolume).
fn nested_fsid(fd: BorrowedFd<'_>, fsid: u64) -> u64 {
    let mut hasher = siphasher::sip::SipHasher13::new_with_keys(0x656e_6679_735f_7375, 0x6276_6f6c_756d_6573);
    hasher.write_u64(fsid);
    hasher.write_u64(rustix::fs::fstatvfs(fd).map_or(0, |statvfs| statvfs.f_fsid));
    hasher.finish()
}
