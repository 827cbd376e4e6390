//! Objects with names or new files to sync, which wait for the next round.

use std::sync::Arc;

use parking_lot::Mutex;
use vfs::FileKind;

use crate::object::Object;
use crate::sync_state::Made;

/// What waits for the next round.
#[derive(Debug, Default)]
pub(crate) struct Group(Mutex<Gathering>);

#[derive(Debug, Default)]
struct Gathering {
    objects: Vec<Arc<Object>>,
    /// A round runs, or is about to.
    has_leader: bool,
}

/// Whether the sync of a change is short, but for the commit that all share.
pub(crate) fn is_for(object: &Object, change: Made) -> bool {
    match object.kind {
        FileKind::Directory => true,
        FileKind::Regular => change.is_creation(),
        _ => false,
    }
}

impl Group {
    #[cfg(test)]
    pub(crate) fn has_leader(&self) -> bool {
        self.0.lock().has_leader
    }

    /// Adds what somebody wants synced that is not being synced. True for the first, who has to see to it.
    pub(crate) fn join(&self, object: &Arc<Object>) -> bool {
        let mut gathering = self.0.lock();
        gathering.objects.push(Arc::clone(object));
        !std::mem::replace(&mut gathering.has_leader, true)
    }

    /// Adds what has gathered to `round`. False where it is empty then: who joins from now on needs another leader.
    pub(crate) fn begin_round(&self, round: &mut Vec<Arc<Object>>) -> bool {
        let mut gathering = self.0.lock();
        round.append(&mut gathering.objects);
        gathering.has_leader = !round.is_empty();
        gathering.has_leader
    }
}
