//! Applies an action that succeeded to the model.

use super::action::{Content, Kind};
use super::model::{Id, Model, Node};
use crate::{CreateMode, Credentials, FileKind};

impl Model {
    /// Returns the object that the name leads to afterwards.
    pub(super) fn create(
        &mut self,
        who: &Credentials,
        directory: Id,
        name: &'static str,
        kind: Kind,
        mode: u32,
    ) -> Id {
        let parent = self.node(directory);
        if let Some(&existing) = parent.entries.get(name) {
            if let Kind::File(CreateMode::Unchecked, Some(size)) = kind {
                self.content(who, existing, Content::Size(size));
            }
            return existing;
        }
        let inherits = parent.mode & 0o2000 != 0;
        let gid = if inherits { parent.gid } else { who.gid };
        let mut node = Node::new(FileKind::Regular, mode, who.uid, gid);
        match kind {
            Kind::File(mode, size) => {
                node.resize(size.unwrap_or(0));
                if let CreateMode::Exclusive(verifier) = mode {
                    node.verifier = Some(verifier);
                }
            }
            Kind::Directory => {
                node.kind = FileKind::Directory;
                node.mode |= if inherits { 0o2000 } else { 0 };
            }
            Kind::Symlink(text) => (node.kind, node.mode, node.text) = (FileKind::Symlink, 0o777, text),
            Kind::Fifo => node.kind = FileKind::Fifo,
        }
        let id = self.add(node);
        self.node(directory).entries.insert(name, id);
        id
    }

    pub(super) fn rename(&mut self, from: (Id, &'static str), to: (Id, &'static str)) {
        let source = self.node(from.0).entries[from.1];
        if self.node(to.0).entries.get(to.1) != Some(&source) {
            self.node(from.0).entries.remove(from.1);
            self.node(to.0).entries.insert(to.1, source);
        }
    }

    /// Returns the result of a read.
    pub(super) fn content(&mut self, who: &Credentials, file: Id, content: Content) -> Vec<u8> {
        let node = self.node(file);
        match content {
            Content::Read { offset, length } => {
                let end = node.content.len().min((offset + length) as usize);
                return node.content.get(offset as usize..end).unwrap_or_default().to_vec();
            }
            Content::Write { length: 0, .. } => {}
            Content::Write { offset, length, byte } => {
                node.resize((offset + length).max(node.content.len() as u64));
                node.content[offset as usize..(offset + length) as usize].fill(byte);
                node.written(who);
            }
            Content::Size(size) => {
                node.resize(size);
                node.written(who);
            }
        }
        Vec::new()
    }

    pub(super) fn chmod(&mut self, who: &Credentials, file: Id, mode: u32) {
        let node = self.node(file);
        let keeps = who.is_root() || who.is_in_group(node.gid);
        node.mode = if keeps { mode } else { mode & !0o2000 };
    }

    pub(super) fn chown(&mut self, who: &Credentials, file: Id, uid: Option<u32>, gid: Option<u32>) {
        let node = self.node(file);
        if !node.is_directory() && (uid.is_some() || gid.is_some()) {
            node.lose_set_id(who);
        }
        node.uid = uid.unwrap_or(node.uid);
        node.gid = gid.unwrap_or(node.gid);
    }
}

impl Node {
    fn written(&mut self, who: &Credentials) {
        if !who.is_root() {
            self.lose_set_id(who);
        }
    }
}
