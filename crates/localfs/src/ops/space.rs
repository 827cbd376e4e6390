//! Finds, fills and creates holes.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use vfs::{Attributes, Authority, Change, Context, Error, Handle, Op, Result, Seek, Stability, Written};

use super::write::write_all;
use crate::blocking::OpKind;
use crate::durable::SyncCaller;
use crate::errno::translate;
use crate::nonblocking::{self, WouldBlock};
use crate::object::Object;
use crate::sync_state::ChangeId;
use crate::volume::Volume;

/// Number of bytes from which the pool searches, reserves or frees space, and the size of the first step: file systems
/// without extents touch every block.
const MAX_BYTES_IN_PLACE: u64 = 16 << 20;
/// Frees space without changing the size of the file.
const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// Minimum and maximum bytes that a step reserves or frees.
const STEP_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;
/// Target duration of a step.
const STEP_TIME: Duration = Duration::from_millis(4);

/// A part of a range whose space is reserved or freed.
#[derive(Debug, Clone, Copy)]
struct SpaceStep {
    /// Offset and length of the whole range.
    range: (u64, u64),
    /// Offset of the step in it, and its length.
    from: u64,
    bytes: u64,
    how: FallocateFlags,
    authority: Authority,
}

impl SpaceStep {
    /// Returns the next step: larger if this one was short, because each step waits for the pool.
    fn next(self, took: Duration) -> Self {
        let bytes = match took {
            _ if took > STEP_TIME * 2 => self.bytes / 2,
            _ if took < STEP_TIME / 2 => self.bytes * 2,
            _ => self.bytes,
        };
        let bytes = bytes.clamp(*STEP_BYTES.start(), *STEP_BYTES.end());
        Self { from: self.from + self.bytes, bytes, ..self }
    }
}

/// The result of a step.
struct SpaceChange {
    object: Arc<Object>,
    made: ChangeId,
    change: Change,
    /// Whether it was the last.
    is_all: bool,
}

impl Volume {
    /// Returns whether a file is known to have no hole: for file systems in memory, where a search visits each page (10 ms
    /// for a GiB) for each READ_PLUS and each step of a copy. Reserved space counts as data.
    pub(crate) fn is_dense(&self, attributes: &Attributes) -> bool {
        self.is_in_memory && attributes.used >= attributes.size
    }

