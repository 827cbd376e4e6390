//! Inodes that the kernel knows, by their numbers.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use client::attributes::{Attributes, Before};
use client::cache::attributes::{Epoch, version};
use client::fs::inode::Inode;
use fuse::{Errno, Forget, NodeId};
use parking_lot::Mutex;

use crate::cached_names::{CachedName, CachedNames, Use};

/// An object that the kernel knows.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) inode: Inode,
    cached: Mutex<Cached>,
}

/// The kernel's caches.
#[derive(Debug, Default)]
struct Cached {
    /// The attributes that the kernel was given last.
    attributes: Option<Before>,
    /// The epoch in which the kernel's pages were read.
    pages: Option<Epoch>,
}

/// Caches that the kernel may keep at an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Valid {
    pub(crate) attributes: bool,
    pub(crate) pages: bool,
}

impl Node {
    fn new(inode: Inode) -> Arc<Self> {
        Arc::new(Self { inode, cached: Mutex::default() })
    }

    /// Returns the kernel's number.
    pub(crate) fn id(&self) -> NodeId {
        node_id(&self.inode)
    }

    /// Notes attributes that the kernel is given.
    pub(crate) fn grant(&self, attributes: &Attributes) {
        self.cached.lock().attributes = Some(version(attributes));
    }

    /// Notes that the file is opened and has these attributes, and returns the caches that are still valid.
    pub(crate) fn validate(&self, attributes: &Attributes) -> Valid {
        let pages = self.validate_pages();
        Valid { attributes: self.cached.lock().attributes == Some(version(attributes)), pages }
    }

    /// Notes that the kernel reads the client's present data from now on. Returns whether its pages have these already: only
    /// this client has changed the file since the last call.
    pub(crate) fn validate_pages(&self) -> bool {
        let now = self.inode.epoch();
        let before = std::mem::replace(&mut self.cached.lock().pages, now);
        now.is_some() && before == now
    }
}

/// Numbers of the client are never used again, and its root has the number of the kernel's.
pub(crate) fn node_id(inode: &Inode) -> NodeId {
    NodeId(inode.id().0)
}

/// New inodes between two searches for inodes that the kernel should forget.
const SEARCH_INTERVAL: usize = 256;
/// Maximum number of inodes that one search asks the kernel to forget.
const FORGET_MAX: usize = 1024;
/// Maximum number of inodes that one search examines, so that a table full of used ones costs little.
const SCAN_MAX: usize = 4096;

/// All inodes that the kernel knows. Their number is not bounded, since programs may use all of them; beyond `max` the kernel is
/// asked to forget the least recently used ones (CLOCK).
#[derive(Debug)]
pub(crate) struct Nodes {
    root: Arc<Node>,
    max: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    known: BTreeMap<NodeId, Known>,
    /// Inodes added since the last search.
    added: usize,
    /// Where the next search begins.
    hand: u64,
}

#[derive(Debug)]
struct Known {
    node: Arc<Node>,
    lookups: u64,
    /// Set by each use, cleared by a search.
    is_used: bool,
}

impl Known {
    fn new(inode: Inode, lookups: u64) -> Self {
        Self { node: Node::new(inode), lookups, is_used: true }
    }
}

impl Nodes {
    pub(crate) fn new(root: Inode, max: usize) -> Self {
        Self { root: Node::new(root), max, table: Mutex::default() }
    }

    /// Returns the inode that the kernel names.
    ///
    /// # Errors
    /// ESTALE for a number that was forgotten.
    pub(crate) fn get(&self, id: NodeId) -> Result<Arc<Node>, Errno> {
        if id == NodeId::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let mut table = self.table.lock();
        let known = table.known.get_mut(&id).ok_or(Errno::STALE)?;
        known.is_used = true;
        Ok(Arc::clone(&known.node))
    }

    /// Counts a lookup of an inode. The kernel never forgets the root, whose lookups do not count.
    pub(crate) fn look_up(&self, inode: &Inode) -> Arc<Node> {
        if *inode == self.root.inode {
            return Arc::clone(&self.root);
        }
        let mut table = self.table.lock();
        let Table { known, added, .. } = &mut *table;
        let known = known.entry(node_id(inode)).or_insert_with(|| {
            *added += 1;
            Known::new(inode.clone(), 0)
        });
        known.lookups += 1;
        known.is_used = true;
        Arc::clone(&known.node)
    }

    /// Returns inodes that the kernel should forget: there are too many, and these were not used since the last search. Usually none.
    pub(crate) fn surplus(&self) -> Vec<NodeId> {
        let mut table = self.table.lock();
        if table.added < SEARCH_INTERVAL || table.known.len() <= self.max {
            return Vec::new();
        }
        table.added = 0;
        let (count, hand) = ((table.known.len() - self.max).min(FORGET_MAX), table.hand);
        let mut surplus = Vec::new();
        let mut examined = 0;
        for part in [hand..u64::MAX, 0..hand] {
            for (id, known) in table.known.range_mut(NodeId(part.start)..NodeId(part.end)) {
                if surplus.len() == count || examined == SCAN_MAX {
                    table.hand = id.0;
                    return surplus;
                }
                examined += 1;
                // Used since the last search: it gets another round.
                if !std::mem::take(&mut known.is_used) {
                    surplus.push(*id);
                }
            }
        }
        surplus
    }

    /// Returns names that the kernel should drop, and removes them from `names`: there are too many, or too many inodes and the kernel
    /// cannot be asked to forget them. `open` returns the inodes that are open.
    pub(crate) fn surplus_names(
        &self,
        names: &CachedNames,
        forgets_nodes: bool,
        open: impl FnOnce() -> HashSet<NodeId>,
    ) -> Vec<CachedName> {
        let mut table = self.table.lock();
        let inodes = if forgets_nodes { 0 } else { table.known.len() };
        let count = inodes.max(names.len()).saturating_sub(self.max);
        if count == 0 || !names.is_search_due() {
            return Vec::new();
        }
        let open = open();
        names.take_unused(count.min(FORGET_MAX), SCAN_MAX, |node| {
            let Some(known) = table.known.get_mut(&node) else { return Use::Forgotten };
            let is_used = std::mem::take(&mut known.is_used) || open.contains(&node);
            if is_used { Use::Used } else { Use::Unused }
        })
    }

    /// Subtracts lookups that the kernel has forgotten.
    pub(crate) fn forget(&self, forget: Forget) {
        let known = &mut self.table.lock().known;
        let Some(node) = known.get_mut(&forget.node) else { return };
        node.lookups = node.lookups.saturating_sub(forget.lookups);
        if node.lookups == 0 {
            known.remove(&forget.node);
        }
    }

    /// Returns the inodes without the root, with the kernel's lookups of each.
    pub(crate) fn save(&self) -> Vec<(u64, u64)> {
        self.table.lock().known.iter().map(|(id, known)| (id.0, known.lookups)).collect()
    }

    /// Takes an inode that another process knew, with the kernel's lookups.
    pub(crate) fn restore(&self, inode: Inode, lookups: u64) {
        self.table.lock().known.insert(node_id(&inode), Known::new(inode, lookups));
    }

    /// Returns the number of inodes without the root.
    pub(crate) fn len(&self) -> usize {
        self.table.lock().known.len()
    }
}
