//! Targets of workloads: files of a server through Enfys's client, or of a mounted directory.
//!
//! A workload is written once against [`Files`] and [`OpenFile`]. [`nfs`] implements them with the client, whose calls wait
//! without blocking a thread; [`directory`] with system calls, which block. [`local`] starts servers.

pub mod directory;
pub mod local;
pub mod nfs;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;

use crate::result::{ClientCounters, RequestCounters};

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The error number, if there is one.
    pub errno: Option<i32>,
    /// The operation, its object, and why it failed.
    pub text: String,
}

impl Fault {
    /// Returns a fault without an error number.
    pub fn new(text: impl Into<String>) -> Self {
        Self { errno: None, text: text.into() }
    }

    /// Returns whether something was missing (`ENOENT`).
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.errno == Some(libc::ENOENT)
    }

    /// Returns whether something existed already (`EEXIST`).
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.errno == Some(libc::EEXIST)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Options of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Whether it is created if it is missing (`O_CREAT`).
    pub create: bool,
    /// Whether its content is dropped (`O_TRUNC`).
    pub truncate: bool,
    /// Whether each write is stable before it returns (`O_SYNC`).
    pub sync: bool,
}

impl How {
    /// For reading an existing file.
    pub const READ: Self = Self { read: true, write: false, create: false, truncate: false, sync: false };
    /// For writing an existing file.
    pub const WRITE: Self = Self { read: false, write: true, ..Self::READ };
    /// For creating or overwriting a file.
    pub const CREATE: Self = Self { create: true, truncate: true, ..Self::WRITE };
    /// For reading and writing.
    pub const BOTH: Self = Self { write: true, ..Self::READ };
}

/// The attributes that workloads look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Size in bytes.
    pub size: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// The destination of a READ: slices of received records, or one reused buffer.
#[derive(Debug, Default)]
pub struct Buffer {
    parts: Vec<Bytes>,
    bytes: Vec<u8>,
    length: usize,
}

impl Buffer {
    /// Accepts received data, and returns their length.
    fn take_parts(&mut self, parts: Vec<Bytes>) -> usize {
        self.length = parts.iter().map(Bytes::len).sum();
        self.parts = parts;
        self.length
    }

    /// Returns `count` bytes to be filled. The next call reuses the memory.
    fn space(&mut self, count: usize) -> &mut [u8] {
        self.parts.clear();
        if self.bytes.len() < count {
            self.bytes.resize(count, 0);
        }
        &mut self.bytes[..count]
    }

    /// Sets how much of the space was filled, and returns that.
    fn filled(&mut self, length: usize) -> usize {
        self.length = length;
        length
    }

    /// Returns the data, in order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let own = if self.parts.is_empty() { &self.bytes[..self.length] } else { &[] };
        self.parts.iter().map(|part| &part[..]).chain(std::iter::once(own))
    }
}

/// The files below one directory of a target, as one client sees them. Clones are the same client.
///
/// Paths have no leading slash.
#[allow(async_fn_in_trait, reason = "the bench alone implements and calls it, in one thread")]
pub trait Files: Clone + 'static {
    /// An open file.
    type File: OpenFile;

    /// Returns the same files for one thread of a client, which are numbered from 0.
    fn for_thread(&self, _client: u32, _thread: u32) -> Self {
        self.clone()
    }
    /// Returns the same client's view from a directory below.
    async fn enter(&self, path: &str) -> Result<Self, Fault>;
    /// Opens a file.
    async fn open(&self, path: &str, how: How) -> Result<Self::File, Fault>;
    /// Returns attributes.
    async fn stat(&self, path: &str) -> Result<Status, Fault>;
    /// Lists a directory, and returns the names of its entries.
    async fn list_names(&self, path: &str) -> Result<Vec<String>, Fault>;
    /// Lists a directory with the attributes of its entries, and returns their names and attributes.
    async fn list(&self, path: &str) -> Result<Vec<(String, Status)>, Fault>;
    /// Creates a directory.
    async fn make_directory(&self, path: &str) -> Result<(), Fault>;
    /// Removes an empty directory.
    async fn remove_directory(&self, path: &str) -> Result<(), Fault>;
    /// Removes a file's name.
    async fn remove(&self, path: &str) -> Result<(), Fault>;
    /// Renames.
    async fn rename(&self, from: &str, to: &str) -> Result<(), Fault>;
    /// Gives a file another name.
    async fn link(&self, from: &str, to: &str) -> Result<(), Fault>;
    /// Creates a symbolic link.
    async fn symlink(&self, target: &str, path: &str) -> Result<(), Fault>;
    /// Returns the length of a symbolic link's content.
    async fn read_link(&self, path: &str) -> Result<usize, Fault>;
    /// Sets the mode bits.
    async fn set_mode(&self, path: &str, mode: u32) -> Result<(), Fault>;
    /// Sets the size of a file.
    async fn set_size(&self, path: &str, size: u64) -> Result<(), Fault>;
    /// Sets the times of last access and change to now.
    async fn touch(&self, path: &str) -> Result<(), Fault>;
    /// Asks for the free space of the file system.
    async fn file_system_status(&self) -> Result<(), Fault>;
    /// Makes everything on this machine stable, as sync(2) does. Files of a client have nothing that is not: they are synced when they are
    /// closed.
    async fn sync_all(&self) -> Result<(), Fault> {
        Ok(())
    }
    /// Returns where a path is on this machine, for programs that use it themselves; `None` if it is on a server, or if operations are
    /// recorded.
    fn local_path(&self, _path: &str) -> Option<PathBuf> {
        None
    }
    /// Returns the requests sent so far, by operation; empty if they are not counted.
    fn traffic(&self) -> BTreeMap<String, RequestCounters>;
    /// Returns the client's other counters so far; `None` if there is no client of Enfys.
    fn counters(&self) -> Option<ClientCounters>;
    /// Ends the use of the server.
    async fn leave(self);
}

/// An open file.
#[allow(async_fn_in_trait, reason = "the bench alone implements and calls it, in one thread")]
pub trait OpenFile: 'static {
    /// Returns the size when the file was opened, in bytes.
    fn size(&self) -> u64;
    /// Reads up to `count` bytes, fewer only at the end of the file. Returns their number.
    async fn read(&self, offset: u64, count: usize, buffer: &mut Buffer) -> Result<usize, Fault>;
    /// Writes data. Returns the number of bytes written.
    async fn write(&self, offset: u64, data: Bytes) -> Result<usize, Fault>;
    /// Makes all written data stable.
    async fn sync(&self) -> Result<(), Fault>;
    /// Locks the whole file against writers, and waits for the lock.
    async fn lock_shared(&self) -> Result<(), Fault>;
    /// Unlocks it.
    async fn unlock(&self) -> Result<(), Fault>;
    /// Locks bytes, which need not exist, against writers, or against all others if `exclusive`. A lock of this open file there is
    /// replaced. Returns whether it is granted: `false` if another open file has a lock that conflicts.
    async fn try_lock_bytes(&self, bytes: Range<u64>, exclusive: bool) -> Result<bool, Fault>;
    /// Releases the locks of this open file on bytes.
    async fn unlock_bytes(&self, bytes: Range<u64>) -> Result<(), Fault>;
    /// Closes the file.
    async fn close(self) -> Result<(), Fault>;
}
