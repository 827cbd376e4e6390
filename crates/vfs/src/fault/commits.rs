use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::around::Method;
use crate::{Committer, Committing, Error, GroupCommit, NotDurable, Peer, Thread};

/// The group commits of a scripted backend: counted, and failing by plan.
#[derive(Debug, Default)]
pub struct Commits {
    count: AtomicU64,
    planned_failure: Mutex<Option<(Method, Error)>>,
    defers_nothing: AtomicBool,
}

impl Commits {
    /// Returns the number of group commits so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Makes the next group commit with a change of this method fail, at the first such change.
    pub fn fail_next(&self, method: Method, error: Error) {
        *self.planned_failure.lock() = Some((method, error));
    }

    /// Defers no change from now on: each is durable when its operation is done.
    pub fn defer_nothing(&self) {
        self.defers_nothing.store(true, Ordering::Relaxed);
    }

    /// Defers a successful operation, if it changes something.
    pub(super) fn defer(self: &Arc<Self>, group: &GroupCommit, method: Method) {
        if self.defers_nothing.load(Ordering::Relaxed) {
            return;
        }
        let changes = matches!(
            method,
            Method::Setattr
                | Method::Write
                | Method::Commit
                | Method::Create
                | Method::Remove
                | Method::Rename
                | Method::Link
                | Method::Allocate
                | Method::Deallocate
                | Method::SetAcl
                | Method::SetXattr
                | Method::RemoveXattr
        );
        if changes {
            group.defer(self, method);
        }
    }
}

impl Committer for Commits {
    type Change = Method;

    fn commit(self: Arc<Self>, changes: Vec<(u32, Method)>, _: Thread, _: Peer) -> Committing {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut plan = self.planned_failure.lock();
        let planned = *plan;
        let failed = planned.and_then(|(method, error)| {
            let (operation, _) = changes.iter().find(|(_, change)| *change == method)?;
            Some(NotDurable { operation: *operation, error })
        });
        if failed.is_some() {
            *plan = None;
        }
        Box::pin(ready(failed.map_or(Ok(()), Err)))
    }
}
