//! Reads trees of a server in depth-first order, with many directories listed ahead in each round trip.

use std::collections::{HashMap, VecDeque};

use client::attributes::FileKind;
use client::error::OpError;
use client::fs::FileSystem;
use client::results::{DirEntry, FileHandle, Object};

/// Directories that are listed together.
const LISTED_MAX: usize = 256;
/// Maximum number of entries of directories that were listed ahead. With more, only the next directory is listed.
const AHEAD_MAX: usize = 1 << 17;

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
    /// Its directory; `None` for the start itself.
    pub parent: Option<FileHandle>,
}

impl Entry {
    /// Creates the start of a walk.
    pub fn start(object: Object) -> Self {
        Self { path: Vec::new(), depth: 0, object, parent: None }
    }

    /// Returns whether this is a directory.
    pub fn is_directory(&self) -> bool {
        self.object.attributes.kind == FileKind::Directory
    }

    /// Returns an entry of this directory.
    pub fn child(&self, name: &[u8], object: Object) -> Self {
        let separator: &[u8] = if self.path.is_empty() { b"" } else { b"/" };
        Self {
            path: [&self.path, separator, name].concat(),
            depth: self.depth + 1,
            object,
            parent: Some(self.object.handle),
        }
    }
}

/// A step of a walk.
#[derive(Debug)]
pub enum Step {
    /// An object, before its entries. [`Walk::descend`] goes into a directory.
    Enter(Entry),
    /// A directory, after its entries.
    Leave(Entry),
}

/// A walk through a tree in depth-first order, which the caller directs.
pub struct Walk {
    fs: FileSystem,
    stack: Vec<Step>,
    max_depth: usize,
    /// Directories that are known and not listed; those that the walk probably reaches next come first.
    known: VecDeque<Entry>,
    /// Listings that the walk has not reached, by path.
    ahead: HashMap<Vec<u8>, Result<client::fs::Listing, OpError>>,
    /// The entries of `ahead`.
    entries_ahead: usize,
}

impl Walk {
    /// Starts a walk. Directories at `max_depth` will not be listed ahead.
    pub fn new(fs: FileSystem, start: Entry, max_depth: usize) -> Self {
        let stack = vec![Step::Enter(start)];
        Self { fs, stack, max_depth, known: VecDeque::new(), ahead: HashMap::new(), entries_ahead: 0 }
    }

    /// Returns the next step.
    pub fn next(&mut self) -> Option<Step> {
        self.stack.pop()
    }

    /// Lists a directory. [`Self::descend`] then goes into it.
    ///
    /// # Errors
    /// The directory cannot be listed; the walk continues after it.
    pub async fn list(&mut self, directory: &Entry) -> Result<Listing, OpError> {
        if !self.ahead.contains_key(&directory.path) {
            self.list_ahead(directory).await;
        }
        let listing = self.take_ahead(&directory.path).unwrap_or(Ok(client::fs::Listing::default()))?;
        let entries = self.fs.list_whole(&directory.object, listing).await?;
        Ok(entries.into_iter().filter_map(named).collect())
    }

    /// Lists a directory and others that the walk may reach later.
    async fn list_ahead(&mut self, directory: &Entry) {
        self.known.retain(|known| known.path != directory.path);
        let more = if self.entries_ahead < AHEAD_MAX { LISTED_MAX - 1 } else { 0 };
        let more = self.known.drain(..self.known.len().min(more));
        let group: Vec<Entry> = std::iter::once(directory.clone()).chain(more).collect();
        let objects: Vec<Object> = group.iter().map(|entry| entry.object).collect();
        let listings = self.fs.list_many(&objects).await;
        let mut found = VecDeque::new();
        for (entry, listing) in group.into_iter().zip(listings) {
            let entries = listing.as_ref().map_or(&[][..], |listing| &listing.entries);
            self.entries_ahead += entries.len();
            if entry.depth + 1 < self.max_depth {
                let children =
                    entries.iter().filter_map(|child| Some(entry.child(&child.name, child.object?)));
                found.extend(children.filter(Entry::is_directory));
            }
            self.ahead.insert(entry.path, listing);
        }
        found.append(&mut self.known);
        self.known = found;
    }

    fn take_ahead(&mut self, path: &[u8]) -> Option<Result<client::fs::Listing, OpError>> {
        let listing = self.ahead.remove(path)?;
        self.entries_ahead -= listing.as_ref().map_or(0, |listing| listing.entries.len());
        Some(listing)
    }

    /// Makes the entries of a directory the next steps, and the directory's [`Step::Leave`] the one after them.
    pub fn descend(&mut self, entry: Entry, listing: Listing) {
        let children: Vec<Step> =
            listing.into_iter().rev().map(|(name, object)| Step::Enter(entry.child(&name, object))).collect();
        self.stack.push(Step::Leave(entry));
        self.stack.extend(children);
    }

    /// Notes that the walk does not go into an object.
    pub fn skip(&mut self, entry: &Entry) {
        if !entry.is_directory() {
            return;
        }
        let below = [&entry.path, &b"/"[..]].concat();
        let is_skipped = |path: &[u8]| path == entry.path || path.starts_with(&below);
        self.known.retain(|known| !is_skipped(&known.path));
        let skipped: Vec<Vec<u8>> = self.ahead.keys().filter(|path| is_skipped(path)).cloned().collect();
        for path in skipped {
            self.take_ahead(&path);
        }
    }
}

/// Returns an entry whose object is known, which is that of all entries of whole listings.
pub fn named(entry: DirEntry) -> Option<(Vec<u8>, Object)> {
    Some((entry.name.to_vec(), entry.object?))
}
