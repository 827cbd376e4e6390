//! Mount points inside an export. What is mounted there is another file system, which no request reaches through this volume.

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use parking_lot::Mutex;
use vfs::Error;

use crate::name::Name;
use crate::object::Object;
use crate::volume::Volume;

/// Mount points of a volume that are logged at most.
const MAX_LOGGED: usize = 64;

/// Refused mount points that are in the log.
#[derive(Debug, Default)]
pub(crate) struct LoggedMounts(Mutex<HashSet<PathBuf>>);

impl LoggedMounts {
    /// Whether the mount point at the path that `path` makes is to be logged; returns the path then.
    fn first(&self, path: impl FnOnce() -> PathBuf) -> Option<PathBuf> {
        let mut logged = self.0.lock();
        if logged.len() >= MAX_LOGGED {
            return None;
        }
        let path = path();
        logged.insert(path.clone()).then_some(path)
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
                 to serve it, give it an [[export]] of its own"
            );
        }
        Error::Access
    }

    /// Does the same for an entry of an object.
    #[cold]
    pub(crate) fn refuse_mount_in(&self, directory: &Object, name: &Name) -> Error {
        directory.with_fd(|fd| self.refuse_mount(fd, name.as_c_str()))
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
    }
}
