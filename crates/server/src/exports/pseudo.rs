//! The pseudo file system: read-only directories that join the exports into one tree below the root.
//!
//! RFC 8881 §7.3: "NFSv4.1 servers avoid this namespace inconsistency by presenting all the exports for a given server
//! within the framework of a single namespace for that server."
//!
//! A node's number depends on its path alone, so that its handle survives restarts and reloads. A client sees only nodes above exports
//! that its address may use: the rest of the tree does not exist for it.

use core::net::IpAddr;
use std::collections::HashMap;
use std::hash::Hasher;
use std::sync::{Arc, OnceLock};

use siphasher::sip::SipHasher24;
use vfs::{Attributes, Device, FileKind, Handle, Timestamp};

use crate::{Export, ExportId, ExportTable, Flavor, Flavors};

/// A directory of the pseudo file system, or the mount point of an export.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its `fileid`; where an export is mounted, the `mounted_on_fileid` of the export's root.
    pub(crate) id: u64,
    /// Name in its parent; empty for the root.
    pub(crate) name: Box<[u8]>,
    parent: usize,
    children: Vec<usize>,
    /// The exports that lie here or below.
    leads_to: Vec<ExportId>,
    /// The export that is mounted here; such a node has no children.
    pub(crate) export: Option<ExportId>,
}

/// All nodes; the root is the first.
#[derive(Debug)]
pub(crate) struct PseudoFs {
    nodes: Vec<Node>,
    by_id: HashMap<u64, usize>,
    mounts: HashMap<ExportId, usize>,
    /// The time of the first access to this set of exports. The core has no clock for an earlier time.
    seen: OnceLock<Timestamp>,
}

impl Default for PseudoFs {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl PseudoFs {
    /// Creates the tree above `exports`, whose paths neither overlap nor repeat.
    pub(crate) fn new(exports: &[Arc<Export>]) -> Self {
        let mut tree =
            Self { nodes: Vec::new(), by_id: HashMap::new(), mounts: HashMap::new(), seen: OnceLock::new() };
        tree.add("", &[], 0);
        for export in exports {
            tree.mount(export);
        }
        tree
    }

    fn mount(&mut self, export: &Export) {
        let mut at = 0;
        self.nodes[at].leads_to.push(export.id);
        let mut end = 0;
        for name in export.path.split('/').skip(1).filter(|name| !name.is_empty()) {
            end += 1 + name.len();
            let known = self.child_named(at, name.as_bytes());
            at = known.unwrap_or_else(|| self.add(&export.path[..end], name.as_bytes(), at));
            self.nodes[at].leads_to.push(export.id);
        }
        self.nodes[at].export = Some(export.id);
        self.mounts.insert(export.id, at);
    }

    fn add(&mut self, path: &str, name: &[u8], parent: usize) -> usize {
        let mut hasher = SipHasher24::new();
        hasher.write(path.as_bytes());
        let mut id = hasher.finish();
        // 0 is never a fileid. Two paths with the same hash get different numbers, which then depend on their order.
        while id == 0 || self.by_id.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        let index = self.nodes.len();
        self.nodes.push(Node {
            id,
            name: name.into(),
            parent,
            children: Vec::new(),
            leads_to: Vec::new(),
            export: None,
        });
        self.by_id.insert(id, index);
        if index != parent {
            self.nodes[parent].children.push(index);
        }
        index
    }

    fn child_named(&self, parent: usize, name: &[u8]) -> Option<usize> {
        self.nodes[parent].children.iter().copied().find(|child| *self.nodes[*child].name == *name)
    }

    /// Returns the root.
    pub(crate) fn root(&self) -> &Node {
        &self.nodes[0]
    }

    /// Returns the directory of a handle; none if no export is below it. An export at the root hides it only from clients that may use
    /// the export.
    pub(crate) fn by_handle(&self, handle: &Handle, exports: &ExportTable, peer: IpAddr) -> Option<&Node> {
        let id = u64::from_be_bytes((**handle).try_into().ok()?);
        let node = &self.nodes[*self.by_id.get(&id)?];
        let is_hidden = match node.is_root() {
            true => node.mounted(exports, peer).is_some(),
            false => node.export.is_some(),
        };
        (!is_hidden).then_some(node)
    }

