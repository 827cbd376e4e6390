//! One sync of one object.

use std::time::Instant;

use rustix::io::Errno;
use vfs::{Error, FileKind, Result};

use crate::errno::translate;
use crate::object::{Object, OpenFile, Reach};
use crate::sync_state::{Extent, Waiter};
use crate::volume::Volume;

/// How a sync ended, for those who wait.
pub(super) struct Synced {
    waiting: Vec<Waiter>,
    outcome: Result<()>,
}

impl Synced {
    pub(super) fn tell(self) {
        for sender in self.waiting {
            // A request that was given up waits no more.
            let _ = sender.send(self.outcome);
        }
    }
}

impl Volume {
    pub(super) fn sync_while_wanted(&self, object: &Object) {
        while let Some(synced) = self.sync_if_wanted(object) {
            synced.tell();
        }
    }

    /// One sync, where anybody waits for one; whoever calls has begun the object's syncing, and goes on until nobody does.
    fn sync_if_wanted(&self, object: &Object) -> Option<Synced> {
        let (up_to, extent, mut waiting) = object.dirt.next_sync()?;
        let outcome = self.sync_object(object, extent);
        match outcome {
            Ok(()) => object.dirt.succeeded(up_to, extent),
            Err(error) => waiting.extend(self.sync_failed(object, error)),
        }
        Some(Synced { waiting, outcome })
    }

    /// The same of a directory, a new file or little content, from which the volume's pace is known.
    pub(super) fn sync_little(&self, object: &Object) -> Option<Synced> {
        let began = Instant::now();
        let synced = self.sync_if_wanted(object);
        self.pace.took(began.elapsed());
        synced
    }

    /// One sync now, on this thread or on that which syncs the object already: the kernel tells a failed write-back to one
    /// of two syncs of a descriptor alone, and the other would take what was lost for durable. For threads that may wait.
    pub(crate) fn sync_now(&self, object: &Object) -> Result<()> {
        let Some(change) = object.dirt.outstanding() else { return Ok(()) };
        while let Some((outcome, is_first)) = object.dirt.want(change, Extent::Data)? {
            if is_first {
                self.sync_while_wanted(object);
            }
            // Without an answer where the other was given up.
            if let Ok(outcome) = outcome.blocking_recv() {
                return outcome;
            }
        }
        Ok(())
    }

    /// Answers who else has to be told.
    fn sync_failed(&self, object: &Object, error: Error) -> Vec<Waiter> {
        self.change_verifier();
        tracing::error!(handle = ?object.handle, error = error.to_string(), "sync failed; clients will send unstable data again");
        object.dirt.failed(error)
    }

    fn sync_object(&self, object: &Object, extent: Extent) -> Result<()> {
        let _under_way = self.pace.begin();
        #[cfg(test)]
        {
            self.syncs.lock().push(std::thread::current().id());
            // Several syncs may be under way at once: a plan is for one kind, so that it is known which one fails.
            let plan = self.planned_sync_failure.lock().take_if(|(kind, _)| *kind == object.kind);
            if let Some((_, error)) = plan {
                return Err(error);
            }
        }
        let can_open = matches!(object.kind, FileKind::Regular | FileKind::Directory);
        let present = object.file();
        let file = match present.reach {
            // fsync(2) of a descriptor that may only write is as good.
            Reach::Path if can_open => self.readable(object).ok(),
            Reach::Path => None,
            _ => Some(present),
        };
        match file {
            Some(file) => sync_file(&file, object.kind, extent),
            // Symbolic links, special files and what may not be opened cannot be synced one by one.
            None => rustix::fs::syncfs(&self.root_fd).map_err(translate),
        }
    }
}

fn sync_file(file: &OpenFile, kind: FileKind, extent: Extent) -> Result<()> {
    let synced = match extent {
        Extent::Data => rustix::fs::fdatasync(file),
        Extent::All => rustix::fs::fsync(file),
    };
    match synced {
        // Some file systems have nothing to sync a directory with, and say so.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if kind == FileKind::Directory => Ok(()),
        other => other.map_err(translate),
    }
}
