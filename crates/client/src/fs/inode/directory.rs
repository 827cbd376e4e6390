//! Reading directories.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::types::Status;

use super::Inode;
use crate::attributes::{Attributes, FileKind};
use crate::cache::attributes::Started;
use crate::cache::directory::{DirectoryEntry, FIRST_COOKIE, LoopGuard, Method, Page, ReadStarted};
use crate::cache::names::{Lookup, LookupStarted};
use crate::config::Caller;
use crate::error::OpError;
use crate::results::DirPage;

/// Maximum bytes of one reply to a listing: some thousand entries with attributes.
const LISTING_BYTES: u32 = 1 << 20;

/// A directory that is being listed. It needs no release.
#[derive(Debug)]
pub struct OpenDirectory {
    inode: Inode,
    reader: Mutex<Reader>,
}

#[derive(Debug, Default)]
struct Reader {
    verifier: [u8; 8],
    /// Detects cookies that form a loop, while one reader continues.
    guard: LoopGuard,
    /// The end of the last part.
    next_cookie: u64,
}

/// A part of a directory.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Entries in the server's order, without `.` and `..`.
    pub entries: Vec<Entry>,
    /// The cookie to continue from. It may differ from the last entry's.
    pub next_cookie: u64,
    /// Whether the directory ends here.
    pub is_end: bool,
}

/// An entry of a directory.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The name: any bytes but `/` and NUL.
    pub name: Bytes,
    /// The object's number in its file system (`st_ino`).
    pub fileid: u64,
    /// The cookie to continue after this entry.
    pub cookie: u64,
    /// The type, if it is known.
    pub kind: Option<FileKind>,
    /// The object and its attributes, if they are known.
    pub object: Option<(Inode, Attributes)>,
}

/// A READDIR in progress.
struct Reading {
    attributes: Started,
    /// `None` if the cache does not know the directory, so that it cannot cache the result.
    cache: Option<(ReadStarted, LookupStarted)>,
    cookie: u64,
    is_plus: bool,
}

impl Inode {
    /// Opens a directory to list it.
    ///
    /// # Errors
    /// [`Status::NOTDIR`].
    pub fn open_directory(&self) -> Result<OpenDirectory, OpError> {
        if self.kind() != FileKind::Directory {
            return Err(OpError::Status(Status::NOTDIR));
        }
        Ok(OpenDirectory { inode: self.clone(), reader: Mutex::default() })
    }
}

impl OpenDirectory {
    /// Returns the directory.
    #[must_use]
    pub fn inode(&self) -> &Inode {
        &self.inode
    }

    /// Returns the verifier of the cookies.
    pub(super) fn verifier(&self) -> [u8; 8] {
        self.reader.lock().verifier
    }

    /// Continues with cookies of this verifier.
    pub(super) fn continue_with(&self, verifier: [u8; 8]) {
        self.reader.lock().verifier = verifier;
    }

    /// Reads the part that follows `cookie`: 0, or one of an earlier part's entries. `wants_attributes` tells whether the
    /// caller uses the attributes of the entries: then READDIRPLUS is sent when the directory is read for the first
    /// time, and after it changed.
    ///
    /// # Errors
    /// As getdents(2). [`OpError::BadReply`] if the server's cookies form a loop.
    pub async fn read(
        &self,
        caller: &Caller,
        cookie: u64,
        wants_attributes: bool,
    ) -> Result<Listing, OpError> {
        let own_verifier = self.start(cookie)?;
        let cached = self.read_cached(caller, cookie).await?;
        self.inode.mount.shared.counts.listings.note(cached.is_some());
        if let Some(listing) = cached {
            self.reader.lock().next_cookie = listing.next_cookie;
            return Ok(listing);
        }
        let (reading, verifier) = self.start_reading(cookie, wants_attributes, own_verifier);
        let bytes = self.inode.mount.info().read_max.min(LISTING_BYTES);
        let (client, handle) = (self.inode.client(), self.inode.handle());
        let read = client.read_directory(caller, handle, (cookie, verifier), bytes, reading.is_plus).await;
        let page = read.inspect_err(|error| {
            self.forget_listing();
            self.inode.forget_if_stale(error);
        })?;
        if !page.eof && page.next_cookie == cookie {
            return Err(looping());
        }
        {
            let mut reader = self.reader.lock();
            (reader.verifier, reader.next_cookie) = (page.verifier, page.next_cookie);
        }
        self.take_page(reading, page)
    }

    /// Notes the reader's position and returns the verifier of the cookie.
    fn start(&self, cookie: u64) -> Result<[u8; 8], OpError> {
        let mut reader = self.reader.lock();
        if cookie == FIRST_COOKIE {
            // From the beginning again (rewinddir(3)).
            *reader = Reader::default();
        }
        if cookie == reader.next_cookie {
            reader.guard.visit(cookie).map_err(|_| looping())?;
        } else {
            // A jump back begins another walk.
            reader.guard = LoopGuard::default();
        }
        Ok(reader.verifier)
    }

    /// Returns a part that is cached, if the server reports that the directory has not changed since.
    async fn read_cached(&self, caller: &Caller, cookie: u64) -> Result<Option<Listing>, OpError> {
        let Some((mut page, is_valid)) = self.cached_page(cookie) else { return Ok(None) };
        if !is_valid {
            self.inode.refresh(caller).await?;
            match self.cached_page(cookie) {
                Some((valid, _)) if !self.inode.is_undecided() => page = valid,
                Some(_) | None => return Ok(None),
            }
        }
        let entries = page.entries.iter().map(|entry| self.entry(entry)).collect();
        Ok(Some(Listing { entries, next_cookie: page.next_cookie, is_end: page.end }))
    }