    /// Returns the node where an export is mounted.
    pub(crate) fn mount_of(&self, export: ExportId) -> Option<&Node> {
        self.mounts.get(&export).map(|index| &self.nodes[*index])
    }

    /// Returns the directory above; none above the root.
    pub(crate) fn parent(&self, node: &Node) -> Option<&Node> {
        (!node.is_root()).then(|| &self.nodes[node.parent])
    }

    /// Returns the entries of a directory, in the order of the configuration.
    pub(crate) fn children<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        node.children.iter().map(|index| &self.nodes[*index])
    }

    /// Returns the attributes of a directory for a client at `peer`, at the time `now`. They do not depend on exports that it may not use.
    pub(crate) fn attributes(
        &self,
        node: &Node,
        exports: &ExportTable,
        peer: IpAddr,
        now: Timestamp,
    ) -> Attributes {
        let time = *self.seen.get_or_init(|| now);
        Attributes {
            kind: FileKind::Directory,
            mode: 0o555,
            // Like file systems that do not count subdirectories: the same for every client.
            links: 2,
            uid: 0,
            gid: 0,
            size: 4096,
            used: 0,
            device: Device::default(),
            fsid: 0,
            fileid: node.id,
            accessed: time,
            modified: time,
            changed: time,
            created: None,
            change: node.change(exports, peer),
        }
    }
}

impl Node {
    /// Returns the handle of a directory.
    pub(crate) fn handle(&self) -> Handle {
        Handle::new(&self.id.to_be_bytes()).expect("eight bytes are a short handle")
    }

    /// Returns whether it is the root.
    pub(crate) fn is_root(&self) -> bool {
        self.name.is_empty()
    }

