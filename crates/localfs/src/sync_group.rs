//! Directories and new files that wait for the next round of syncs.

use std::sync::Arc;

use parking_lot::Mutex;
use vfs::FileKind;

use crate::object::Object;
use crate::sync_state::ChangeId;

/// The objects that wait for the next round.
#[derive(Debug, Default)]
pub(crate) struct SyncGroup(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    objects: Vec<Arc<Object>>,
    /// Whether a round runs, or is about to.
    has_leader: bool,
}

/// Returns whether the sync of a change is short, except for the commit that all share.
pub(crate) fn is_short_sync(object: &Object, change: ChangeId) -> bool {
    match object.kind {
        FileKind::Directory => true,
        FileKind::Regular => change.is_creation(),
        _ => false,
    }
}

impl SyncGroup {
    #[cfg(test)]
    pub(crate) fn has_leader(&self) -> bool {
        self.0.lock().has_leader
    }

    /// Adds an object that has to be synced and is not being synced. Returns true for the first, whose caller has to
    /// start a round.
    pub(crate) fn join(&self, object: &Arc<Object>) -> bool {
        let mut gathering = self.0.lock();
        gathering.objects.push(Arc::clone(object));
        !std::mem::replace(&mut gathering.has_leader, true)
    }

    /// Moves the gathered objects to `round`. Returns false if `round` stays empty: then the next object needs
    /// another leader.
    pub(crate) fn begin_round(&self, round: &mut Vec<Arc<Object>>) -> bool {
        let mut gathering = self.0.lock();
        round.append(&mut gathering.objects);
        gathering.has_leader = !round.is_empty();
        gathering.has_leader
    }
}
