//! Syncs of the whole volume and of the index of handles.

use std::sync::atomic::Ordering;

use vfs::Result;

use crate::config::Durability;
use crate::errno::translate;
use crate::volume::{Handles, Volume};

impl Volume {
    /// Returns whether records of the index must be durable before their handles are answered.
    pub(crate) fn must_sync_index(&self) -> bool {
        // The export may be in memory; the index need not be.
        self.durability() == Durability::Sync
            && !self.is_in_memory
            && matches!(&self.handles, Handles::Indexed { index, .. } if index.is_unsynced())
    }

    /// Makes the index durable.
    pub(crate) fn sync_index(&self) -> Result<()> {
        match &self.handles {
            Handles::Indexed { index, .. } if index.is_unsynced() => {
                self.act_as_server();
                index.sync()
            }
            _ => Ok(()),
        }
    }

    /// Makes everything durable: file by file, so that errors are reported, then changes without a file.
    pub(crate) fn sync_everything(&self) -> Result<()> {
        self.streams.clear();
        let objects: Vec<_> = self.objects.iter().collect();
        let mut outcome = Ok(());
        for object in objects {
            outcome = outcome.and(self.sync_now(&object));
        }
        outcome = outcome.and(self.sync_index());
        if self.durability() == Durability::Async {
            outcome = outcome.and(rustix::fs::syncfs(&self.root_fd).map_err(translate));
        }
        outcome
    }

    /// Makes the changes of earlier servers durable: syncs the whole file system, once.
    pub(crate) fn sync_inherited(&self) -> Result<()> {
        if !self.must_sync() || self.is_inherited_synced.load(Ordering::Acquire) {
            return Ok(());
        }
        rustix::fs::syncfs(&self.root_fd).map_err(translate)?;
        self.sync_index()?;
        self.is_inherited_synced.store(true, Ordering::Release);
        Ok(())
    }

    /// Changes the durability. Changes that were answered under [`Durability::Async`] are durable before this returns with
    /// [`Durability::Sync`].
    pub(crate) fn set_durability(&self, durability: Durability) -> Result<()> {
        let was_async = self.is_async.swap(durability == Durability::Async, Ordering::AcqRel);
        if !was_async || durability == Durability::Async {
            return Ok(());
        }
        // Such objects count as clean: only a sync of the whole file system covers them all.
        let synced = rustix::fs::syncfs(&self.root_fd).map_err(translate).and(self.sync_index());
        if synced.is_err() {
            self.change_verifier();
        }
        synced
    }
}
