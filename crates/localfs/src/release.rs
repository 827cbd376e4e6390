//! Releases objects that have lost their last name.

use std::sync::Arc;

use rustix::fs::Stat;
use vfs::Peer;

use crate::handle::{self, Meaning};
use crate::object::Object;
use crate::pool::Lane;
use crate::volume::{Handles, Volume};

/// Number of blocks of 512 bytes from which a file is freed on the pool: 64 MiB.
const MANY_BLOCKS: i64 = 128 * 1024;

impl Volume {
    /// Removes a removed object from the cache and the index. Requests that use it keep it.
    pub(crate) fn forget(&self, object: &Object) {
        self.objects.remove(&object.handle);
        if let (Handles::Indexed { index, .. }, Ok(Meaning::Indexed(_, id))) =
            (&self.handles, handle::decode(&object.handle))
            && index.forget(id)
        {
            self.cleanup_queue.wake();
        }
    }

    /// Releases an object if it has lost its last name and no open holds it, so that its space is freed. Freeing a
    /// large file is left to the pool.
    pub(crate) fn release_if_removed(&self, object: Arc<Object>) {
        if let Ok(status) = object.lend(|fd| rustix::fs::fstat(fd)) {
            self.release_if_nameless(object, &status);
        }
    }

    /// As [`Self::release_if_removed`], with the object's current status.
    pub(crate) fn release_if_nameless(&self, object: Arc<Object>, status: &Stat) {
        if status.st_nlink > 0 || !self.counts_links || !object.release() {
            return;
        }
        self.forget(&object);
        if status.st_blocks >= MANY_BLOCKS {
            self.pool.submit(Lane::Long, Peer::default(), move || drop(object));
        } else {
            // Freeing a small file takes less time than handing it to a thread.
            drop(object);
        }
    }

    /// Notes that a name of the object was removed, replaced or moved through this volume, and that its attributes
    /// have not been read since.
    pub(crate) fn was_renamed(&self, object: &Object) {
        self.changes.was_changed(object.key);
        object.sync_state.note_change();
    }

    /// Notes that a name of the object was removed or replaced through this volume.
    pub(crate) fn name_removed(&self, object: Arc<Object>) {
        self.was_renamed(&object);
        self.release_if_removed(object);
    }
}
