//! Checks whether this machine meets the requirements of a plan.

use std::ffi::OsString;
use std::path::Path;

use rustix::fs::{Access, access};

use crate::machine;
use crate::plan::Machine;

/// Beginnings of the types of file systems whose files are on servers, as /proc/mounts has them.
const REMOTE: [&str; 8] = ["nfs", "fuse.", "cifs", "smb", "9p", "ceph", "lustre", "afs"];

/// Returns where programs are searched.
pub(crate) fn search_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Server programs are in `sbin` directories, which other users' PATH lacks.
    let places = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/bin"].map(Into::into));
    std::env::join_paths(places).unwrap_or(path.clone())
}

/// The machine that this process runs on.
#[derive(Clone, Copy, Debug)]
pub struct ThisMachine;

impl Machine for ThisMachine {
    fn has_program(&self, name: &str) -> bool {
        let path = search_path();
        std::env::split_paths(&path).any(|place| access(place.join(name), Access::EXEC_OK).is_ok())
    }

    fn has_file(&self, path: &Path) -> bool {
        path.exists()
    }

    fn can_write(&self, directory: &Path) -> Result<(), String> {
        if !directory.is_dir() {
            return Err("not a directory".to_owned());
        }
        access(directory, Access::WRITE_OK).map_err(|error| error.to_string())
    }

    fn is_remote(&self, directory: &Path) -> bool {
        let kind = machine::Machine::here(directory).file_system;
        REMOTE.iter().any(|prefix| kind.starts_with(prefix))
    }

    fn is_root(&self) -> bool {
        rustix::process::geteuid().is_root()
    }
}
