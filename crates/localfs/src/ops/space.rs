//! Holes: seeking them, filling them, making them.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use vfs::{Authority, Change, Context, Error, Handle, Op, Result, Seek};

use crate::errno::translate;
use crate::object::Object;
use crate::patience;
use crate::turn::Turn;
use crate::volume::Volume;

/// Bytes from which on space is reserved or freed by the pool: file systems without extents touch every block.
const MAX_BYTES_IN_PLACE: u64 = 16 << 20;

impl Volume {
    pub(crate) fn seek<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        offset: u64,
        what: Seek,
        authority: Authority,
    ) -> Op<'a, Option<u64>> {
        let later = || {
            let (context, file) = (context.clone(), *file);
            move |volume: &Arc<Self>| volume.seek_now(&context, &file, (offset, what), authority)
        };
        self.look(|| self.seek_now(context, file, (offset, what), authority), later)
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
        if !self.is_in_memory {
            // Where the extents are may have to be read.
            patience::wait()?;
        }
        // Moves the descriptor's position, which nobody uses.
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
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.change_space(context, file, range, authority, how)
    }

    fn change_space<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        range: (u64, u64),
        authority: Authority,
        how: FallocateFlags,
    ) -> Op<'a, Change> {
        let later = || {
            let (context, file) = (context.clone(), *file);
            move |volume: &Arc<Self>| volume.change_space_now(&context, &file, range, authority, how)
        };
        let now = || self.change_space_now(context, file, range, authority, how);
        self.take_turn(Turn::Change, now, later, |done| match done {
            (_, 0, change) => Op::ok(change),
            (object, number, change) => self.when_durable([(object, number)], change),
        })
    }

    fn change_space_now(
        &self,
        context: &Context,
        file: &Handle,
        (offset, length): (u64, u64),
        authority: Authority,
        how: FallocateFlags,
    ) -> Result<(Arc<Object>, u64, Change)> {
        let object = self.object(file)?;
        object.require_regular()?;
        // Free space has to be found, or extents; where there is no disk, every page is touched.
        if !self.is_in_memory || length > MAX_BYTES_IN_PLACE {
            patience::wait()?;
        }
        let _lock = self.lock(&object)?;
        let before = self.stat(&object)?;
        self.require_write(context, &object, &before, authority)?;
        let end = offset.checked_add(length).filter(|_| length > 0).ok_or(Error::Invalid)?;
        let punches = how.contains(FallocateFlags::PUNCH_HOLE);
        if punches && offset >= before.attributes.size {
            return Ok((object, 0, Self::no_change(&before)));
        }
        if !punches && end > self.properties.max_file_size {
            return Err(Error::TooLarge);
        }
        let length = length.min(self.properties.max_file_size - offset);
        let (file, begun) = self.begin_write(&object)?;
        self.act_as_writer(context)?;
        rustix::fs::fallocate(&file, how, offset, length).map_err(translate)?;
        let number = begun.made();
        let change = self.change_since(&object, &before.attributes)?;
        Ok((object, number, change))
    }
}