    pub(crate) fn seek<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        offset: u64,
        what: Seek,
        authority: Authority,
    ) -> Op<'a, Option<u64>> {
        let make_job = || {
            let (context, file) = (context.clone(), *file);
            move |volume: &Arc<Self>| volume.seek_now(&context, &file, (offset, what), authority)
        };
        self.run_read(context.peer, || self.seek_now(context, file, (offset, what), authority), make_job)
    }

    fn seek_now(
        &self,
        context: &Context,
        file: &Handle,
        (offset, what): (u64, Seek),
        authority: Authority,
    ) -> Result<Option<u64>> {
        let object = self.object(file)?;
        object.require_regular()?;
        let snapshot = self.stat(&object)?;
        self.require_read(context, &object, &snapshot, authority)?;
        if offset >= snapshot.attributes.size {
            return Err(Error::NoDevice);
        }
        let file = self.readable(&object)?;
        if what == Seek::Hole && self.is_dense(&snapshot.attributes) {
            return Ok(Some(snapshot.attributes.size));
        }
        // The extents may have to be read; without a disk, every page is visited.
        if !self.is_in_memory || snapshot.attributes.size - offset > MAX_BYTES_IN_PLACE {
            nonblocking::require_blocking()?;
        }
        // Moves the descriptor's position, which is not used.
        let found = match what {
            Seek::Data => rustix::fs::seek(file.as_fd(), SeekFrom::Data(offset)),
            Seek::Hole => rustix::fs::seek(file.as_fd(), SeekFrom::Hole(offset)),
        };
        match found {
            Ok(at) => Ok(Some(at)),
            // From here to the end there is only a hole.
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(translate(errno)),
        }
    }

    pub(crate) fn allocate<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        range: (u64, u64),
        authority: Authority,
    ) -> Op<'a, Change> {
        self.change_space(context, file, range, authority, FallocateFlags::empty())
    }

    pub(crate) fn deallocate<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        range: (u64, u64),
        authority: Authority,
    ) -> Op<'a, Change> {
        self.change_space(context, file, range, authority, PUNCH)
    }

    fn change_space<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        range: (u64, u64),
        authority: Authority,
        how: FallocateFlags,
    ) -> Op<'a, Change> {
        let whole = SpaceStep { range, from: 0, bytes: range.1, how, authority };
        if whole.bytes > MAX_BYTES_IN_PLACE {
            return Op::pending(self.change_space_in_steps(context.clone(), *file, whole));
        }
        let make_job = || {
            let (context, file) = (context.clone(), *file);
            move |volume: &Arc<Self>| volume.change_space_now(&context, &file, whole)
        };
        let in_place = || self.change_space_now(context, file, whole);
        let caller = SyncCaller::shared(context);
        self.run_op((OpKind::Change, context.peer), in_place, make_job, move |done| match done {
            SpaceChange { made: ChangeId::NONE, change, .. } => Op::ok(change),
            SpaceChange { object, made, change, .. } => {
                self.answer_when_durable(caller, [(object, made)], change)
            }
        })
    }

    /// Releases lock and thread between two steps. If one fails, earlier steps are kept.
    async fn change_space_in_steps(
        self: &Arc<Self>,
        context: Context,
        file: Handle,
        whole: SpaceStep,
    ) -> Result<Change> {
        let mut step = SpaceStep { bytes: MAX_BYTES_IN_PLACE, ..whole };
        let mut so_far: Option<(ChangeId, Change)> = None;
        loop {
            let (caller, next) = (context.clone(), step);
            let job = move |volume: &Arc<Self>| {
                let began = Instant::now();
                volume.change_space_now(&caller, &file, next).map(|done| (done, began.elapsed()))
            };
            let done = self.run_on_pool((OpKind::Read, context.peer), WouldBlock::Long, job).await;
            let (SpaceChange { object, made, change, is_all }, took) = done?;
            let (made, change) = match so_far {
                // Other requests may have changed the file between two steps.
                Some((first, of_first)) => {
                    (made.covering(first), Change { before: of_first.before, atomic: false, ..change })
                }
                None => (made, change),
            };
            if is_all {
                return self
                    .answer_when_durable(SyncCaller::shared(&context), [(object, made)], change)
                    .await;
            }
            so_far = Some((made, change));
            step = step.next(took);
        }
    }

    fn change_space_now(&self, context: &Context, file: &Handle, step: SpaceStep) -> Result<SpaceChange> {
        let object = self.object(file)?;
        object.require_regular()?;
        // Free space or extents have to be found; without a disk, every page is touched.
        if !self.is_in_memory {
            nonblocking::require_blocking()?;
        }
        let lock = self.lock(&object)?;
        let before = self.stat(&object)?;
        self.require_write(context, &object, &before, step.authority)?;
        let (offset, length) = step.range;
        let end = offset.checked_add(length).filter(|_| length > 0).ok_or(Error::Invalid)?;
        let punches = step.how.contains(FallocateFlags::PUNCH_HOLE);
        let offset = offset + step.from;
        if punches && offset >= before.attributes.size {
            let change = Self::no_change(&before);
            drop(lock);
            return Ok(SpaceChange { object, made: ChangeId::NONE, change, is_all: true });
        }
        if !punches && end > self.properties.max_file_size {
            return Err(Error::TooLarge);
        }
        let left = (end - offset).min(self.properties.max_file_size - offset);
        // After the end of a file there is nothing to free.
        let is_all = step.bytes >= left || (punches && offset + step.bytes >= before.attributes.size);
        let bytes = if is_all { left } else { step.bytes };
        // The last step sets the new size.
        let how = if is_all { step.how } else { step.how | FallocateFlags::KEEP_SIZE };
        let (file, pending) = self.begin_write(&object)?;
        self.act_as_writer(context)?;
        rustix::fs::fallocate(&file, how, offset, bytes).map_err(translate)?;
        let made = pending.finish();
        let change = self.change_since(&object, &before.attributes)?;
        drop(lock);
        Ok(SpaceChange { object, made, change, is_all })
    }

    pub(crate) fn write_hole<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        range: (u64, u32),
        authority: Authority,
    ) -> Op<'a, Written> {
        let make_job = || {
            let (context, file) = (context.clone(), *file);
            move |volume: &Arc<Self>| volume.write_hole_now(&context, &file, range, authority)
        };
        let in_place = || self.write_hole_now(context, file, range, authority);
        let caller = SyncCaller::shared(context);
        self.run_op((OpKind::Change, context.peer), in_place, make_job, move |(object, number, change)| {
            let written = Written { count: range.1, stability: Stability::Unstable, change };
            self.answer_write(caller, object, written, number)
        })
    }

    fn write_hole_now(
        &self,
        context: &Context,
        file: &Handle,
        (offset, length): (u64, u32),
        authority: Authority,
    ) -> Result<(Arc<Object>, ChangeId, Change)> {
        let object = self.object(file)?;
        object.require_regular()?;
        if u64::from(length) > MAX_BYTES_IN_PLACE {
            nonblocking::require_long_lane()?;
        }
        if !self.is_in_memory {
            // The extents to free may have to be read.
            nonblocking::require_blocking()?;
        }
        let lock = self.lock(&object)?;
        let before = self.stat(&object)?;
        self.require_write(context, &object, &before, authority)?;
        let length = u64::from(length);
        let end = offset.checked_add(length).filter(|_| length > 0).ok_or(Error::Invalid)?;
        if end > self.properties.max_file_size {
            return Err(Error::TooLarge);
        }
        let (file, pending) = self.begin_write(&object)?;
        self.act_as_writer(context)?;
        let extended = make_hole(&file, (offset, end), before.attributes.size)?;
        // The old content is lost, even if the file could not be extended.
        let number = pending.finish();
        extended?;
        let change = self.change_since(&object, &before.attributes)?;
        drop(lock);
        Ok((object, number, change))
    }
}

