//! The floor's work for each call.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, Mode, OFlags, Stat};
use rustix::io as file_io;

use super::replies::Replies;
use super::unsynced::Unsynced;
use super::{Durability, FloorOptions, OPEN_READ_CLOSE, SEND, listing};
use crate::layout;
use crate::operation::{LARGE_BYTES, SMALL_BYTES};

/// The implementation of a large READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargeRead {
    /// `pread` into the reply.
    Pread,
    /// `sendfile` after the reply's head.
    Sendfile,
}

/// The open files; a file handle of the floor is an index in here.
#[derive(Debug)]
pub(super) struct Files {
    files: Vec<File>,
    options: FloorOptions,
}

/// Parent handle and name of each file.
const PLACES: [(usize, &str); 7] = [
    (usize::MAX, ""),
    (0, layout::DIRECTORY),
    (1, layout::CHURN_DIRECTORY),
    (1, layout::READ_FILE),
    (1, layout::SMALL_WRITE_FILE),
    (1, layout::LARGE_WRITE_FILE),
    (1, layout::SMALL_DIRECTORY),
];
/// A file handle of the floor, in bytes.
const HANDLE_BYTES: u32 = 4;
/// RFC 1813 §2.6: size of a fattr3.
const FATTR3_BYTES: usize = 84;

/// The rest of the work for a call.
#[derive(Debug)]
pub(super) enum Answer<'f> {
    /// The reply is complete.
    Complete,
    /// `count` bytes of the file, from `offset`, follow the reply.
    Sendfile { file: BorrowedFd<'f>, offset: u64, count: usize },
}

/// A call that the floor does not know: the connection is closed.
#[derive(Debug)]
pub(super) struct Unknown;

impl From<rustix::io::Errno> for Unknown {
    fn from(_: rustix::io::Errno) -> Self {
        Self
    }
}

impl Files {
    pub(super) fn open(export: &Path, options: FloorOptions) -> io::Result<Self> {
        let directory = export.join(layout::DIRECTORY);
        let writable = |name| File::options().read(true).write(true).open(directory.join(name));
        let files = vec![
            File::open(export)?,
            File::open(&directory)?,
            File::open(directory.join(layout::CHURN_DIRECTORY))?,
            writable(layout::READ_FILE)?,
            writable(layout::SMALL_WRITE_FILE)?,
            writable(layout::LARGE_WRITE_FILE)?,
            File::open(directory.join(layout::SMALL_DIRECTORY))?,
        ];
        Ok(Self { files, options })
    }

