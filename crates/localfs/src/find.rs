//! Finds the object of a name, or its handle and attributes alone.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::StatxFlags;
use vfs::{Attributes, Handle, Result};

use crate::attributes::{changed, created, device_of, status_of_name};
use crate::change::{nanoseconds, present_ns};
use crate::errno::translate;
use crate::generations::is_past;
use crate::handle::{self, handle_on};
use crate::name::Name;
use crate::nonblocking;
use crate::object::{Object, Reach};
use crate::sys::KernelHandle;
use crate::volume::{Handles, Volume};

impl Volume {
    /// Returns the object of a name. [`Volume::enter`] must have been called on this thread.
    pub(crate) fn find(&self, directory: &Object, name: &Name) -> Result<Arc<Object>> {
        self.require_shown_name(directory, name.as_bytes())?;
        let fd = match &self.handles {
            Handles::Kernel { .. } => self.require_cached(directory, name)?,
            Handles::Indexed { .. } => None,
        };
        self.find_opened(directory, name, fd)
    }

    /// Returns the object of a name, and its attributes if the lookup has read them.
    pub(crate) fn find_with_attributes(
        &self,
        directory: &Object,
        name: &Name,
    ) -> Result<(Arc<Object>, Option<Attributes>)> {
        if matches!(self.handles, Handles::Indexed { .. }) {
            return Ok((self.find(directory, name)?, None));
        }
        self.require_shown_name(directory, name.as_bytes())?;
        let fd = self.require_cached(directory, name)?;
        if fd.is_none()
            && let Some((handle, attributes)) =
                directory.with_fd(|fd| self.stat_name(fd, name.as_c_str(), present_ns()))?
            && let Some(object) = self.objects.get(&handle)
        {
            return Ok((object, Some(attributes)));
        }
        Ok((self.find_opened(directory, name, fd)?, None))
    }

    /// As [`Self::find`], after [`Self::require_cached`].
    fn find_opened(&self, directory: &Object, name: &Name, fd: Option<OwnedFd>) -> Result<Arc<Object>> {
        if let Handles::Kernel { mount, .. } = &self.handles {
            let kernel = match &fd {
                Some(fd) => handle_on(*mount, fd.as_fd(), c"")?,
                None => directory.with_fd(|fd| handle_on(*mount, fd, name.as_c_str()))?,
            };
            let kernel = kernel.ok_or_else(|| self.refuse_mount_in(directory, name))?;
            if let Some(object) = self.objects.get(&handle::from_kernel(&kernel)?) {
                return Ok(object);
            }
        }
        let fd = match fd {
            Some(fd) => fd,
            None => self.open_path(directory, name)?,
        };
        self.insert_opened(self.file_of(fd, Reach::Path), directory, name)
    }

    /// Fails if a lookup of `name` may block. Returns the descriptor if the check had to open the name.
    ///
    /// # Errors
    /// See [`nonblocking::require_blocking`]; the errors of a lookup.
    pub(crate) fn require_cached(&self, directory: &Object, name: &Name) -> Result<Option<OwnedFd>> {
        if self.is_in_memory {
            return Ok(None);
        }
        let hash = self.cached_names.hasher(directory).hash_name(name.as_bytes());
        if self.cached_names.contains(hash) {
            return Ok(None);
        }
        let fd = if nonblocking::may_block() { None } else { Some(self.open_path(directory, name)?) };
        self.cached_names.insert(hash);
        Ok(fd)
    }

