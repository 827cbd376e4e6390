//! The objects that a mount knows, by number and by handle.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::unlinked::Opens;
use crate::attributes::FileKind;
use crate::cache::FileId;
use crate::results::FileHandle;

/// Objects that nobody holds are forgotten beyond this number of objects.
pub(super) const NODES_MAX: usize = 1 << 16;
/// Objects that are looked at in one search for some to forget, so that a table full of held ones costs little.
const SCAN_MAX: usize = 64;

/// What a mount knows of one object.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: FileId,
    pub(super) handle: FileHandle,
    pub(super) kind: FileKind,
    /// Set when the object is found in the table; the search for objects to forget clears it.
    used: AtomicBool,
    pub(super) opens: Mutex<Opens>,
}

/// The objects of a mount. One that somebody holds stays; of the others the least recently used ones are forgotten (CLOCK).
#[derive(Debug, Default)]
pub(super) struct Table {
    by_handle: HashMap<FileHandle, FileId>,
    by_id: BTreeMap<FileId, Arc<Node>>,
    last: u64,
    /// Where the search for objects to forget continues.
    hand: FileId,
}

impl Table {
    /// Returns the object with this handle. A handle that now names an object of another type gets a new number.
    pub(super) fn get(&mut self, handle: FileHandle, kind: FileKind) -> Arc<Node> {
        if let Some(node) = self.by_handle.get(&handle).and_then(|id| self.by_id.get(id))
            && node.kind == kind
        {
            node.used.store(true, Ordering::Relaxed);
            return Arc::clone(node);
        }
        if self.by_id.len() >= NODES_MAX {
            self.forget_some();
        }
        self.last += 1;
        let id = FileId(self.last);
        let node = Arc::new(Node { id, handle, kind, used: AtomicBool::new(true), opens: Mutex::default() });
        self.by_handle.insert(handle, id);
        self.by_id.insert(id, Arc::clone(&node));
        node
    }

    /// Returns the object with this number.
    pub(super) fn by_id(&self, id: FileId) -> Option<Arc<Node>> {
        let node = self.by_id.get(&id)?;
        node.used.store(true, Ordering::Relaxed);
        Some(Arc::clone(node))
    }

    /// Forgets objects that nobody holds and that were not used since the last search.
    fn forget_some(&mut self) {
        let after = self.by_id.range(self.hand..).chain(self.by_id.range(..self.hand));
        let mut victims = Vec::new();
        let mut hand = self.hand;
        for (id, node) in after.take(SCAN_MAX) {
            hand = FileId(id.0 + 1);
            let was_used = node.used.swap(false, Ordering::Relaxed);
            if !was_used && Arc::strong_count(node) == 1 {
                victims.push(*id);
            }
        }
        self.hand = hand;
        for id in victims {
            let Some(node) = self.by_id.remove(&id) else { continue };
            if self.by_handle.get(&node.handle) == Some(&id) {
                self.by_handle.remove(&node.handle);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(number: usize) -> FileHandle {
        FileHandle::new(&number.to_be_bytes()).expect("a short handle")
    }

    #[test]
    fn one_object_per_handle_and_type() {
        let mut table = Table::default();
        let file = table.get(handle(1), FileKind::Regular);
        assert!(Arc::ptr_eq(&file, &table.get(handle(1), FileKind::Regular)));
        let other = table.get(handle(1), FileKind::Directory);
        assert_ne!(file.id, other.id);
        assert!(table.by_id(file.id).is_some(), "who holds the old object can still use it");
    }

    #[test]
    fn held_objects_stay_and_others_are_forgotten() {
        let mut table = Table::default();
        let held: Vec<_> = (0..100).map(|number| table.get(handle(number), FileKind::Regular)).collect();
        for number in 100..NODES_MAX * 3 {
            table.get(handle(number), FileKind::Regular);
        }
        assert!(table.by_id.len() <= NODES_MAX + 2 * SCAN_MAX, "{}", table.by_id.len());
        assert_eq!(table.by_id.len(), table.by_handle.len());
        assert!(held.iter().all(|node| table.by_id(node.id).is_some()));
    }
}
