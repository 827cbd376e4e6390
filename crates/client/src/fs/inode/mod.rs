//! Files and directories of a server as objects, without paths and for any caller. The path-based
//! [`FileSystem`](super::FileSystem) and adapters such as FUSE use this.
//!
//! - [`Mount`] is a directory of a server with everything below it.
//! - [`Inode`] is one object of it. There is one per file handle; clones are the same. Operations on names are methods of the
//!   directory, operations on attributes methods of the object. Each takes the [`Caller`] of the request.
//! - [`OpenFile`] is an open file description, [`OpenDirectory`] a directory that is being listed.
//!
//! Errors are [`OpError`]s, whose `errno` is the one of the system call.

use std::collections::HashMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::attributes::FileKind;
use crate::block_store::{BlockCounts, BlockStore};
use crate::cache::FileId;
use crate::cache::counts::{CacheCounters, CacheCounts};
use crate::cache::limiter::Limiter;
use crate::cache::metadata::Metadata;
use crate::cache::names::LookupCache;
use crate::client::Client;
use crate::config::Caller;
use crate::delegations::DelegatedCache;
use crate::errno::Errno;
use crate::error::OpError;
use crate::results::{FileHandle, FsInfo, Object};
use crate::write::{Settings, WriteBehind};

mod access;
mod attributes;
mod delegated;
mod direct;
mod directory;
mod flusher;
mod hand_over;
mod hidden_name;
mod lock;
mod names;
mod open;
mod read;
mod space;
mod state;
mod table;
mod truncate;
mod uncommitted;
mod unlinked;
mod write;
mod xattr;

pub use directory::{Entry, Listing, OpenDirectory};
pub use lock::FLOCK_NUMBERS;
pub use open::{OpenFile, OpenFlags};

use access::AccessCache;
use flusher::Flusher;
pub use state::Outdated;
use state::State;
use table::{Node, Table};

/// A directory of a server with everything below it. Clones are the same.
#[derive(Clone)]
pub struct Mount {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    info: FsInfo,
    limiter: Limiter,
    counts: CacheCounters,
    /// Blocks of files that outlive this mount.
    blocks: Option<Arc<dyn BlockStore>>,
    /// Whether data are cached.
    caches_data: bool,
    /// Whether names and listings are cached.
    caches_names: bool,
    /// Whether an open asks the server for the attributes.
    close_to_open: bool,
    state: Mutex<State>,
    root: Arc<Node>,
    flusher: Arc<Flusher>,
    /// Open descriptions of all files.
    open_files: AtomicUsize,
    /// Bytes of uncommitted data that were written without the cache.
    uncommitted_bytes: AtomicU64,
    /// The number of the next name of an open file without a name.
    next_hidden: AtomicU32,
}

/// A file, directory or other object of a [`Mount`]. Clones are the same; two are equal if they are the same object of the
/// same server.
#[derive(Clone)]
pub struct Inode {
    mount: Mount,
    node: Arc<Node>,
}

impl Mount {
    /// Creates a mount whose root is the directory at a path of the server. `caller` must be able to look it up.
    ///
    /// # Errors
    /// As lookups of the names. [`Status::NOTDIR`](protocol::nfs4::types::Status::NOTDIR) if it is not a directory.
    pub async fn new(client: Client, caller: &Caller, path: &[&[u8]]) -> Result<Self, OpError> {
        let (root, info) = client.mount_with_info(caller, path).await?;
        if root.attributes.kind != FileKind::Directory {
            return Err(OpError::Status(protocol::nfs4::types::Status::NOTDIR));
        }
        Ok(Self::at(client, &root, info))
    }

    /// Creates a mount whose root is the directory `root` of the server, on a file system with these properties.
    #[must_use]
    pub fn at(client: Client, root: &Object, info: FsInfo) -> Self {
        client.set_lease(info.lease_seconds);
        let caches = client.config().caches.clone();
        let limiter = caches.memory;
        let mut state = State {
            client: client.clone(),
            table: Table::new(&limiter),
            metadata: Metadata::new(&limiter, caches.metadata),
            writes: WriteBehind::new(write_settings(info.write_max)),
            access: AccessCache::default(),
            fetch_waiters: HashMap::new(),
            truncations: HashMap::new(),
            observer: None,
        };
        let now = client.engine().now();
        let started = state.metadata.attributes.start(now);
        let node = state.node(root);
        state.update(node.id, started, root.attributes, now);
        let shared = Arc::new(Shared {
            client,
            info,
            limiter,
            counts: CacheCounters::default(),
            blocks: caches.blocks,
            caches_data: caches.data,
            close_to_open: caches.metadata.close_to_open,
            caches_names: caches.metadata.lookup != LookupCache::None,
            state: Mutex::new(state),
            root: node,
            flusher: Arc::default(),
            open_files: AtomicUsize::new(0),
            uncommitted_bytes: AtomicU64::new(0),
            next_hidden: AtomicU32::new(0),
        });
        let cache: Weak<dyn DelegatedCache> =
            Arc::downgrade(&(Arc::clone(&shared) as Arc<dyn DelegatedCache>));
        shared.client.add_cache(cache);
        flusher::start(&shared);
        Self { shared }
    }

