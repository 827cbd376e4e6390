//! READ: from the page cache in place, from the device on the pool.
//!
//! The attributes of the answer are read *before* the data. The other way round a client could get old data with the
//! attributes of new data, and trust them forever; this way it at worst reads again.
//!
//! Data are copied out of the page cache with `preadv2(RWF_NOWAIT)`, which fails if they are missing. Large READs
//! may be spliced, because a copy costs twice as much, but only if splicing will not block the connection's
//! thread, nor get a read error after the head of the reply was sent. cachestat(2) (Linux 6.5) counts cached pages,
//! including those that are still being read ahead, or could not be read. So
//! - after a READ that found something missing, the next sixteen are copied, because read-ahead is mostly caused by
//!   this server;
//! - before the first splice of a minute, a byte of each 64 KiB is read with `RWF_NOWAIT`, as for every splice if
//!   there is no cachestat;
//! - a file that had a read error is not spliced while its descriptor is kept.
//!
//! Data that are not in the page cache are read by a thread of the pool. File systems that do not support
//! `RWF_NOWAIT` (FUSE, old overlays) always use the pool, those in memory never.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use rustix::io::Errno;
use vfs::{
    Attributes, Authority, Context, FileKind, FileRange, Handle, Op, Payload, Peer, RangeSource, Read,
    ReadRequest, Result,
};

use crate::errno::translate;
use crate::nonblocking::InPlace;
use crate::object::{Object, OpenFile};
use crate::sys;
use crate::volume::Volume;

/// Maximum bytes that one READ returns: a bound on the growth of the buffer.
const MAX_READ_BYTES: u64 = 16 << 20;
/// Bytes from which on splicing is cheaper than a copy; at 4 KiB it costs four times as much.
const MIN_SPLICE_BYTES: u64 = 64 * 1024;
pub(super) const PAGE_BYTES: u64 = 4096;
/// Bytes between two probes: read-ahead and read errors have larger units.
const PROBE_BYTES: usize = 64 * 1024;

/// A READ that has been checked.
struct Checked {
    object: Arc<Object>,
    file: Arc<OpenFile>,
    offset: u64,
    count: usize,
    eof: bool,
    attributes: Attributes,
}

impl Checked {
    fn answer(self, payload: Payload) -> Read {
        Read { count: self.count as u32, eof: self.eof, payload, attributes: self.attributes }
    }

    /// Answers with a range of the file.
    fn splice(self) -> Read {
        let source = Arc::clone(&self.file) as Arc<dyn RangeSource>;
        let range = FileRange { source, offset: self.offset, length: self.count as u32 };
        self.answer(Payload::Range(range))
    }
}

