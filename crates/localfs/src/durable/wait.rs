//! Waits until changes are durable.

use std::sync::Arc;

use vfs::{Context, Error, GroupCommit, Op, Peer, Result, SyncLatency, Thread};

use super::deferred::{Deferred, Origin};
use crate::object::Object;
use crate::pool::Lane;
use crate::sync_group;
use crate::sync_state::{ChangeId, Extent, Outcome, PendingChange};
use crate::volume::Volume;

/// The caller that waits until a change is durable.
#[derive(Debug, Clone)]
pub(crate) struct SyncCaller {
    origin: Origin,
    /// Collects the change instead, if the request defers it.
    group: Option<Arc<GroupCommit>>,
}

impl SyncCaller {
    pub(crate) fn of(context: &Context) -> Self {
        let origin = Origin { thread: context.thread, peer: context.peer };
        Self { origin, group: context.group.clone() }
    }

    /// As [`Self::of`], for operations that may take long and must not occupy the calling thread.
    pub(crate) fn shared(context: &Context) -> Self {
        let Self { origin, group } = Self::of(context);
        Self { origin: Origin { thread: Thread::Shared, ..origin }, group }
    }
}

#[cfg(test)]
impl From<Thread> for SyncCaller {
    fn from(thread: Thread) -> Self {
        Self { origin: Origin { thread, peer: Peer::default() }, group: None }
    }
}

/// An object, and a change of it.
pub(crate) type ObjectChange = (Arc<Object>, ChangeId);

/// A sync that has to be done for waiting requests. A pool that ends drops jobs that it did not begin.
pub(super) struct SyncJob {
    volume: Arc<Volume>,
    object: Arc<Object>,
    is_done: bool,
}

impl SyncJob {
    pub(super) fn new(volume: &Arc<Volume>, object: &Arc<Object>) -> Self {
        Self { volume: Arc::clone(volume), object: Arc::clone(object), is_done: false }
    }

    fn run(mut self) {
        self.volume.sync_while_wanted(&self.object);
        self.is_done = true;
    }

    /// Syncs once on the calling thread. Other threads serve requests that began to wait meanwhile.
    pub(super) fn run_in_place(mut self) {
        // The object may have to be opened, which the caller may not be allowed to do.
        self.volume.act_as_server();
        let synced = self.volume.sync_little(&self.object);
        self.is_done = true;
        let Some(synced) = synced else { return };
        synced.notify();
        if self.object.sync_state.needs_another_sync() {
            let is_short = sync_group::is_short_sync(&self.object, ChangeId::NONE);
            // These requests may be of many clients.
            self.volume.sync_on_pool(&self.object, is_short, Peer::default());
        }
    }
}

impl Drop for SyncJob {
    fn drop(&mut self) {
        if !self.is_done {
            self.object.sync_state.abandon_sync();
        }
    }
}

impl Volume {
    /// Finishes a change. Returns the change to wait for, which is [`ChangeId::NONE`] if answers do not wait for
    /// stable storage.
    pub(crate) fn finish_change(&self, pending: PendingChange<'_>) -> ChangeId {
        if self.must_sync() {
            return pending.finish();
        }
        pending.finish_durable();
        ChangeId::NONE
    }

    /// As [`Self::finish_change`], for the change that created `object`.
    pub(crate) fn finish_creation(&self, object: &Object) -> ChangeId {
        if self.must_sync() { object.sync_state.begin_change().finish().creation() } else { ChangeId::NONE }
    }

    /// Answers `value` when `change` of `object` is durable to this extent, or at once if the change is deferred.
    ///
    /// # Errors
    /// The error of a sync that ended after the change began.
    pub(crate) fn answer_when_synced<'a, T: Send + 'a>(
        self: &'a Arc<Self>,
        caller: impl Into<SyncCaller>,
        (object, change, extent): (Arc<Object>, ChangeId, Extent),
        value: T,
    ) -> Op<'a, T> {
        let SyncCaller { origin, group } = caller.into();
        if let Some(group) = group {
            group.defer(self, Deferred::Change { object, change, extent });
            return Op::ok(value);
        }
        Op::pending(async move {
            if let Some(outcome) =
                self.request_sync(&object, change, extent, self.with_usable_thread(origin))?
            {
                outcome.await.unwrap_or(Err(Error::ServerFault))?;
            }
            Ok(value)
        })
    }

    /// Returns the origin, with its own thread if the next sync is expected to be short.
    pub(super) fn with_usable_thread(&self, origin: Origin) -> Origin {
        Origin { thread: self.sync_latency.usable(origin.thread), ..origin }
    }

    /// Starts the sync that makes a change durable, and finishes it if the calling thread does it; `None` if the
    /// change is durable already.
    pub(super) fn request_sync(
        self: &Arc<Self>,
        object: &Arc<Object>,
        change: ChangeId,
        extent: Extent,
        origin: Origin,
    ) -> Result<Option<Outcome>> {
        let Some((receiver, is_first)) = object.sync_state.request(change, extent)? else { return Ok(None) };
        if !is_first {
            return Ok(Some(receiver));
        }
        let is_short = sync_group::is_short_sync(object, change);
        if origin.thread == Thread::Exclusive
            && (is_short || object.sync_state.unsynced() <= SyncLatency::SMALL_BYTES)
        {
            SyncJob::new(self, object).run_in_place();
        } else {
            self.sync_on_pool(object, is_short, origin.peer);
        }
        Ok(Some(receiver))
    }

    /// Makes threads of the pool sync an object that is not being synced: in a round if it is short, otherwise on a
    /// thread of its own.
    fn sync_on_pool(self: &Arc<Self>, object: &Arc<Object>, is_short: bool, peer: Peer) {
        if is_short {
            self.join_group(object);
        } else {
            let syncing = SyncJob::new(self, object);
            self.pool.submit(Lane::Sync, peer, move || syncing.run());
        }
    }

    /// Answers `value` when `changes` are durable, or at once if they are deferred, or if the volume does not promise
    /// durability.
    pub(crate) fn answer_when_durable<'a, T: Send + 'a>(
        self: &'a Arc<Self>,
        caller: impl Into<SyncCaller>,
        changes: impl IntoIterator<Item = ObjectChange>,
        value: T,
    ) -> Op<'a, T> {
        if !self.must_sync() {
            for (object, change) in changes {
                object.sync_state.mark_durable(change.number, Extent::All);
            }
            return Op::ok(value);
        }
        let SyncCaller { origin, group } = caller.into();
        if let Some(group) = group {
            for (object, change) in changes {
                group.defer(self, Deferred::Change { object, change, extent: Extent::All });
            }
            return Op::ok(value);
        }
        let changes = changes.into_iter().collect::<Vec<_>>();
        Op::pending(async move {
            let origin = self.with_usable_thread(origin);
            // All of them at once: the syncs of a file and its directory are mostly one commit of the file system's
            // journal.
            let wanted: Vec<_> = changes
                .iter()
                .filter_map(|(object, change)| {
                    self.request_sync(object, *change, Extent::All, origin).transpose()
                })
                .collect();
            for outcome in wanted {
                outcome?.await.unwrap_or(Err(Error::ServerFault))?;
            }
            Ok(value)
        })
    }
}
