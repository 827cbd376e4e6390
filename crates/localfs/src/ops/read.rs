//! READ: from the page cache in place, from the device on the pool.
//!
//! The attributes of the answer are taken *before* the data are read. The other way round a client could get old data
//! with the attributes of new data, and trust them for ever; this way it may at worst read once more.
//!
//! Small reads are copied out of the page cache with `preadv2(RWF_NOWAIT)`, which returns at once where data are
//! missing. Large ones that may be spliced are answered by the range: but only when all their pages are in the page
//! cache (cachestat(2), Linux 6.5), since splicing would wait for the device in the connection's thread. Without that
//! call a probe of the first and last byte has to do: it also covers the ordinary case that read-ahead has stopped
//! short. What is not in the page cache is read by a thread of the pool. File systems that cannot tell (FUSE, overlay
//! before some version) always go there, those in memory never.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::BytesMut;
use rustix::io::Errno;
use vfs::{
    Attributes, Context, Error, FileRange, Handle, Op, Payload, RangeSource, Read, ReadRequest, Result,
};

use crate::errno::translate;
use crate::object::OpenFile;
use crate::sys;
use crate::volume::Volume;

/// Bytes that one READ returns at most, whatever was asked: a bound on what a buffer can be made to grow to.
const MAX_READ_BYTES: u64 = 16 << 20;
/// Bytes from which on splicing is cheaper than a copy; at 4 KiB it costs four times as much.
const MIN_SPLICE_BYTES: u64 = 64 * 1024;
const PAGE_BYTES: u64 = 4096;

/// A READ that has been judged.
struct Judged {
    file: Arc<OpenFile>,
    offset: u64,
    count: usize,
    eof: bool,
    attributes: Attributes,
}

impl Judged {
    fn answer(self, payload: Payload) -> Read {
        Read { count: self.count as u32, eof: self.eof, payload, attributes: self.attributes }
    }
}

impl Volume {
    pub(crate) fn read<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        request: ReadRequest,
        into: &'a mut BytesMut,
    ) -> Op<'a, Read> {
        let judged = match self.judge_read(context, file, request) {
            Ok(judged) => judged,
            Err(error) => return Op::err(error),
        };
        if judged.count == 0 {
            return Op::ok(judged.answer(Payload::Appended));
        }
        if request.may_splice && judged.count as u64 >= MIN_SPLICE_BYTES && self.is_cached(&judged) {
            let source = Arc::clone(&judged.file) as Arc<dyn RangeSource>;
            let range = FileRange { source, offset: judged.offset, length: judged.count as u32 };
            return Op::ok(judged.answer(Payload::Range(range)));
        }
        match self.read_cached(&judged, into) {
            Ok(true) => Op::ok(judged.answer(Payload::Appended)),
            Ok(false) => Op::pending(read_on_pool(judged)),
            Err(error) => Op::err(error),
        }
    }

    fn judge_read(&self, context: &Context, file: &Handle, request: ReadRequest) -> Result<Judged> {
        let object = self.object(file)?;
        object.require_regular()?;
        let snapshot = self.stat(&object)?;
        self.require_read(context, &object, &snapshot, request.authority)?;
        let mut file = object.file();
        if !file.reach.reads() {
            file = self.readable(&object)?;
        }
        let left = snapshot.attributes.size.saturating_sub(request.offset);
        let count = left.min(u64::from(request.count)).min(MAX_READ_BYTES);
        let attributes = snapshot.attributes;
        Ok(Judged { file, offset: request.offset, count: count as usize, eof: count == left, attributes })
    }

    /// Appends all that is wanted if that needs no waiting; otherwise nothing.
    fn read_cached(&self, judged: &Judged, into: &mut BytesMut) -> Result<bool> {
        let start = into.len();
        let fd = judged.file.as_fd();
        let read = if self.is_in_memory {
            sys::read(fd, into, judged.count, judged.offset)
        } else if self.has_nowait.load(Ordering::Relaxed) {
            sys::read_without_waiting(fd, into, judged.count, judged.offset)
        } else {
            return Ok(false);
        };
        match read {
            Ok(read) if read == judged.count => return Ok(true),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => into.truncate(start),
            Err(Errno::OPNOTSUPP) => self.has_nowait.store(false, Ordering::Relaxed),
            Err(errno) => return Err(translate(errno)),
        }
        Ok(false)
    }

    fn is_cached(&self, judged: &Judged) -> bool {
        if self.is_in_memory {
            return true;
        }
        let (offset, count) = (judged.offset, judged.count as u64);
        let pages = (offset + count).div_ceil(PAGE_BYTES) - offset / PAGE_BYTES;
        match sys::cached_pages(judged.file.as_fd(), offset, count) {
            Ok(cached) => cached >= pages,
            Err(_) => [offset, offset + count - 1].into_iter().all(|at| is_byte_cached(&judged.file, at)),
        }
    }
}

fn is_byte_cached(file: &OpenFile, offset: u64) -> bool {
    let mut probe = BytesMut::with_capacity(1);
    sys::read_without_waiting(file.as_fd(), &mut probe, 1, offset) == Ok(1)
}

async fn read_on_pool(mut judged: Judged) -> Result<Read> {
    tokio::task::spawn_blocking(move || {
        let mut data = BytesMut::with_capacity(judged.count);
        while data.len() < judged.count {
            let at = judged.offset + data.len() as u64;
            let left = judged.count - data.len();
            match sys::read(judged.file.as_fd(), &mut data, left, at) {
                Ok(0) => {
                    // A local process has cut the file since its size was taken.
                    (judged.count, judged.eof) = (data.len(), true);
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) if !data.is_empty() => (judged.count, judged.eof) = (data.len(), false),
                Err(errno) => return Err(translate(errno)),
            }
        }
        Ok(judged.answer(Payload::Bytes(data.freeze())))
    })
    .await
    .unwrap_or(Err(Error::ServerFault))
}
