//! Deferred changes of a request: one sync for each object at its end.

use std::collections::HashMap;
use std::sync::Arc;

use vfs::{Committer, Committing, Error, NotDurable, Peer, Result, Thread};

use super::deferred::{Deferred, Origin};
use crate::object::Object;
use crate::pool::Lane;
use crate::sync_state::{ChangeId, Extent, Outcome};
use crate::volume::Volume;

/// Maximum number of objects that a request syncs on its own thread, one after the other. Threads of the pool sync more objects
/// at once, and share the flushes of the device.
const SYNCED_IN_PLACE_MAX: usize = 2;

/// An object with deferred changes.
struct Changed {
    object: Arc<Object>,
    /// The last of its deferred changes: one sync makes it durable with all before.
    last: ChangeId,
    extent: Extent,
}

impl Committer for Volume {
    type Change = Deferred;

    fn commit(self: Arc<Self>, changes: Vec<(u32, Deferred)>, thread: Thread, peer: Peer) -> Committing {
        Box::pin(async move {
            let synced = self.sync_changed(changed_objects(&changes), Origin { thread, peer }).await;
            let has_handles = changes.iter().any(|(_, change)| matches!(change, Deferred::Index));
            let index = match has_handles {
                true => self.do_on_pool(Lane::Sync, |volume| volume.sync_index()).await,
                false => Ok(()),
            };
            let failed = |(operation, change): &(u32, Deferred)| {
                let outcome = match change {
                    Deferred::Index => index,
                    Deferred::Change { object, change, .. } => synced.outcome(object, *change),
                };
                outcome.err().map(|error| NotDurable { operation: *operation, error })
            };
            changes.iter().find_map(failed).map_or(Ok(()), Err)
        })
    }
}

impl Volume {
    /// Syncs all objects at once: mostly one commit of the file system's journal covers them.
    async fn sync_changed(self: &Arc<Self>, objects: Vec<Changed>, origin: Origin) -> Synced {
        let thread = if objects.len() > SYNCED_IN_PLACE_MAX { Thread::Shared } else { origin.thread };
        let origin = self.with_usable_thread(Origin { thread, ..origin });
        let start = |changed: Changed| {
            let outcome = self.request_sync(&changed.object, changed.last, changed.extent, origin);
            (changed, outcome)
        };
        let started: Vec<_> = objects.into_iter().map(start).collect();
        let mut synced = Synced::default();
        for (Changed { object, last, .. }, outcome) in started {
            synced.0.insert(address(&object), (last, finished(outcome).await));
        }
        synced
    }
}

/// The outcomes of syncs, by the address of the object, each with the change that it is about.
#[derive(Default)]
struct Synced(HashMap<usize, (ChangeId, Result<()>)>);

impl Synced {
    fn outcome(&self, object: &Arc<Object>, change: ChangeId) -> Result<()> {
        match self.0.get(&address(object)) {
            Some((last, outcome)) if change.is_covered_by(*last) => *outcome,
            Some((_, Err(error))) => Err(*error),
            // A sync failed between this change and the last one.
            _ => Err(Error::Io),
        }
    }
}

fn address(object: &Arc<Object>) -> usize {
    Arc::as_ptr(object).addr()
}

async fn finished(outcome: Result<Option<Outcome>>) -> Result<()> {
    match outcome? {
        Some(outcome) => outcome.await.unwrap_or(Err(Error::ServerFault)),
        None => Ok(()),
    }
}

/// Returns each object once, with its last change.
fn changed_objects(changes: &[(u32, Deferred)]) -> Vec<Changed> {
    let mut places = HashMap::new();
    let mut objects: Vec<Changed> = Vec::new();
    for (_, change) in changes {
        let Deferred::Change { object, change, extent } = change else { continue };
        let place = *places.entry(address(object)).or_insert_with(|| {
            objects.push(Changed { object: Arc::clone(object), last: *change, extent: *extent });
            objects.len() - 1
        });
        let changed = &mut objects[place];
        changed.extent = changed.extent.max(*extent);
        if change.number > changed.last.number {
            changed.last = *change;
        }
    }
    objects
}
