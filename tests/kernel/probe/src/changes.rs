//! Changes of names while the server is restarted: an executed change must not fail after the restart.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::progress::Progress;
use crate::{Checked, same, told};

/// Creates `directory` and changes names in it until `stop` exists; each round leaves one file.
pub(crate) fn make(directory: &Path, progress: &Path, stop: &Path) -> Checked {
    let progress = Progress::new(progress)?;
    fs::create_dir(directory).map_err(told(directory))?;
    let mut rounds = 0;
    while !stop.exists() {
        rounds += 1;
        round(directory, rounds)?;
        progress.tell(rounds)?;
    }
    let left = fs::read_dir(directory).map_err(told(directory))?.count();
    same("files left", rounds, left)
}

/// None of these may fail: no other program uses these names.
fn round(directory: &Path, number: usize) -> Checked {
    let at = |kind: &str| directory.join(format!("{kind}{number}"));
    let (inner, link, moved, pointer, fifo) = (at("d"), at("link"), at("moved"), at("symlink"), at("fifo"));
    let path = inner.join("file");
    fs::create_dir(&inner).map_err(told(&inner))?;
    let mut file = File::options().write(true).create_new(true).open(&path).map_err(told(&path))?;
    file.write_all(number.to_string().as_bytes()).map_err(told(&path))?;
    drop(file);
    fs::hard_link(&path, &link).map_err(told(&link))?;
    fs::rename(&link, &moved).map_err(told(&moved))?;
    symlink(&moved, &pointer).map_err(told(&pointer))?;
    mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o644), 0).map_err(told(&fifo))?;
    let text = fs::read_to_string(&pointer).map_err(told(&pointer))?;
    same("what was written", number.to_string(), text)?;
    for name in [&fifo, &pointer, &path] {
        fs::remove_file(name).map_err(told(name))?;
    }
    fs::remove_dir(&inner).map_err(told(&inner))
}