    /// Returns a cached part, and whether it may be used without a request.
    fn cached_page(&self, cookie: u64) -> Option<(Page, bool)> {
        let (directory, now) = (self.inode.node.id, self.inode.mount.now());
        if !self.inode.mount.shared.caches_names {
            return None;
        }
        let held = self.inode.client().delegation(&self.inode.handle());
        let state = self.inode.mount.shared.state.lock();
        let attributes = &state.metadata.attributes;
        let epoch = attributes.epoch(directory)?;
        let is_delegated = held.is_some_and(|held| attributes.is_delegated(directory, held.id));
        let page = state.metadata.directories.page(directory, epoch, cookie)?.clone();
        Some((page, is_delegated || attributes.is_fresh(directory, now)))
    }

    /// Returns an entry of a cached part, with attributes if they are fresh.
    fn entry(&self, entry: &DirectoryEntry) -> Entry {
        let (directory, now) = (self.inode.node.id, self.inode.mount.now());
        let node = {
            let state = self.inode.mount.shared.state.lock();
            let metadata = &state.metadata;
            let by_name = || {
                let epoch = metadata.attributes.epoch(directory)?;
                match metadata.names.lookup(directory, epoch, &entry.name) {
                    Lookup::Found(file) => Some(file),
                    Lookup::Absent | Lookup::Unknown => None,
                }
            };
            entry.file.or_else(by_name).and_then(|file| state.table.by_id(file))
        };
        let object = node.and_then(|node| {
            let inode = self.inode.mount.inode_of(node);
            let attributes = inode.cached_attributes(now)?;
            Some((inode, attributes))
        });
        let kind = object.as_ref().map(|(_, attributes)| attributes.kind).or(entry.kind);
        Entry { name: entry.name.clone(), fileid: entry.fileid, cookie: entry.cookie, kind, object }
    }

    fn start_reading(&self, cookie: u64, wants_attributes: bool, own: [u8; 8]) -> (Reading, [u8; 8]) {
        let (directory, now) = (self.inode.node.id, self.inode.mount.now());
        let mut state = self.inode.mount.shared.state.lock();
        let metadata = &mut state.metadata;
        let attributes = metadata.attributes.start(now);
        let cache = metadata.attributes.epoch(directory).map(|epoch| {
            let started = metadata.directories.start(directory, epoch, cookie);
            let started = if wants_attributes { started } else { started.names_only() };
            (started, metadata.names.start(epoch))
        });
        let is_plus = cache.map_or(wants_attributes, |(started, _)| started.method() == Method::ReaddirPlus);
        let known = metadata.directories.verifier(directory).filter(|_| own == [0; 8]);
        let verifier = if cookie == FIRST_COOKIE { [0; 8] } else { known.unwrap_or(own) };
        (Reading { attributes, cache, cookie, is_plus }, verifier)
    }

    /// Stores a part from the server in the caches.
    fn take_page(&self, reading: Reading, page: DirPage) -> Result<Listing, OpError> {
        let (directory, mount, now) = (self.inode.node.id, &self.inode.mount, self.inode.mount.now());
        let mut state = mount.shared.state.lock();
        if let Some(attributes) = page.directory {
            state.update(directory, reading.attributes, attributes, now);
        }
        let (mut entries, mut cached) = (Vec::with_capacity(page.entries.len()), Vec::new());
        for entry in page.entries {
            let node = entry.object.map(|object| (state.node(&object), object.attributes));
            if let Some((node, attributes)) = &node {
                state.update(node.id, reading.attributes, *attributes, now);
                if let Some((_, names_started)) = reading.cache {
                    let names = &mut state.metadata.names;
                    names.looked_up(names_started, directory, &entry.name, Some(node.id));
                }
            }
            let (kind, file) = (node.as_ref().map(|node| node.1.kind), node.as_ref().map(|node| node.0.id));
            // A copy: a slice would keep the whole reply in memory.
            let name = Bytes::copy_from_slice(&entry.name);
            let (fileid, cookie) = (entry.fileid, entry.cookie);
            cached.push(DirectoryEntry { name: name.clone(), cookie, fileid, kind, file });
            let object = node.map(|(node, attributes)| {
                let seen = state.seen(node.id, attributes);
                (mount.inode_of(node), seen)
            });
            entries.push(Entry { name, fileid, cookie, kind, object });
        }
        if let Some((started, _)) = reading.cache {
            let entries: Arc<[DirectoryEntry]> = cached.into();
            let cached = Page { entries, next_cookie: page.next_cookie, end: page.eof };
            state.metadata.directories.insert(started, page.verifier, cached).map_err(|_| looping())?;
        }
        debug_assert!(reading.cookie != page.next_cookie || page.eof);
        Ok(Listing { entries, next_cookie: page.next_cookie, is_end: page.eof })
    }

    /// Drops the cached listing: the server may have refused one of its cookies.
    fn forget_listing(&self) {
        self.inode.mount.shared.state.lock().metadata.directories.invalidate(self.inode.node.id);
    }
}

fn looping() -> OpError {
    OpError::BadReply("a listing whose cookies form a loop")
}
