//! The file system of the mount, as asynchronous operations with the requests and answers of FUSE.
//!
//! Nothing here knows `/dev/fuse` or a runtime: tests call the operations directly.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use client::attributes::{Attributes, FileKind};
use client::config::{Caller, Version};
use client::error::OpError;
use client::fs::inode::{Inode, Mount, OpenFile};
use fuse::{Entry, Errno, FileHandle, Forget, NodeId, Notifier};
use parking_lot::Mutex;

use crate::cached_names::{CachedNames, Target};
use crate::callers::{Callers, Identity};
use crate::convert::View;
use crate::handles::{Directory, Handles};
use crate::ids::IdMap;
use crate::invalidator::{Invalidator, Unused};
use crate::nodes::{Node, Nodes, node_id};

mod attributes;
mod content;
mod directories;
mod hand_over;
mod lists;
mod locks;
mod names;
mod space;
#[cfg(test)]
mod tests;
mod xattrs;

pub use hand_over::FilesState;

/// First number of open directories; those of files are lower.
const DIRECTORIES_FROM: u64 = 1 << 63;

/// The options of a mount.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The identity of requests at the server.
    pub identity: Identity,
    /// Users with another number at the server.
    pub users: IdMap,
    /// Groups with another number at the server.
    pub groups: IdMap,
    /// Whether the kernel may cache that a name is missing.
    pub caches_missing_names: bool,
    /// Whether access control lists are extended attributes in versions below 4.2 too. The kernel then asks for an attribute at
    /// each write.
    pub has_lists: bool,
    /// The caller of requests that need no rights: for attributes, for free space.
    pub machine: Caller,
    /// A random number, which makes exclusive creations of this mount differ from those of others.
    pub seed: u64,
}

/// A directory of a server, for the kernel.
pub struct Files {
    mount: Mount,
    nodes: Nodes,
    cached_names: Arc<CachedNames>,
    open_files: Handles<OpenFile>,
    open_directories: Handles<Directory>,
    callers: Callers,
    view: View,
    caches_missing_names: bool,
    has_lists: bool,
    machine: Caller,
    verifiers: AtomicU64,
    /// Owners of fcntl locks, by the file they locked. The kernel bounds them, by its open files.
    lockers: Mutex<HashSet<(NodeId, fuse::LockOwner)>>,
    invalidator: Arc<OnceLock<Invalidator>>,
}

/// State that an answer grants to the kernel, which is released if the answer is not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    Nothing,
    /// One lookup of each inode.
    Lookups(Vec<NodeId>),
    Open(FileHandle),
    Created(NodeId, FileHandle),
}

impl Files {
    /// Takes the root of `mount` as root.
    ///
    /// # Errors
    /// If the root's attributes cannot be read.
    pub async fn new(mount: Mount, settings: Settings) -> Result<Self, OpError> {
        let root = mount.root();
        let attributes = root.attributes(&settings.machine).await?;
        let Settings { identity, users, groups, caches_missing_names, has_lists, machine, seed } = settings;
        Ok(Self {
            nodes: Nodes::new(root, mount.objects_max()),
            cached_names: Arc::default(),
            open_files: Handles::from(0),
            open_directories: Handles::from(DIRECTORIES_FROM),
            callers: Callers::new(identity, users.clone(), groups.clone()),
            view: View::new(users, groups, attributes.fsid, &mount.info()),
            caches_missing_names,
            has_lists,
            machine,
            verifiers: AtomicU64::new(seed),
            lockers: Mutex::default(),
            invalidator: Arc::default(),
            mount,
        })
    }

    /// Sets the device through which the kernel's caches are invalidated.
    ///
    /// # Errors
    /// EAGAIN if no thread can be started.
    pub fn set_notifier(&self, notifier: Notifier) -> io::Result<()> {
        // One session serves a mount.
        let _ = self.invalidator.set(Invalidator::start(notifier, Arc::clone(&self.cached_names))?);
        let invalidator = Arc::clone(&self.invalidator);
        self.mount.observe(move |outdated| {
            if let Some(invalidator) = invalidator.get() {
                invalidator.expire(NodeId(outdated.file.0), outdated.names);
            }
        });
        Ok(())
    }

    /// Returns the version of NFS in use.
    pub fn version(&self) -> Version {
        self.mount.client().version()
    }

    /// Returns the client's mount.
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// Returns the number of inodes that the kernel knows besides the root.
    pub fn known_inodes(&self) -> usize {
        self.nodes.len()
    }

