//! Another process continues a mount: its inodes and open files.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::stream::{self, StreamExt};
use parking_lot::Mutex;

use super::hidden_name::HiddenName;
use super::open::{Description, OpenFlags};
use super::{Inode, Mount, OpenDirectory, OpenFile};
use crate::attributes::{Attributes, FileKind, FsId, NOBODY, Timestamp};
use crate::cache::FileId;
use crate::config::Caller;
use crate::errno::Errno;
use crate::error::OpError;
use crate::hand_over::{DirectoryState, FileState, HiddenState, InodeState, MountState, NameState};
use crate::locks::LockOwner;
use crate::results::{FileHandle, OpenMode, Stability};

/// Files whose data are made stable at a time.
const SYNCS_MAX: usize = 64;
/// Types by their numbers (`nfs_ftype4`, RFC 8881 §3.2), from 1.
const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::BlockDevice,
    FileKind::CharacterDevice,
    FileKind::Symlink,
    FileKind::Socket,
    FileKind::Fifo,
];
/// Stabilities by their numbers.
const STABILITIES: [Stability; 3] = [Stability::Unstable, Stability::DataSync, Stability::FileSync];

const INVALID: OpError = OpError::Invalid(Errno::EINVAL, "the state of a mount is not valid");

impl Mount {
    /// Makes all written data stable, those of files that programs have closed too. Errors are kept for the files' descriptions.
    ///
    /// # Errors
    /// EBUSY: data remain that the server has not made stable.
    pub async fn sync_all(&self) -> Result<(), OpError> {
        let inodes: Vec<Inode> = {
            let state = self.shared.state.lock();
            let nodes = state.table.nodes().filter(|node| {
                state.writes.unstable_bytes(node.id) > 0 || !node.uncommitted.lock().is_empty()
            });
            nodes.map(|node| self.inode_of(Arc::clone(node))).collect()
        };
        stream::iter(&inodes).for_each_concurrent(SYNCS_MAX, |inode| inode.sync_data()).await;
        let is_stable =
            |inode: &Inode| inode.unstable_bytes() == 0 && inode.node.uncommitted.lock().is_empty();
        match inodes.iter().all(is_stable) {
            true => Ok(()),
            false => Err(OpError::Invalid(Errno::EBUSY, "written data are not stable")),
        }
    }

    /// Returns the inodes. Written data must be stable ([`Self::sync_all`]).
    #[must_use]
    pub fn save(&self) -> MountState {
        let state = self.shared.state.lock();
        let inodes = state.table.nodes().map(|node| {
            let opens = node.opens.lock();
            let name =
                |directory: FileId, name: &[u8]| NameState { directory: directory.0, name: name.to_vec() };
            let hidden = opens.hidden.as_ref().map(|hidden| HiddenState {
                at: name(hidden.directory.id(), &hidden.name),
                caller: hidden.caller.state(),
            });
            // As many as there are types.
            let kind = KINDS.iter().position(|kind| *kind == node.kind).map_or(0, |at| at as u8 + 1);
            InodeState {
                id: node.id.0,
                handle: node.handle.to_vec(),
                kind,
                name: opens.name.as_ref().map(|(directory, bytes)| name(*directory, bytes)),
                hidden,
            }
        });
        MountState {
            root: self.shared.root.handle.to_vec(),
            last_inode: state.table.last(),
            next_hidden: self.shared.next_hidden.load(Ordering::Relaxed),
            inodes: inodes.collect(),
        }
    }

    /// Takes the inodes of another process that had the same root. This mount must be new. Returned inodes keep those that were
    /// restored in the table.
    ///
    /// # Errors
    /// ESTALE: the root is another one. EINVAL: the state is not valid.
    pub fn restore(&self, saved: &MountState) -> Result<Vec<Inode>, OpError> {
        if saved.root != self.shared.root.handle.to_vec() {
            return Err(OpError::Invalid(Errno::ESTALE, "the path now names another directory"));
        }
        self.shared.next_hidden.store(saved.next_hidden, Ordering::Relaxed);
        let mut kept = Vec::with_capacity(saved.inodes.len());
        {
            let mut state = self.shared.state.lock();
            for inode in &saved.inodes {
                let handle = FileHandle::new(&inode.handle).map_err(|_| INVALID)?;
                let kind = usize::from(inode.kind).checked_sub(1).and_then(|at| KINDS.get(at));
                let node = state.table.insert(FileId(inode.id), handle, *kind.ok_or(INVALID)?);
                kept.push(self.inode_of(node));
            }
            state.table.continue_after(saved.last_inode);
        }
        for inode in &saved.inodes {
            let Some(node) = self.inode_by_id(FileId(inode.id)) else { continue };
            if let Some(name) = &inode.name {
                node.node.opens.lock().note_name(FileId(name.directory), &name.name);
            }
            if let Some(HiddenState { at, caller }) = &inode.hidden {
                let directory = self.inode_by_id(FileId(at.directory)).ok_or(INVALID)?;
                let (name, caller) = (at.name.clone(), Caller::from_state(caller.clone())?);
                node.node.opens.lock().hidden = Some(HiddenName { directory, name, caller });
            }
        }
        Ok(kept)
    }

