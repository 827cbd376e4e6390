//! CLONE and COPY, on the pool, because both read data that may be on the device only.
//!
//! A copy runs in steps. Each step is one change of the destination under its lock, as large as a large WRITE, so
//! that a concurrent WRITE waits for at most one step. The data of a step are read into the page cache before the
//! lock is taken. If the file system shares extents, a step is much larger and copies nothing. So is a step over a
//! hole of the source where the destination has no data.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;
use vfs::{COPIED_HOLE_BYTES, Change, Context, Copied, CopyRange, Error, Op, Result, Stability, Written};

use super::space::extend;
use crate::blocking::OpKind;
use crate::durable::SyncCaller;
use crate::errno::translate;
use crate::nonblocking::WouldBlock;
use crate::object::{Object, OpenFile};
use crate::sync_state::ChangeId;
use crate::sys;
use crate::volume::Volume;

/// Maximum bytes that one step copies.
const STEP_BYTES: u64 = 1 << 20;
/// Maximum bytes that one step shares, a multiple of every block size.
const SHARED_STEP_BYTES: u64 = 1 << 30;
const PAGE_BYTES: u64 = 4096;

/// The source file, and a readable descriptor.
struct Source {
    object: Arc<Object>,
    file: Arc<OpenFile>,
}

/// Source and destination, after the checks.
struct Checked {
    source: Source,
    destination: Arc<Object>,
    /// Bytes to copy.
    count: u64,
    /// Whether they reach the end of the source.
    reaches_end: bool,
    /// [`Volume::is_dense`] of the source.
    is_dense: bool,
}

/// The next extent of the source, with the bytes that a step may take.
#[derive(Debug, Clone, Copy)]
enum SourceExtent {
    Data(u64),
    /// At least [`COPIED_HOLE_BYTES`].
    Hole(u64),
}

impl SourceExtent {
    fn length(self) -> u64 {
        let (Self::Data(length) | Self::Hole(length)) = self;
        length
    }

    fn is_data(self) -> bool {
        matches!(self, Self::Data(_))
    }
}

impl Checked {
    /// Returns the extent at `start`. Between large holes everything is data: small holes are not worth a step each.
    fn next_extent(&self, start: u64) -> SourceExtent {
        if self.is_dense {
            return SourceExtent::Data(self.count.min(STEP_BYTES));
        }
        let file = self.source.file.as_fd();
        let end = start + self.count;
        // Moves the descriptor's position, which is not used. After the last data there is none; a file system that
        // cannot tell has data.
        let data_from = |offset| match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Err(Errno::NXIO) => end,
            found => found.unwrap_or(offset).min(end),
        };
        let data = data_from(start);
        if data - start >= COPIED_HOLE_BYTES {
            return SourceExtent::Hole(data - start);
        }
        let last = end.min(start + STEP_BYTES);
        let mut at = data;
        while at < last {
            let hole = rustix::fs::seek(file, SeekFrom::Hole(at)).unwrap_or(last);
            if hole >= last {
                break;
            }
            at = data_from(hole);
            if at - hole >= COPIED_HOLE_BYTES {
                // If the data were removed a moment ago, the hole is next; an empty extent would end the copy.
                return if hole == start {
                    SourceExtent::Hole(at - start)
                } else {
                    SourceExtent::Data(hole - start)
                };
            }
            if at == hole {
                // The file system reports the hole but not the data after it.
                break;
            }
        }
        SourceExtent::Data(last - start)
    }
}

