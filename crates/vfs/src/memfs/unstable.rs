use std::collections::BTreeMap;

use super::pages::Undo;
use super::state::State;

/// The data that a crash would lose: per file, the content that unstable writes replaced since it was last stable.
#[derive(Debug, Default)]
pub(super) struct Unstable {
    files: BTreeMap<u64, Undo>,
}

impl State {
    /// Remembers the `length` bytes at `offset` that are about to be replaced.
    pub(super) fn keep_for_undo(&mut self, fileid: u64, offset: u64, length: u64) {
        let Some(unstable) = &mut self.unstable else { return };
        let inode = self.table.get(fileid).expect("the file was resolved");
        if let Ok(pages) = inode.pages() {
            unstable.files.entry(fileid).or_default().keep(pages, offset, length);
        }
    }

    /// Notes that the whole file is on stable storage, or removed. More than the requested range is allowed: a system
    /// may make unstable data durable whenever it likes.
    pub(super) fn made_stable(&mut self, fileid: u64) {
        if let Some(unstable) = &mut self.unstable {
            unstable.files.remove(&fileid);
        }
    }

    /// Notes that everything is stable.
    pub(super) fn made_all_stable(&mut self) {
        if let Some(unstable) = &mut self.unstable {
            unstable.files.clear();
        }
    }

    /// Loses unstable data.
    pub(super) fn crash(&mut self) {
        let Some(unstable) = &mut self.unstable else { return };
        for (fileid, undo) in std::mem::take(&mut unstable.files) {
            let inode = self.table.get_mut(fileid).expect("a removed file is forgotten here");
            let (owner, charged) = (inode.uid, inode.charged());
            if let Ok(pages) = inode.pages_mut() {
                pages.undo(undo);
            }
            inode.change += 1;
            self.space.refund(owner, charged - inode.charged());
        }
    }
}
