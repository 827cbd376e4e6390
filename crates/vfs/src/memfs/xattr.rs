use bytes::Bytes;

use super::inode::{Body, Inode, STICKY, change, xattr_bytes};
use super::permission::{READ, WRITE, owns, require};
use super::state::State;
use super::{XATTR_NAME_MAX, XATTR_VALUE_MAX};
use crate::{Change, Context, Error, Result, SetXattr};

impl State {
    pub(super) fn get_xattr(&self, context: &Context, file: u64, name: &[u8]) -> Result<Bytes> {
        let inode = self.inode(file);
        check(name)?;
        require(&context.credentials, inode, READ)?;
        inode.xattrs.get(name).cloned().ok_or(Error::NoXattr)
    }

    pub(super) fn list_xattrs(&self, context: &Context, file: u64) -> Result<Vec<Bytes>> {
        let inode = self.inode(file);
        require(&context.credentials, inode, READ)?;
        Ok(inode.xattrs.keys().cloned().collect())
    }

    pub(super) fn set_xattr(
        &mut self,
        context: &Context,
        file: u64,
        name: &[u8],
        value: &Bytes,
        how: SetXattr,
    ) -> Result<Change> {
        let before = self.attributes(file);
        check(name)?;
        if value.len() > XATTR_VALUE_MAX {
            return Err(Error::TooBig);
        }
        let inode = self.table.get_mut(file).expect("the file was resolved");
        check_change(context, inode)?;
        let old = inode.xattrs.get(name).map_or(0, |old| xattr_bytes(name, old));
        match (how, old) {
            (SetXattr::Create, 1..) => return Err(Error::Exists),
            (SetXattr::Replace, 0) => return Err(Error::NoXattr),
            _ => {}
        }
        let new = xattr_bytes(name, value);
        self.space.charge(inode.uid, new.saturating_sub(old))?;
        self.space.refund(inode.uid, old.saturating_sub(new));
        inode.xattrs.insert(Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
        inode.attributes_changed(context.now);
        Ok(change(&before, self.attributes(file)))
    }

    pub(super) fn remove_xattr(&mut self, context: &Context, file: u64, name: &[u8]) -> Result<Change> {
        let before = self.attributes(file);
        check(name)?;
        let inode = self.table.get_mut(file).expect("the file was resolved");
        check_change(context, inode)?;
        let value = inode.xattrs.remove(name).ok_or(Error::NoXattr)?;
        self.space.refund(inode.uid, xattr_bytes(name, &value));
        inode.attributes_changed(context.now);
        Ok(change(&before, self.attributes(file)))
    }
}

fn check(name: &[u8]) -> Result<()> {
    if name.is_empty() || name.contains(&0) {
        return Err(Error::BadName);
    }
    if name.len() > XATTR_NAME_MAX {
        return Err(Error::NameTooLong);
    }
    Ok(())
}

// xattr(7): user attributes only on regular files and directories, since any user may write to a symbolic link or a
// special file; and in a sticky directory, to which many users may write, only the owner sets them.
fn check_change(context: &Context, inode: &Inode) -> Result<()> {
    let who = &context.credentials;
    match inode.body {
        Body::Directory(_) if inode.mode & STICKY != 0 && !owns(who, inode) => Err(Error::NotPermitted),
        Body::File(_) | Body::Directory(_) => require(who, inode, WRITE),
        _ => Err(Error::NotPermitted),
    }
}