impl Volume {
    pub(crate) fn clone_range<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        range: &CopyRange,
    ) -> Op<'a, Change> {
        let caller = SyncCaller::shared(context);
        self.copy_on_pool(context, range, Self::clone_now, move |volume, (object, number, change)| {
            volume.answer_when_durable(caller, [(object, number)], change)
        })
    }

    pub(crate) fn copy_range<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        range: &CopyRange,
    ) -> Op<'a, Copied> {
        let caller = SyncCaller::shared(context);
        self.copy_on_pool(context, range, Self::copy_step, move |volume, (object, number, copied)| {
            let stability = copied.stability;
            let written =
                Written { count: u32::from(number != ChangeId::NONE), stability, change: copied.change };
            let answered = volume.answer_write(caller, object, written, number);
            Op::pending(async move { Ok(Copied { stability: answered.await?.stability, ..copied }) })
        })
    }

    /// Runs `work` on the pool, then `end` with its result.
    fn copy_on_pool<'a, T: Send + 'static, A: Send + 'a>(
        self: &'a Arc<Self>,
        context: &Context,
        range: &CopyRange,
        work: impl Fn(&Self, &Context, &CopyRange) -> Result<T> + Send + 'static,
        end: impl FnOnce(&'a Arc<Self>, T) -> Op<'a, A> + Send + 'a,
    ) -> Op<'a, A> {
        let (context, range) = (context.clone(), *range);
        // Its duration says nothing about smaller changes.
        let kind = (OpKind::Read, context.peer);
        let worked = self.run_on_pool(kind, WouldBlock::Long, move |volume| work(volume, &context, &range));
        Op::pending(async move { end(self, worked.await?).await })
    }

    fn clone_now(&self, context: &Context, range: &CopyRange) -> Result<(Arc<Object>, ChangeId, Change)> {
        let checked = self.check_copy(context, range)?;
        let Checked { source, destination, count, .. } = &checked;
        if *count == 0 {
            let change = Self::no_change(&self.stat(destination)?);
            return Ok((checked.destination, ChangeId::NONE, change));
        }
        self.write_out(source, range.source_offset, *count)?;
        let lock = self.lock(destination)?;
        let before = self.stat(destination)?;
        let (file, pending) = self.begin_write(destination)?;
        self.act_as_writer(context)?;
        let from = (source.file.as_fd(), range.source_offset);
        sys::clone_range(from, (file.as_fd(), range.destination_offset), *count).map_err(translate)?;
        let number = pending.finish();
        let change = self.change_since(destination, &before.attributes)?;
        drop(lock);
        Ok((checked.destination, number, change))
    }

    fn copy_step(&self, context: &Context, range: &CopyRange) -> Result<(Arc<Object>, ChangeId, Copied)> {
        if range.source == range.destination {
            return Err(Error::Invalid);
        }
        let checked = self.check_copy(context, range)?;
        let shares = self.can_share(range, &checked);
        let next = if shares {
            SourceExtent::Data(SHARED_STEP_BYTES)
        } else {
            checked.next_extent(range.source_offset)
        };
        let step = checked.count.min(next.length());
        let stability = Stability::Unstable;
        if step == 0 {
            let change = Self::no_change(&self.stat(&checked.destination)?);
            return Ok((
                checked.destination,
                ChangeId::NONE,
                Copied { count: 0, stability, is_all: true, change },
            ));
        }
        if shares {
            self.write_out(&checked.source, range.source_offset, step)?;
        } else if next.is_data() {
            self.read_ahead(&checked.source.file, range.source_offset, step);
        }
        let destination = checked.destination;
        let lock = self.lock(&destination)?;
        let before = self.stat(&destination)?;
        let (file, pending) = self.begin_write(&destination)?;
        self.act_as_writer(context)?;
        let (from, to) = ((&*checked.source.file, range.source_offset), (&*file, range.destination_offset));
        let is_done = match next {
            SourceExtent::Data(_) => shares && share(from, to, step),
            SourceExtent::Hole(_) => extend_by_hole(to, before.attributes.size, step)?,
        };
        let count = if is_done { step } else { copy(from, to, step.min(STEP_BYTES))? };
        let number = pending.finish();
        let change = self.change_since(&destination, &before.attributes)?;
        drop(lock);
        Ok((destination, number, Copied { count, stability, is_all: count == checked.count, change }))
    }

    fn check_copy(&self, context: &Context, range: &CopyRange) -> Result<Checked> {
        let (source, destination) = (self.object(&range.source)?, self.object(&range.destination)?);
        source.require_regular()?;
        destination.require_regular()?;
        let seen = self.stat(&source)?;
        self.require_read(context, &source, &seen, range.source_authority)?;
        self.require_write(context, &destination, &self.stat(&destination)?, range.destination_authority)?;
        // RFC 7862 §15.2.3, §15.13.3: "If the source offset or the source offset plus count is greater than the size of the
        // source file, the operation MUST fail with NFS4ERR_INVAL."
        let left = seen.attributes.size.checked_sub(range.source_offset).ok_or(Error::Invalid)?;
        let count = if range.count == 0 { left } else { range.count };
        if count > left {
            return Err(Error::Invalid);
        }
        let end = range.destination_offset.checked_add(count);
        if end.is_none_or(|end| end > self.properties.max_file_size) {
            return Err(Error::TooLarge);
        }
        let file = self.readable(&source)?;
        let is_dense = self.is_dense(&seen.attributes);
        let source = Source { object: source, file };
        Ok(Checked { source, destination, count, reaches_end: count == left, is_dense })
    }

    /// Returns whether the file system may share the whole range.
    fn can_share(&self, range: &CopyRange, checked: &Checked) -> bool {
        let block = u64::from(self.properties.clone_block_bytes);
        let is_aligned = |offset: u64| block > 0 && offset.is_multiple_of(block);
        is_aligned(range.source_offset)
            && is_aligned(range.destination_offset)
            && (checked.reaches_end || is_aligned(checked.count))
    }

    /// Writes a range's dirty pages out and waits, which the kernel would otherwise do under the lock.
    ///
    /// Uses a descriptor of its own: waiting consumes the error of a failed write-back, which the kernel reports to
    /// each descriptor once. The descriptor of unstable writes must keep it for the sync of their COMMIT.
    fn write_out(&self, source: &Source, offset: u64, count: u64) -> Result<()> {
        // A local process may hold a lease, or the mode may have changed: then the kernel waits under the lock.
        let Ok(own) = self.reopen(&source.object, &source.file, OFlags::RDONLY) else { return Ok(()) };
        sys::write_out(own.as_fd(), offset, count).map_err(translate)
    }

    /// Reads a range into the page cache.
    fn read_ahead(&self, file: &OpenFile, offset: u64, count: u64) {
        let pages = (offset + count).div_ceil(PAGE_BYTES) - offset / PAGE_BYTES;
        let is_cached = self.is_in_memory
            || sys::cached_pages(file.as_fd(), offset, count).is_ok_and(|cached| cached >= pages);
        if !is_cached {
            let mut scratch = bytes::BytesMut::with_capacity(count as usize);
            // The copy will get the same error.
            let _ = sys::read(file.as_fd(), &mut scratch, count as usize, offset);
        }
    }
}