    /// Returns the root directory.
    #[must_use]
    pub fn root(&self) -> Inode {
        self.inode_of(Arc::clone(&self.shared.root))
    }

    /// Returns whether names are cached.
    pub(in crate::fs) fn caches_names(&self) -> bool {
        self.shared.caches_names
    }

    /// Returns the client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.shared.client
    }

    /// Returns the properties of the root's file system.
    #[must_use]
    pub fn info(&self) -> FsInfo {
        self.shared.info
    }

    /// Checks a name that a caller passes, and that it is not longer than the server's file systems have: some servers answer requests
    /// with longer names as malformed.
    ///
    /// # Errors
    /// [`OpError::Invalid`] with ENAMETOOLONG, and as [`crate::names::check`].
    pub(in crate::fs) fn check_name(&self, name: &[u8]) -> Result<(), OpError> {
        crate::names::check(name)?;
        // A maximum of 0 is unknown.
        if (1..name.len()).contains(&(self.info().name_max as usize)) {
            return Err(OpError::Invalid(
                Errno::ENAMETOOLONG,
                "the name is longer than the server's maximum",
            ));
        }
        Ok(())
    }

    /// Sets a function that the cache calls when attributes or names become invalid before their timeout: another client has changed the
    /// object, or a delegation has ended. The cache holds its locks during the call: the function must not wait, and must not call the
    /// client.
    pub fn observe(&self, observer: impl Fn(Outdated) + Send + Sync + 'static) {
        self.shared.state.lock().observer = Some(Box::new(observer));
    }

    /// Returns the number of objects for which the memory budget has room. More are kept only while they are held.
    #[must_use]
    pub fn objects_max(&self) -> usize {
        self.shared.state.lock().table.nodes_max()
    }

    /// Returns the memory that the process's caches share, with its use.
    #[must_use]
    pub fn memory(&self) -> &Limiter {
        &self.shared.limiter
    }

    /// Returns the uses of this mount's caches so far.
    #[must_use]
    pub fn cache_counts(&self) -> CacheCounts {
        self.shared.counts.all()
    }

    /// Returns the uses of the block store so far; `None` if there is none.
    #[must_use]
    pub fn block_counts(&self) -> Option<BlockCounts> {
        self.shared.blocks.as_ref().map(|blocks| blocks.counts())
    }

    /// Returns the number of files that are open.
    #[must_use]
    pub fn open_files(&self) -> usize {
        self.shared.open_files.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the inode of an object that the server has sent.
    #[must_use]
    pub fn inode(&self, object: &Object) -> Inode {
        let node = self.shared.state.lock().node(object);
        self.inode_of(node)
    }

    /// Returns the inode with this number, if it is still known. Inodes with a holder are always known.
    #[must_use]
    pub fn inode_by_id(&self, id: FileId) -> Option<Inode> {
        let node = self.shared.state.lock().table.by_id(id)?;
        Some(self.inode_of(node))
    }

    fn inode_of(&self, node: Arc<Node>) -> Inode {
        Inode { mount: self.clone(), node }
    }
}

/// The length of a WRITE is a multiple of this, in bytes, unless the server accepts less.
const PAGE: u64 = 4096;

fn write_settings(write_max: u32) -> Settings {
    let wsize = (u64::from(write_max) / PAGE * PAGE).max(PAGE);
    Settings { wsize, ..Settings::default() }
}

impl Inode {
    /// Returns the number of the inode in its mount, which is never used for another object.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.node.id
    }

    /// Returns the server's handle.
    #[must_use]
    pub fn handle(&self) -> FileHandle {
        self.node.handle
    }

    /// Returns the type.
    #[must_use]
    pub fn kind(&self) -> FileKind {
        self.node.kind
    }

    /// Returns the mount.
    #[must_use]
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    fn client(&self) -> &Client {
        &self.mount.shared.client
    }
}

impl PartialEq for Inode {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mount.shared, &other.mount.shared) && self.node.id == other.node.id
    }
}

impl Eq for Inode {}

impl Hash for Inode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.node.id.hash(state);
    }
}

impl fmt::Debug for Inode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inode")
            .field("id", &self.node.id.0)
            .field("kind", &self.node.kind)
            .finish_non_exhaustive()
    }
}
