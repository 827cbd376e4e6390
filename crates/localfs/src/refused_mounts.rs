//! Refuses mount points inside an export.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

use vfs::Error;

use crate::name::Name;
use crate::object::Object;
use crate::volume::Volume;

impl Volume {
    /// Returns the error for a mount point in `directory`, where an export ends. Logs it the first time.
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

    /// As [`Self::refuse_mount`], for an entry of an object.
    #[cold]
    pub(crate) fn refuse_mount_in(&self, directory: &Object, name: &Name) -> Error {
        directory.with_fd(|fd| self.refuse_mount(fd, name.as_c_str()))
    }
}
