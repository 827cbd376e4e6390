//! Directory streams that are kept between two READDIRs.
//!
//! A listing of a large directory takes many READDIRs, each of which continues where the last one stopped. A stopped
//! stream is kept, with the entries that it has read but not delivered, by its directory and the cookie with which
//! the client will continue. Then no open or seek is necessary. If the directory changed meanwhile, the buffer
//! is discarded and the stream is positioned again. That needs a file system whose positions are stable. With others
//! (ramfs, tmpfs before Linux 6.6, overlays, some of FUSE) a position is valid only for the open stream, which
//! continues unchanged, and a listing is exact as long as its stream is kept.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use parking_lot::Mutex;
use vfs::{Error, Handle, Result};

use crate::descriptors::Counted;
use crate::errno::translate;
use crate::sys;

/// Bytes that are read from the kernel at once: about a thousand entries.
pub(crate) const BUFFER_BYTES: usize = 32 * 1024;
/// Maximum number of streams that are kept of one volume; the least recently used is closed.
const MAX_STREAMS: usize = 64;

/// The protocols reserve cookies 0, 1 and 2 (RFC 8881 §18.23.3). A position of that value, which no known file system
/// has for an entry, gets this bit.
const SHIFTED: u64 = 1 << 63;
/// Positions that cannot be cookies.
const RESERVED: u64 = 3;

/// Returns the cookie of a position from the kernel.
pub(crate) fn cookie_of(position: u64) -> u64 {
    if position < RESERVED { position | SHIFTED } else { position }
}

/// Returns the position of a cookie.
///
/// # Errors
/// [`Error::BadCookie`] for cookies that are never issued.
pub(crate) fn position_of(cookie: u64) -> Result<u64> {
    match cookie {
        0 => Ok(0),
        1..RESERVED => Err(Error::BadCookie),
        _ if cookie & !SHIFTED < RESERVED => Ok(cookie & !SHIFTED),
        _ => Ok(cookie),
    }
}

/// One entry as getdents64(2) returns it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawEntry<'a> {
    pub(crate) inode: u64,
    /// The position of the next entry.
    pub(crate) position: u64,
    /// One path component: the kernel lists no name with a slash in it, even if the file system contains one.
    pub(crate) name: &'a CStr,
    /// `DT_…`, which some file systems leave unknown.
    pub(crate) kind: u8,
    /// Bytes of the record.
    pub(crate) length: usize,
}

/// Returns the entries in a buffer that getdents64(2) filled.
pub(crate) fn entries(buffer: &[u8]) -> impl Iterator<Item = RawEntry<'_>> {
    let mut rest = buffer;
    std::iter::from_fn(move || {
        let entry = first_entry(rest)?;
        rest = &rest[entry.length..];
        Some(entry)
    })
}

// struct linux_dirent64: inode (8), position (8), length of the record (2), type (1), name, ending in NUL.
fn first_entry(buffer: &[u8]) -> Option<RawEntry<'_>> {
    const NAME_AT: usize = 19;
    let word = |at: usize| Some(u64::from_ne_bytes(buffer.get(at..at + 8)?.try_into().ok()?));
    let length = usize::from(u16::from_ne_bytes(buffer.get(16..18)?.try_into().ok()?));
    let name = CStr::from_bytes_until_nul(buffer.get(NAME_AT..length)?).ok()?;
    Some(RawEntry { inode: word(0)?, position: word(8)?, name, kind: *buffer.get(18)?, length })
}

/// A directory being read.
#[derive(Debug)]
pub(crate) struct Stream {
    fd: OwnedFd,
    /// Dropped after the descriptor.
    _counted: Counted,
    buffer: Vec<u8>,
    /// The part of the buffer that was not delivered.
    start: usize,
    end: usize,
    /// Whether the kernel returned the end.
    is_at_end: bool,
    /// The cookie of the last delivered entry.
    pub(crate) cookie: u64,
    /// The directory's change attribute before the buffer was filled.
    change: u64,
}

impl Stream {
    /// Creates a stream of a directory just opened, to continue after `cookie`.
    pub(crate) fn new((fd, counted): (OwnedFd, Counted), cookie: u64, change: u64) -> Result<Self> {
        let buffer = vec![0; BUFFER_BYTES];
        let mut stream =
            Self { fd, _counted: counted, buffer, start: 0, end: 0, is_at_end: false, cookie, change };
        if cookie != 0 {
            stream.seek()?;
        }
        Ok(stream)
    }

    /// Discards buffered entries that are older than `change`.
    pub(crate) fn refresh(&mut self, change: u64) -> Result<()> {
        if self.change != change {
            self.change = change;
            self.seek()?;
        }
        Ok(())
    }

