//! Work that waits until a shard's lock is released.

use std::sync::Arc;

use smallvec::SmallVec;
use vfs::Pin;

use super::super::delegation::external_changes::DelegationWatch;
use super::super::file_key::FileKey;

/// Work that operations on a shard defer until its lock is released.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    /// Files to close, each by a system call.
    pub(crate) pins: SmallVec<[Arc<dyn Pin>; 1]>,
    /// Watches to end, each by a system call.
    pub(crate) watches: Vec<DelegationWatch>,
    /// Files with waiters for locks that may be free now.
    pub(crate) unlocked: Vec<FileKey>,
}

impl Deferred {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Notes that locks of a file may be free. Many locks end together, mostly of one file.
    pub(crate) fn unlock(&mut self, file: FileKey) {
        if self.unlocked.last() != Some(&file) {
            self.unlocked.push(file);
        }
    }
}
