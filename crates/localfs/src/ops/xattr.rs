//! Extended attributes of the `user.` name space (RFC 8276), checked by the kernel as the caller: reading needs
//! permission to read, changing needs permission to write, and only regular files and directories have them.

use std::ffi::{CStr, CString};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use vfs::{Change, Context, Error, FileKind, Handle, Op, Result, SetXattr};

use crate::attributes::Snapshot;
use crate::blocking::OpKind;
use crate::durable::SyncCaller;
use crate::errno::translate;
use crate::object::{Object, Reach};
use crate::permission::{READ, STICKY, WRITE, owns};
use crate::sync_state::ChangeId;
use crate::volume::Volume;
use crate::xattr_target::{Target, read_whole};

/// The attribute that holds the verifier of an exclusive create; clients neither see nor change it.
pub(crate) const VERIFIER: &str = "user.enfys.create_verifier";
const PREFIX: &[u8] = b"user.";
/// XATTR_NAME_MAX of Linux, without the prefix.
const MAX_NAME_BYTES: usize = 255 - PREFIX.len();
/// XATTR_SIZE_MAX and XATTR_LIST_MAX of Linux.
const MAX_VALUE_BYTES: usize = 65_536;
const MAX_LIST_BYTES: usize = 65_536;
/// Values up to this length fit every file system that has extended attributes: if one does not fit, space is short.
const SMALL_VALUE_BYTES: usize = 3072;

/// A change of an attribute.
#[derive(Debug, Clone)]
enum Edit {
    Set(Bytes, SetXattr),
    Remove,
}

impl Edit {
    fn apply(&self, file: &Target, name: &CStr) -> rustix::io::Result<()> {
        let Self::Set(value, how) = self else { return file.remove(name) };
        let flags = match how {
            SetXattr::Either => XattrFlags::empty(),
            SetXattr::Create => XattrFlags::CREATE,
            SetXattr::Replace => XattrFlags::REPLACE,
        };
        match file.set(name, value, flags) {
            // ext4 returns this for a value that is longer than it can ever hold.
            Err(Errno::NOSPC) if value.len() > SMALL_VALUE_BYTES => Err(Errno::TOOBIG),
            other => other,
        }
    }
}

