use std::collections::BTreeMap;

use super::pages::{Pages, Undo};
use super::space::Space;
use super::table::Table;

/// The data that a crash would lose: per file, the content that unstable writes replaced since it was last stable.
#[derive(Debug, Default)]
pub(super) struct Unstable {
    files: BTreeMap<u64, Undo>,
}

impl Unstable {
    /// Remembers the `length` bytes at `offset` that are about to be replaced.
    pub(super) fn keep_for_undo(&mut self, fileid: u64, pages: &Pages, offset: u64, length: u64) {
        self.files.entry(fileid).or_default().keep(pages, offset, length);
    }

    /// Notes that the whole file is on stable storage, or removed.
    pub(super) fn made_stable(&mut self, fileid: u64) {
        self.files.remove(&fileid);
    }

    /// Notes that everything is stable.
    pub(super) fn made_all_stable(&mut self) {
        self.files.clear();
    }

    /// Undoes all unstable writes.
    pub(super) fn crash(&mut self, table: &mut Table, space: &mut Space) {
        for (fileid, undo) in std::mem::take(&mut self.files) {
            let inode = table.get_mut(fileid).expect("a removed file is forgotten here");
            let (owner, charged) = (inode.uid, inode.charged());
            if let Ok(pages) = inode.pages_mut() {
                pages.undo(undo);
            }
            inode.change += 1;
            space.refund(owner, charged - inode.charged());
        }
    }
}
