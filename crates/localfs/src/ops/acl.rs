//! ACLs, through the kernel's extended attributes; the kernel checks who may set one.

use std::sync::Arc;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use vfs::{Acl, AclKind, Change, Context, Error, FileKind, Handle, Op, Peer, Result};

use crate::acl::{ACCESS_ACL, DEFAULT_ACL, MAX_ACL_BYTES, decode, encode};
use crate::blocking::OpKind;
use crate::durable::SyncCaller;
use crate::errno::translate;
use crate::object::Object;
use crate::permission::owns;
use crate::sync_state::ChangeId;
use crate::volume::Volume;
use crate::xattr_target::{Target, read_whole};

impl Volume {
    pub(crate) fn get_acl<'a>(
        self: &'a Arc<Self>,
        peer: Peer,
        file: &Handle,
        kind: AclKind,
    ) -> Op<'a, Option<Acl>> {
        let make_job = || {
            let file = *file;
            move |volume: &Arc<Self>| volume.get_acl_now(&file, kind)
        };
        self.run_read(peer, || self.get_acl_now(file, kind), make_job)
    }

    fn get_acl_now(&self, file: &Handle, kind: AclKind) -> Result<Option<Acl>> {
        let object = self.object(file)?;
        if !self.has_acls {
            return Err(Error::NotSupported);
        }
        let has_none = match kind {
            AclKind::Access => object.kind == FileKind::Symlink,
            AclKind::Default => object.kind != FileKind::Directory,
        };
        if has_none {
            return Ok(None);
        }
        self.act_as_server();
        let target = Target::of(object.file());
        match read_whole(MAX_ACL_BYTES, |value| target.get(name_of(kind), value)) {
            Ok(value) => decode(&value).map(Some),
            Err(Errno::NODATA) => Ok(None),
            Err(errno) => Err(translate(errno)),
        }
    }

    pub(crate) fn set_acl<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        kind: AclKind,
        acl: Option<&Acl>,
    ) -> Op<'a, Change> {
        let make_job = || {
            let (context, file, acl) = (context.clone(), *file, acl.cloned());
            move |volume: &Arc<Self>| volume.set_acl_now(&context, &file, kind, acl.as_ref())
        };
        let in_place = || self.set_acl_now(context, file, kind, acl);
        let caller = SyncCaller::of(context);
        self.run_op((OpKind::Change, context.peer), in_place, make_job, move |(object, number, change)| {
            self.answer_when_durable(caller, [(object, number)], change)
        })
    }

    fn set_acl_now(
        &self,
        context: &Context,
        file: &Handle,
        kind: AclKind,
        acl: Option<&Acl>,
    ) -> Result<(Arc<Object>, ChangeId, Change)> {
        let object = self.object(file)?;
        if !self.has_acls {
            return Err(Error::NotSupported);
        }
        let lock = self.lock(&object)?;
        let before = self.stat(&object)?;
        self.require_writable()?;
        // The kernel knows the caller only if the server can act as the caller.
        if self.is_immutable(&object, &before)? || !owns(&context.credentials, &before.attributes) {
            return Err(Error::NotPermitted);
        }
        let is_strange = kind == AclKind::Default && object.kind != FileKind::Directory && acl.is_some();
        if object.kind == FileKind::Symlink || is_strange {
            return Err(Error::Invalid);
        }
        let pending = object.sync_state.begin_change();
        self.act_as(context)?;
        let target = Target::of(object.file());
        let set = match acl {
            Some(acl) => target.set(name_of(kind), &encode(acl), XattrFlags::empty()),
            None => target.remove(name_of(kind)),
        };
        match set {
            // There was none to remove.
            Err(Errno::NODATA) if acl.is_none() => {}
            set => set.map_err(translate)?,
        }
        let number = pending.finish();
        let change = self.change_since(&object, &before.attributes)?;
        drop(lock);
        Ok((object, number, change))
    }
}

fn name_of(kind: AclKind) -> &'static str {
    match kind {
        AclKind::Access => ACCESS_ACL,
        AclKind::Default => DEFAULT_ACL,
    }
}
