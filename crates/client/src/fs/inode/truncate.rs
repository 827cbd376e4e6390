//! Changes of a file's size, ordered with write-behind.

use std::sync::Arc;

use super::{Inode, Shared};
use crate::attributes::{Attributes, SetAttributes};
use crate::cache::FileId;
use crate::config::Caller;
use crate::error::OpError;
use crate::results::OpenState;

/// A truncation under way. While there is one, nothing of the file is sent, and reads end at the new size.
struct Truncation {
    shared: Arc<Shared>,
    file: FileId,
}

impl Inode {
    /// Sets attributes, including the size. WRITEs under way end before, because they could make the file longer again.
    pub(super) async fn set_size(
        &self,
        caller: &Caller,
        state: &OpenState,
        set: &SetAttributes,
        size: u64,
    ) -> Result<Attributes, OpError> {
        let _turn = self.node.size_lock.lock().await;
        // Own changes would make what was read under it obsolete.
        self.client().give_back_read(&self.handle()).await;
        // It waits for written data, of which nothing is sent during the truncation.
        self.give_back_times(set).await;
        // If they were rewritten after the truncation, the file would become longer.
        self.commit_uncached().await;
        let (truncation, sent) = self.start_truncation(size);
        self.mount.shared.flusher.wait(sent).await?;
        let outcome = self.send_attributes(caller, state, set).await;
        drop(truncation);
        let attributes = outcome?;
        Ok(self.mount.shared.state.lock().seen(self.node.id, attributes))
    }

    fn start_truncation(&self, size: u64) -> (Truncation, crate::write::SyncTicket) {
        let shared = Arc::clone(&self.mount.shared);
        let file = self.node.id;
        let ticket = {
            let mut state = shared.state.lock();
            state.truncations.insert(file, size);
            state.writes.start_truncate(file, size)
        };
        (Truncation { shared, file }, ticket)
    }
}

impl Drop for Truncation {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock();
            state.truncations.remove(&self.file);
            state.writes.end_truncate(self.file);
        }
        self.shared.flusher.raise();
    }
}
