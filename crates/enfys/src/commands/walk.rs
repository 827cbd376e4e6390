//! Reads trees of a server, with the listings of the next directories under way.

use client::attributes::FileKind;
use client::error::OpError;
use client::fs::FileSystem;
use client::results::Object;
use futures_util::future::try_join_all;
use tokio::task::JoinHandle;

/// Listings that are under way, or wait to be used.
const PREFETCHED_MAX: usize = 64;

/// The entries of a directory: names and objects.
pub type Listing = Vec<(Vec<u8>, Object)>;

/// An object in a tree.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Path below the start; empty for the start itself.
    pub path: Vec<u8>,
    /// Directories between the start and this; 0 for the start itself.
    pub depth: usize,
    pub object: Object,
}

impl Entry {
    /// Creates the start of a walk.
    pub fn start(object: Object) -> Self {
        Self { path: Vec::new(), depth: 0, object }
    }

    /// Whether this is a directory.
    pub fn is_directory(&self) -> bool {
        self.object.attributes.kind == FileKind::Directory
    }

    fn child(&self, name: &[u8], object: Object) -> Self {
        let separator: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
        Self { path: [&self.path, separator, name].concat(), depth: self.depth + 1, object }
    }
}

/// A step of a walk.
#[derive(Debug)]
pub enum Step {
    /// An object, before its entries. [`Walk::descend`] goes into a directory.
    Enter(Node),
    /// A directory, after its entries.
    Leave(Entry),
}

/// An object that was reached, perhaps with its listing under way.
#[derive(Debug)]
pub struct Node {
    pub entry: Entry,
    listing: Option<JoinHandle<Result<Listing, OpError>>>,
}

/// A walk through a tree in depth-first order, which the caller directs.
pub struct Walk {
    fs: FileSystem,
    stack: Vec<Step>,
    max_depth: usize,
    prefetched: usize,
}

impl Walk {
    /// Starts a walk. Directories at `max_depth` will not be listed ahead.
    pub fn new(fs: FileSystem, start: Entry, max_depth: usize) -> Self {
        let stack = vec![Step::Enter(Node { entry: start, listing: None })];
        Self { fs, stack, max_depth, prefetched: 0 }
    }

    /// Returns the next step. Must run in a [`tokio::task::LocalSet`].
    pub fn next(&mut self) -> Option<Step> {
        self.prefetch();
        self.stack.pop()
    }

    /// Lists a directory and goes into it. Returns the listing.
    ///
    /// # Errors
    /// The directory cannot be listed; the walk continues after it.
    pub async fn list(&mut self, node: &mut Node) -> Result<Listing, OpError> {
        match node.listing.take() {
            Some(task) => {
                self.prefetched -= 1;
                task.await.unwrap_or(Err(OpError::BadReply("a listing that ended early")))
            }
            None => list(&self.fs, &node.entry.object).await,
        }
    }

    /// Makes the entries of a directory the next steps, and the directory's [`Step::Leave`] the one after them.
    pub fn descend(&mut self, entry: Entry, listing: Listing) {
        let children: Vec<Step> = listing
            .into_iter()
            .rev()
            .map(|(name, object)| Step::Enter(Node { entry: entry.child(&name, object), listing: None }))
            .collect();
        self.stack.push(Step::Leave(entry));
        self.stack.extend(children);
    }

    /// Notes that a node is not gone into.
    pub fn skip(&mut self, node: Node) {
        if let Some(task) = node.listing {
            self.prefetched -= 1;
            task.abort();
        }
    }

    /// Starts the listings of the next directories.
    fn prefetch(&mut self) {
        for step in self.stack.iter_mut().rev().take(PREFETCHED_MAX) {
            if self.prefetched >= PREFETCHED_MAX {
                return;
            }
            if let Step::Enter(node) = step
                && node.listing.is_none()
                && node.entry.is_directory()
                && node.entry.depth < self.max_depth
            {
                let (fs, object) = (self.fs.clone(), node.entry.object);
                node.listing = Some(tokio::task::spawn_local(async move { list(&fs, &object).await }));
                self.prefetched += 1;
            }
        }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        for step in self.stack.drain(..) {
            if let Step::Enter(Node { listing: Some(task), .. }) = step {
                task.abort();
            }
        }
    }
}

/// Lists a directory with the attributes of all entries, in the server's order.
///
/// # Errors
/// The server's status. An entry that vanishes meanwhile is left out.
pub async fn list(fs: &FileSystem, directory: &Object) -> Result<Listing, OpError> {
    let entries = fs.list(directory, true).await?;
    let objects = entries.into_iter().map(async |entry| {
        let object = match entry.object {
            Some(object) => object,
            // The server may leave attributes out (RFC 1813 §3.3.17).
            None => match fs.client().lookup(fs.caller(), directory.handle, &entry.name).await {
                Ok(object) => object,
                Err(error) if error.errno() == client::errno::Errno::ENOENT => return Ok(None),
                Err(error) => return Err(error),
            },
        };
        Ok(Some((entry.name.to_vec(), object)))
    });
    Ok(try_join_all(objects).await?.into_iter().flatten().collect())
}