    /// Returns the export that is mounted here, if a client at `peer` may use it.
    pub(crate) fn mounted<'e>(&self, exports: &'e ExportTable, peer: IpAddr) -> Option<&'e Arc<Export>> {
        exports.for_client(self.export?, peer)
    }

    /// Returns whether a client at `peer` may use any export here or below; every client sees the root.
    pub(crate) fn is_visible(&self, exports: &ExportTable, peer: IpAddr) -> bool {
        self.is_root() || self.visible(exports, peer).next().is_some()
    }

    /// Returns the exports here and below that a client at `peer` may use.
    fn visible<'a>(&'a self, exports: &'a ExportTable, peer: IpAddr) -> impl Iterator<Item = &'a Export> {
        self.leads_to.iter().filter_map(move |id| exports.for_client(*id, peer)).map(Arc::as_ref)
    }

    /// Returns the flavors of the exports here and below that a client at `peer` may use. Each of them leads to one of these exports.
    pub(crate) fn flavors(&self, exports: &ExportTable, peer: IpAddr) -> Flavors {
        let all = self.visible(exports, peer).map(|export| export.options.flavors);
        all.reduce(Flavors::union).unwrap_or_default()
    }

    /// Returns whether a call by `flavor` of a client at `peer` may use this directory. Without exports below there is nothing to protect.
    pub(crate) fn allows(&self, flavor: Flavor, exports: &ExportTable, peer: IpAddr) -> bool {
        let mut below = self.visible(exports, peer).peekable();
        below.peek().is_none() || below.any(|export| export.options.flavors.allow(flavor))
    }

    /// Returns a change attribute that differs whenever a client at `peer` sees other exports here or below.
    fn change(&self, exports: &ExportTable, peer: IpAddr) -> u64 {
        let mut hasher = SipHasher24::new();
        for export in self.visible(exports, peer) {
            hasher.write_u32(export.id.0);
            hasher.write(export.path.as_bytes());
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{export, export_for};

    fn tree(paths: &[&str]) -> ExportTable {
        let exports = paths.iter().zip(1..).map(|(path, id)| export(id, path)).collect();
        ExportTable::new(exports).unwrap()
    }

    fn find<'a>(table: &'a ExportTable, path: &[&str]) -> Option<&'a Node> {
        let pseudo = table.pseudo();
        path.iter()
            .try_fold(pseudo.root(), |node, name| pseudo.children(node).find(|c| *c.name == *name.as_bytes()))
    }

    #[test]
    fn joins_paths_of_several_components() {
        let table = tree(&["/data/a", "/export", "/data/b/c"]);
        let pseudo = table.pseudo();
        let names =
            |node| pseudo.children(node).map(|c| String::from_utf8_lossy(&c.name)).collect::<Vec<_>>();
        assert_eq!(names(pseudo.root()), ["data", "export"]);
        assert_eq!(names(find(&table, &["data"]).unwrap()), ["a", "b"]);
        let mount = find(&table, &["data", "b", "c"]).unwrap();
        assert_eq!(mount.export, Some(ExportId(3)));
        assert_eq!(pseudo.mount_of(ExportId(3)).unwrap().id, mount.id);
        assert_eq!(pseudo.parent(mount).unwrap().id, find(&table, &["data", "b"]).unwrap().id);
        assert!(pseudo.parent(pseudo.root()).is_none());
    }

    #[test]
    fn a_directory_is_known_by_its_path_in_every_table() {
        let (before, after) = (tree(&["/data/a"]), tree(&["/export", "/data/b", "/data/a"]));
        let handle = find(&before, &["data"]).unwrap().handle();
        let name = |table: &ExportTable, handle: &Handle| {
            let peer = "192.0.2.1".parse().unwrap();
            table.pseudo().by_handle(handle, table, peer).map(|node| node.name.to_vec())
        };
        assert_eq!(name(&after, &handle), Some(b"data".to_vec()));
        assert_eq!(name(&tree(&["/export"]), &handle), None, "nothing is below it any more");
        assert_eq!(name(&tree(&["/data"]), &handle), None, "an export is mounted over it");
        assert_eq!(name(&before, &Handle::new(b"short").unwrap()), None);
        let root = before.pseudo().root().handle();
        assert_eq!(name(&after, &root), Some(Vec::new()));
        assert_eq!(name(&tree(&["/"]), &root), None, "an export is mounted over it");
        let closed = ExportTable::new(vec![export_for(1, "/", "10.0.0.0/8")]).unwrap();
        assert_eq!(name(&closed, &root), Some(Vec::new()), "the root of clients that may not use the export");
    }

    #[test]
    fn other_exports_change_the_change_attribute() {
        let now = Timestamp { seconds: 5, nanoseconds: 0 };
        let seen = |table: &ExportTable, peer: &str| {
            table.pseudo().attributes(table.pseudo().root(), table, peer.parse().unwrap(), now)
        };
        let change = |table: &ExportTable| seen(table, "192.0.2.1").change;
        let first = tree(&["/a"]);
        assert_eq!(change(&first), change(&tree(&["/a"])));
        assert_ne!(change(&first), change(&tree(&["/a", "/b"])));
        let narrowed = ExportTable::new(vec![export_for(1, "/a", "10.0.0.0/8")]).unwrap();
        assert_ne!(change(&first), change(&narrowed));
        // A client that may not use an export does not see that it was added.
        let hidden = ExportTable::new(vec![export(1, "/a"), export_for(2, "/b", "10.0.0.0/8")]).unwrap();
        assert_eq!(seen(&first, "192.0.2.1").change, seen(&hidden, "192.0.2.1").change);
        assert_eq!(seen(&first, "192.0.2.1").links, seen(&hidden, "192.0.2.1").links);
        assert_ne!(seen(&first, "10.0.0.1").change, seen(&hidden, "10.0.0.1").change);
    }

    #[test]
    fn shows_only_paths_to_exports_of_the_client() {
        let table =
            ExportTable::new(vec![export_for(1, "/data/a", "10.0.0.0/8"), export(2, "/export")]).unwrap();
        let visible =
            |path: &[&str], peer: &str| find(&table, path).unwrap().is_visible(&table, peer.parse().unwrap());
        assert!(visible(&["data"], "10.1.2.3") && visible(&["data", "a"], "10.1.2.3"));
        assert!(!visible(&["data"], "192.0.2.1") && visible(&["export"], "192.0.2.1"));
        assert!(visible(&[], "192.0.2.1"));
    }
}
