//! WRITE: into the page cache in place; stable ones then wait for the pool to sync.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use rustix::io::Errno;
use vfs::{Authority, Context, Error, Handle, Op, Result, Stability, Written};

use crate::durable::{Begun, Extent};
use crate::errno::translate;
use crate::object::{Object, OpenFile};
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
        let done = self.object(file).and_then(|object| {
            let written = self.write_cached(context, &object, offset, data, stability, authority)?;
            Ok((object, written))
        });
        match done {
            Ok((object, (written, change))) => self.answer_write(object, written, change),
            Err(error) => Op::err(error),
        }
    }

    fn write_cached(
        &self,
        context: &Context,
        object: &Object,
        offset: u64,
        data: &[u8],
        stability: Stability,
        authority: Authority,
    ) -> Result<(Written, u64)> {
        object.require_regular()?;
        let _lock = self.lock(object);
        let before = self.stat(object)?;
        self.require_write(context, object, &before, authority)?;
        // RFC 1813 §3.3.7: "If count is 0, the WRITE will succeed and return a count of 0, barring errors due to
        // permissions checking."
        if data.is_empty() {
            return Ok((Written { count: 0, stability, change: Self::no_change(&before) }, 0));
        }
        let room = self.properties.max_file_size.saturating_sub(offset).min(data.len() as u64) as usize;
        if room == 0 {
            return Err(Error::TooLarge);
        }
        let (file, begun) = self.begin_write(object)?;
        self.act_as_writer(context)?;
        let count = write_all(&file, &data[..room], offset)?;
        let change = begun.made();
        let around = self.change_since(object, &before.attributes)?;
        Ok((Written { count: count as u32, stability, change: around }, change))
    }

    /// A descriptor for a write, and the change that is about to be made.
    pub(crate) fn begin_write<'a>(&self, object: &'a Object) -> Result<(Arc<OpenFile>, Begun<'a>)> {
        object.last_write.store(self.round.load(Ordering::Relaxed), Ordering::Relaxed);
        loop {
            if let Some(begun) = object.begin_change() {
                return Ok(begun);
            }
            // The janitor may take it away again before it is used.
            self.require_writable()?;
            self.make_writable(object)?;
        }
    }

    /// Answers a change of content when it is as stable as it says, which it may have to become here.
    pub(crate) fn answer_write<'a>(
        self: &'a Arc<Self>,
        object: Arc<Object>,
        mut written: Written,
        change: u64,
    ) -> Op<'a, Written> {
        if written.count == 0 {
            return Op::ok(written);
        }
        if !self.must_sync() {
            object.dirt.succeeded(change, Extent::All);
            return Op::ok(written);
        }
        if written.stability == Stability::Unstable {
            if self.dirty_objects.load(Ordering::Relaxed) <= self.max_dirty {
                return Op::ok(written);
            }
            // Each dirty file keeps a descriptor: with too many of them, data go to the device at once.
            written.stability = Stability::DataSync;
        }
        let extent = if written.stability == Stability::FileSync { Extent::All } else { Extent::Data };
        Op::pending(async move {
            self.make_durable(&object, change, extent).await?;
            Ok(written)
        })
    }
}

/// Writes all, or as much as there is room for.
pub(super) fn write_all(file: &OpenFile, data: &[u8], offset: u64) -> Result<usize> {
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(file, &data[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            // RFC 1813 §3.3.7: the server may write less than requested; the next WRITE meets the error.
            Err(_) if done > 0 => break,
            Err(errno) => return Err(translate(errno)),
        }
    }
    if done > 0 { Ok(done) } else { Err(Error::Io) }
}
