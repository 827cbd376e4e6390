use std::sync::Arc;

use rustix::fs::{AtFlags, CWD};
use rustix::io::Errno;
use vfs::{Context, Error, FileKind, Handle, Linked, Op, Result};

use crate::blocking::OpKind;
use crate::durable::{ObjectChange, SyncCaller};
use crate::errno::translate;
use crate::name::Name;
use crate::nonblocking;
use crate::object::OpenFile;
use crate::permission::{EXECUTE, WRITE};
use crate::volume::{Handles, Volume};

impl Volume {
    pub(crate) fn link<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        file: &Handle,
        directory: &Handle,
        name: &[u8],
    ) -> Op<'a, Linked> {
        let make_job = || {
            let (context, file, directory, name) = (context.clone(), *file, *directory, name.to_vec());
            move |volume: &Arc<Self>| volume.link_now(&context, &file, &directory, &name)
        };
        let in_place = || self.link_now(context, file, directory, name);
        let caller = SyncCaller::of(context);
        self.run_op((OpKind::Change, context.peer), in_place, make_job, move |(changes, linked)| {
            self.answer_when_durable(caller, changes, linked)
        })
    }

    fn link_now(
        &self,
        context: &Context,
        file: &Handle,
        directory: &Handle,
        name: &[u8],
    ) -> Result<([ObjectChange; 2], Linked)> {
        let object = self.object(file)?;
        let directory = self.object(directory)?;
        directory.require_directory()?;
        let name = Name::new(name)?;
        self.require_cached_directory(&directory)?;
        let _locks = self.lock_both(&object, &directory)?;
        let before = self.stat(&directory)?.attributes;
        let links = self.stat(&object)?.attributes.links;
        self.enter(context, &directory, EXECUTE)?;
        if object.kind == FileKind::Directory {
            // That the name exists is reported first.
            return Err(match self.find(&directory, &name) {
                Ok(_) => Error::Exists,
                Err(Error::NotFound) => Error::IsDirectory,
                Err(error) => error,
            });
        }
        if links == 0 {
            return Err(Error::NotFound);
        }
        if self.is_foreign(context) {
            self.enter(context, &directory, WRITE | EXECUTE)?;
        }
        let pending = (object.sync_state.begin_change(), directory.sync_state.begin_change());
        nonblocking::allow_blocking();
        make_link(&object.file(), &directory.file(), &name).map_err(translate)?;
        let numbers = (pending.0.finish(), pending.1.finish());
        if matches!(self.handles, Handles::Indexed { .. }) {
            self.find(&directory, &name)?;
        }
        let attributes = self.stat_after(&object)?.attributes;
        let linked = Linked { attributes, directory: self.change_after_entries(&directory, &before)? };
        Ok(([(Arc::clone(&object), numbers.0), (Arc::clone(&directory), numbers.1)], linked))
    }
}

/// Links the open object by its path in /proc, because the direct way needs a capability before Linux 6.10.
fn make_link(file: &OpenFile, directory: &OpenFile, name: &Name) -> rustix::io::Result<()> {
    let path = file.name_in_proc();
    let by_path = rustix::fs::linkat(CWD, path, directory, name.as_c_str(), AtFlags::SYMLINK_FOLLOW);
    match by_path {
        // There is no /proc.
        Err(Errno::NOENT) => rustix::fs::linkat(file, c"", directory, name.as_c_str(), AtFlags::EMPTY_PATH),
        other => other,
    }
}
