//! Closing objects that have lost their last name.

use std::sync::Arc;

use rustix::fs::Stat;
use vfs::Peer;

use crate::handle::{self, Meaning};
use crate::later::drop_later;
use crate::object::Object;
use crate::pool::Lane;
use crate::volume::{Handles, Volume};

/// Blocks of 512 bytes from which on a file is freed on the pool: 64 MiB.
const MANY_BLOCKS: i64 = 128 * 1024;

impl Volume {
    /// Lets go of an object that is gone. Whoever uses it still has it.
    pub(crate) fn forget(&self, object: &Object) {
        self.objects.remove(&object.handle);
        if let (Handles::Indexed { index, .. }, Ok(Meaning::Indexed(_, id))) =
            (&self.handles, handle::decode(&object.handle))
            && index.forget(id)
        {
            self.janitor.ring();
        }
    }

    /// Lets go of an object if it has lost its last name and no open holds it, so that its space is freed. Freeing much
    /// takes time, which nobody here waits for.
    pub(crate) fn let_go_if_gone(&self, object: Arc<Object>) {
        if let Ok(status) = object.lend(|fd| rustix::fs::fstat(fd)) {
            self.let_go_if_nameless(object, &status);
        }
    }

    /// The same, where this was seen of it.
    pub(crate) fn let_go_if_nameless(&self, object: Arc<Object>, status: &Stat) {
        if status.st_nlink > 0 || !self.counts_links || !object.let_go() {
            return;
        }
        self.forget(&object);
        if status.st_blocks >= MANY_BLOCKS {
            self.pool.submit(Lane::Long, Peer::default(), move || drop(object));
        } else {
            // Freeing little takes time, too, but less than handing it to a thread does.
            drop_later(object);
        }
    }

    /// A name of an object was removed, replaced or moved through this volume: nobody has looked at it since.
    pub(crate) fn was_renamed(&self, object: &Object) {
        self.changes.was_changed(object.key);
        object.dirt.was_touched();
    }

    /// A name of an object was removed or replaced through this volume.
    pub(crate) fn lost_a_name(&self, object: Arc<Object>) {
        self.was_renamed(&object);
        self.let_go_if_gone(object);
    }
}
