//! WRITE: into the page cache, in place if that does not block. Stable writes then wait for a sync.
//!
//! A write goes in place if more memory may be dirtied ([`dirty_memory`]), if the file's blocks are known (it
//! was written within the last minute, or has none yet), and if pages that are written in part are cached. Whether
//! such a page is cached is tested by reading a byte with `RWF_NOWAIT`, except for the page in which the last write
//! ended, because logs grow this way.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use rustix::io::Errno;
use vfs::{Attributes, Authority, Context, Error, Handle, Op, Result, Stability, Written};

use super::read::{PAGE_BYTES, is_byte_cached};
use crate::blocking::OpKind;
use crate::dirty_memory;
use crate::durable::SyncCaller;
use crate::errno::translate;
use crate::nonblocking;
use crate::object::{Object, OpenFile};
use crate::sync_state::{ChangeId, Extent, PendingChange};
use crate::volume::Volume;

impl Volume {
    pub(crate) fn write<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        offset: u64,
        data: &Bytes,
        stability: Stability,
        authority: Authority,
    ) -> Op<'a, Written> {
        let request = (offset, stability, authority);
        let make_job = || {
            let (context, file, data) = (context.clone(), *file, data.clone());
            move |volume: &Arc<Self>| volume.write_now(&context, &file, &data, request)
        };
        let caller = SyncCaller::of(context);
        let answer = move |(object, written, change)| self.answer_write(caller, object, written, change);
        self.run_op(
            (OpKind::Change, context.peer),
            || self.write_now(context, file, data, request),
            make_job,
            answer,
        )
    }

    fn write_now(
        &self,
        context: &Context,
        file: &Handle,
        data: &[u8],
        (offset, stability, authority): (u64, Stability, Authority),
    ) -> Result<(Arc<Object>, Written, ChangeId)> {
        let object = self.object(file)?;
        object.require_regular()?;
        let lock = self.lock(&object)?;
        let before = self.stat_before_write(context, &object)?;
        self.require_write(context, &object, &before, authority)?;
        // RFC 1813 §3.3.7: "If count is 0, the WRITE will succeed and return a count of 0, barring errors due to
        // permissions checking."
        if data.is_empty() {
            let written = Written { count: 0, stability, change: Self::no_change(&before) };
            drop(lock);
            return Ok((object, written, ChangeId::NONE));
        }
        let room = self.properties.max_file_size.saturating_sub(offset).min(data.len() as u64) as usize;
        if room == 0 {
            return Err(Error::TooLarge);
        }
        let (file, pending) = self.begin_write(&object)?;
        self.require_ready(&object, &file, &before.attributes, (offset, room))?;
        self.act_as_writer(context)?;
        let count = write_all(&file, &data[..room], offset)?;
        let change = self.finish_change(pending.of_bytes(count));
        let around = self.change_after_write(context, (&object, &file), &before)?;
        if stability == Stability::Unstable {
            self.flush_early(&object, offset, count as u64);
        }
        let written = Written { count: count as u32, stability, change: around };
        drop(lock);
        Ok((object, written, change))
    }

    /// Fails if writing these bytes may block.
    ///
    /// # Errors
    /// See [`nonblocking::require_blocking`].
    fn require_ready(
        &self,
        object: &Object,
        file: &OpenFile,
        before: &Attributes,
        (offset, length): (u64, usize),
    ) -> Result<()> {
        if self.is_in_memory {
            return Ok(());
        }
        let end = offset + length as u64;
        let now = nonblocking::minute();
        let is_known = object.cached_minute.load(Ordering::Relaxed) == now;
        if !nonblocking::may_block() {
            if !is_known {
                self.require_known_blocks(object, before)?;
            }
            if !dirty_memory::has_room(length) {
                nonblocking::require_blocking()?;
            }
            require_page(object, file, before.size, offset)?;
            if (end - 1) / PAGE_BYTES != offset / PAGE_BYTES || offset.is_multiple_of(PAGE_BYTES) {
                // A write up to the end of the file leaves no part of the page to be read.
                require_page(object, file, before.size, if end < before.size { end } else { 0 })?;
            }
        }
        if !is_known {
            object.cached_minute.store(now, Ordering::Relaxed);
        }
        object.last_page.store((end - 1) / PAGE_BYTES + 1, Ordering::Relaxed);
        Ok(())
    }

    /// Fails unless the file's blocks are known in memory: it has been written lately, or has none.
    pub(crate) fn require_known_blocks(&self, object: &Object, before: &Attributes) -> Result<()> {
        let is_known = before.used == 0
            || nonblocking::is_recent(object.cached_minute.load(Ordering::Relaxed), nonblocking::minute());
        if is_known { Ok(()) } else { nonblocking::require_blocking() }
    }

    /// Returns a descriptor for a write, and the change that is about to be made.
    pub(crate) fn begin_write<'a>(&self, object: &'a Object) -> Result<(Arc<OpenFile>, PendingChange<'a>)> {
        object.last_write.store(self.round.load(Ordering::Relaxed), Ordering::Relaxed);
        loop {
            if let Some(pending) = object.begin_change() {
                return Ok(pending);
            }
            // The cleanup thread may replace the descriptor before it is used.
            self.require_writable()?;
            self.make_writable(object)?;
        }
    }

    /// Answers a change of content when it has the stability in the answer.
    pub(crate) fn answer_write<'a>(
        self: &'a Arc<Self>,
        caller: SyncCaller,
        object: Arc<Object>,
        mut written: Written,
        change: ChangeId,
    ) -> Op<'a, Written> {
        if written.count == 0 {
            return Op::ok(written);
        }
        if !self.must_sync() {
            object.sync_state.mark_durable(change.number, Extent::All);
            return Op::ok(written);
        }
        if written.stability == Stability::Unstable {
            if self.dirty_objects.load(Ordering::Relaxed) <= self.max_dirty() {
                return Op::ok(written);
            }
            // Each dirty file keeps a descriptor: with too many of them, data go to the device at once.
            written.stability = Stability::DataSync;
        }
        let extent = if written.stability == Stability::FileSync { Extent::All } else { Extent::Data };
        self.answer_when_synced(caller, (object, change, extent), written)
    }
}

/// Fails unless the page that a write up to `at`, or from there on, changes in part is cached.
///
/// # Errors
/// See [`nonblocking::require_blocking`].
pub(crate) fn require_page(object: &Object, file: &OpenFile, size: u64, at: u64) -> Result<()> {
    let start = at - at % PAGE_BYTES;
    let is_whole = at == start || start >= size;
    if is_whole || object.last_page.load(Ordering::Relaxed) == at / PAGE_BYTES + 1 {
        return Ok(());
    }
    if file.reach.reads() && is_byte_cached(file, start) { Ok(()) } else { nonblocking::require_blocking() }
}

/// Writes all bytes, or as many as there is room for.
pub(super) fn write_all(file: impl AsFd, data: &[u8], offset: u64) -> Result<usize> {
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(&file, &data[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // RFC 1813 §3.3.7: the server may write less than requested; the next WRITE gets the error.
            Err(_) if done > 0 => break,
            Err(errno) => return Err(translate(errno)),
        }
    }
    if done > 0 { Ok(done) } else { Err(Error::Io) }
}
