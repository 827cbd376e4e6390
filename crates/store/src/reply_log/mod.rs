//! The reply log: calls that are not idempotent, and their replies ([`server::ReplyLog`]).
//!
//! **Purpose.** After a crash of the server, clients repeat calls that they have no reply to. The next server finds in this log
//! whether such a call was executed, and its reply.
//!
//! **Format.** A file of fixed size, mapped into memory, is a ring of records.
//!
//! ```text
//! file    header (64 bytes: magic with version (8), boot ID (16), key of checksums (16), 1 if the log is synced, zeros),
//!         then cells of 64 bytes
//! record  number (8), length (4), content, checksum of all that (4), zeros to the end of its last cell
//! ```
//!
//! The checksum is CRC-32C (RFC 3720 appendix B.4), which the processor computes, seeded with the key. A keyed 64-bit hash took
//! 9 % of the instructions of a CREATE or REMOVE.
//!
//! A record never crosses the end of the file. Before it overwrites an older record, the rest of that one is cleared. So each
//! cell of an intact file is zero or part of a whole record; anything else is damage.
//!
//! **Crashes.** The records survive the end of the process, because the kernel has them. Nothing is synced here: a crash of
//! the machine may lose the last records or only earlier ones, and the changes that they record. So a log that was written
//! before the last boot is not read, unless its header says that it was [synced](crate::synced_reply_log). A record with a wrong
//! checksum is skipped.
//!
//! **Bounds.** 16 MiB, some 25,000 calls; the oldest record is overwritten first. A record has at most [`RECORD_BYTES_MAX`] bytes.
//!
//! [`RECORD_BYTES_MAX`]: server::RECORD_BYTES_MAX

mod format;
mod ring;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::files::{error_text, open_file};
use crate::{disk_space, mapping};
pub use format::boot_id;
use format::{FILE_BYTES, Key, Scan};
use ring::Ring;

/// A reply log in use.
#[derive(Debug)]
pub struct FileReplyLog {
    ring: Mutex<Ring>,
}

/// Content of a log when it was opened.
#[derive(Debug, Default)]
pub struct RecoveredCalls {
    /// The records, oldest first.
    pub records: Vec<Vec<u8>>,
    /// One line that names unreadable parts, if there are any.
    pub damage: Option<String>,
    /// One line that says that the log was not read because it was written before the last boot.
    pub outdated: Option<String>,
}

/// The failures that a log survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// A crash of the process.
    Process,
    /// A crash of the machine: its user syncs it.
    Machine,
}

impl FileReplyLog {
    /// Opens or creates the log. A file that is not a log is replaced.
    ///
    /// # Errors
    /// One line that names the file: it cannot be opened, or the disk has no space for it.
    pub fn open(path: &Path) -> Result<(Self, RecoveredCalls), String> {
        Self::open_with(path, Durability::Process).map(|(log, _, recovered)| (log, recovered))
    }

    /// As [`Self::open`], and returns the file, so that it can be synced.
    pub(crate) fn open_with(
        path: &Path,
        durability: Durability,
    ) -> Result<(Self, File, RecoveredCalls), String> {
        let open = || -> io::Result<_> {
            let file =
                open_file(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))?;
            let (key, locations, damaged, mut recovered) = recover(path, &file)?;
            recovered.records =
                locations.iter().map(|record| format::read(&file, record)).collect::<io::Result<_>>()?;
            format::mark(&file, &key, durability == Durability::Machine)?;
            let mut ring = Ring::new(mapping::map(&file, FILE_BYTES)?, &key, &locations);
            if damaged > 0 {
                ring.clear_damage();
                let what = format!("damaged in {damaged} places: records there are lost");
                recovered.damage = Some(format!("{}: {what}", path.display()));
            }
            Ok((Self { ring: Mutex::new(ring) }, file, recovered))
        };
        open().map_err(|error| format!("{}: {}", path.display(), error_text(&error)))
    }
}

impl server::ReplyLog for FileReplyLog {
    fn append(&self, parts: &[&[u8]]) {
        self.ring.lock().append(parts);
    }
}

/// Scans the file, and makes an empty log of one that cannot be used. Returns the key, the records, and the number of damaged
/// places.
fn recover(path: &Path, file: &File) -> io::Result<(Key, Vec<format::Location>, usize, RecoveredCalls)> {
    let line = |what: &str| Some(format!("{}: {what}: started empty", path.display()));
    let mut recovered = RecoveredCalls::default();
    match format::scan(file)? {
        Scan::Log { key, records, damaged } => return Ok((key, records, damaged, recovered)),
        Scan::Unknown(what) => recovered.damage = line(what),
        Scan::BeforeBoot => recovered.outdated = line("written before the last boot"),
        Scan::Empty => {}
    }
    Ok((create(file)?, Vec::new(), 0, recovered))
}

/// Makes the log empty, regardless of the file's content.
fn create(file: &File) -> io::Result<Key> {
    // The header comes last: with it, everything after it is zero.
    if file.metadata()?.len() == FILE_BYTES as u64 {
        // Its space stays allocated: a full disk would have none.
        disk_space::zero(file, 0, FILE_BYTES as u64)?;
    } else {
        allocate(file)?;
    }
    format::write_header(file)
}

/// Makes the file one of zeros whose space is allocated.
fn allocate(file: &File) -> io::Result<()> {
    file.set_len(0)?;
    // Otherwise a full disk would be a SIGBUS.
    disk_space::overwrite_in_place(file);
    let allocated =
        disk_space::allocate(file, FILE_BYTES as u64).and_then(|()| file.set_len(FILE_BYTES as u64));
    // Frees a part that was allocated.
    allocated.inspect_err(|_| _ = file.set_len(0))
}

/// Returns the path of the log in a state directory.
pub fn path_in(state_directory: &Path) -> PathBuf {
    state_directory.join("replies.log")
}

#[cfg(test)]
mod tests;
