//! One sync of one object.

use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use vfs::{Error, FileKind, Result};

use crate::errno::translate;
use crate::object::{Object, OpenFile, Reach};
use crate::sync_state::{Extent, Waiter};
use crate::volume::Volume;

/// The longest time in which requests for the next sync gather.
const GATHERING_MAX: Duration = Duration::from_millis(1);

/// The maximum duration of gathering, as a part of the last sync's duration.
const GATHERING_PART: u32 = 4;

/// The interval at which the gathering thread counts the requests.
const GATHERING_STEP: Duration = Duration::from_micros(50);

/// The result of a sync, and the requests that wait for it.
pub(super) struct SyncOutcome {
    waiting: Vec<Waiter>,
    outcome: Result<()>,
}

impl SyncOutcome {
    pub(super) fn notify(self) {
        for sender in self.waiting {
            // A cancelled request waits no longer.
            let _ = sender.send(self.outcome);
        }
    }
}

impl Volume {
    pub(super) fn sync_while_wanted(&self, object: &Object) {
        loop {
            let began = Instant::now();
            let Some(synced) = self.sync_if_wanted(object) else { return };
            let (served, took) = (synced.waiting.len(), began.elapsed());
            synced.notify();
            // Several clients or threads write this file: each mostly sends its next request when it has the last reply.
            if served > 1 {
                self.gather(object, served, gathering_time(took));
            }
        }
    }

    /// Waits until as many requests want the next sync as the last one served, but not longer than `most`. Without this, the first of
    /// them would get a sync of its own, and the others would wait for it.
    fn gather(&self, object: &Object, served: usize, most: Duration) {
        #[cfg(test)]
        self.gatherings.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let until = Instant::now() + most;
        while object.sync_state.waiting() < served && Instant::now() < until {
            thread::sleep(GATHERING_STEP);
        }
    }

    /// Syncs once if any request waits. The caller has begun the object's syncing, and repeats this until none waits.
    fn sync_if_wanted(&self, object: &Object) -> Option<SyncOutcome> {
        let (up_to, extent, mut waiting) = object.sync_state.begin_sync()?;
        let outcome = self.sync_object(object, extent);
        match outcome {
            Ok(()) => object.sync_state.mark_durable(up_to, extent),
            Err(error) => waiting.extend(self.sync_failed(object, error)),
        }
        Some(SyncOutcome { waiting, outcome })
    }

    /// As [`Self::sync_if_wanted`], for a directory, a new file or little content, whose duration updates the
    /// volume's pace.
    pub(super) fn sync_little(&self, object: &Object) -> Option<SyncOutcome> {
        let began = Instant::now();
        let synced = self.sync_if_wanted(object);
        self.sync_latency.record(began.elapsed());
        synced
    }

    /// Syncs the object now, on this thread or on one that syncs it already. The kernel reports a failed write-back
    /// to only one of two concurrent syncs of a descriptor, and the other would treat lost data as durable. For
    /// threads that may block.
    pub(crate) fn sync_now(&self, object: &Object) -> Result<()> {
        let Some(change) = object.sync_state.unsynced_change() else { return Ok(()) };
        while let Some((outcome, is_first)) = object.sync_state.request(change, Extent::Data)? {
            if is_first {
                self.sync_while_wanted(object);
            }
            // There is no result if the other sync was abandoned.
            if let Ok(outcome) = outcome.blocking_recv() {
                return outcome;
            }
        }
        Ok(())
    }

    /// Returns the other requests that must get the error.
    fn sync_failed(&self, object: &Object, error: Error) -> Vec<Waiter> {
        self.change_verifier();
        tracing::error!(handle = ?object.handle, error = error.to_string(), "sync failed; clients will send unstable data again");
        object.sync_state.mark_failed(error)
    }

    fn sync_object(&self, object: &Object, extent: Extent) -> Result<()> {
        let _under_way = self.sync_latency.begin();
        #[cfg(test)]
        {
            self.syncs.lock().push(std::thread::current().id());
            // Several syncs may run at once: a planned failure is for one kind, so that it is known which sync fails.
            let plan = self.planned_sync_failure.lock().take_if(|(kind, _)| *kind == object.kind);
            if let Some((_, error)) = plan {
                return Err(error);
            }
        }
        let can_open = matches!(object.kind, FileKind::Regular | FileKind::Directory);
        let present = object.file();
        let file = match present.reach {
            // fsync(2) works on a write-only descriptor too.
            Reach::Path if can_open => self.readable(object).ok(),
            Reach::Path => None,
            _ => Some(present),
        };
        match file {
            Some(file) => sync_file(&file, object.kind, extent),
            // Symbolic links, special files and objects that may not be opened cannot be synced one by one.
            None => rustix::fs::syncfs(&self.root_fd).map_err(translate),
        }
    }
}

fn gathering_time(last_sync: Duration) -> Duration {
    // Tests count syncs, however fast the disk and however slow the machine is.
    if cfg!(test) { Duration::from_millis(200) } else { (last_sync / GATHERING_PART).min(GATHERING_MAX) }
}

fn sync_file(file: &OpenFile, kind: FileKind, extent: Extent) -> Result<()> {
    let synced = match extent {
        Extent::Data => rustix::fs::fdatasync(file),
        Extent::All => rustix::fs::fsync(file),
    };
    match synced {
        // Some file systems refuse fsync(2) of a directory because there is nothing to sync.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) if kind == FileKind::Directory => Ok(()),
        other => other.map_err(translate),
    }
}
