//! Inodes that the kernel knows, by their numbers.

use std::collections::HashMap;
use std::sync::Arc;

use client::attributes::{Attributes, Before};
use client::cache::attributes::{Epoch, version};
use client::fs::inode::Inode;
use fuse::{Errno, Forget, NodeId};
use parking_lot::Mutex;

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

/// All inodes that the kernel knows. The kernel bounds their number by forgetting.
#[derive(Debug)]
pub(crate) struct Nodes {
    root: Arc<Node>,
    table: Mutex<HashMap<NodeId, Known>>,
}

#[derive(Debug)]
struct Known {
    node: Arc<Node>,
    lookups: u64,
}

impl Nodes {
    pub(crate) fn new(root: Inode) -> Self {
        Self { root: Node::new(root), table: Mutex::default() }
    }

    /// Returns the inode that the kernel names.
    ///
    /// # Errors
    /// ESTALE for a number that was forgotten.
    pub(crate) fn get(&self, id: NodeId) -> Result<Arc<Node>, Errno> {
        if id == NodeId::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        self.table.lock().get(&id).map(|known| Arc::clone(&known.node)).ok_or(Errno::STALE)
    }

    /// Counts a lookup of an inode. The kernel never forgets the root, whose lookups do not count.
    pub(crate) fn look_up(&self, inode: &Inode) -> Arc<Node> {
        if *inode == self.root.inode {
            return Arc::clone(&self.root);
        }
        let mut table = self.table.lock();
        let known = table
            .entry(node_id(inode))
            .or_insert_with(|| Known { node: Node::new(inode.clone()), lookups: 0 });
        known.lookups += 1;
        Arc::clone(&known.node)
    }

    /// Subtracts lookups that the kernel has forgotten.
    pub(crate) fn forget(&self, forget: Forget) {
        let mut table = self.table.lock();
        let Some(known) = table.get_mut(&forget.node) else { return };
        known.lookups = known.lookups.saturating_sub(forget.lookups);
        if known.lookups == 0 {
            table.remove(&forget.node);
        }
    }

    /// Returns the inodes without the root, with the kernel's lookups of each.
    pub(crate) fn save(&self) -> Vec<(u64, u64)> {
        self.table.lock().iter().map(|(id, known)| (id.0, known.lookups)).collect()
    }

    /// Takes an inode that another process knew, with the kernel's lookups.
    pub(crate) fn restore(&self, inode: Inode, lookups: u64) {
        self.table.lock().insert(node_id(&inode), Known { node: Node::new(inode), lookups });
    }

    /// Returns the number of inodes without the root.
    pub(crate) fn len(&self) -> usize {
        self.table.lock().len()
    }
}
