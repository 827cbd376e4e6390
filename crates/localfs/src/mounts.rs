//! Mount points inside an export. What is mounted there is another file system, which no request reaches through this volume.

use std::collections::HashSet;
use std::path::PathBuf;

use parking_lot::Mutex;
use vfs::Handle;

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
    pub(crate) fn first(&self, path: impl FnOnce() -> PathBuf) -> Option<PathBuf> {
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
