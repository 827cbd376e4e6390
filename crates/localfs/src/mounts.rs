//! Mount points inside an export. Requests through this volume do not reach the file systems mounted there.

use std::collections::HashSet;
use std::path::PathBuf;

use parking_lot::Mutex;
use vfs::Handle;

/// Maximum number of mount points of a volume that are logged.
const MAX_LOGGED: usize = 64;

/// A mount point inside an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountPoint {
    /// The directory that contains the mount point.
    pub directory: Handle,
    /// The inode number of the directory that the mount covers.
    pub covered_fileid: u64,
}

/// Mount points that are not logged (again).
#[derive(Debug, Default)]
pub(crate) struct LoggedMounts(Mutex<MountSets>);

#[derive(Debug, Default)]
struct MountSets {
    /// Mount points that another volume serves.
    served: HashSet<PathBuf>,
    /// Mount points that were refused and logged.
    logged: HashSet<PathBuf>,
}

impl LoggedMounts {
    /// Returns the path of a mount point if it has to be logged.
    pub(crate) fn first(&self, path: impl FnOnce() -> PathBuf) -> Option<PathBuf> {
        let mut sets = self.0.lock();
        if sets.logged.len() >= MAX_LOGGED {
            return None;
        }
        let path = path();
        let is_first = !sets.served.contains(&path) && sets.logged.insert(path.clone());
        is_first.then_some(path)
    }

    /// Replaces the mount points that other volumes serve. The others are logged again.
    pub(crate) fn set_served(&self, served: HashSet<PathBuf>) {
        *self.0.lock() = MountSets { served, logged: HashSet::new() };
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
        assert!(!is_first("/srv/a"), "another volume serves it");
        assert!(is_first("/srv/b"), "the exports were read again");
    }
}
