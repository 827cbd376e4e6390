//! Mount points inside an export. What is mounted there is another file system, which no request reaches through this volume.

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use vfs::{Error, Handle, Result};

use crate::errno::translate;
use crate::name::Name;
use crate::object::Object;
use crate::streams;
use crate::sys;
use crate::volume::Volume;

/// Mount points of a volume that are logged at most.
const MAX_LOGGED: usize = 64;

/// Where another file system is mounted inside of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountPoint {
    /// The directory that the mount point is an entry of.
    pub directory: Handle,
    /// The inode number of the directory that the mount covers.
    pub covered_fileid: u64,
}

/// Mount points that are not logged (again).
#[derive(Debug, Default)]
pub(crate) struct LoggedMounts(Mutex<Quiet>);

#[derive(Debug, Default)]
struct Quiet {
    /// Those at which clients go on in another volume.
    served: HashSet<PathBuf>,
    /// Those that were refused and logged.
    logged: HashSet<PathBuf>,
}

impl LoggedMounts {
    /// Whether the mount point at the path that `path` makes is to be logged; returns the path then.
    fn first(&self, path: impl FnOnce() -> PathBuf) -> Option<PathBuf> {
        let mut quiet = self.0.lock();
        if quiet.logged.len() >= MAX_LOGGED {
            return None;
        }
        let path = path();
        let is_first = !quiet.served.contains(&path) && quiet.logged.insert(path.clone());
        is_first.then_some(path)
    }

    /// Replaces the mount points at which clients go on in another volume; the others are logged anew.
    pub(crate) fn set_served(&self, served: HashSet<PathBuf>) {
        *self.0.lock() = Quiet { served, logged: HashSet::new() };
    }
}

impl Volume {
    /// Returns the error for a mount point in `directory`: an export ends there. Logs it the first time.
    #[cold]
    pub(crate) fn refuse_mount(&self, directory: BorrowedFd<'_>, name: &CStr) -> Error {
        let path = || {
            let above = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()));
            above.unwrap_or_default().join(OsStr::from_bytes(name.to_bytes()))
        };
        if let Some(path) = self.logged_mounts.first(path) {
            tracing::warn!(
                ?path,
                "another file system is mounted inside an export: not served, clients get EACCES there; \
                 to serve it, give the export `submounts = \"serve\"` and reload (SIGHUP)"
            );
        }
        Error::Access
    }

    /// Does the same for an entry of an object.
    #[cold]
    pub(crate) fn refuse_mount_in(&self, directory: &Object, name: &Name) -> Error {
        directory.with_fd(|fd| self.refuse_mount(fd, name.as_c_str()))
    }

    /// Returns the place of the mount point at the path `below` the top, which goes through this file system.
    ///
    /// # Errors
    /// Those of looking it up.
    pub(crate) fn mount_point(&self, below: &Path) -> Result<MountPoint> {
        self.act_as_server();
        let name = below.file_name().ok_or(Error::BadName)?;
        let mut directory = Arc::clone(&self.root);
        for part in below.parent().into_iter().flat_map(Path::components) {
            let Component::Normal(part) = part else { return Err(Error::BadName) };
            directory = self.find(&directory, &Name::new(part.as_bytes())?)?;
        }
        self.sync_index()?;
        let stream = self.open_directory(&directory)?;
        let mut buffer = vec![0; streams::BUFFER_BYTES];
        loop {
            let filled = sys::getdents64(stream.as_fd(), &mut buffer).map_err(translate)?;
            if filled == 0 {
                return Err(Error::NotFound);
            }
            // A listing has the number of the covered directory, which no look at the name tells.
            let mut entries = streams::entries(&buffer[..filled]);
            if let Some(entry) = entries.find(|entry| entry.name.to_bytes() == name.as_bytes()) {
                return Ok(MountPoint { directory: directory.handle, covered_fileid: entry.inode });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mount_point_is_logged_once_and_no_more_than_the_bound() {
        let mounts = LoggedMounts::default();
        let is_first = |name: &str| mounts.first(|| name.into()).is_some();
        assert!(is_first("/srv/a") && !is_first("/srv/a") && is_first("/srv/b"));
        let logged = (0..2 * MAX_LOGGED).filter(|number| is_first(&format!("/srv/{number}"))).count();
        assert_eq!(logged, MAX_LOGGED - 2);
        mounts.set_served(["/srv/a".into()].into());
        assert!(!is_first("/srv/a"), "clients go on there");
        assert!(is_first("/srv/b"), "the exports were read again");
    }
}
