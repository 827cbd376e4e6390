//! The simplest possible file system: no counters, no indexes, no sharing. Existence and link counts are found by a
//! search through everything.

use std::collections::BTreeMap;

use crate::{Credentials, Error, FileKind, Verifier};

pub(super) use super::super::subject::COMMON_GROUP;

/// The permanent number of an object; 0 is the root directory.
pub(super) type Id = u32;

pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const SEARCH: u32 = 1;

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) kind: FileKind,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) content: Vec<u8>,
    pub(super) text: &'static str,
    pub(super) entries: BTreeMap<&'static str, Id>,
    pub(super) xattrs: BTreeMap<&'static str, Vec<u8>>,
    pub(super) verifier: Option<Verifier>,
    pub(super) opens: u32,
}

impl Node {
    pub(super) fn new(kind: FileKind, mode: u32, uid: u32, gid: u32) -> Self {
        Self {
            kind,
            mode,
            uid,
            gid,
            content: Vec::new(),
            text: "",
            entries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
            verifier: None,
            opens: 0,
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    pub(super) fn may(&self, who: &Credentials, want: u32) -> bool {
        let bits = if who.uid == self.uid {
            self.mode >> 6
        } else if who.is_in_group(self.gid) {
            self.mode >> 3
        } else {
            self.mode
        };
        // No action here executes a file, so root may do everything.
        who.is_root() || bits & want == want
    }

    pub(super) fn owned_by(&self, who: &Credentials) -> bool {
        who.is_root() || who.uid == self.uid
    }

    /// As on Linux: clears set-user-ID, and set-group-ID if it means execution by the group or if `who` is not
    /// in it.
    pub(super) fn lose_set_id(&mut self, who: &Credentials) {
        self.mode &= !0o4000;
        if self.mode & 0o010 != 0 || !(who.is_root() || who.is_in_group(self.gid)) {
            self.mode &= !0o2000;
        }
    }

    pub(super) fn resize(&mut self, size: u64) {
        self.content.resize(size as usize, 0);
    }
}

#[derive(Debug, Clone)]
pub(super) struct Model {
    /// All objects in order of creation; removed ones are `None`.
    pub(super) nodes: Vec<Option<Node>>,
}

impl Model {
    pub(super) fn new(top: Node) -> Self {
        Self { nodes: vec![Some(top)] }
    }

    pub(super) fn get(&self, id: Id) -> Option<&Node> {
        self.nodes[id as usize].as_ref()
    }

    pub(super) fn node(&mut self, id: Id) -> &mut Node {
        self.nodes[id as usize].as_mut().expect("the action was possible")
    }

    pub(super) fn add(&mut self, node: Node) -> Id {
        self.nodes.push(Some(node));
        self.nodes.len() as Id - 1
    }

    pub(super) fn living(&self) -> impl Iterator<Item = (Id, &Node)> {
        (0..).zip(&self.nodes).filter_map(|(id, node)| Some((id, node.as_ref()?)))
    }

    /// Returns the directories that contain `id`, once for each name.
    fn holders(&self, id: Id) -> impl Iterator<Item = Id> {
        let names =
            self.living().flat_map(|(holder, node)| node.entries.values().map(move |entry| (holder, *entry)));
        names.filter(move |(_, entry)| *entry == id).map(|(holder, _)| holder)
    }

    pub(super) fn parent(&self, id: Id) -> Option<Id> {
        self.holders(id).next()
    }

    pub(super) fn links(&self, id: Id) -> u32 {
        let Some(node) = self.get(id).filter(|node| node.is_directory()) else {
            return self.holders(id).count() as u32;
        };
        let is_directory = |id: &&Id| self.get(**id).is_some_and(Node::is_directory);
        2 + node.entries.values().filter(is_directory).count() as u32
    }

    pub(super) fn is_inside(&self, id: Id, top: Id) -> bool {
        id == top || self.parent(id).is_some_and(|parent| self.is_inside(parent, top))
    }

    /// Removes objects with neither a name nor an open.
    pub(super) fn forget(&mut self) {
        for id in 1..self.nodes.len() as Id {
            if self.get(id).is_some_and(|node| node.opens == 0) && self.holders(id).next().is_none() {
                self.nodes[id as usize] = None;
            }
        }
    }

    /// Returns the directory, and the object of `name` in it, or the error of the search.
    pub(super) fn search(&self, who: &Credentials, id: Id, name: &str) -> Result<(&Node, Option<Id>), Error> {
        let directory = self.get(id).ok_or(Error::Stale)?;
        if !directory.is_directory() {
            return Err(Error::NotDirectory);
        }
        if !directory.may(who, SEARCH) {
            return Err(Error::Access);
        }
        Ok((directory, directory.entries.get(name).copied()))
    }

    /// Returns the reason why `who` may not remove an entry of `victim` from `directory`.
    pub(super) fn removal(&self, who: &Credentials, directory: &Node, victim: Id) -> Vec<Error> {
        let mut errors = Vec::new();
        if !directory.may(who, WRITE | SEARCH) {
            errors.push(Error::Access);
        }
        let owned = self.get(victim).is_some_and(|node| node.owned_by(who));
        if directory.mode & 0o1000 != 0 && !directory.owned_by(who) && !owned {
            errors.extend([Error::NotPermitted, Error::Access]);
        }
        errors
    }
}
