//! Walks over a tree: many directories are listed at a time, so that a walk takes round trips by the tree's depth.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::FileSystem;
use crate::attributes::FileKind;
use crate::error::Error;
use crate::results::{DirEntry, Object};

/// Directories that are listed at a time.
const LISTINGS_MAX: usize = 64;

/// A directory that a walk has listed.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its path from the walk's start; empty for the start itself.
    pub path: Vec<u8>,
    /// The directory.
    pub directory: Object,
    /// Its entries with handles and attributes, in the server's order.
    pub entries: Vec<DirEntry>,
}

type Listing<'a> = Pin<Box<dyn Future<Output = Result<Listed, Error>> + Send + 'a>>;

/// A walk over a tree. Directories come in no particular order, each after its parent.
pub struct Walk<'a> {
    fs: &'a FileSystem,
    waiting: VecDeque<(Vec<u8>, Object)>,
    /// Directories that were listed and not returned yet. No listing is under way between two calls of [`Self::next`]: it could
    /// hold a place in the queue for slots that the caller's own requests need.
    listed: VecDeque<Result<Listed, Error>>,
    depth_max: usize,
}

impl FileSystem {
    /// Walks over the tree below `start`. Symbolic links are not followed. Directories more than `depth_max` levels below are
    /// not listed.
    pub fn walk(&self, start: Object, depth_max: usize) -> Walk<'_> {
        let waiting = VecDeque::from([(Vec::new(), start)]);
        Walk { fs: self, waiting, listed: VecDeque::new(), depth_max }
    }

    async fn list_for_walk(&self, path: Vec<u8>, directory: Object) -> Result<Listed, Error> {
        match self.list_whole(&directory).await {
            Ok(entries) => Ok(Listed { path, directory, entries }),
            Err(cause) => Err(self.failed("list", &path, cause)),
        }
    }

    /// Lists a directory; handles and attributes that the server left out are looked up.
    async fn list_whole(&self, directory: &Object) -> Result<Vec<DirEntry>, crate::error::OpError> {
        let mut entries = self.list(directory, true).await?;
        let missing: Vec<usize> = (0..entries.len()).filter(|at| entries[*at].object.is_none()).collect();
        let names: Vec<_> = missing.iter().map(|at| (directory.handle, &entries[*at].name[..])).collect();
        let found = match names.is_empty() {
            true => Vec::new(),
            false => self.client().stat_many(self.caller(), &names).await,
        };
        for (at, object) in missing.into_iter().zip(found) {
            // One that cannot be looked up stays an entry without attributes: it may have been removed meanwhile.
            entries[at].object = object.ok();
        }
        Ok(entries)
    }
}

impl Walk<'_> {
    /// Returns the next directory; `None` at the end. After an error about one directory the walk continues.
    pub async fn next(&mut self) -> Option<Result<Listed, Error>> {
        if self.listed.is_empty() {
            let count = self.waiting.len().min(LISTINGS_MAX);
            let mut running: FuturesUnordered<Listing<'_>> = FuturesUnordered::new();
            for (path, directory) in self.waiting.drain(..count) {
                running.push(Box::pin(self.fs.list_for_walk(path, directory)));
            }
            while let Some(listed) = running.next().await {
                self.listed.push_back(listed);
            }
        }
        let listed = self.listed.pop_front()?;
        if let Ok(listed) = &listed {
            self.add_directories(listed);
        }
        Some(listed)
    }

    fn add_directories(&mut self, listed: &Listed) {
        let depth = if listed.path.is_empty() { 0 } else { listed.path.split(|byte| *byte == b'/').count() };
        if depth >= self.depth_max {
            return;
        }
        for entry in &listed.entries {
            let Some(object) = entry.object.filter(|object| object.attributes.kind == FileKind::Directory)
            else {
                continue;
            };
            let mut path = listed.path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            self.waiting.push_back((path, object));
        }
    }
}
