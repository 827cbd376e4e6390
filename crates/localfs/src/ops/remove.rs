use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::io::Errno;
use vfs::{Change, Context, Error, Handle, Op, Removal, Result};

use crate::errno::translate;
use crate::name::Name;
use crate::object::Object;
use crate::permission::EXECUTE;
use crate::turn::Turn;
use crate::volume::Volume;

impl Volume {
    pub(crate) fn remove<'a>(
        self: &'a Arc<Self>,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        removal: Removal,
    ) -> Op<'a, Change> {
        let later = || {
            let (context, directory, name) = (context.clone(), *directory, name.to_vec());
            move |volume: &Arc<Self>| volume.remove_now(&context, &directory, &name, removal)
        };
        let now = || self.remove_now(context, directory, name, removal);
        self.take_turn(Turn::Change, now, later, |(directory, number, change)| {
            self.when_durable([(directory, number)], change)
        })
    }

    fn remove_now(
        &self,
        context: &Context,
        directory: &Handle,
        name: &[u8],
        removal: Removal,
    ) -> Result<(Arc<Object>, u64, Change)> {
        let directory = self.object(directory)?;
        directory.require_directory()?;
        let name = Name::new(name)?;
        self.require_visited(&directory)?;
        let _lock = self.lock(&directory)?;
        let before = self.stat_before_entry(context, &directory)?;
        self.enter(context, &directory, EXECUTE)?;
        let victim = self.victim(context, &directory, &name)?;
        let begun = directory.dirt.begin();
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
        let number = self.made(begun);
        let change = self.change_by_entry(context, &directory, &before)?;
        if let Some(victim) = victim {
            self.lost_a_name(victim);
        }
        Ok((directory, number, change))
    }

    /// What is about to lose its name: held until it is gone, so that freeing its space is not part of the removal. Nothing
    /// for another file system mounted there. For a caller whom the kernel does not judge, the removal is judged here.
    fn victim(&self, context: &Context, directory: &Object, name: &Name) -> Result<Option<Arc<Object>>> {
        let victim = match self.find(directory, name) {
            Err(Error::Access) if !self.is_foreign(context) => return Ok(None),
            other => other?,
        };
        if self.is_foreign(context) {
            let attributes = self.stat(&victim)?.attributes;
            self.require_removal(context, directory, &attributes)?;
        }
        Ok(Some(victim))
    }
}
