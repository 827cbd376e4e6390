//! Checks whether this machine meets the requirements of a plan.

use std::path::Path;

use rustix::fs::{Access, access};

use crate::plan::Machine;

/// The machine that this process runs on.
#[derive(Clone, Copy, Debug)]
pub struct ThisMachine;

impl Machine for ThisMachine {
    fn has_program(&self, name: &str) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Server programs are in `sbin` directories, which other users' PATH lacks.
        let places = std::env::split_paths(&path).chain(["/usr/sbin", "/usr/bin"].map(Into::into));
        places.into_iter().any(|place| access(place.join(name), Access::EXEC_OK).is_ok())
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

    fn is_root(&self) -> bool {
        rustix::process::geteuid().is_root()
    }
}
