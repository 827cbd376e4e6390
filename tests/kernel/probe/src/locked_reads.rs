//! Reads files repeatedly under a lock in one process: the loop of the paper of 2015 on version 4.1 (§5.2).

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::sys::{self, Lock};
use crate::{Checked, same, told};

/// Bytes of each file.
const FILE_BYTES: usize = 4096;

/// Creates the files, and one more, `warm`.
pub(crate) fn populate(directory: &Path, files: usize) -> Checked {
    let mut all = (0..files).map(|number| name(directory, number)).chain([directory.join("warm")]);
    all.try_for_each(|path| fs::write(&path, [b'x'; FILE_BYTES]).map_err(told(&path)))
}

/// Opens, locks, reads, unlocks and closes each file `rounds` times before the next.
pub(crate) fn check(directory: &Path, files: usize, rounds: usize) -> Checked {
    let range = 0..i64::MAX as u64;
    for path in (0..files).map(|number| name(directory, number)) {
        for _ in 0..rounds {
            let mut file = File::open(&path).map_err(told(&path))?;
            sys::set_lock(&file, Lock::Read, &range, false).map_err(told(&path))?;
            let mut content = Vec::new();
            file.read_to_end(&mut content).map_err(told(&path))?;
            same("length", FILE_BYTES, content.len())?;
            sys::set_lock(&file, Lock::Unlock, &range, false).map_err(told(&path))?;
        }
    }
    Ok(())
}

fn name(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("file-{number}"))
}
