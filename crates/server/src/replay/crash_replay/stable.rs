//! A log of calls that survives a crash of the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tracing::error;
use vfs::Op;

use super::ReplyLog;

/// A log of calls that can be brought to stable storage.
pub trait StableLog: ReplyLog {
    /// Waits until everything appended so far is on stable storage. Concurrent waits share one sync.
    ///
    /// # Errors
    /// Fails from the first failure on.
    fn sync(&self) -> Op<'_, ()>;
}

/// A stable log in use.
#[derive(Debug)]
pub(crate) struct Stable {
    log: Arc<dyn StableLog>,
    is_broken: AtomicBool,
}

impl Stable {
    pub(crate) fn new(log: Arc<dyn StableLog>) -> Self {
        Self { log, is_broken: AtomicBool::new(false) }
    }

    /// Set when nothing reaches stable storage any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    /// Waits until the log is on stable storage. If that fails, calls continue as without such a log, because executed calls must be
    /// answered. No session is persistent from then on.
    pub(crate) async fn sync(&self) {
        if self.is_broken() {
            return;
        }
        if self.log.sync().await.is_err() && !self.is_broken.swap(true, Relaxed) {
            error!("the log of calls cannot be synced: sessions are no longer persistent");
        }
    }
}