impl Volume {
    pub(crate) fn get_xattr<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        name: &[u8],
    ) -> Op<'a, Bytes> {
        let make_job = || {
            let (context, file, name) = (context.clone(), *file, name.to_vec());
            move |volume: &Arc<Self>| volume.get_xattr_now(&context, &file, &name)
        };
        self.run_read(context.peer, || self.get_xattr_now(context, file, name), make_job)
    }

    fn get_xattr_now(&self, context: &Context, file: &Handle, name: &[u8]) -> Result<Bytes> {
        let name = full_name(name)?;
        let object = self.object(file)?;
        let Some(file) = self.check_xattr_read(context, &object)? else { return Err(Error::NoXattr) };
        if name.as_bytes() == VERIFIER.as_bytes() {
            return Err(Error::NoXattr);
        }
        let value = read_whole(MAX_VALUE_BYTES, |value| file.get(&*name, value)).map_err(translate)?;
        Ok(Bytes::from(value))
    }

    pub(crate) fn list_xattrs<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
    ) -> Op<'a, Vec<Bytes>> {
        let make_job = || {
            let (context, file) = (context.clone(), *file);
            move |volume: &Arc<Self>| volume.list_xattrs_now(&context, &file)
        };
        self.run_read(context.peer, || self.list_xattrs_now(context, file), make_job)
    }

    fn list_xattrs_now(&self, context: &Context, file: &Handle) -> Result<Vec<Bytes>> {
        let object = self.object(file)?;
        let Some(file) = self.check_xattr_read(context, &object)? else { return Ok(Vec::new()) };
        let list = read_whole(MAX_LIST_BYTES, |list| file.list(list)).map_err(translate)?;
        let mut names: Vec<Bytes> = list
            .split(|byte| *byte == 0)
            .filter(|name| *name != VERIFIER.as_bytes())
            .filter_map(|name| name.strip_prefix(PREFIX))
            .map(Bytes::copy_from_slice)
            .collect();
        names.sort();
        Ok(names)
    }

    pub(crate) fn set_xattr<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        name: &[u8],
        value: &Bytes,
        how: SetXattr,
    ) -> Op<'a, Change> {
        if value.len() > MAX_VALUE_BYTES {
            return Op::err(Error::TooBig);
        }
        self.change_xattr(context, file, name, Edit::Set(value.clone(), how))
    }

    pub(crate) fn remove_xattr<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        name: &[u8],
    ) -> Op<'a, Change> {
        self.change_xattr(context, file, name, Edit::Remove)
    }

    fn change_xattr<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        name: &[u8],
        edit: Edit,
    ) -> Op<'a, Change> {
        let make_job = || {
            let (context, file, name, edit) = (context.clone(), *file, name.to_vec(), edit.clone());
            move |volume: &Arc<Self>| volume.change_xattr_now(&context, &file, &name, &edit)
        };
        let in_place = || self.change_xattr_now(context, file, name, &edit);
        let caller = SyncCaller::of(context);
        self.run_op((OpKind::Change, context.peer), in_place, make_job, move |(object, number, change)| {
            self.answer_when_durable(caller, [(object, number)], change)
        })
    }

    fn change_xattr_now(
        &self,
        context: &Context,
        file: &Handle,
        name: &[u8],
        edit: &Edit,
    ) -> Result<(Arc<Object>, ChangeId, Change)> {
        let name = full_name(name)?;
        let object = self.object(file)?;
        let lock = self.lock(&object)?;
        let before = self.stat(&object)?;
        if !has_xattrs(&object) {
            return Err(Error::NotPermitted);
        }
        self.require_writable()?;
        if self.is_immutable(&object, &before)? {
            return Err(Error::NotPermitted);
        }
        self.require(context, &object, &before, WRITE)?;
        // xattr(7): in a sticky directory only its owner sets them. The kernel sees the server's user, which may be
        // the owner.
        let is_sticky = object.kind == FileKind::Directory && before.attributes.mode & STICKY != 0;
        if is_sticky && self.is_foreign(context) && !owns(&context.credentials, &before.attributes) {
            return Err(Error::NotPermitted);
        }
        if name.as_bytes() == VERIFIER.as_bytes() {
            return Err(Error::NotPermitted);
        }
        let file = self.xattr_target(&object)?;
        let pending = object.sync_state.begin_change();
        self.act_as(context)?;
        edit.apply(&file, &name).map_err(translate)?;
        let number = pending.finish();
        let change = self.change_since(&object, &before.attributes)?;
        drop(lock);
        Ok((object, number, change))
    }

    fn xattr_target(&self, object: &Object) -> Result<Target> {
        let file = object.file();
        if file.reach != Reach::Path {
            return Ok(Target::of(file));
        }
        match self.readable(object) {
            // A server without root's capabilities may be allowed to write, but not to read.
            Err(Error::Access) => Ok(Target::of(file)),
            other => other.map(Target::of),
        }
    }

    /// Checks reading of attributes and prepares this thread. Returns `None` for objects that never have any.
    fn check_xattr_read(&self, context: &Context, object: &Object) -> Result<Option<Target>> {
        let snapshot: Snapshot = self.stat(object)?;
        self.require(context, object, &snapshot, READ)?;
        if !has_xattrs(object) {
            return Ok(None);
        }
        let file = self.xattr_target(object)?;
        self.act_as(context)?;
        Ok(Some(file))
    }
}

// xattr(7): user attributes only on regular files and directories, since any user may write to a symbolic link or a special
// file.
fn has_xattrs(object: &Object) -> bool {
    matches!(object.kind, FileKind::Regular | FileKind::Directory)
}

fn full_name(name: &[u8]) -> Result<CString> {
    if name.is_empty() || name.contains(&0) {
        return Err(Error::BadName);
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(Error::NameTooLong);
    }
    CString::new([PREFIX, name].concat()).map_err(|_| Error::BadName)
}
