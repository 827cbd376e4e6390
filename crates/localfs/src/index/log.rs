//! The file of the index: a header, then records with checksums, only ever appended.

use std::fs::{File, OpenOptions};
use std::hash::Hasher;
use std::io::{BufReader, Error, ErrorKind, Read, Result, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use siphasher::sip::SipHasher13;
use vfs::Timestamp;

use crate::handle::IndexIdentity;

const MAGIC: &[u8; 8] = b"EnfysIx1";
/// Magic, identity (8), boot id (16), clean (1), padding (7), lowest number to use next (8).
const HEADER_BYTES: u64 = 48;
/// Checksum (8), id, parent, previous, fsid, inode (8 each), seconds (8), nanoseconds (4), kind (1), name length (1).
const FIXED_BYTES: usize = 8 + 5 * 8 + 8 + 4 + 1 + 1;

const AT: u8 = 1;
const GONE: u8 = 2;

/// The permanent identity of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileKey {
    /// The file system.
    pub(crate) fsid: u64,
    /// The inode number.
    pub(crate) inode: u64,
    /// The time of creation, which distinguishes files that had the same inode number.
    pub(crate) created: Timestamp,
}

/// A record that a file was seen at a place, or was removed.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) id: u64,
    pub(super) key: FileKey,
    pub(super) parent: u64,
    /// Offset of the record of another place of the same file; 0 for none.
    pub(super) previous: u64,
    /// At most 255 bytes.
    pub(super) name: Vec<u8>,
    pub(super) is_gone: bool,
}

impl Record {
    pub(super) const MIN_BYTES: u64 = FIXED_BYTES as u64;

    pub(super) fn gone(id: u64) -> Self {
        let key = FileKey { fsid: 0, inode: 0, created: Timestamp::default() };
        Self { id, key, parent: 0, previous: 0, name: Vec::new(), is_gone: true }
    }

