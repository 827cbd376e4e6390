//! Checks of the files that clients may see ([`crate::hidden`]).

use std::collections::HashSet;
use std::sync::Arc;

use rustix::fs::Statx;
use vfs::{Error, Result};

use crate::attributes::{device_of, status_of_name};
use crate::name::Name;
use crate::object::Object;
use crate::streams::RawEntry;
use crate::volume::Volume;

impl Volume {
    /// Fails for a hidden file that was found by name.
    pub(crate) fn require_shown(&self, status: &Statx) -> Result<()> {
        match &self.hidden {
            Some(hidden) if hidden.hides_named(status) => Err(Error::NotFound),
            _ => Ok(()),
        }
    }

    /// Fails for a hidden file that was found by handle.
    pub(crate) fn require_shown_by_handle(&self, status: &Statx) -> Result<()> {
        match &self.hidden {
            Some(hidden) if hidden.hides(status) => Err(Error::Stale),
            _ => Ok(()),
        }
    }

    /// Fails for a hidden name.
    pub(crate) fn require_shown_name(&self, directory: &Object, name: &[u8]) -> Result<()> {
        match &self.hidden {
            Some(hidden) if hidden.is_socket(directory, name) => Err(Error::NotFound),
            _ => Ok(()),
        }
    }

    /// Returns inode numbers that may have to be left out of a listing made now; `None` if nothing is hidden.
    pub(crate) fn unlisted(&self) -> Option<Arc<HashSet<u64>>> {
        // If the directory cannot be listed, it is left out itself anyway.
        self.hidden.as_ref().map(|hidden| hidden.inodes().unwrap_or_default())
    }

    /// Returns whether an entry of a directory is left out of a listing; `unlisted` is from [`Self::unlisted`].
    pub(crate) fn hides_entry(
        &self,
        unlisted: Option<&HashSet<u64>>,
        directory: &Object,
        entry: &RawEntry<'_>,
    ) -> bool {
        let Some((hidden, unlisted)) = self.hidden.as_ref().zip(unlisted) else { return false };
        if hidden.is_socket(directory, entry.name.to_bytes()) {
            return true;
        }
        if entry.inode != hidden.key.1 && !unlisted.contains(&entry.inode) {
            return false;
        }
        // Inode numbers of other file systems inside the export may be the same. An entry whose status cannot be read
        // is left out.
        let status = directory.with_fd(|fd| status_of_name(fd, entry.name));
        status.map_or(true, |status| hidden.hides_named(&status))
    }

    /// Fails if a rename would move or replace a hidden file, or move a directory above one.
    pub(crate) fn require_movable(
        &self,
        (from, old): (&Object, &Name),
        (to, new): (&Object, &Name),
    ) -> Result<()> {
        let Some(hidden) = &self.hidden else { return Ok(()) };
        let look =
            |directory: &Object, name: &Name| directory.with_fd(|fd| status_of_name(fd, name.as_c_str()));
        let hides = |directory: &Object, name: &Name, found: &rustix::io::Result<Statx>| {
            hidden.is_socket(directory, name.as_bytes())
                || found.as_ref().is_ok_and(|status| hidden.hides_named(status))
        };
        let (moved, replaced) = (look(from, old), look(to, new));
        if hides(from, old, &moved) {
            return Err(Error::NotFound);
        }
        if hides(to, new, &replaced) {
            return Err(Error::Exists);
        }
        let is_above = |status: &Statx| hidden.above.contains(&(device_of(status), status.stx_ino));
        if moved.is_ok_and(|status| is_above(&status)) { Err(Error::Access) } else { Ok(()) }
    }
}