/// Extends a file of `size` bytes by a hole. Returns false if it has data there, or is longer.
fn extend_by_hole((file, offset): (&OpenFile, u64), size: u64, count: u64) -> Result<bool> {
    let is_empty =
        offset >= size || rustix::fs::seek(file.as_fd(), SeekFrom::Data(offset)) == Err(Errno::NXIO);
    let end = offset + count;
    if !is_empty || end <= size {
        return Ok(false);
    }
    extend(file, (offset, end))?;
    Ok(true)
}

/// Shares a range. Returns false if that is impossible, and bytes have to be copied.
fn share(from: (&OpenFile, u64), to: (&OpenFile, u64), count: u64) -> bool {
    sys::clone_range((from.0.as_fd(), from.1), (to.0.as_fd(), to.1), count).is_ok()
}

/// Copies a range in the kernel, or through this process if the kernel cannot; at least one byte.
fn copy(from: (&OpenFile, u64), to: (&OpenFile, u64), count: u64) -> Result<u64> {
    let (mut source_offset, mut destination_offset) = (from.1, to.1);
    let copied = loop {
        let (read, written) = (Some(&mut source_offset), Some(&mut destination_offset));
        match rustix::fs::copy_file_range(from.0, read, to.0, written, count as usize) {
            Err(Errno::INTR) => {}
            // Different file systems, or unsupported: kernels differ in the error.
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                break read_and_write(from, to, count)?;
            }
            done => break done.map_err(translate)? as u64,
        }
    };
    // The source has become shorter.
    if copied == 0 { Err(Error::Invalid) } else { Ok(copied) }
}

/// Copies a range through this process.
fn read_and_write(from: (&OpenFile, u64), to: (&OpenFile, u64), count: u64) -> Result<u64> {
    let mut data = bytes::BytesMut::with_capacity(count as usize);
    sys::read(from.0.as_fd(), &mut data, count as usize, from.1).map_err(translate)?;
    if data.is_empty() {
        return Ok(0);
    }
    super::write::write_all(to.0, &data, to.1).map(|count| count as u64)
}
