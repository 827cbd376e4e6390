//! CLONE and COPY.

use bytes::BytesMut;

use super::inode::change;
use super::pages::PAGE;
use super::permission::{require_read, require_write};
use super::state::{State, drop_privileges};
use crate::{COPIED_HOLE_BYTES, Change, Context, Copied, CopyRange, Error, Result, Seek, Stability};

/// Maximum bytes copied in one step: those of a large WRITE, so that others do not wait longer for the lock.
const STEP_BYTES: u64 = 1 << 20;

impl State {
    /// Clones the whole range, or nothing. Pages are copied, and charged like written content.
    pub(super) fn clone_range(
        &mut self,
        context: &Context,
        files: (u64, u64),
        range: &CopyRange,
    ) -> Result<Change> {
        let before = self.attributes(files.1);
        let count = self.check_copy(context, files, range)?;
        let (from, to) = (range.source_offset, range.destination_offset);
        // Part of a page only where the destination has nothing after it.
        let ends = from + count == self.inode(files.0).pages()?.size()
            && to + count >= self.inode(files.1).pages()?.size();
        if !from.is_multiple_of(PAGE) || !to.is_multiple_of(PAGE) || !(ends || count.is_multiple_of(PAGE)) {
            return Err(Error::Invalid);
        }
        let overlaps = files.0 == files.1 && from < to + count && to < from + count;
        if overlaps {
            return Err(Error::Invalid);
        }
        if count == 0 {
            return Ok(change(&before, before));
        }
        // Charged before they are copied, so that a clone that is too large takes no memory.
        let new = self.inode(files.0).pages()?.kept_in(from, count) * PAGE;
        let (uid, old) = (before.uid, self.inode(files.1).pages()?.kept_in(to, count) * PAGE);
        self.space.charge(uid, new.saturating_sub(old))?;
        let pages = self.inode(files.0).pages()?.copies_of(from, count);
        self.space.refund(uid, old.saturating_sub(new));
        let inode = self.table.get_mut(files.1).expect("the file was resolved");
        inode.pages_mut()?.replace(to, count, pages);
        drop_privileges(&context.credentials, inode);
        inode.content_changed(context.now);
        self.made_stable(files.1);
        Ok(change(&before, self.attributes(files.1)))
    }

    pub(super) fn copy_range(
        &mut self,
        context: &Context,
        files: (u64, u64),
        range: &CopyRange,
    ) -> Result<Copied> {
        let before = self.attributes(files.1);
        let whole = self.check_copy(context, files, range)?;
        // RFC 7862 §15.2.3: "If SAVED_FH and CURRENT_FH refer to the same file, the operation MUST fail with NFS4ERR_INVAL."
        if files.0 == files.1 {
            return Err(Error::Invalid);
        }
        let hole = self.hole_behind_data(files, range, whole)?;
        if hole > 0 {
            let change = self.grow(context, files.1, range.destination_offset + hole)?;
            return Ok(Copied { count: hole, stability: Stability::Unstable, is_all: hole == whole, change });
        }
        let step = whole.min(STEP_BYTES);
        let mut data = BytesMut::new();
        self.inode(files.0).pages()?.read(range.source_offset, step as usize, &mut data);
        let (stability, authority) = (Stability::Unstable, range.destination_authority);
        let to = range.destination_offset;
        let written = self.write(context, files.1, to, &data.freeze(), stability, authority)?;
        let (count, after) = (u64::from(written.count), written.change.after);
        Ok(Copied { count, stability, is_all: count == whole, change: change(&before, after) })
    }

    /// Returns the bytes at the beginning of the range that are a hole in the source and become one in the
    /// destination; 0 if they are few, or the destination has data there or after it.
    fn hole_behind_data(&self, files: (u64, u64), range: &CopyRange, whole: u64) -> Result<u64> {
        let (source, destination) = (self.inode(files.0).pages()?, self.inode(files.1).pages()?);
        let end = range.source_offset + whole;
        let data = source.seek(range.source_offset, Seek::Data).unwrap_or(end).min(end);
        let hole = data - range.source_offset;
        let (to, size) = (range.destination_offset, destination.size());
        let is_behind = to >= size || destination.seek(to, Seek::Data).is_none();
        Ok(if hole >= COPIED_HOLE_BYTES && to + hole > size && is_behind { hole } else { 0 })
    }

    /// Extends a file by a hole.
    fn grow(&mut self, context: &Context, file: u64, size: u64) -> Result<Change> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        let before = self.attributes(file);
        self.made_stable(file);
        let inode = self.table.get_mut(file).expect("the file was resolved");
        inode.pages_mut()?.truncate(size);
        drop_privileges(&context.credentials, inode);
        inode.content_changed(context.now);
        Ok(change(&before, self.attributes(file)))
    }

    /// Checks both files. Returns the bytes to copy.
    fn check_copy(&self, context: &Context, files: (u64, u64), range: &CopyRange) -> Result<u64> {
        let (source, destination) = (self.inode(files.0), self.inode(files.1));
        let size = source.pages()?.size();
        destination.pages()?;
        require_read(&context.credentials, source, range.source_authority)?;
        require_write(&context.credentials, destination, range.destination_authority)?;
        let left = size.checked_sub(range.source_offset).ok_or(Error::Invalid)?;
        let count = if range.count == 0 { left } else { range.count };
        if count > left {
            return Err(Error::Invalid);
        }
        match range.destination_offset.checked_add(count) {
            Some(end) if end <= self.max_file_size => Ok(count),
            _ => Err(Error::TooLarge),
        }
    }
}
