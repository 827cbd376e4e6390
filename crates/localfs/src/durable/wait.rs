//! Waiting until changes are durable.

use std::sync::Arc;

use vfs::{Context, Error, Op, Pace, Peer, Result, Thread};

use crate::object::Object;
use crate::pool::Lane;
use crate::sync_group;
use crate::sync_state::{Begun, Extent, Made, Outcome};
use crate::volume::Volume;

/// Who waits until a change is durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    /// What the calling thread may be used for.
    thread: Thread,
    peer: Peer,
}

impl Caller {
    pub(crate) fn of(context: &Context) -> Self {
        Self { thread: context.thread, peer: context.peer }
    }

    /// The same for what may take long, for which no thread is lent.
    pub(crate) fn not_alone(context: &Context) -> Self {
        Self { thread: Thread::Shared, peer: context.peer }
    }
}

#[cfg(test)]
impl From<Thread> for Caller {
    fn from(thread: Thread) -> Self {
        Self { thread, peer: Peer::default() }
    }
}

/// An object, and a change of it.
pub(crate) type Changed = (Arc<Object>, Made);

/// What a thread of the pool is to do for those who wait. A pool that ends drops what it did not begin.
pub(super) struct Syncing {
    volume: Arc<Volume>,
    object: Arc<Object>,
    is_done: bool,
}

impl Syncing {
    pub(super) fn new(volume: &Arc<Volume>, object: &Arc<Object>) -> Self {
        Self { volume: Arc::clone(volume), object: Arc::clone(object), is_done: false }
    }

    fn run(mut self) {
        self.volume.sync_while_wanted(&self.object);
        self.is_done = true;
    }

    /// On the calling thread, once: who began to wait meanwhile is served by others.
    pub(super) fn run_in_place(mut self) {
        // It may have to be opened for that, which is no business of the caller's.
        self.volume.act_as_server();
        let synced = self.volume.sync_little(&self.object);
        self.is_done = true;
        let Some(synced) = synced else { return };
        synced.tell();
        if self.object.dirt.goes_on() {
            let is_short = sync_group::is_for(&self.object, Made::NONE);
            // Others wait, who may be many clients.
            self.volume.hand_over(&self.object, is_short, Peer::default());
        }
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        if !self.is_done {
            self.object.dirt.give_up();
        }
    }
}

impl Volume {
    /// A change is made: what to wait for, which is none where answers do not wait for stable storage, so that nothing is left
    /// to be done for it.
    pub(crate) fn made(&self, begun: Begun<'_>) -> Made {
        if self.must_sync() {
            return begun.made();
        }
        begun.made_for_good();
        Made::NONE
    }

    /// As [`Self::made`], of an object that was made itself.
    pub(crate) fn made_new(&self, object: &Object) -> Made {
        if self.must_sync() { object.dirt.begin().made().creation() } else { Made::NONE }
    }

    /// Waits until `change` of `object` is durable.
    ///
    /// # Errors
    /// What a sync reported that ended after the change began.
    pub(crate) async fn make_durable(
        self: &Arc<Self>,
        object: &Arc<Object>,
        change: Made,
        extent: Extent,
        caller: impl Into<Caller>,
    ) -> Result<()> {
        match self.want_durable(object, change, extent, self.lend(caller.into()))? {
            Some(outcome) => outcome.await.unwrap_or(Err(Error::ServerFault)),
            None => Ok(()),
        }
    }

    /// The caller, with its thread if the next sync is taken to be short.
    fn lend(&self, caller: Caller) -> Caller {
        Caller { thread: self.pace.lend(caller.thread), ..caller }
    }

    /// Starts what [`make_durable`](Self::make_durable) waits for, and ends it where the calling thread does it itself; `None`
    /// where the change is durable already.
    fn want_durable(
        self: &Arc<Self>,
        object: &Arc<Object>,
        change: Made,
        extent: Extent,
        caller: Caller,
    ) -> Result<Option<Outcome>> {
        let Some((receiver, is_first)) = object.dirt.want(change, extent)? else { return Ok(None) };
        if !is_first {
            return Ok(Some(receiver));
        }
        let is_short = sync_group::is_for(object, change);
        if caller.thread == Thread::Lent && (is_short || object.dirt.unsynced() <= Pace::LITTLE_BYTES) {
            Syncing::new(self, object).run_in_place();
        } else {
            self.hand_over(object, is_short, caller.peer);
        }
        Ok(Some(receiver))
    }

    /// Has threads of the pool sync an object that is not being synced: one of its own, unless it is short.
    fn hand_over(self: &Arc<Self>, object: &Arc<Object>, is_short: bool, peer: Peer) {
        if is_short {
            self.join_group(object);
        } else {
            let syncing = Syncing::new(self, object);
            self.pool.submit(Lane::Sync, peer, move || syncing.run());
        }
    }

    /// Answers `value` when the present content and entries of `objects` are durable; at once where the volume does not
    /// promise durability. `changes` are what [`Begun::made`] gave.
    pub(crate) fn when_durable<'a, T: Send + 'a>(
        self: &'a Arc<Self>,
        caller: impl Into<Caller>,
        changes: impl IntoIterator<Item = Changed>,
        value: T,
    ) -> Op<'a, T> {
        if !self.must_sync() {
            for (object, change) in changes {
                object.dirt.succeeded(change.number, Extent::All);
            }
            return Op::ok(value);
        }
        let (caller, changes) = (caller.into(), changes.into_iter().collect::<Vec<_>>());
        Op::pending(async move {
            let caller = self.lend(caller);
            // All of them at once: what a child and its directory need is mostly one commit of the file system's journal.
            let wanted: Vec<_> = changes
                .iter()
                .filter_map(|(object, change)| {
                    self.want_durable(object, *change, Extent::All, caller).transpose()
                })
                .collect();
            for outcome in wanted {
                outcome?.await.unwrap_or(Err(Error::ServerFault))?;
            }
            Ok(value)
        })
    }
}