    /// Returns handle and attributes of `name` without opening it; `present_ns` is the time before the call. `None`
    /// if the two may belong to different objects, because the name changed in between, or if this cannot be
    /// determined.
    ///
    /// # Errors
    /// The errors of a lookup; [`vfs::Error::Access`] for a mount point; [`vfs::Error::NotFound`] for hidden files.
    pub(crate) fn stat_name(
        &self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        present_ns: u64,
    ) -> Result<Option<(Handle, Attributes)>> {
        let Handles::Kernel { mount, usual, generations: Some(generations) } = &self.handles else {
            return Ok(None);
        };
        let look = || status_of_name(directory, name).map_err(translate);
        let moment = self.changes.coarse_time();
        let status = look()?;
        if status.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
            return Ok(None);
        }
        if i64::from(*mount) as u64 != status.stx_mnt_id {
            return Err(self.refuse_mount(directory, name));
        }
        if device_of(&status) != self.root.key.0 {
            return Ok(None);
        }
        self.require_shown(&status)?;
        let handle_and_attributes = |kernel: &KernelHandle, status| {
            Ok(Some((handle::from_kernel(kernel)?, self.attributes_of_status(moment, status, self.fsid))))
        };
        let generation = generations.get(status.stx_ino, nanoseconds(changed(&status)));
        if let Some(kernel) =
            generation.and_then(|generation| KernelHandle::of(*usual, status.stx_ino, generation))
        {
            return handle_and_attributes(&kernel, &status);
        }
        let is_past = |status| {
            let changed_ns = nanoseconds(changed(status));
            is_past(self.properties.time_delta_ns, changed_ns, present_ns)
        };
        let was_there =
            |status| is_past(status) || created(status).is_some_and(|born| nanoseconds(born) < present_ns);
        if !was_there(&status) {
            return Ok(None);
        }
        let Some(kernel) = handle_on(*mount, directory, name)? else {
            return Ok(None);
        };
        // Read once more after the handle. Equal inode numbers are not enough, because a removed file's number may be
        // given to a new file at once. But a file that existed before `present_ns` had its number when the handle was
        // taken, and no other file had it meanwhile.
        let status = look()?;
        let Some((_, generation)) = kernel.identity().filter(|(inode, _)| *inode == status.stx_ino) else {
            return Ok(None);
        };
        if is_past(&status) && kernel.form() == *usual {
            generations.remember(status.stx_ino, nanoseconds(changed(&status)), generation);
        }
        let is_one = was_there(&status) && device_of(&status) == self.root.key.0;
        if is_one { handle_and_attributes(&kernel, &status) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::sys;

    fn volume(directory: &std::path::Path) -> Arc<Volume> {
        let top = directory.join("export");
        std::fs::create_dir(&top).expect("directory");
        let config = Config { state_directory: Some(directory.join("state")), ..Config::new(top) };
        crate::probe::open(&config).expect("volume")
    }

    /// Returns handle and change time of `f` from the kernel.
    fn by_kernel(volume: &Volume) -> (Handle, u64) {
        let (kernel, _) = sys::name_to_handle_at(volume.root_fd.as_fd(), c"f").expect("handle");
        let status = status_of_name(volume.root_fd.as_fd(), c"f").expect("status");
        (handle::from_kernel(&kernel).expect("short"), nanoseconds(changed(&status)))
    }

    #[test]
    fn a_reused_inode_number_gets_its_own_handle() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let volume = volume(directory.path());
        if !matches!(volume.handles, Handles::Kernel { .. }) {
            return; // Nothing is remembered of generations.
        }
        let (file, name) = (directory.path().join("export/f"), Name::new(b"f").expect("a name"));
        let mut handles = std::collections::HashSet::new();
        // Many within each tick, and over many ticks.
        for _ in 0..3000 {
            std::fs::write(&file, b"").expect("new file");
            let expected = by_kernel(&volume).0;
            for _ in 0..2 {
                let seen =
                    volume.stat_name(volume.root_fd.as_fd(), name.as_c_str(), present_ns()).expect("found");
                assert!(seen.is_none_or(|(handle, _)| handle == expected));
            }
            handles.insert(expected);
            std::fs::remove_file(&file).expect("removed");
        }
        assert!(handles.len() > 1, "they are different files");
    }

    #[test]
    fn a_generation_from_before_this_tick_is_remembered_until_the_next_change() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let volume = volume(directory.path());
        let Handles::Kernel { generations: Some(generations), .. } = &volume.handles else {
            return; // Handles of another form, or none.
        };
        let (file, name) = (directory.path().join("export/f"), Name::new(b"f").expect("a name"));
        std::fs::write(&file, b"content").expect("new file");
        let (expected, changed_ns) = by_kernel(&volume);
        let inode = status_of_name(volume.root_fd.as_fd(), c"f").expect("status").stx_ino;
        while !is_past(volume.properties.time_delta_ns, changed_ns, present_ns()) {
            std::thread::yield_now();
        }
        for _ in 0..2 {
            let (handle, attributes) = volume
                .stat_name(volume.root_fd.as_fd(), name.as_c_str(), present_ns())
                .expect("found")
                .expect("unambiguous");
            assert_eq!((handle, attributes.size), (expected, 7));
            assert!(generations.get(inode, changed_ns).is_some());
        }
        std::fs::write(&file, b"another content").expect("changed");
        let (_, changed_ns) = by_kernel(&volume);
        assert_eq!(generations.get(inode, changed_ns), None);
        let (handle, attributes) = volume
            .stat_name(volume.root_fd.as_fd(), name.as_c_str(), present_ns())
            .expect("found")
            .expect("unambiguous");
        assert_eq!((handle, attributes.size), (expected, 15));
    }

    #[test]
    fn a_file_that_may_have_been_created_during_the_lookup_is_not_accepted() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let volume = volume(directory.path());
        std::fs::write(directory.path().join("export/f"), b"").expect("new file");
        let name = Name::new(b"f").expect("a name");
        let opened = volume.open_path(&volume.root, &name).expect("open");
        let (by_opening, attributes) =
            volume.identify_opened(opened.as_fd(), &volume.root, &name).expect("look");
        let seen_at =
            |at_ns| volume.stat_name(volume.root_fd.as_fd(), name.as_c_str(), at_ns).expect("found");
        let is_distinguished = matches!(&volume.handles, Handles::Kernel { generations: Some(_), .. })
            && attributes.created.is_some();
        let born_ns = attributes.created.map_or(0, nanoseconds);
        // The first may be a file that got the number after the handle was taken; the second cannot.
        assert_eq!(seen_at(born_ns), None);
        assert_eq!(seen_at(born_ns + 1).is_some(), is_distinguished);
        // Both ways return the same object.
        if let Some((handle, seen)) = seen_at(u64::MAX) {
            assert_eq!((handle, seen.fileid), (by_opening, attributes.fileid));
        }
    }
}
