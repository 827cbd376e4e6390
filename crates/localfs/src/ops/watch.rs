use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::io::Errno;
use vfs::{Alarm, Error, Handle, Interest, Op, Peer, Result, Watch};

use crate::errno::translate;
use crate::handle::{self, Meaning};
use crate::object::{OpenFile, Reach};
use crate::sys;
use crate::volume::{Handles, Volume};
use crate::watch::{Watches, events_of};
use crate::watch_limits::WatchLimit;

/// Has an alarm rung until it is dropped.
#[derive(Debug)]
struct Watching {
    volume: Arc<Volume>,
    /// The object, as events name it.
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
    /// What is watched.
    ///
    /// # Errors
    /// Why nothing can be.
    pub(crate) fn watches(&self) -> std::result::Result<&Watches, &str> {
        self.watches.get(self.root_fd.as_fd())
    }

    /// Has `alarm` rung at what other processes do to an object.
    pub(crate) fn watch<'a>(
        self: &'a Arc<Self>,
        peer: Peer,
        object: &Handle,
        interest: Interest,
        alarm: &Arc<dyn Alarm>,
    ) -> Op<'a, Option<Box<dyn Watch>>> {
        if self.watches().is_err() {
            return Op::ok(None);
        }
        let later = || {
            let (object, alarm) = (*object, Arc::clone(alarm));
            move |volume: &Arc<Self>| volume.watch_now(&object, interest, &alarm)
        };
        self.run_read(peer, || self.watch_now(object, interest, alarm), later)
    }

    fn watch_now(
        self: &Arc<Self>,
        object: &Handle,
        interest: Interest,
        alarm: &Arc<dyn Alarm>,
    ) -> Result<Option<Box<dyn Watch>>> {
        let Ok(watches) = self.watches() else { return Ok(None) };
        let object = self.object(object)?;
        // Objects with the kernel's handle are found again by it when the mark is to go, and need not stay open: there may be more of them than
        // descriptors.
        let (name, kept) = match self.handles {
            Handles::Kernel { .. } => (object.handle, None),
            Handles::Indexed { .. } => {
                let name = object.lend(sys::name_for_events).map_err(translate)?;
                (handle::from_kernel(&name)?, Some(Arc::clone(&object)))
            }
        };
        // One must be allowed to read what one watches.
        self.act_as_server();
        let events = events_of(object.kind, interest);
        match watches.add(&name, events, alarm, &object.file(), (kept, self.descriptors.share() / 2)) {
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

    /// A descriptor of what the kernel calls so; none where it is gone.
    fn watched_file(&self, name: &Handle) -> Option<Arc<OpenFile>> {
        if let Some(object) = self.objects.peek(name) {
            return Some(object.file());
        }
        let Ok(Meaning::Kernel(kind, bytes)) = handle::decode(name) else { return None };
        // The mark keeps it in memory: nothing is waited for.
        let fd = self.open_by_kernel_handle(kind, bytes, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        Some(Arc::new(self.file_of(fd, Reach::Path)))
    }
}
