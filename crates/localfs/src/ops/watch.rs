use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use vfs::{ChangeListener, Error, Handle, Interest, Op, Peer, Result, Watch};

use crate::errno::translate;
use crate::handle::{self, Meaning};
use crate::object::{OpenFile, Reach};
use crate::sys;
use crate::volume::{Handles, Volume};
use crate::watch::{Watches, events_of};
use crate::watch_limits::WatchLimit;

/// Notifies a listener until it is dropped.
#[derive(Debug)]
struct Watching {
    volume: Arc<Volume>,
    /// The handle of the object in events.
    name: Handle,
    number: u64,
}

impl Watch for Watching {}

impl Drop for Watching {
    fn drop(&mut self) {
        self.volume.unwatch(&self.name, self.number);
    }
}

impl Volume {
    /// Returns the watches of the volume.
    ///
    /// # Errors
    /// Why nothing can be watched.
    pub(crate) fn watches(&self) -> std::result::Result<&Watches, &str> {
        self.watches.get(self.root_fd.as_fd())
    }

    /// Notifies `listener` of other processes' changes of an object.
    pub(crate) fn watch<'a>(
        self: &'a Arc<Self>,
        peer: Peer,
        object: &Handle,
        interest: Interest,
        listener: &Arc<dyn ChangeListener>,
    ) -> Op<'a, Option<Box<dyn Watch>>> {
        if self.watches().is_err() {
            return Op::ok(None);
        }
        let make_job = || {
            let (object, listener) = (*object, Arc::clone(listener));
            move |volume: &Arc<Self>| volume.watch_now(&object, interest, &listener)
        };
        self.run_read(peer, || self.watch_now(object, interest, listener), make_job)
    }

    fn watch_now(
        self: &Arc<Self>,
        object: &Handle,
        interest: Interest,
        listener: &Arc<dyn ChangeListener>,
    ) -> Result<Option<Box<dyn Watch>>> {
        let Ok(watches) = self.watches() else { return Ok(None) };
        let object = self.object(object)?;
        // The kernel's handle finds an object again when its mark has to be removed, so the object need not stay
        // open: there may be more watches than descriptors.
        let (name, kept) = match self.handles {
            Handles::Kernel { .. } => (object.handle, None),
            Handles::Indexed { .. } => {
                let name = object.lend(sys::name_for_events).map_err(translate)?;
                (handle::from_kernel(&name)?, Some(Arc::clone(&object)))
            }
        };
        // A mark needs permission to read the object.
        self.act_as_server();
        let events = events_of(object.kind, interest);
        match watches.add(&name, events, listener, &object.file(), (kept, self.descriptors.share() / 2)) {
            Ok(number) => Ok(Some(Box::new(Watching { volume: Arc::clone(self), name, number }))),
            Err(Errno::NOSPC) => {
                self.limit_log.report(WatchLimit::FileMarks, &self.root);
                Err(Error::Later)
            }
            Err(Errno::MFILE) => {
                self.limit_log.report(WatchLimit::FilesKept, &self.root);
                Err(Error::Later)
            }
            Err(errno) => Err(translate(errno)),
        }
    }

    fn unwatch(&self, name: &Handle, number: u64) {
        let Ok(watches) = self.watches() else { return };
        self.act_as_server();
        if let Some(object) = watches.remove(name, number, || self.watched_file(name)) {
            // It may have lost its last name while it was kept open.
            self.check_later(&object);
        }
    }

    /// Returns a descriptor of the object that events call `name`; `None` if it is gone.
    fn watched_file(&self, name: &Handle) -> Option<Arc<OpenFile>> {
        if let Some(object) = self.objects.peek(name) {
            return Some(object.file());
        }
        let Ok(Meaning::Kernel(kind, bytes)) = handle::decode(name) else { return None };
        // The mark keeps it in memory, so this does not block.
        let fd = self.open_by_kernel_handle(kind, bytes, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        Some(Arc::new(self.file_of(fd, Reach::Path)))
    }
}
