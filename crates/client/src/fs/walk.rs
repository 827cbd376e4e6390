//! Walks over a tree: many directories are listed at a time, so that the number of round trips depends on the tree's depth.

use std::collections::VecDeque;

use super::{FileSystem, Listing};
use crate::attributes::FileKind;
use crate::error::{Error, OpError};
use crate::results::{DirEntry, Object};

/// Directories that are listed at a time.
const LISTINGS_MAX: usize = 256;

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

/// A walk over a tree. Directories come in no particular order, each after its parent. It remembers the directories that wait
/// to be listed, the listings of at most [`LISTINGS_MAX`] directories, and one whole listing.
pub struct Walk<'a> {
    fs: &'a FileSystem,
    /// The last ones are listed next, so that few wait in a large tree.
    waiting: Vec<(Vec<u8>, Object)>,
    /// Directories that were listed and not returned yet. No listing is under way between two calls of [`Self::next`]: it could
    /// hold a place in the queue for slots that the caller's own requests need.
    listed: VecDeque<(Vec<u8>, Object, Result<Listing, OpError>)>,
    depth_max: usize,
}

impl FileSystem {
    /// Walks over the tree below `start`. Symbolic links are not followed. Directories more than `depth_max` levels below are
    /// not listed.
    pub fn walk(&self, start: Object, depth_max: usize) -> Walk<'_> {
        Walk { fs: self, waiting: vec![(Vec::new(), start)], listed: VecDeque::new(), depth_max }
    }
}

impl Walk<'_> {
    /// Returns the next directory; `None` at the end. After an error about one directory the walk continues.
    pub async fn next(&mut self) -> Option<Result<Listed, Error>> {
        if self.listed.is_empty() {
            let next = self.waiting.split_off(self.waiting.len().saturating_sub(LISTINGS_MAX));
            let directories: Vec<Object> = next.iter().map(|(_, directory)| *directory).collect();
            let listings = self.fs.list_many(&directories).await;
            let with_listing = |((path, directory), listing)| (path, directory, listing);
            self.listed.extend(next.into_iter().zip(listings).map(with_listing));
        }
        let (path, directory, listing) = self.listed.pop_front()?;
        let entries = match listing {
            Ok(listing) => self.fs.list_whole(&directory, listing).await,
            Err(error) => Err(error),
        };
        let entries = match entries {
            Ok(entries) => entries,
            Err(cause) => return Some(Err(self.fs.failed("list", &path, cause))),
        };
        let listed = Listed { path, directory, entries };
        self.add_directories(&listed);
        Some(Ok(listed))
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
            self.waiting.push((path, object));
        }
    }
}