    /// Serves the call in `record` (record mark removed) and appends the reply with its record mark to `out`. Changes that must be
    /// on disk before it is sent are added to `unsynced`.
    pub(super) fn serve<'f>(
        &'f self,
        record: &[u8],
        out: &mut Replies,
        unsynced: &mut Unsynced<'f>,
    ) -> Result<Answer<'f>, Unknown> {
        let mut call = Arguments { bytes: record };
        let head = call.take(24)?;
        for _credential_then_verifier in 0..2 {
            call.word()?; // flavor; all are accepted
            call.opaque()?;
        }
        let start = out.len();
        let program = u32::from_be_bytes(head[12..16].try_into().expect("four bytes"));
        let procedure = u32::from_be_bytes(head[20..24].try_into().expect("four bytes"));
        // A mark to be filled in, then RFC 5531 §9: xid, REPLY, MSG_ACCEPTED, an empty AUTH_NONE verifier, SUCCESS.
        out.append(&[0; 4]);
        out.append(&head[..4]);
        out.append(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let answer = self.results((program, procedure), call, out, unsynced)?;
        let more = if let Answer::Sendfile { count, .. } = answer { count } else { 0 };
        let length = (out.len() - start - 4 + more) as u32 | 1 << 31;
        out.patch(start, &length.to_be_bytes());
        Ok(answer)
    }

    fn results<'f>(
        &'f self,
        procedure: (u32, u32),
        mut call: Arguments<'_>,
        out: &mut Replies,
        unsynced: &mut Unsynced<'f>,
    ) -> Result<Answer<'f>, Unknown> {
        match procedure {
            (100_003 | 100_005, 0) => {}
            (100_005, 1) => mount(out),
            (100_003, 1) => self.getattr(&mut call, out)?,
            (100_003, 3) => self.lookup(&mut call, out)?,
            (100_003, 4) => self.access(&mut call, out)?,
            (100_003, 6) => return self.read(&mut call, out),
            (100_003, 7) => self.write(&mut call, out, unsynced)?,
            (100_003, 8) => self.create(&mut call, out, unsynced)?,
            (100_003, 12) => self.remove(&mut call, out, unsynced)?,
            (100_003, 17) => listing::readdirplus(self.file(&mut call)?, &mut call, out)?,
            (100_003, own) if own == OPEN_READ_CLOSE.0 => {
                self.open_read_close(&mut call, out)?;
            }
            (100_003, own) if own == SEND.0 => listing::send(&mut call, out)?,
            _ => return Err(Unknown),
        }
        Ok(Answer::Complete)
    }

    /// GETATTR: one `fstat`.
    fn getattr(&self, call: &mut Arguments<'_>, out: &mut Replies) -> Result<(), Unknown> {
        let stat = fs::fstat(self.file(call)?)?;
        word(out, 0);
        attributes(out, &stat);
        Ok(())
    }

    /// LOOKUP: an `fstatat` of the name and an `fstat` of the directory, whose attributes belong to the reply.
    /// A real server must also make a file handle (`name_to_handle_at`) or remember one.
    fn lookup(&self, call: &mut Arguments<'_>, out: &mut Replies) -> Result<(), Unknown> {
        let directory = call.handle()?;
        let name = call.opaque()?;
        let descriptor = self.files.get(directory).ok_or(Unknown)?;
        let stat = fs::statat(descriptor, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW)?;
        let place =
            PLACES.iter().position(|place| *place == (directory, std::str::from_utf8(name).unwrap_or("")));
        let directory_stat = fs::fstat(descriptor)?;
        word(out, 0);
        word(out, HANDLE_BYTES);
        word(out, place.ok_or(Unknown)? as u32);
        post_op_attributes(out, &stat);
        post_op_attributes(out, &directory_stat);
        Ok(())
    }

    /// ACCESS: one `fstat`; everything requested is granted.
    fn access(&self, call: &mut Arguments<'_>, out: &mut Replies) -> Result<(), Unknown> {
        let file = self.file(call)?;
        let asked = call.word()?;
        word(out, 0);
        post_op_attributes(out, &fs::fstat(file)?);
        word(out, asked);
        Ok(())
    }

    /// READ: one `fstat`, and a `pread` into the reply; or, for large ones if configured, `sendfile` after its head.
    fn read<'f>(&'f self, call: &mut Arguments<'_>, out: &mut Replies) -> Result<Answer<'f>, Unknown> {
        let file = self.file(call)?;
        let (offset, count) = (call.long()?, call.word()?);
        if count > LARGE_BYTES || count % 4 != 0 {
            return Err(Unknown);
        }
        let stat = fs::fstat(file)?;
        let end = offset + u64::from(count);
        if end > stat.st_size as u64 {
            return Err(Unknown);
        }
        word(out, 0);
        post_op_attributes(out, &stat);
        word(out, count);
        word(out, u32::from(end == stat.st_size as u64));
        word(out, count);
        if count == LARGE_BYTES && self.options.large_read == LargeRead::Sendfile {
            return Ok(Answer::Sendfile { file: file.as_fd(), offset, count: count as usize });
        }
        if file_io::pread(file, out.room(count as usize), offset)? != count as usize {
            return Err(Unknown);
        }
        Ok(Answer::Complete)
    }

    /// OPEN_READ_CLOSE: `openat`, `fstat`, `pread` into the reply, `close`.
    fn open_read_close(&self, call: &mut Arguments<'_>, out: &mut Replies) -> Result<(), Unknown> {
        let directory = self.file(call)?;
        let name = OsStr::from_bytes(call.opaque()?);
        let count = call.word()?;
        let file = fs::openat(directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fs::fstat(&file)?;
        if count > SMALL_BYTES || u64::from(count) != stat.st_size as u64 {
            return Err(Unknown);
        }
        word(out, 0);
        post_op_attributes(out, &stat);
        word(out, count);
        word(out, 1); // eof
        word(out, count);
        if file_io::pread(&file, out.room(count as usize), 0)? != count as usize {
            return Err(Unknown);
        }
        Ok(())
    }

    /// WRITE: one `pwrite` straight from the receive buffer, and one `fstat` for the attributes in the reply. A stable WRITE also needs
    /// an `fsync` of the file, once for the batch.
    fn write<'f>(
        &'f self,
        call: &mut Arguments<'_>,
        out: &mut Replies,
        unsynced: &mut Unsynced<'f>,
    ) -> Result<(), Unknown> {
        let file = self.file(call)?;
        let (offset, count) = (call.long()?, call.word()?);
        let stable = call.word()?;
        let data = call.opaque()?;
        if file_io::pwrite(file, data, offset)? != count as usize {
            return Err(Unknown);
        }
        word(out, 0);
        word(out, 0); // no pre_op_attr
        post_op_attributes(out, &fs::fstat(file)?);
        word(out, count);
        word(out, stable);
        out.append(b"floor\0\0\0");
        if stable != 0 {
            unsynced.written(file);
        }
        Ok(())
    }

    /// CREATE: `openat(O_CREAT|O_EXCL)`, `fstat`, `close`. The reply has no file handle and no directory attributes.
    /// If configured, `fsync` of the file before it is closed, and of the directory once for the batch.
    fn create<'f>(
        &'f self,
        call: &mut Arguments<'_>,
        out: &mut Replies,
        unsynced: &mut Unsynced<'f>,
    ) -> Result<(), Unknown> {
        let directory = self.file(call)?;
        let name = OsStr::from_bytes(call.opaque()?);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = fs::openat(directory, name, flags, Mode::from_raw_mode(0o644))?;
        word(out, 0);
        word(out, 0); // no post_op_fh3
        post_op_attributes(out, &fs::fstat(&file)?);
        out.append(&[0; 8]); // empty wcc_data
        if self.options.durability == Durability::Batch {
            unsynced.created(directory, file);
        }
        Ok(())
    }

    /// REMOVE: `unlinkat`, and an `fstat` of the directory; if configured, its `fsync`, once for the batch.
    fn remove<'f>(
        &'f self,
        call: &mut Arguments<'_>,
        out: &mut Replies,
        unsynced: &mut Unsynced<'f>,
    ) -> Result<(), Unknown> {
        let directory = self.file(call)?;
        fs::unlinkat(directory, OsStr::from_bytes(call.opaque()?), AtFlags::empty())?;
        word(out, 0);
        word(out, 0); // no pre_op_attr
        post_op_attributes(out, &fs::fstat(directory)?);
        if self.options.durability == Durability::Batch {
            unsynced.removed(directory);
        }
        Ok(())
    }

    fn file(&self, call: &mut Arguments<'_>) -> Result<&File, Unknown> {
        self.files.get(call.handle()?).ok_or(Unknown)
    }
}

