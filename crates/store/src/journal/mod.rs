//! The device of an export's journal ([`vfs::journal`]): a file of fixed size, written by one thread.
//!
//! The file is written full of zeros when it is created, so that later writes change neither its size nor its blocks, and their syncs
//! write nothing else. The [marker](marker) in the state directory says that a journal is in use: then a journal that
//! is missing or replaced is noticed.

pub mod marker;
mod writer;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FlockOperation;
use vfs::journal::{Found, LOG_BYTES_MAX, Scan, scan};

use crate::disk_space::zero;
use crate::files::{error_text, open_file, sync_parent};

pub use writer::JournalWriter;

/// A journal's file, locked for this process.
#[derive(Debug)]
pub struct JournalFile {
    file: File,
    bytes: u64,
}

/// What is expected of a journal's file.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// The file system that it is for.
    pub identity: [u8; 16],
    /// Bytes of a new file.
    pub bytes: u64,
    /// The random number of the journal that was in use when the last server ended, if it did not end in order.
    pub in_use: Option<[u8; 16]>,
    /// Whether a lost journal is accepted.
    pub may_be_lost: bool,
}

/// What follows if a journal is lost.
const CONSEQUENCE: &str = "changes that clients were told are safe may be lost: restore it, or accept the loss with \
                           --ignore-lost-journals";

impl JournalFile {
    /// Opens the file, or creates it. Returns the log in it, unless it is new.
    ///
    /// # Errors
    /// One line that says what is wrong with it, and what to do.
    pub fn open(path: &Path, expected: Expected) -> Result<(Self, Option<Found>), String> {
        let failed = |error: io::Error| format!("journal {}: {}", path.display(), error_text(&error));
        let error = |why: &str| format!("journal {}: {why}", path.display());
        let lost = |why: &str| match expected.may_be_lost {
            true => Ok(()),
            false => Err(error(&format!("{why}, and {CONSEQUENCE}"))),
        };
        check_place(path).map_err(|why| error(&why))?;
        let mut file = match open_file(path, OpenOptions::new().read(true).write(true)) {
            Ok(file) => file,
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                if expected.in_use.is_some() {
                    lost("it is missing")?;
                }
                return Self::create(path, expected.bytes).map(|file| (file, None)).map_err(failed);
            }
            Err(why) => return Err(failed(why)),
        };
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(error("another export or server uses it: give each its own"));
        }
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(failed)?;
        let found = match scan(&content) {
            Scan::Log(found) => found,
            Scan::Empty => {
                if expected.in_use.is_some() {
                    lost("it is empty")?;
                }
                return Self::fill(file, path, expected.bytes).map(|file| (file, None)).map_err(failed);
            }
            Scan::Unknown(why) => {
                return Err(error(&format!("{why}: give another path, or remove it to lose what it has")));
            }
        };
        if found.identity() != expected.identity {
            return Err(error("it belongs to another file system: give each export its own"));
        }
        if expected.in_use.is_some_and(|key| key != found.key()) {
            lost("it is not the one that the last server used")?;
        }
        if found.is_damaged {
            lost("it is damaged")?;
        }
        Ok((Self { file, bytes: content.len() as u64 }, Some(found)))
    }

    fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let file = open_file(path, OpenOptions::new().read(true).write(true).create_new(true))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Self::fill(file, path, bytes)
    }

    /// Writes zeros.
    fn fill(file: File, path: &Path, bytes: u64) -> io::Result<Self> {
        file.set_len(0)?;
        zero(&file, 0, bytes)?;
        file.sync_all()?;
        sync_parent(path)?;
        Ok(Self { file, bytes })
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Users other than the owner may read.
const OTHERS_READ: u32 = 0o077;
/// Users other than the owner may write.
const OTHERS_WRITE: u32 = 0o022;
/// Only owners may replace files in a directory.
const STICKY: u32 = 0o1000;

/// Fails if other users could read the journal, which has content of files, or replace it; and if it is something else than a
/// file.
fn check_place(path: &Path) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    let directory = path.parent().unwrap_or(Path::new("/"));
    let shown = directory.display();
    let found = directory.metadata().map_err(|error| format!("{shown}: {}", error_text(&error)))?;
    if ![0, own].contains(&found.uid()) || (found.mode() & OTHERS_WRITE != 0 && found.mode() & STICKY == 0) {
        return Err(format!(
            "other users can change its directory (mode {:04o}): run `chmod go-w {shown}`, or give it \
                            a directory of the server's user",
            found.mode() & 0o7777
        ));
    }
    // As a symbolic link, it is refused when it is opened.
    let Ok(found) = path.symlink_metadata() else { return Ok(()) };
    if found.is_symlink() {
        return Ok(());
    }
    if !found.is_file() || found.len() > LOG_BYTES_MAX {
        return Err("it is not a journal: give another path".into());
    }
    if found.uid() != own || found.mode() & OTHERS_READ != 0 {
        let mode = found.mode() & 0o7777;
        let shown = path.display();
        return Err(format!(
            "other users have access to it (mode {mode:04o}): run `chown {own} {shown}; chmod 600 {shown}`"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
