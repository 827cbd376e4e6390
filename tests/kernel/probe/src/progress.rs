//! A program's progress, in a file for a waiting script.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::{Checked, told};

/// Overwritten in place with a constant length: a reader always finds one number.
pub(crate) struct Progress(File);

impl Progress {
    /// Starts at zero.
    pub(crate) fn new(path: &Path) -> Result<Progress, String> {
        let progress = Progress(File::create(path).map_err(told(path))?);
        progress.tell(0)?;
        Ok(progress)
    }

    pub(crate) fn tell(&self, done: usize) -> Checked {
        self.0.write_all_at(format!("{done:>10}\n").as_bytes(), 0).map_err(told("progress"))
    }
}