/// Makes a hole from `offset` to `end` of a file that had `size` bytes, and extends it to `end`. The inner result is
/// that of the extension.
///
/// # Errors
/// If the content cannot be freed. Then nothing has changed.
fn make_hole(file: impl AsFd, (offset, end): (u64, u64), size: u64) -> Result<Result<()>> {
    if offset < size {
        rustix::fs::fallocate(&file, PUNCH, offset, end - offset).map_err(translate)?;
    }
    Ok(if end > size { extend(&file, (offset, end)) } else { Ok(()) })
}

/// Extends a file by a hole from `offset` to `end`, if it has no content to keep.
///
/// The lock excludes other clients, but no local process: one may have extended the file since its size was read, and
/// ftruncate(2) would cut that off. Reserving a file's last byte extends it and never shortens it.
pub(super) fn extend(file: impl AsFd, (offset, end): (u64, u64)) -> Result<()> {
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), end - 1, 1) {
        // Writing the byte extends it too.
        Err(Errno::OPNOTSUPP) => write_all(&file, &[0], end - 1).map(drop),
        reserved => reserved.map_err(translate),
    }?;
    // Frees the reserved space; if that fails it is a block of zeros.
    let _ = rustix::fs::fallocate(&file, PUNCH, offset, end - offset);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use rustix::fs::{MemfdFlags, SealFlags};

    use super::*;

    fn content(file: &File) -> Vec<u8> {
        let mut content = vec![0; file.metadata().expect("status").len() as usize];
        file.read_exact_at(&mut content, 0).expect("read");
        content
    }

    #[test]
    fn data_appended_locally_after_a_hole_are_not_truncated() {
        let file = tempfile::tempfile().expect("temporary file");
        // By a copy's step, and by a written hole across the end and after it, of a file that was 1000 bytes long
        // when its size was read.
        let ways: [(u64, &dyn Fn() -> Result<()>); 3] = [
            (1000, &|| extend(&file, (1000, 20_000))),
            (500, &|| make_hole(&file, (500, 20_000), 1000)?),
            (3000, &|| make_hole(&file, (3000, 20_000), 1000)?),
        ];
        for (offset, way) in ways {
            file.set_len(0).expect("truncated");
            file.write_all_at(&[7; 30_000], 0).expect("written");
            let mut wanted = vec![7; 30_000];
            wanted[offset as usize..20_000].fill(0);
            assert_eq!(way(), Ok(()));
            assert_eq!(content(&file), wanted, "{offset}");
        }
    }

    #[test]
    fn a_hole_that_cannot_be_extended_has_freed_the_old_content() {
        let fd = rustix::fs::memfd_create("hole", MemfdFlags::ALLOW_SEALING).expect("memory");
        let file = File::from(fd);
        file.write_all_at(&[7; 10_000], 0).expect("written");
        rustix::fs::fcntl_add_seals(&file, SealFlags::GROW).expect("sealed");
        assert_eq!(make_hole(&file, (1000, 20_000), 10_000), Ok(Err(Error::NotPermitted)));
        let mut wanted = vec![7; 10_000];
        wanted[1000..].fill(0);
        assert_eq!(content(&file), wanted);
    }
}
