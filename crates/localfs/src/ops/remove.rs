use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use vfs::{Change, Context, Error, Handle, Op, Removal, Result};

use crate::blocking::OpKind;
use crate::durable::SyncCaller;
use crate::errno::translate;
use crate::name::Name;
use crate::object::Object;
use crate::permission::EXECUTE;
use crate::sync_state::ChangeId;
use crate::volume::Volume;

impl Volume {
    pub(crate) fn remove<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        removal: Removal,
    ) -> Op<'a, Change> {
        let make_job = || {
            let (context, directory, name) = (context.clone(), *directory, name.to_vec());
            move |volume: &Arc<Self>| volume.remove_now(&context, &directory, &name, removal)
        };
        let in_place = || self.remove_now(context, directory, name, removal);
        let caller = SyncCaller::of(context);
        self.run_op((OpKind::Change, context.peer), in_place, make_job, move |(directory, number, change)| {
            self.answer_when_durable(caller, [(directory, number)], change)
        })
    }

    fn remove_now(
        &self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        removal: Removal,
    ) -> Result<(Arc<Object>, ChangeId, Change)> {
        let directory = self.object(directory)?;
        directory.require_directory()?;
        let name = Name::new(name)?;
        self.require_cached_directory(&directory)?;
        let lock = self.lock(&directory)?;
        let before = self.stat_before_entry(context, &directory)?;
        self.enter(context, &directory, EXECUTE)?;
        let victim = self.victim(context, &directory, &name)?;
        let pending = directory.sync_state.begin_change();
        let unlink = |flags| directory.with_fd(|fd| rustix::fs::unlinkat(fd, name.as_c_str(), flags));
        let removed = match removal {
            Removal::Directory => unlink(AtFlags::REMOVEDIR),
            Removal::File => unlink(AtFlags::empty()),
            Removal::Any => match unlink(AtFlags::empty()) {
                Err(Errno::ISDIR) => unlink(AtFlags::REMOVEDIR),
                other => other,
            },
        };
        removed.map_err(translate)?;
        let number = self.finish_change(pending);
        let change = self.change_after_entry(context, &directory, &before)?;
        if let Some(victim) = victim {
            self.name_removed(victim);
        }
        drop(lock);
        Ok((directory, number, change))
    }

    /// Returns the object that is about to lose its name, held so that freeing much space is not part of the removal;
    /// `None` for a mount point. Checks the removal for a caller that the kernel does not check.
    fn victim(&self, context: &Context, directory: &Object, name: &Name) -> Result<Option<Arc<Object>>> {
        if self.is_foreign(context) {
            let victim = self.find(directory, name)?;
            let attributes = self.stat(&victim)?.attributes;
            self.require_removal(context, directory, &attributes)?;
            return Ok(Some(victim));
        }
        match self.find(directory, name) {
            Ok(victim) => Ok(Some(victim)),
            Err(Error::Access) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
