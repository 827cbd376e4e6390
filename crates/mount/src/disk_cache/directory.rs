//! The directory of a disk cache.
//!
//! `enfys-cache` names the format, and its lock the process that uses the directory. Each block is a file below `blocks`, whose name
//! is a hash of the block's key, with a [`record`] as content. A new file gets its name when it is complete.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use bytes::Bytes;
use client::block_store::{BLOCK, record};
use rustix::fs::{FlockOperation, OFlags, flock};

/// The content of the file that names the format. Change it with the layout of the directory, or with a record.
const FORMAT: &str = "enfys disk cache, format 1\n";
const FORMAT_FILE: &str = "enfys-cache";
/// Maximum bytes of a record: a handle and a server's name are much shorter than the rest.
const RECORD_MAX: u64 = BLOCK + 4096;
/// Disks are allocated in units of this many bytes.
const ALLOCATION_UNIT: u64 = 4096;

/// The name of a block.
pub(super) type Name = u128;

/// A block that was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: Name,
    /// Bytes on the disk.
    pub(super) bytes: u64,
    modified: SystemTime,
}

/// A directory that only this process uses, once it has the lock.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    format: File,
}

impl Directory {
    /// Opens a directory, or creates it.
    ///
    /// # Errors
    /// One sentence: it is not a cache, belongs to another user, or others may use it.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let text = |error: io::Error| error.to_string();
        if !path.exists() {
            DirBuilder::new().mode(0o700).create(path).map_err(text)?;
        }
        let found = fs::metadata(path).map_err(text)?;
        if !found.is_dir() {
            return Err("not a directory".to_owned());
        }
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o077 != 0 {
            return Err("others could read files there: it must be your own, with mode 0700".to_owned());
        }
        let name = path.join(FORMAT_FILE);
        if !name.exists() && fs::read_dir(path).map_err(text)?.next().is_some() {
            return Err("it has other files: name a directory that is empty or does not exist".to_owned());
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let format = options.open(name).map_err(text)?;
        Ok(Self { path: path.to_owned(), format })
    }

    /// Takes the lock; with `waits` after another process has released it.
    ///
    /// # Errors
    /// EWOULDBLOCK: another process uses the directory.
    pub(super) fn lock(&self, waits: bool) -> io::Result<()> {
        let operation =
            if waits { FlockOperation::LockExclusive } else { FlockOperation::NonBlockingLockExclusive };
        loop {
            match flock(&self.format, operation) {
                Err(rustix::io::Errno::INTR) => {}
                outcome => return Ok(outcome?),
            }
        }
    }

    /// Makes the directory usable after the lock was taken: removes blocks of another format.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(super) fn prepare(&self) -> io::Result<()> {
        let mut format = Vec::new();
        (&self.format).take(RECORD_MAX).read_to_end(&mut format)?;
        let blocks = self.path.join("blocks");
        if format != FORMAT.as_bytes() {
            if blocks.exists() {
                tracing::warn!(directory = %self.path.display(), "the disk cache has another format: it is emptied");
                fs::remove_dir_all(&blocks)?;
            }
            // The name of the format comes last: until then the next process empties the directory again.
            self.make_directories(&blocks)?;
            fs::write(self.path.join(FORMAT_FILE), FORMAT)?;
        }
        self.make_directories(&blocks)
    }

    fn make_directories(&self, blocks: &Path) -> io::Result<()> {
        let parts = (0..=u8::MAX).map(|first| blocks.join(format!("{first:02x}")));
        std::iter::once(blocks.to_owned()).chain(parts).try_for_each(|path| {
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                outcome => outcome,
            }
        })
    }

    /// Returns all blocks, from the oldest to the newest, and removes incomplete ones.
    pub(super) fn scan(&self) -> Vec<Found> {
        let mut all = Vec::new();
        // A file that cannot be examined is found when its block is stored again.
        for part in fs::read_dir(self.path.join("blocks")).into_iter().flatten().flatten() {
            for file in fs::read_dir(part.path()).into_iter().flatten().flatten() {
                let (name, Ok(found)) = (file.file_name(), file.metadata()) else { continue };
                match name.to_str().and_then(|name| Name::from_str_radix(name, 16).ok()) {
                    Some(name) => {
                        let modified = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                        all.push(Found { name, bytes: on_disk(found.len()), modified });
                    }
                    None => drop(fs::remove_file(file.path())),
                }
            }
        }
        all.sort_by_key(|found| found.modified);
        all
    }

    /// Reads the record of a block.
    ///
    /// # Errors
    /// ENOENT if there is none. EIO and others if it cannot be read.
    pub(super) fn read(&self, name: Name) -> io::Result<Bytes> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(self.file(name))?;
        let length = file.metadata()?.len().min(RECORD_MAX);
        let mut record = Vec::with_capacity(length as usize + 1);
        file.take(RECORD_MAX).read_to_end(&mut record)?;
        Ok(record.into())
    }

    /// Writes the record of a block. Returns its bytes on the disk. Only one thread may write.
    ///
    /// # Errors
    /// As write(2). Nothing remains of the block.
    pub(super) fn write(&self, name: Name, key: &[u8], data: &[u8]) -> io::Result<u64> {
        let path = self.file(name);
        let new = path.with_extension("new");
        let head = record::head(key, data);
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all(&head)?;
            file.write_all(data)?;
            fs::rename(&new, &path)
        };
        write().inspect_err(|_| drop(fs::remove_file(&new)))?;
        Ok(on_disk((head.len() + data.len()) as u64))
    }

    /// Removes a block. One that cannot be removed is found again by the next scan.
    pub(super) fn remove(&self, name: Name) {
        let _ = fs::remove_file(self.file(name));
    }

    fn file(&self, name: Name) -> PathBuf {
        let name = format!("{name:032x}");
        self.path.join("blocks").join(&name[..2]).join(&name)
    }
}

fn on_disk(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALLOCATION_UNIT)
}