    fn seek(&mut self) -> Result<()> {
        (self.start, self.end, self.is_at_end) = (0, 0, false);
        let position = position_of(self.cookie)?;
        match rustix::fs::seek(&self.fd, rustix::fs::SeekFrom::Start(position)) {
            Ok(_) => Ok(()),
            // A position that the file system cannot have returned.
            Err(rustix::io::Errno::INVAL) => Err(Error::BadCookie),
            Err(errno) => Err(translate(errno)),
        }
    }

    /// Returns whether the next entry, or the end, has to be read from the kernel.
    pub(crate) fn is_used_up(&self) -> bool {
        self.start == self.end && !self.is_at_end
    }

    /// Reads more entries from the kernel.
    pub(crate) fn fill(&mut self) -> Result<()> {
        self.end = sys::getdents64(self.fd.as_fd(), &mut self.buffer).map_err(translate)?;
        self.start = 0;
        self.is_at_end = self.end == 0;
        Ok(())
    }

    /// Returns the entries that were read and not delivered.
    pub(crate) fn rest(&self) -> impl Iterator<Item = RawEntry<'_>> {
        entries(&self.buffer[self.start..self.end])
    }

    /// Returns the next entry; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<RawEntry<'_>>> {
        if self.is_used_up() {
            self.fill()?;
        }
        if self.is_at_end {
            return Ok(None);
        }
        first_entry(&self.buffer[self.start..self.end]).map(Some).ok_or(Error::Io)
    }

    /// Notes that the entry that [`next`](Self::next) returned, of `length` bytes and with this cookie, was
    /// delivered.
    pub(crate) fn delivered(&mut self, length: usize, cookie: u64) {
        self.start += length;
        self.cookie = cookie;
    }
}

/// Streams that wait for the next READDIR.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    /// The least recently used first.
    waiting: Mutex<Vec<(Handle, Stream)>>,
}

impl Streams {
    /// Takes the stream that stopped in `directory` after `cookie`.
    pub(crate) fn take(&self, directory: &Handle, cookie: u64) -> Option<Stream> {
        let mut waiting = self.waiting.lock();
        // The newest: probably it is this reader's.
        let found =
            waiting.iter().rposition(|(handle, stream)| stream.cookie == cookie && handle == directory)?;
        Some(waiting.remove(found).1)
    }

    /// Keeps a stream for the next READDIR, with at most `allowed` streams in all.
    pub(crate) fn put(&self, directory: Handle, stream: Stream, allowed: usize) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= allowed.clamp(1, MAX_STREAMS) {
            waiting.remove(0);
        }
        waiting.push((directory, stream));
    }

    /// Closes all streams.
    pub(crate) fn clear(&self) {
        self.waiting.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(directory: &tempfile::TempDir) -> (OwnedFd, Counted) {
        (std::fs::File::open(directory.path()).expect("open").into(), Counted::apart())
    }

    fn stream(directory: &tempfile::TempDir, cookie: u64) -> Stream {
        Stream { cookie, ..Stream::new(open(directory), 0, 1).expect("stream") }
    }

    #[test]
    fn every_position_has_a_unique_unreserved_cookie() {
        for position in [0, 1, 2, 3, 4, i64::MAX as u64] {
            let cookie = cookie_of(position);
            assert!(cookie > 2);
            assert_eq!(position_of(cookie), Ok(position));
        }
        assert_eq!(position_of(1), Err(Error::BadCookie));
        assert_eq!(position_of(2), Err(Error::BadCookie));
    }

    #[test]
    fn waiting_streams_are_bounded_and_found_by_directory_and_cookie() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let streams = Streams::default();
        let handle = Handle::new(b"d").expect("short");
        for cookie in 0..MAX_STREAMS as u64 + 10 {
            streams.put(handle, stream(&directory, cookie), usize::MAX);
        }
        assert_eq!(streams.waiting.lock().len(), MAX_STREAMS);
        assert!(streams.take(&handle, 9).is_none(), "the oldest was closed");
        assert!(streams.take(&handle, 20).is_some());
        assert!(streams.take(&handle, 20).is_none(), "one reader has it");
        assert!(streams.take(&Handle::new(b"e").expect("short"), 21).is_none());
    }

    #[test]
    fn a_stream_continues_after_the_last_delivered_entry() {
        let directory = tempfile::tempdir().expect("temporary directory");
        for name in ["a", "b", "c"] {
            std::fs::write(directory.path().join(name), b"").expect("write");
        }
        let mut all = Vec::new();
        let mut cookie = 0;
        // A new stream for each entry, as if every reader came back too late.
        loop {
            let mut stream = Stream::new(open(&directory), cookie, 1).expect("stream");
            let Some(entry) = stream.next().expect("entry") else { break };
            cookie = cookie_of(entry.position);
            all.push(entry.name.to_bytes().to_vec());
        }
        all.sort();
        assert_eq!(all, [&b"."[..], b"..", b"a", b"b", b"c"]);
    }
}