    /// Takes an open file of another process, whose inode and opens were restored.
    ///
    /// # Errors
    /// EINVAL: the state is not valid.
    pub fn restore_file(&self, saved: FileState) -> Result<OpenFile, OpError> {
        let inode = self.inode_by_id(FileId(saved.inode)).ok_or(INVALID)?;
        let state = self.client().restored_open(saved.open, saved.preserves_unlinked)?;
        let stability = *STABILITIES.get(usize::from(saved.stability)).ok_or(INVALID)?;
        let mode = OpenMode { read: saved.read, write: saved.write };
        let flags = OpenFlags { mode, stability, direct: saved.direct };
        inode.node.opens.lock().count += 1;
        inode.node.opens.lock().unprotected += usize::from(!state.preserves_unlinked);
        self.shared.open_files.fetch_add(1, Ordering::Relaxed);
        let attributes = placeholder(inode.kind(), saved.fileid);
        let errors = self.shared.state.lock().writes.open(inode.node.id);
        let description = Description {
            caller: Caller::from_state(saved.caller)?,
            flags,
            state,
            user: self.shared.limiter.user(),
            ahead: Mutex::default(),
            fetches: Mutex::default(),
            inode,
        };
        let owners = saved.lock_owners.into_iter().map(LockOwner::restored).collect();
        Ok(OpenFile::restored(description, attributes, errors, saved.number, owners, saved.error.map(Errno)))
    }

    /// Closes opens that no restored file has: their programs ended while the mount was handed over. Call it after all files were
    /// restored.
    pub fn close_others(&self, files: &[&OpenFile]) {
        let number = |file: &&OpenFile| file.state().file.as_ref().map(|open| open.owner);
        self.client().close_others(files.iter().filter_map(number).collect::<HashSet<u32>>());
    }
}

/// Returns attributes of an open file before the server has been asked. Nothing but the number is used.
fn placeholder(kind: FileKind, fileid: u64) -> Attributes {
    let time = Timestamp::default();
    Attributes {
        kind,
        mode: 0,
        nlink: 1,
        uid: NOBODY,
        gid: NOBODY,
        size: 0,
        used: 0,
        device: (0, 0),
        fsid: FsId::default(),
        fileid,
        atime: time,
        mtime: time,
        ctime: time,
        change: None,
    }
}

impl OpenFile {
    /// Returns the description, for another process. An error of earlier writes stays here too, in case that process does not
    /// take over.
    #[must_use]
    pub fn save(&self) -> FileState {
        let (flags, state) = (self.flags(), self.state());
        FileState {
            inode: self.inode().id().0,
            fileid: self.opened_attributes().fileid,
            caller: self.caller().state(),
            read: flags.mode.read,
            write: flags.mode.write,
            // As many as there are stabilities.
            stability: STABILITIES.iter().position(|one| *one == flags.stability).map_or(0, |at| at as u8),
            direct: flags.direct,
            number: self.number,
            open: state.file.as_ref().map(|file| file.owner),
            preserves_unlinked: state.preserves_unlinked,
            lock_owners: self.lock_owners.lock().iter().map(|owner| owner.save()).collect(),
            error: self.unreported_error().map(|errno| errno.0),
        }
    }
}

impl OpenDirectory {
    /// Returns the directory, for another process.
    #[must_use]
    pub fn save(&self) -> DirectoryState {
        DirectoryState { inode: self.inode().id().0, verifier: self.verifier() }
    }
}

impl Mount {
    /// Takes an open directory of another process, whose inode was restored.
    ///
    /// # Errors
    /// EINVAL: there is no such directory.
    pub fn restore_directory(&self, saved: &DirectoryState) -> Result<OpenDirectory, OpError> {
        let inode = self.inode_by_id(FileId(saved.inode)).ok_or(INVALID)?;
        let directory = inode.open_directory().map_err(|_| INVALID)?;
        directory.continue_with(saved.verifier);
        Ok(directory)
    }
}
