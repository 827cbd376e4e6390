//! Early flushes ([`crate::early_flush`]).

use std::os::fd::AsFd;
use std::sync::Arc;

use vfs::Peer;

use crate::object::Object;
use crate::pool::Lane;
use crate::sys;
use crate::volume::Volume;

/// A flush of an object. Dropping it, also in a pool that ends, lets the next one run.
struct Flush(Arc<Object>);

impl Drop for Flush {
    fn drop(&mut self) {
        self.0.early_flush.end();
    }
}

impl Volume {
    /// Notes an unstable write, under the object's lock, and flushes what has gathered if that is due.
    pub(crate) fn flush_early(&self, object: &Arc<Object>, offset: u64, length: u64) {
        if self.is_in_memory || !self.must_sync() {
            return;
        }
        let Some((begin, bytes)) = object.early_flush.note(offset, length) else { return };
        let flush = Flush(Arc::clone(object));
        self.pool.submit(Lane::Sync, Peer::default(), move || {
            // It makes nothing durable: COMMIT waits, and reports errors.
            let _ = sys::start_writing(flush.0.file().as_fd(), begin, bytes);
        });
    }
}
