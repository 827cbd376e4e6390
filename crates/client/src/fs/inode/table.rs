//! The objects that a mount knows, by number and by handle.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::uncommitted::Uncommitted;
use super::unlinked::Opens;
use crate::attributes::FileKind;
use crate::cache::FileId;
use crate::cache::limiter::{Kind, Limiter, Permit, User};
use crate::results::FileHandle;

/// Bytes that are accounted for one object: its own, and those of its entries in two maps.
pub(super) const NODE_BYTES: u64 = 768;
/// Part of the budget beyond which objects without a holder are forgotten: an eighth.
const NODES_PART: u64 = 8;
/// Objects that one search for objects to forget examines, so that a table full of held ones costs little.
const SCAN_MAX: usize = 64;

/// A mount's record of one object.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: FileId,
    pub(super) handle: FileHandle,
    pub(super) kind: FileKind,
    /// Accounts for the node. A needed node exists even beyond the budget.
    _permit: Option<Permit>,
    /// Set when the object is found in the table; the search for objects to forget clears it.
    used: AtomicBool,
    pub(super) opens: Mutex<Opens>,
    pub(super) uncommitted: Mutex<Uncommitted>,
    /// Held by the task that commits data written without the cache.
    pub(super) commit_lock: futures_util::lock::Mutex<()>,
    /// Held by the caller that changes the size.
    pub(super) size_lock: futures_util::lock::Mutex<()>,
}

impl Node {
    fn new(id: FileId, handle: FileHandle, kind: FileKind, permit: Option<Permit>) -> Arc<Self> {
        Arc::new(Self {
            id,
            handle,
            kind,
            _permit: permit,
            used: AtomicBool::new(true),
            opens: Mutex::default(),
            uncommitted: Mutex::default(),
            commit_lock: futures_util::lock::Mutex::default(),
            size_lock: futures_util::lock::Mutex::default(),
        })
    }
}

/// The objects of a mount. A held object remains; the least recently used ones of the others are forgotten (CLOCK).
#[derive(Debug)]
pub(super) struct Table {
    user: User,
    nodes_max: usize,
    by_handle: HashMap<FileHandle, FileId>,
    by_id: BTreeMap<FileId, Arc<Node>>,
    last: u64,
    /// The position at which the search for objects to forget continues.
    hand: FileId,
}

impl Table {
    pub(super) fn new(limiter: &Limiter) -> Self {
        let nodes_max =
            usize::try_from(limiter.budget().total / NODES_PART / NODE_BYTES).unwrap_or(usize::MAX);
        Self {
            user: limiter.user(),
            nodes_max,
            by_handle: HashMap::new(),
            by_id: BTreeMap::new(),
            last: 0,
            hand: FileId(0),
        }
    }

    /// Returns the object with this handle, and the numbers of objects that were forgotten for it, which `may_go` allowed. A
    /// handle that now names an object of another type gets a new number.
    pub(super) fn get(
        &mut self,
        handle: FileHandle,
        kind: FileKind,
        may_go: impl Fn(FileId) -> bool,
    ) -> (Arc<Node>, Vec<FileId>) {
        if let Some(node) = self.by_handle.get(&handle).and_then(|id| self.by_id.get(id))
            && node.kind == kind
        {
            node.used.store(true, Ordering::Relaxed);
            return (Arc::clone(node), Vec::new());
        }
        let mut permit = self.user.try_reserve(Kind::Metadata, NODE_BYTES).ok();
        let mut forgotten = Vec::new();
        if self.by_id.len() >= self.nodes_max || permit.is_none() {
            forgotten = self.forget_some(may_go);
            permit = permit.or_else(|| self.user.try_reserve(Kind::Metadata, NODE_BYTES).ok());
        }
        self.last += 1;
        let id = FileId(self.last);
        let node = Node::new(id, handle, kind, permit);
        self.by_handle.insert(handle, id);
        self.by_id.insert(id, Arc::clone(&node));
        (node, forgotten)
    }