    pub(super) fn encoded_bytes(&self) -> u64 {
        (FIXED_BYTES + self.name.len()) as u64
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        for word in [self.id, self.parent, self.previous, self.key.fsid, self.key.inode] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.key.created.seconds.to_le_bytes());
        bytes.extend(self.key.created.nanoseconds.to_le_bytes());
        bytes.push(if self.is_gone { GONE } else { AT });
        // Names were checked when they were seen: NAME_MAX is 255.
        bytes.push(self.name.len() as u8);
        bytes.extend(&self.name);
        let sum = checksum(&bytes[8..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Returns `None` for an incomplete or damaged record.
    fn read(reader: &mut impl Read) -> Result<Option<Self>> {
        let mut bytes = vec![0; FIXED_BYTES];
        if !read_all(reader, &mut bytes)? {
            return Ok(None);
        }
        let name_bytes = usize::from(bytes[FIXED_BYTES - 1]);
        bytes.resize(FIXED_BYTES + name_bytes, 0);
        if !read_all(reader, &mut bytes[FIXED_BYTES..])? {
            return Ok(None);
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let kind = bytes[FIXED_BYTES - 2];
        if word(0) != checksum(&bytes[8..]) || !matches!(kind, AT | GONE) {
            return Ok(None);
        }
        let created = Timestamp {
            seconds: word(48) as i64,
            nanoseconds: u32::from_le_bytes(bytes[56..60].try_into().unwrap_or_default()),
        };
        Ok(Some(Self {
            id: word(8),
            parent: word(16),
            previous: word(24),
            key: FileKey { fsid: word(32), inode: word(40), created },
            name: bytes[FIXED_BYTES..].to_vec(),
            is_gone: kind == GONE,
        }))
    }
}

/// The open file, locked against other processes.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    path: PathBuf,
    identity: IndexIdentity,
    end: u64,
    /// Whether a sync has failed, so that records may be only in the page cache, where they count as clean.
    is_suspect: bool,
    /// Whether the file's name is not on stable storage yet.
    is_name_unsynced: bool,
    is_abandoned: bool,
}

/// A log that is being rewritten.
pub(super) struct Rewrite {
    file: File,
    path: PathBuf,
    end: u64,
    buffer: Vec<u8>,
}

/// Returns the options to open or create a log. A symbolic link is not followed, so that no other file is written.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    options.read(true).write(true).create(true).mode(0o600).custom_flags(flags);
    options
}

impl Log {
    /// Opens or creates the file, and calls `visit` with every record and its offset. The second value is false if
    /// unsynced records may have been lost, because the machine crashed while the file was in use.
    pub(super) fn open(path: &Path, mut visit: impl FnMut(u64, &Record)) -> Result<(Self, bool)> {
        let file = options().truncate(false).open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            Error::new(ErrorKind::ResourceBusy, format!("{} is in use by another server", path.display()))
        })?;
        let mut header = [0; HEADER_BYTES as usize];
        let boot = boot_id();
        let is_new = !read_all(&mut &file, &mut header)?;
        let is_complete = is_new || header[32] != 0 || (header[16..32] == boot && boot != [0; 16]);
        if is_new {
            header[..8].copy_from_slice(MAGIC);
            rustix::rand::getrandom(&mut header[8..16], rustix::rand::GetRandomFlags::empty())?;
            file.set_len(0)?;
        } else if &header[..8] != MAGIC {
            return Err(Error::new(
                ErrorKind::InvalidData,
                format!("{} is not an index of handles", path.display()),
            ));
        }
        header[16..32].copy_from_slice(&boot);
        header[32] = 0;
        file.write_all_at(&header, 0)?;
        file.sync_data()?;
        let identity = header[8..16].try_into().unwrap_or_default();
        let floor = u64::from_le_bytes(header[40..48].try_into().unwrap_or_default());
        if floor > 0 {
            visit(0, &Record::gone(floor - 1));
        }
        let end = scan(&file, &mut visit)?;
        file.set_len(end)?;
        let log = Self {
            file,
            path: path.to_owned(),
            identity,
            end,
            is_suspect: false,
            is_name_unsynced: true,
            is_abandoned: false,
        };
        Ok((log, is_complete))
    }

    pub(super) fn identity(&self) -> IndexIdentity {
        self.identity
    }

    pub(super) fn bytes(&self) -> u64 {
        self.end - HEADER_BYTES
    }

    /// Appends a record and returns its offset.
    pub(super) fn append(&mut self, record: &Record) -> Result<u64> {
        let bytes = record.encode();
        let offset = self.end;
        self.file.write_all_at(&bytes, offset)?;
        self.end += bytes.len() as u64;
        Ok(offset)
    }

    /// Reads the record at an offset that [`append`](Self::append) returned.
    pub(super) fn read(&self, offset: u64) -> Result<Record> {
        let mut bytes = [0; FIXED_BYTES + 255];
        let room = usize::try_from(self.end.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
        self.file.read_exact_at(&mut bytes[..room], offset)?;
        Record::read(&mut &bytes[..room])?
            .ok_or_else(|| Error::new(ErrorKind::InvalidData, "a record of the index of handles is damaged"))
    }

    /// Removes all records.
    pub(super) fn clear(&mut self) -> Result<()> {
        self.file.set_len(HEADER_BYTES)?;
        self.end = HEADER_BYTES;
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        self.sync_name()?;
        self.file.sync_data()
    }

    /// Makes the name of the file durable, if it is new.
    pub(super) fn sync_name(&mut self) -> Result<()> {
        if let Some(directory) = self.path.parent().filter(|_| self.is_name_unsynced) {
            File::open(directory)?.sync_all()?;
        }
        self.is_name_unsynced = false;
        Ok(())
    }

    /// Notes that a sync of the file has failed. The kernel reports this once: a later success says nothing about
    /// earlier records, and only a rewrite makes them durable.
    pub(super) fn suspect(&mut self) {
        self.is_suspect = true;
    }

    /// Returns whether a sync has failed since the file was rewritten.
    pub(super) fn is_suspect(&self) -> bool {
        self.is_suspect
    }

    /// Returns another descriptor of the file, to sync it by.
    pub(super) fn file(&self) -> Result<File> {
        self.file.try_clone()
    }

    /// Starts a file that will replace this one; numbers below `next` are used.
    pub(super) fn begin_rewrite(&self, next: u64) -> Result<Rewrite> {
        let path = self.path.with_extension("new");
        let file = options().truncate(true).open(&path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let mut header = [0; HEADER_BYTES as usize];
        header[..8].copy_from_slice(MAGIC);
        header[8..16].copy_from_slice(&self.identity);
        header[16..32].copy_from_slice(&boot_id());
        header[40..].copy_from_slice(&next.to_le_bytes());
        file.write_all_at(&header, 0)?;
        Ok(Rewrite { file, path, end: HEADER_BYTES, buffer: Vec::new() })
    }

    /// Replaces the old file by the new one. The old one stays in use if that fails. The name is not synced yet.
    pub(super) fn finish_rewrite(&mut self, mut rewrite: Rewrite) -> Result<()> {
        let finished = rewrite
            .flush()
            .and_then(|()| rewrite.file.sync_data())
            .and_then(|()| std::fs::rename(&rewrite.path, &self.path));
        if let Err(error) = finished {
            rewrite.discard();
            return Err(error);
        }
        // After the rename the old file has no name, and must not be written any longer.
        self.file = rewrite.file;
        self.end = rewrite.end;
        self.is_suspect = false;
        self.is_name_unsynced = true;
        Ok(())
    }

    /// Leaves the file as a killed process would.
    #[cfg(test)]
    pub(super) fn abandon(&mut self) {
        self.is_abandoned = true;
        rustix::fs::flock(&self.file, FlockOperation::Unlock).expect("unlock");
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Marked clean only when everything before is on stable storage.
        if !self.is_abandoned
            && !self.is_suspect
            && self.file.sync_data().is_ok()
            && self.file.write_all_at(&[1], 32).is_ok()
        {
            let _ = self.file.sync_data();
        }
    }
}

impl Rewrite {
    /// Appends a record and returns its offset.
    pub(super) fn append(&mut self, record: &Record) -> Result<u64> {
        const FLUSH_BYTES: usize = 1 << 20;
        let offset = self.end + self.buffer.len() as u64;
        self.buffer.extend(record.encode());
        if self.buffer.len() >= FLUSH_BYTES {
            self.flush()?;
        }
        Ok(offset)
    }

    /// Removes the file.
    pub(super) fn discard(self) {
        let _ = std::fs::remove_file(&self.path);
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write_all_at(&self.buffer, self.end)?;
        self.end += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Visits all valid records. Returns the offset where they end.
fn scan(file: &File, visit: &mut impl FnMut(u64, &Record)) -> Result<u64> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    reader.seek(SeekFrom::Start(HEADER_BYTES))?;
    let mut end = HEADER_BYTES;
    while let Some(record) = Record::read(&mut reader)? {
        visit(end, &record);
        end += record.encoded_bytes();
    }
    Ok(end)
}

/// Returns false if there are fewer bytes.
fn read_all(reader: &mut impl Read, bytes: &mut [u8]) -> Result<bool> {
    match reader.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0x656e_6679_735f_6c6f, 0x675f_6368_6563_6b73);
    hasher.write(bytes);
    hasher.finish()
}

/// Returns the kernel's boot id, or zeros if it has none, so that every restart counts as a boot.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let mut id = [0; 16];
    let digits = text.bytes().filter(u8::is_ascii_hexdigit);
    for (index, digit) in digits.take(32).enumerate() {
        let value = (digit as char).to_digit(16).unwrap_or(0) as u8;
        id[index / 2] = id[index / 2] << 4 | value;
    }
    id
}