impl Volume {
    pub(crate) fn read<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        request: ReadRequest,
        into: &mut BytesMut,
    ) -> Op<'a, Read> {
        let section = InPlace::begin(0);
        let checked = self.check_read(context, file, request);
        if section.end() {
            return match checked {
                Ok(checked) => self.answer_read(context.peer, checked, request, into),
                Err(error) => Op::err(error),
            };
        }
        let (context, file) = (context.clone(), *file);
        Op::pending(self.read_on_pool(context.peer, move |volume| {
            let checked = volume.check_read(&context, &file, request)?;
            volume.read_on_thread(checked, request)
        }))
    }

    /// As [`Self::read`], with attributes that this request has just read.
    pub(crate) fn read_seen<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        seen: &Attributes,
        request: ReadRequest,
        into: &mut BytesMut,
    ) -> Op<'a, Read> {
        match self.check_seen(file, seen, request) {
            Some(checked) => self.answer_read(context.peer, checked, request, into),
            None => self.read(context, file, request, into),
        }
    }

    /// Checks a READ of a file that is open for reading, for a client that has opened it: nothing else has to be
    /// read.
    fn check_seen(&self, file: &Handle, seen: &Attributes, request: ReadRequest) -> Option<Checked> {
        if request.authority != Authority::Opened || seen.kind != FileKind::Regular {
            return None;
        }
        let object = self.objects.get(file)?;
        let file = object.file();
        file.reach.reads().then(|| check_range(object, file, request, *seen))
    }

    fn answer_read<'a>(
        self: &'a Arc<Self>,
        peer: Peer,
        checked: Checked,
        request: ReadRequest,
        into: &mut BytesMut,
    ) -> Op<'a, Read> {
        if checked.count == 0 {
            return Op::ok(checked.answer(Payload::Appended));
        }
        if self.may_splice(&checked, request) {
            return Op::ok(checked.splice());
        }
        match self.read_cached(&checked, into) {
            Ok(true) => {
                checked.object.cache_history.hit();
                Op::ok(checked.answer(Payload::Appended))
            }
            Ok(false) => {
                checked.object.cache_history.missed();
                Op::pending(self.read_on_pool(peer, move |_| read_all(checked)))
            }
            Err(error) => Op::err(error),
        }
    }

    /// As [`Self::answer_read`], for threads that may block.
    fn read_on_thread(&self, checked: Checked, request: ReadRequest) -> Result<Read> {
        if checked.count > 0 && self.may_splice(&checked, request) {
            return Ok(checked.splice());
        }
        let mut data = BytesMut::new();
        if self.read_cached(&checked, &mut data)? {
            checked.object.cache_history.hit();
            return Ok(checked.answer(Payload::Bytes(data.freeze())));
        }
        checked.object.cache_history.missed();
        read_all(checked)
    }

    fn check_read(&self, context: &Context, file: &Handle, request: ReadRequest) -> Result<Checked> {
        let object = self.object(file)?;
        object.require_regular()?;
        let snapshot = self.stat(&object)?;
        self.require_read(context, &object, &snapshot, request.authority)?;
        let mut file = object.file();
        if !file.reach.reads() {
            file = self.readable(&object)?;
        }
        Ok(check_range(object, file, request, snapshot.attributes))
    }

    /// Appends all bytes if they are cached, otherwise none. Returns whether it did.
    fn read_cached(&self, checked: &Checked, into: &mut BytesMut) -> Result<bool> {
        let start = into.len();
        let fd = checked.file.as_fd();
        let read = if self.is_in_memory {
            sys::read(fd, into, checked.count, checked.offset)
        } else if self.has_nowait.load(Ordering::Relaxed) {
            sys::read_without_waiting(fd, into, checked.count, checked.offset)
        } else {
            return Ok(false);
        };
        match read {
            Ok(read) if read == checked.count => return Ok(true),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => into.truncate(start),
            Err(Errno::OPNOTSUPP) => self.has_nowait.store(false, Ordering::Relaxed),
            Err(errno) => return Err(translate(errno)),
        }
        Ok(false)
    }

    /// Returns whether the connection's thread can take the data from the page cache without blocking.
    fn may_splice(&self, checked: &Checked, request: ReadRequest) -> bool {
        if !request.may_splice || (checked.count as u64) < MIN_SPLICE_BYTES {
            return false;
        }
        if self.is_in_memory {
            return true;
        }
        let cache_history = &checked.object.cache_history;
        if checked.file.has_failed_read() || cache_history.must_copy() {
            return false;
        }
        let (offset, count) = (checked.offset, checked.count as u64);
        let pages = (offset + count).div_ceil(PAGE_BYTES) - offset / PAGE_BYTES;
        if sys::cached_pages(checked.file.as_fd(), offset, count).is_ok_and(|cached| cached < pages) {
            return false;
        }
        if !cache_history.is_known_cached() {
            let last = offset + count - 1;
            let places = (offset..last).step_by(PROBE_BYTES).chain([last]);
            if !places.into_iter().all(|at| is_byte_cached(&checked.file, at)) {
                return false;
            }
            cache_history.mark_cached();
        }
        true
    }
}

/// Limits a READ to the size of the file.
fn check_range(
    object: Arc<Object>,
    file: Arc<OpenFile>,
    request: ReadRequest,
    attributes: Attributes,
) -> Checked {
    let left = attributes.size.saturating_sub(request.offset);
    let count = left.min(u64::from(request.count)).min(MAX_READ_BYTES);
    let (offset, eof) = (request.offset, count == left);
    Checked { object, file, offset, count: count as usize, eof, attributes }
}

pub(super) fn is_byte_cached(file: &OpenFile, offset: u64) -> bool {
    let mut probe = BytesMut::with_capacity(1);
    sys::read_without_waiting(file.as_fd(), &mut probe, 1, offset) == Ok(1)
}

/// Reads all bytes, blocking as necessary.
fn read_all(mut checked: Checked) -> Result<Read> {
    let mut data = BytesMut::with_capacity(checked.count);
    while data.len() < checked.count {
        let at = checked.offset + data.len() as u64;
        let left = checked.count - data.len();
        match sys::read(checked.file.as_fd(), &mut data, left, at) {
            Ok(0) => {
                // A local process has truncated the file since its size was read.
                (checked.count, checked.eof) = (data.len(), true);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) if !data.is_empty() => (checked.count, checked.eof) = (data.len(), false),
            Err(errno) => {
                checked.file.failed();
                return Err(translate(errno));
            }
        }
    }
    Ok(checked.answer(Payload::Bytes(data.freeze())))
}