    /// Returns all objects, in the order of their numbers.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.by_id.values()
    }

    /// Returns the number of objects above which unheld ones are forgotten.
    pub(super) fn nodes_max(&self) -> usize {
        self.nodes_max
    }

    /// Returns the last number.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Gives new objects numbers above `last`.
    pub(super) fn continue_after(&mut self, last: u64) {
        self.last = self.last.max(last);
    }

    /// Adds an object with a number that it had in another process; one that has it already remains.
    pub(super) fn insert(&mut self, id: FileId, handle: FileHandle, kind: FileKind) -> Arc<Node> {
        if let Some(node) = self.by_id.get(&id) {
            return Arc::clone(node);
        }
        let permit = self.user.try_reserve(Kind::Metadata, NODE_BYTES).ok();
        let node = Node::new(id, handle, kind, permit);
        self.by_handle.insert(handle, id);
        self.by_id.insert(id, Arc::clone(&node));
        self.last = self.last.max(id.0);
        node
    }

    /// Returns the object with this number.
    pub(super) fn by_id(&self, id: FileId) -> Option<Arc<Node>> {
        let node = self.by_id.get(&id)?;
        node.used.store(true, Ordering::Relaxed);
        Some(Arc::clone(node))
    }

    /// Returns the number of the object with this handle, if it is known.
    pub(super) fn find(&self, handle: &FileHandle) -> Option<FileId> {
        self.by_handle.get(handle).copied()
    }

    /// Forgets objects without holders that were not used since the last search.
    fn forget_some(&mut self, may_go: impl Fn(FileId) -> bool) -> Vec<FileId> {
        let after = self.by_id.range(self.hand..).chain(self.by_id.range(..self.hand));
        let mut victims = Vec::new();
        let mut hand = self.hand;
        for (id, node) in after.take(SCAN_MAX) {
            hand = FileId(id.0 + 1);
            let was_used = node.used.swap(false, Ordering::Relaxed);
            if !was_used && Arc::strong_count(node) == 1 && may_go(*id) {
                victims.push(*id);
            }
        }
        self.hand = hand;
        for id in &victims {
            let Some(node) = self.by_id.remove(id) else { continue };
            if self.by_handle.get(&node.handle) == Some(id) {
                self.by_handle.remove(&node.handle);
            }
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::limiter::Budget;

    fn handle(number: usize) -> FileHandle {
        FileHandle::new(&number.to_be_bytes()).expect("a short handle")
    }

    fn table() -> Table {
        Table::new(&Limiter::new(Budget::new(16 << 20)))
    }

    fn get(table: &mut Table, number: usize, kind: FileKind) -> Arc<Node> {
        table.get(handle(number), kind, |_| true).0
    }

    #[test]
    fn one_object_per_handle_and_type() {
        let mut table = table();
        let file = get(&mut table, 1, FileKind::Regular);
        assert!(Arc::ptr_eq(&file, &get(&mut table, 1, FileKind::Regular)));
        let other = get(&mut table, 1, FileKind::Directory);
        assert_ne!(file.id, other.id);
        assert!(table.by_id(file.id).is_some(), "a holder of the old object can still use it");
    }

    #[test]
    fn held_objects_remain_and_others_are_forgotten() {
        let mut table = table();
        let held: Vec<_> = (0..100).map(|number| get(&mut table, number, FileKind::Regular)).collect();
        let most = table.nodes_max;
        for number in 100..most * 3 {
            get(&mut table, number, FileKind::Regular);
        }
        assert!(table.by_id.len() <= most + 2 * SCAN_MAX, "{}", table.by_id.len());
        assert_eq!(table.by_id.len(), table.by_handle.len());
        assert_eq!(table.user.used(), table.by_id.len() as u64 * NODE_BYTES);
        assert!(held.iter().all(|node| table.by_id(node.id).is_some()));
    }
}
