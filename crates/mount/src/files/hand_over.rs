//! Another process continues the mount.

use client::config::Caller;
use client::error::OpError;
use client::fs::inode::{Mount, OpenFile};
use client::hand_over::{CallerState, ClientState, DirectoryState, FileState, MountState};
use fuse::{FileHandle, NodeId};
use serde::{Deserialize, Serialize};

use super::{Files, Settings};
use crate::handles::Directory;
use crate::listing::Position;

/// The state of a mount besides the kernel's descriptors: inodes, open files and directories, locks.
#[derive(Debug, Serialize, Deserialize)]
pub struct FilesState {
    client: ClientState,
    mount: MountState,
    /// Numbers of the inodes that the kernel knows, and their lookups.
    nodes: Vec<(u64, u64)>,
    /// Names that the kernel may cache: directory, name, inode (0: there is none), whether that is a directory.
    #[serde(default)]
    cached_names: Vec<(u64, Vec<u8>, u64, bool)>,
    files: Vec<(u64, FileState)>,
    last_file: u64,
    directories: Vec<OpenDirectoryState>,
    last_directory: u64,
    /// Inodes and the owners of fcntl locks on them.
    lockers: Vec<(u64, u64)>,
}

/// An open directory.
#[derive(Debug, Serialize, Deserialize)]
struct OpenDirectoryState {
    handle: u64,
    directory: DirectoryState,
    caller: CallerState,
    /// Cookies of the entries reached.
    starts: Vec<u64>,
}

impl Files {
    /// Makes all written data stable, which may take long. Requests may come meanwhile.
    ///
    /// # Errors
    /// Data remain that the server has not made stable.
    pub async fn sync_all(&self) -> Result<(), OpError> {
        self.mount.sync_all().await
    }

    /// Returns the state for another process. No operation may be under way.
    ///
    /// # Errors
    /// EBUSY: written data are not stable, or a request for an open or a lock is under way.
    pub async fn save(&self) -> Result<FilesState, OpError> {
        self.mount.client().settle().await;
        self.mount.sync_all().await?;
        let (files, last_file) = self.open_files.numbered();
        let (directories, last_directory) = self.open_directories.numbered();
        let mut saved = Vec::with_capacity(directories.len());
        for (handle, directory) in directories {
            saved.push(OpenDirectoryState {
                handle: handle.0,
                directory: directory.open.save(),
                caller: directory.caller.state(),
                starts: directory.position.lock().await.save(),
            });
        }
        Ok(FilesState {
            // Before the files: what they report is not lost.
            client: self.mount.client().save()?,
            mount: self.mount.save(),
            nodes: self.nodes.save(),
            cached_names: self.cached_names.save(),
            files: files.iter().map(|(handle, file)| (handle.0, file.save())).collect(),
            last_file,
            directories: saved,
            last_directory,
            lockers: self.lockers.lock().iter().map(|(node, owner)| (node.0, owner.0)).collect(),
        })
    }

    /// Takes the root of `mount` as root, and the state of another process, which had the same root.
    ///
    /// # Errors
    /// ESTALE: the root is another one. EINVAL: the state is not valid. Attributes of the root cannot be read. The client has ended then.
    pub async fn resume(mount: Mount, settings: Settings, state: FilesState) -> Result<Self, OpError> {
        let files = Self::new(mount, settings).await?;
        // Open files that are dropped would be closed at the server, where they are the other process's.
        files.take(state).inspect_err(|_| files.mount.client().engine().shut_down())?;
        Ok(files)
    }

    fn take(&self, state: FilesState) -> Result<(), OpError> {
        let kept = self.mount.restore(&state.mount)?;
        self.mount.client().restore(state.client)?;
        for (id, lookups) in state.nodes {
            if let Ok(at) = kept.binary_search_by_key(&id, |inode| inode.id().0) {
                self.nodes.restore(kept[at].clone(), lookups);
            }
        }
        state.cached_names.into_iter().for_each(|name| self.cached_names.restore(name));
        for (handle, file) in state.files {
            self.open_files.restore(FileHandle(handle), self.mount.restore_file(file)?);
        }
        self.open_files.continue_after(state.last_file);
        for saved in state.directories {
            let directory = Directory {
                open: self.mount.restore_directory(&saved.directory)?,
                caller: Caller::from_state(saved.caller)?,
                position: Position::restored(saved.starts).into(),
            };
            self.open_directories.restore(FileHandle(saved.handle), directory);
        }
        self.open_directories.continue_after(state.last_directory);
        let lockers = state.lockers.into_iter().map(|(node, owner)| (NodeId(node), fuse::LockOwner(owner)));
        self.lockers.lock().extend(lockers);
        Ok(())
    }

    /// Closes opens at the server that no program has: their programs ended during the hand-over. Only for a process that has
    /// taken over: the state is the other's before.
    pub fn close_others(&self) {
        let files = self.open_files.all();
        let files: Vec<&OpenFile> = files.iter().map(|file| &**file).collect();
        self.mount.close_others(&files);
    }

    /// Leaves all state at the server to the process that has it now. Nothing can be used afterwards.
    pub async fn detach(&self) {
        self.mount.client().detach().await;
    }
}
