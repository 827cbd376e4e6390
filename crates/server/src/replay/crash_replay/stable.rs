//! A log of calls that outlives the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tracing::error;
use vfs::Op;

use super::ReplyLog;

/// A log of calls that can be brought to stable storage.
pub trait StableLog: ReplyLog {
    /// Waits until all that was appended by now is on stable storage. Whoever waits at the same time shares what it costs.
    ///
    /// # Errors
    /// Where that cannot be had, from then on always.
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

    /// Whether nothing reaches stable storage any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Relaxed)
    }

    /// Waits until what was written down is on stable storage. Where that fails, calls go on as they would without such a log:
    /// what was executed has to be answered. No session is persistent from then on.
    pub(crate) async fn sync(&self) {
        if self.is_broken() {
            return;
        }
        if self.log.sync().await.is_err() && !self.is_broken.swap(true, Relaxed) {
            error!("the log of calls cannot be brought to stable storage: no session is persistent any more");
        }
    }
}
