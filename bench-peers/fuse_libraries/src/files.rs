//! The file system: a directory, files of one size that discard what is written, a file whose READs are never answered, and a file
//! that tells what has been requested.

use std::fmt::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// Bytes of the largest request that every library is set to.
pub const REQUEST_MAX: u32 = 1 << 20;
/// Bytes of a file.
pub const FILE_SIZE: u64 = 64 << 20;
/// Each byte of a file.
pub const CONTENT: u8 = 0xe5;

pub const ROOT: u64 = 1;
const BLOCKED: u64 = 2;
const COUNTERS: u64 = 3;
/// The file `0`; the others follow.
const FIRST: u64 = 16;
/// Files whose names are numbers.
const FILES: u64 = 1024;

static DATA: LazyLock<Bytes> = LazyLock::new(|| vec![CONTENT; REQUEST_MAX as usize].into());

/// What has been requested.
#[derive(Default)]
pub struct Files {
    getattrs: AtomicU64,
    blocked: AtomicU64,
    largest_read: AtomicU64,
    largest_write: AtomicU64,
}

/// The counters of a mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub getattrs: u64,
    /// READs that are never answered.
    pub blocked: u64,
    /// Bytes of the largest requests.
    pub largest_read: u64,
    pub largest_write: u64,
}

impl Counters {
    /// Parses what [`Files::read`] returns for the file `counters`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut values = text.split_whitespace().map(|value| value.parse().ok());
        let mut next = || values.next().flatten();
        Some(Self { getattrs: next()?, blocked: next()?, largest_read: next()?, largest_write: next()? })
    }
}

impl Files {
    /// Returns the inode of a name in the directory.
    pub fn find(name: &[u8]) -> Option<u64> {
        match name {
            b"blocked" => Some(BLOCKED),
            b"counters" => Some(COUNTERS),
            _ => {
                let number: u64 = std::str::from_utf8(name).ok()?.parse().ok()?;
                (number < FILES).then_some(FIRST + number)
            }
        }
    }

    /// Counts a GETATTR.
    pub fn got_attributes(&self) {
        self.getattrs.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns what a READ returns, or `None` if it is not answered.
    pub fn read(&self, node: u64, offset: u64, size: u32) -> Option<Bytes> {
        match node {
            BLOCKED => {
                self.blocked.fetch_add(1, Ordering::Relaxed);
                None
            }
            COUNTERS if offset == 0 => Some(self.text().into()),
            COUNTERS => Some(Bytes::new()),
            _ => {
                self.largest_read.fetch_max(size.into(), Ordering::Relaxed);
                let left = FILE_SIZE.saturating_sub(offset).min(size.into());
                // No library asks for more than it was set to.
                Some(DATA.slice(..(left as usize).min(DATA.len())))
            }
        }
    }

    /// Counts a WRITE of `length` bytes.
    pub fn wrote(&self, length: usize) {
        self.largest_write.fetch_max(length as u64, Ordering::Relaxed);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for counter in [&self.getattrs, &self.blocked, &self.largest_read, &self.largest_write] {
            let _ = write!(text, "{} ", counter.load(Ordering::Relaxed));
        }
        text
    }
}
