//! IO_ADVISE: only hints about a range that leave no state, because all users of the file share its
//! descriptor.

use std::num::NonZeroU64;
use std::sync::Arc;

use rustix::fs::Advice as Hint;
use vfs::{Advice, Error, Handle, Op, Peer};

use crate::volume::Volume;

/// Maximum number of bytes read ahead for one hint: a client may name all of a huge file.
const MAX_PREFETCH_BYTES: u64 = 16 << 20;

impl Volume {
    /// Gives the kernel a hint. Returns true if the kernel accepted it.
    pub(crate) fn advise<'a>(
        self: &'a Arc<Self>,
        peer: Peer,
        file: &Handle,
        (offset, count): (u64, u64),
        advice: Advice,
    ) -> Op<'a, bool> {
        let file = *file;
        let (hint, length) = match advice {
            Advice::WillNeed if count == 0 => (Hint::WillNeed, MAX_PREFETCH_BYTES),
            Advice::WillNeed => (Hint::WillNeed, count.min(MAX_PREFETCH_BYTES)),
            Advice::DontNeed => (Hint::DontNeed, count),
        };
        // Reading ahead may wait for the device's queue.
        Op::pending(self.read_on_pool(peer, move |volume| {
            let object = volume.object(&file)?;
            object.require_regular()?;
            match volume.readable(&object) {
                Ok(file) => Ok(rustix::fs::fadvise(&file, offset, NonZeroU64::new(length), hint).is_ok()),
                // A file that the server may write but not read.
                Err(Error::Access) => Ok(false),
                Err(error) => Err(error),
            }
        }))
    }
}