    /// Subtracts lookups that the kernel has forgotten.
    pub(crate) fn forget(&self, forgets: &[Forget]) {
        for forget in forgets {
            self.nodes.forget(*forget);
        }
    }

    /// Releases the state granted by an answer that was not delivered.
    pub(crate) async fn take_back(&self, granted: Granted) {
        match granted {
            Granted::Nothing => {}
            Granted::Lookups(nodes) => nodes.into_iter().for_each(|node| self.forget_one(node)),
            Granted::Open(handle) => self.close(handle).await,
            Granted::Created(node, handle) => {
                self.close(handle).await;
                self.forget_one(node);
            }
        }
    }

    fn forget_one(&self, node: NodeId) {
        self.nodes.forget(Forget { node, lookups: 1 });
    }

    /// Ends an open file or directory.
    async fn close(&self, handle: FileHandle) {
        if handle.0 >= DIRECTORIES_FROM {
            drop(self.open_directories.take(handle));
        } else if let Some(file) = self.open_files.take(handle)
            && let Err(error) = file.release().await
        {
            // Its data were flushed before, and those errors were reported.
            tracing::debug!(%error, "cannot close a file at the server");
        }
    }

    /// Makes all written data stable, and closes all files: the mount ends.
    pub async fn shut_down(&self) {
        for file in self.open_files.all() {
            if let Err(error) = file.flush().await {
                tracing::error!(%error, fileid = file.opened_attributes().fileid, "data of a file are lost");
            }
            // The server ends remaining state with the client.
            let _ = file.release().await;
        }
    }

    /// Returns the credential of a program.
    fn caller(&self, program: fuse::Caller) -> Caller {
        self.callers.caller(program)
    }

    /// Counts a lookup, and returns the entry of a directory for the kernel, which may use it as long as the client does.
    fn entry(&self, directory: &Inode, name: &[u8], inode: &Inode, attributes: &Attributes) -> Entry {
        let node = self.nodes.look_up(inode);
        let target = match attributes.kind {
            FileKind::Directory => Target::Directory(node.id()),
            _ => Target::Other(node.id()),
        };
        self.cached_names.insert(node_id(directory), name, target);
        self.forget_unused();
        node.grant(attributes);
        Entry {
            node: node.id(),
            generation: 0,
            attributes: self.view.attributes(attributes),
            entry_timeout: directory.names_usable_for(),
            attribute_timeout: inode.attributes_usable_for(),
        }
    }

    /// Returns attributes for the kernel.
    fn granted(&self, node: &Node, attributes: &Attributes) -> fuse::GrantedAttributes {
        node.grant(attributes);
        fuse::GrantedAttributes {
            attributes: self.view.attributes(attributes),
            timeout: node.inode.attributes_usable_for(),
        }
    }

    /// Makes the kernel request attributes before it uses them again. Waits for no request.
    fn expire_attributes(&self, node: NodeId) {
        if let Some(invalidator) = self.invalidator.get() {
            invalidator.expire_attributes(node);
        }
    }

    /// Drops the kernel's caches of a file.
    async fn drop_pages(&self, node: NodeId) {
        if let Some(invalidator) = self.invalidator.get() {
            invalidator.drop_pages(node).await;
        }
    }

    /// As [`Self::drop_pages`], without waiting: the kernel waits for requests that write pages.
    fn drop_pages_later(&self, node: NodeId) {
        if let Some(invalidator) = self.invalidator.get() {
            invalidator.drop_pages_later(node);
        }
    }

    /// Asks the kernel to forget unused inodes and names if it knows too many for the memory budget.
    fn forget_unused(&self) {
        let Some(invalidator) = self.invalidator.get() else { return };
        let forgets_nodes = invalidator.forgets_nodes();
        let open = || self.open_files.all().iter().map(|file| node_id(file.inode())).collect();
        invalidator.drop_unused(Unused {
            nodes: if forgets_nodes { self.nodes.surplus() } else { Vec::new() },
            names: self.nodes.surplus_names(&self.cached_names, forgets_nodes, open),
        });
    }

    /// Returns bytes that no other exclusive creation has.
    fn verifier(&self) -> [u8; 8] {
        self.verifiers.fetch_add(1, Ordering::Relaxed).to_be_bytes()
    }
}

/// Returns the error number for the kernel.
pub(crate) fn errno(error: &OpError) -> Errno {
    let errno = crate::convert::errno(error);
    if matches!(error, OpError::BadReply(_)) {
        tracing::error!(%error, "the server's reply cannot be used");
    } else {
        tracing::trace!(%error, ?errno, "operation failed");
    }
    errno
}