/// MNT: the export's handle is 0 for every path; AUTH_SYS is the only flavor.
fn mount(out: &mut Replies) {
    for value in [0, HANDLE_BYTES, 0, 1, 1] {
        word(out, value);
    }
}

pub(super) fn word(out: &mut Replies, value: u32) {
    out.append(&value.to_be_bytes());
}

pub(super) fn post_op_attributes(out: &mut Replies, stat: &Stat) {
    word(out, 1);
    attributes(out, stat);
}

/// Appends a fattr3, which is built on the stack and appended at once.
fn attributes(out: &mut Replies, stat: &Stat) {
    let mut bytes = [0; FATTR3_BYTES];
    let mut at = 0;
    let mut put = |field: &[u8]| {
        bytes[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    };
    let kind: u32 = if stat.st_mode & libc::S_IFMT == libc::S_IFDIR { 2 } else { 1 };
    for value in [kind, stat.st_mode & 0o7777, stat.st_nlink as u32, stat.st_uid, stat.st_gid] {
        put(&value.to_be_bytes());
    }
    // size, used, rdev (none), fsid, fileid
    for value in [stat.st_size as u64, stat.st_blocks as u64 * 512, 0, stat.st_dev, stat.st_ino] {
        put(&value.to_be_bytes());
    }
    let times = [
        (stat.st_atime, stat.st_atime_nsec),
        (stat.st_mtime, stat.st_mtime_nsec),
        (stat.st_ctime, stat.st_ctime_nsec),
    ];
    for (seconds, nanoseconds) in times {
        put(&(seconds as u32).to_be_bytes());
        put(&(nanoseconds as u32).to_be_bytes());
    }
    out.append(&bytes);
}

/// The unread rest of a call.
pub(super) struct Arguments<'a> {
    bytes: &'a [u8],
}

impl<'a> Arguments<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Unknown> {
        let (head, rest) = self.bytes.split_at_checked(count).ok_or(Unknown)?;
        self.bytes = rest;
        Ok(head)
    }

    pub(super) fn word(&mut self) -> Result<u32, Unknown> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    pub(super) fn long(&mut self) -> Result<u64, Unknown> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    pub(super) fn opaque(&mut self) -> Result<&'a [u8], Unknown> {
        let length = self.word()? as usize;
        let bytes = self.take(length)?;
        self.take(length.next_multiple_of(4) - length)?;
        Ok(bytes)
    }

    fn handle(&mut self) -> Result<usize, Unknown> {
        let bytes = self.opaque()?.try_into().map_err(|_| Unknown)?;
        Ok(u32::from_be_bytes(bytes) as usize)
    }
}
