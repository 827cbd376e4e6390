use bytes::{Bytes, BytesMut};

use super::inode::{Body, change};
use super::pages::PAGE;
use super::permission::{EXECUTE, READ, WRITE, permits, require, require_read, require_write};
use super::state::{State, drop_privileges};
use crate::{
    Authority, Change, Context, Error, OpenAccess, Payload, Read, ReadRequest, Result, Seek, Stability,
    Written,
};

/// Maximum number of bytes that one READ returns: a bound on the growth of the caller's buffer.
const READ_MAX: u64 = 16 << 20;

impl State {
    pub(super) fn read(
        &self,
        context: &Context,
        file: u64,
        request: ReadRequest,
        into: &mut BytesMut,
    ) -> Result<Read> {
        let inode = self.inode(file);
        let pages = inode.pages()?;
        require_read(&context.credentials, inode, request.authority)?;
        let left = pages.size().saturating_sub(request.offset);
        let count = left.min(u64::from(request.count)).min(READ_MAX);
        pages.read(request.offset, count as usize, into);
        // Pages are scattered: appending them is the one copy that a reply needs anyway.
        let payload = Payload::Appended;
        Ok(Read { count: count as u32, eof: count == left, payload, attributes: self.attributes(file) })
    }

    pub(super) fn write(
        &mut self,
        context: &Context,
        file: u64,
        offset: u64,
        data: &Bytes,
        stability: Stability,
        authority: Authority,
    ) -> Result<Written> {
        let before = self.attributes(file);
        self.inode(file).pages()?;
        require_write(&context.credentials, self.inode(file), authority)?;
        // RFC 1813 §3.3.7: "If count is 0, the WRITE will succeed and return a count of 0, barring errors due to
        // permissions checking."
        if data.is_empty() {
            return Ok(Written { count: 0, stability, change: change(&before, before) });
        }
        let room = self.max_file_size.saturating_sub(offset).min(data.len() as u64) as usize;
        if room == 0 {
            return Err(Error::TooLarge);
        }
        match stability {
            Stability::Unstable => self.keep_for_undo(file, offset, room as u64),
            Stability::DataSync | Stability::FileSync => self.made_stable(file),
        }
        let inode = self.table.get_mut(file).expect("the file was resolved");
        let (owner, mut refusal) = (inode.uid, Error::NoSpace);
        let count = inode.pages_mut()?.write(offset, &data[..room], || {
            let granted = self.space.charge(owner, PAGE);
            granted.map_err(|error| refusal = error).is_ok()
        });
        if count == 0 {
            return Err(refusal);
        }
        drop_privileges(&context.credentials, inode);
        inode.content_changed(context.now);
        let change = change(&before, self.attributes(file));
        Ok(Written { count: count as u32, stability, change })
    }

    /// Makes the whole file stable, for any range.
    pub(super) fn commit(&mut self, file: u64) -> Result<Change> {
        self.inode(file).pages()?;
        self.made_stable(file);
        let attributes = self.attributes(file);
        Ok(change(&attributes, attributes))
    }

    /// Checks an open; the caller then adds a pin.
    pub(super) fn open(
        &mut self,
        context: &Context,
        file: u64,
        access: OpenAccess,
        authority: Authority,
    ) -> Result<()> {
        let (who, inode) = (&*context.credentials, self.inode(file));
        if matches!(inode.body, Body::Symlink(_)) {
            return Err(Error::IsSymlink);
        }
        inode.pages()?;
        if access.write && self.read_only {
            return Err(Error::ReadOnly);
        }
        if authority == Authority::Caller {
            // RFC 8881 §6.2.1.3.1: "Servers SHOULD allow a user the ability to read the data of the file when only
            // the ACE4_EXECUTE access mask bit is allowed."
            if access.read && !permits(who, inode, EXECUTE) {
                require(who, inode, READ)?;
            }
            if access.write {
                require(who, inode, WRITE)?;
            }
        }
        self.inode_mut(file).pins += 1;
        Ok(())
    }

    pub(super) fn close(&mut self, file: u64) {
        self.inode_mut(file).pins -= 1;
        self.release(file);
    }

    pub(super) fn seek(
        &self,
        context: &Context,
        file: u64,
        offset: u64,
        what: Seek,
        authority: Authority,
    ) -> Result<Option<u64>> {
        let inode = self.inode(file);
        let pages = inode.pages()?;
        require_read(&context.credentials, inode, authority)?;
        if offset >= pages.size() {
            return Err(Error::NoDevice);
        }
        Ok(pages.seek(offset, what))
    }

    /// Reserves the whole range, or nothing.
    pub(super) fn allocate(
        &mut self,
        context: &Context,
        file: u64,
        (offset, length): (u64, u64),
        authority: Authority,
    ) -> Result<Change> {
        let before = self.attributes(file);
        self.check_range(context, file, (offset, length), authority)?;
        if offset + length > self.max_file_size {
            return Err(Error::TooLarge);
        }
        let inode = self.table.get_mut(file).expect("the file was resolved");
        self.space.charge(inode.uid, inode.pages()?.missing(offset, length) * PAGE)?;
        inode.pages_mut()?.allocate(offset, length);
        drop_privileges(&context.credentials, inode);
        inode.content_changed(context.now);
        self.made_stable(file);
        Ok(change(&before, self.attributes(file)))
    }

    pub(super) fn deallocate(
        &mut self,
        context: &Context,
        file: u64,
        (offset, length): (u64, u64),
        authority: Authority,
    ) -> Result<Change> {
        let before = self.attributes(file);
        self.check_range(context, file, (offset, length), authority)?;
        let length = length.min(before.size.saturating_sub(offset));
        if length > 0 {
            self.made_stable(file);
            let inode = self.table.get_mut(file).expect("the file was resolved");
            let freed = inode.pages_mut()?.deallocate(offset, length) * PAGE;
            self.space.refund(inode.uid, freed);
            drop_privileges(&context.credentials, inode);
            inode.content_changed(context.now);
        }
        Ok(change(&before, self.attributes(file)))
    }

    pub(super) fn write_hole(
        &mut self,
        context: &Context,
        file: u64,
        (offset, length): (u64, u32),
        authority: Authority,
    ) -> Result<Written> {
        let before = self.attributes(file);
        let end = offset.saturating_add(length.into());
        self.check_range(context, file, (offset, length.into()), authority)?;
        if end > self.max_file_size {
            return Err(Error::TooLarge);
        }
        self.keep_for_undo(file, offset, length.into());
        let inode = self.table.get_mut(file).expect("the file was resolved");
        let pages = inode.pages_mut()?;
        let inside = end.min(before.size).saturating_sub(offset);
        let freed = if inside == 0 { 0 } else { pages.deallocate(offset, inside) * PAGE };
        if end > before.size {
            pages.truncate(end);
        }
        self.space.refund(inode.uid, freed);
        drop_privileges(&context.credentials, inode);
        inode.content_changed(context.now);
        let change = change(&before, self.attributes(file));
        Ok(Written { count: length, stability: Stability::Unstable, change })
    }

    fn check_range(
        &self,
        context: &Context,
        file: u64,
        (offset, length): (u64, u64),
        authority: Authority,
    ) -> Result<()> {
        let inode = self.inode(file);
        inode.pages()?;
        require_write(&context.credentials, inode, authority)?;
        match offset.checked_add(length) {
            Some(_) if length > 0 => Ok(()),
            _ => Err(Error::Invalid),
        }
    }
}
