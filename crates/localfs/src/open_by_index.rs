//! Opens a file by its number in the index: goes up to a directory that is open, then down again, name by name.
//!
//! No path is built, so that neither `PATH_MAX` nor the stack bounds the depth. Each directory on the way stays in
//! the cache, and the next file below it is found from there.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use vfs::{Error, Result};

use crate::attributes::{device_of, status};
use crate::errno::translate;
use crate::handle;
use crate::index::{FileKey, FileName, Index, ROOT};
use crate::name::Name;
use crate::nonblocking;
use crate::object::{Object, Reach};
use crate::sys;
use crate::volume::Volume;

/// Directories that are opened in place; more of them are opened on the pool.
const STEPS_IN_PLACE: usize = 32;

/// A directory to open, and its last location in the index.
struct Step {
    id: u64,
    key: FileKey,
    name: Vec<u8>,
}

impl Volume {
    /// Opens a file at its last location in the index. If the name leads elsewhere now, the file is searched for in the
    /// same directory.
    ///
    /// # Errors
    /// [`Error::Stale`] if it is missing. See [`nonblocking::require_blocking`].
    pub(crate) fn open_by_index(&self, index: &Index, id: u64) -> Result<OwnedFd> {
        self.act_as_server();
        let known = index.find(id)?.ok_or(Error::Stale)?;
        for (parent, name) in &known.places {
            let directory = match self.open_parents(index, *parent) {
                Ok(directory) => directory,
                Err(Error::Stale | Error::BadHandle) => continue,
                Err(error) => return Err(error),
            };
            if let Some(fd) = self.open_in(index, &directory, name, &known.key)? {
                return Ok(fd);
            }
        }
        Err(Error::Stale)
    }

    /// Opens the directory of a number and all directories above it.
    fn open_parents(&self, index: &Index, id: u64) -> Result<Arc<Object>> {
        let (mut directory, mut steps) = self.unopened_parents(index, id)?;
        if steps.len() > STEPS_IN_PLACE {
            nonblocking::require_blocking()?;
            self.act_as_server();
        }
        while let Some(step) = steps.pop() {
            let fd = self.open_in(index, &directory, &step.name, &step.key)?.ok_or(Error::Stale)?;
            let status = status(fd.as_fd()).map_err(translate)?;
            self.require_shown_by_handle(&status)?;
            let handle = handle::from_index(index.identity(), step.id);
            directory = self.cache_object(handle, &status, self.file_of(fd, Reach::Path));
        }
        Ok(directory)
    }

    /// Returns the first directory at or above `id` that is open, and the directories to open below it, the last
    /// first.
    fn unopened_parents(&self, index: &Index, id: u64) -> Result<(Arc<Object>, Vec<Step>)> {
        let (mut steps, mut seen, mut id) = (Vec::new(), HashSet::new(), id);
        loop {
            if id == ROOT {
                return Ok((Arc::clone(&self.root), steps));
            }
            if let Some(directory) = self.objects.get(&handle::from_index(index.identity(), id)) {
                return Ok((directory, steps));
            }
            // Local processes may have moved directories into each other, and the index has seen them at different
            // times.
            if !seen.insert(id) {
                return Err(Error::Stale);
            }
            // A directory has one name.
            let known = index.find(id)?.ok_or(Error::Stale)?;
            let (parent, name) = known.places.into_iter().next().ok_or(Error::Stale)?;
            steps.push(Step { id, key: known.key, name });
            id = parent;
        }
    }

    /// Opens the file of `key` in a directory, under this name or another; `None` if it is missing.
    fn open_in(
        &self,
        index: &Index,
        directory: &Object,
        name: &[u8],
        key: &FileKey,
    ) -> Result<Option<OwnedFd>> {
        if let Some(fd) = self.open_known(directory, name, key)? {
            return Ok(Some(fd));
        }
        let Some((fd, name)) = self.search(directory, key)? else { return Ok(None) };
        let place = FileName { parent: index.id_of(&directory.handle)?, name: name.as_bytes() };
        index.remember(key, &place, false)?;
        Ok(Some(fd))
    }

    /// Opens `name` if it is the file of `key`.
    fn open_known(&self, directory: &Object, name: &[u8], key: &FileKey) -> Result<Option<OwnedFd>> {
        let Ok(name) = Name::new(name) else { return Ok(None) };
        match self.open_path(directory, &name) {
            Ok(fd) => {
                let status = status(fd.as_fd()).map_err(translate)?;
                let found = self.file_key(&status, self.fsid_of(fd.as_fd(), device_of(&status)));
                Ok((found == *key).then_some(fd))
            }
            Err(Error::NotFound | Error::NotDirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Searches a directory for the file of `key`, which a local process may have renamed.
    fn search(&self, directory: &Object, key: &FileKey) -> Result<Option<(OwnedFd, Name)>> {
        let stream = self.open_directory(directory)?;
        let mut buffer = vec![0; crate::streams::BUFFER_BYTES];
        loop {
            let filled = sys::getdents64(stream.as_fd(), &mut buffer).map_err(translate)?;
            if filled == 0 {
                return Ok(None);
            }
            for entry in crate::streams::entries(&buffer[..filled]) {
                let name = entry.name.to_bytes();
                if entry.inode != key.inode || matches!(name, b"." | b"..") {
                    continue;
                }
                if let Some(fd) = self.open_known(directory, name, key)? {
                    return Ok(Some((fd, Name::new(name)?)));
                }
            }
        }
    }
}
