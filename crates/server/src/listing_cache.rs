//! A cache of replies to READDIR.
//!
//! A listing asks the file system for every entry, which is nearly all of its cost. A client that lists a directory repeatedly mostly
//! gets the same reply. A reply from the cache must be current: changes by this server show at once, in every version; so do changes by
//! others, as far as the backend can see them. If it cannot see them, nothing is cached. No caller learns anything that its own
//! uncached listing would not show.
//!
//! A directory that is listed repeatedly is watched with all its entries ([`vfs::Backend::watch_entries`]) from *before* it is read. The
//! bytes that READDIR then writes are cached under the arguments of the request. Checks before they are sent again:
//! - The backend checks the caller's right to list the directory and to look its entries up, each time.
//! - Then the watch tells whether anything has changed. If so, all cached replies of the directory are dropped.
//! - The reply must not be older than [`MAX_AGE`], which bounds the age of changes that no watch shows (access times, for example).
//!
//! Replies that depend on the caller are not cached: one with the change attribute of the caller's delegation, with an object that could not
//! be read, with free space or ACLs, or with a change attribute that a coarse clock will move by itself.
//!
//! A client with a delegation sees the object as it was at the grant, without later changes of others
//! ([`State::change_of_grant`](crate::state::State::change_of_grant)). A reply made while none of the client's objects differed stays
//! valid for the client as long as nothing changes and the client gets no further delegation. So a reply lists the clients that must
//! not get it ([`Page::is_for`]).
//!
//! Bounds: bytes ([`Settings::cached_listings_bytes`](crate::Settings::cached_listings_bytes), with the kernel's memory for watched entries), and
//! directories. Unused directories are dropped. A directory that changes as often as it is listed is watched more and more rarely. Rejected:
//! a cache of attributes of single entries. LOOKUP and GETATTR could use it too, but encoding a thousand of them takes longer than all of
//! this.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::types::{Bitmap, ClientId};
use vfs::{EntriesWatch, Handle, Verifier};

use crate::{ExportId, ExportTable};

/// The greatest age of a reply, and so the delay of changes that the backend's watch does not show.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(1);
/// The time for which a directory remains watched after its last listing.
pub(crate) const IDLE: Duration = Duration::from_secs(10);
/// Maximum time between two listings of a directory that count as repeated.
pub(crate) const REPEAT_INTERVAL_MAX: Duration = Duration::from_secs(10);
/// Listings after which a directory is watched, at first.
pub(crate) const FIRST_WANTED: u32 = 2;
/// The number doubles each time a watch was hardly used, up to this.
pub(crate) const MOST_WANTED: u32 = 64;
/// Listings from the cache after which a watch was worth its cost, which is about one and a half listings.
pub(crate) const WORTH_IT: u32 = 4;
/// Directories watched at once: each takes a descriptor, and in Linux one of a user's 128 groups.
pub(crate) const MAX_DIRECTORIES: usize = 32;
/// Directories whose listings are counted.
pub(crate) const MAX_COUNTED: usize = 1024;
/// Bytes charged for a watched entry: about the size of an inode and a mark in Linux.
const ENTRY_BYTES: usize = 1536;
/// Bytes charged for a reply besides its own.
const PAGE_BYTES: usize = 256;
/// Maximum number of clients that a reply excludes. With more, it is for no client that holds a delegation.
pub(crate) const MAX_EXCEPT: usize = 16;

/// The procedure or operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Version 3's.
    Nfs3,
    /// Version 3's READDIRPLUS.
    Nfs3Plus,
    /// Version 4's, of this minor version.
    Nfs4(u32),
}

/// Everything that a reply depends on, besides the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) kind: Kind,
    pub(crate) cookie: u64,
    pub(crate) verifier: Verifier,
    /// Requested attributes, in version 4.
    pub(crate) mask: Bitmap,
    /// Whether attributes of entries are requested.
    pub(crate) plus: bool,
    /// Limits in bytes for names with cookies and for the whole reply; and the bytes written before each.
    pub(crate) room: [usize; 4],
}

/// A directory of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) export: ExportId,
    pub(crate) directory: Handle,
}

/// The cached replies of all directories.
#[derive(Debug)]
pub(crate) struct ListingCache {
    max_bytes: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    counted: HashMap<Key, Counted>,
    kept: HashMap<Key, WatchedDirectory>,
    bytes: usize,
}

/// Number of recent listings of a directory.
#[derive(Debug, Clone, Copy)]
struct Counted {
    listed: u32,
    wanted: u32,
    last: Duration,
}

/// A watched directory and its cached replies.
#[derive(Debug)]
struct WatchedDirectory {
    watch: Arc<dyn EntriesWatch>,
    /// The exports whose options and numbers are in the replies. The weak reference keeps the allocation, so that no other table gets
    /// its address.
    exports: Weak<ExportTable>,
    pages: HashMap<Form, Page>,
    bytes: usize,
    last: Duration,
    /// Bytes of cached replies, from the beginning of the listing, that were sent again.
    hits: u32,
    wanted: u32,
}

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) bytes: Bytes,
    /// The time of its request; the directory was read after that.
    pub(crate) made: Duration,
    /// Delegations granted before the directory was read.
    pub(crate) grants: u64,
    /// Clients that may have to see something else, because they hold a delegation.
    pub(crate) except: Vec<ClientId>,
}

/// A client that holds a delegation and may have to see something else than others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    pub(crate) client: ClientId,
    /// The number of its last grant among all grants.
    pub(crate) last_grant: u64,
}

/// The cache's answer to a READDIR.
pub(crate) enum Lookup {
    Nothing,
    /// The directory should be watched.
    Wanted,
    Watched(Arc<dyn EntriesWatch>),
    Page(Arc<dyn EntriesWatch>, Bytes),
}

impl Page {
    /// Returns whether `holder`, if the caller is one, would get the same reply: its delegated objects were as granted when the directory was
    /// read, and still are. A later grant may show the object as it was before a change that this reply already shows.
    fn is_for(&self, holder: Option<Holder>) -> bool {
        holder.is_none_or(|Holder { client, last_grant }| {
            last_grant <= self.grants && self.except.len() <= MAX_EXCEPT && !self.except.contains(&client)
        })
    }
}

impl ListingCache {
    /// Makes a cache of up to `max_bytes`; 0 for none.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, table: Mutex::default() }
    }

    /// Returns the bytes in use and the number of watched directories.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let table = self.table.lock();
        (table.bytes, table.kept.len())
    }

    pub(crate) fn find(
        &self,
        key: &Key,
        form: &Form,
        holder: Option<Holder>,
        exports: &Arc<ExportTable>,
        now: Duration,
    ) -> Lookup {
        if self.max_bytes == 0 {
            return Lookup::Nothing;
        }
        let mut table = self.table.lock();
        let Some(kept) = table.kept.get_mut(key) else { return table.count(key, form, now) };
        if Weak::as_ptr(&kept.exports) != Arc::as_ptr(exports) {
            return Lookup::Nothing;
        }
        kept.last = kept.last.max(now);
        let watch = Arc::clone(&kept.watch);
        match kept.pages.get(form) {
            Some(page) if now < page.made + MAX_AGE && page.is_for(holder) => {
                kept.hits = kept.hits.saturating_add(u32::from(form.cookie == 0));
                Lookup::Page(watch, page.bytes.clone())
            }
            _ => Lookup::Watched(watch),
        }
    }

    /// Takes the watch of a directory.
    pub(crate) fn watch(
        &self,
        key: Key,
        watch: &Arc<dyn EntriesWatch>,
        exports: &Arc<ExportTable>,
        now: Duration,
    ) {
        let (watch, exports) = (Arc::clone(watch), Arc::downgrade(exports));
        let bytes = PAGE_BYTES + watch.entries() * ENTRY_BYTES;
        let mut table = self.table.lock();
        let wanted = table.counted.get(&key).map_or(FIRST_WANTED, |counted| counted.wanted);
        // Two requests may have watched it at once. The replies of the other watch are dropped with it.
        let mut gone = vec![table.take(&key)];
        table.bytes += bytes;
        table.kept.insert(
            key,
            WatchedDirectory { watch, exports, pages: HashMap::new(), bytes, last: now, hits: 0, wanted },
        );
        table.make_room(self.max_bytes, &mut gone);
        drop(table);
        // Not under the lock: releasing marks takes time.
        drop(gone);
    }

    pub(crate) fn put(&self, key: &Key, form: Form, watch: &Arc<dyn EntriesWatch>, page: Page) {
        let bytes = PAGE_BYTES + page.bytes.len();
        let mut gone = Vec::new();
        let mut table = self.table.lock();
        // Another watch does not report changes before it.
        let Some(kept) = table.kept.get_mut(key).filter(|kept| Arc::ptr_eq(&kept.watch, watch)) else {
            return;
        };
        let replaced = kept.pages.insert(form, page).map_or(0, |old| PAGE_BYTES + old.bytes.len());
        kept.bytes = kept.bytes + bytes - replaced;
        table.bytes = table.bytes + bytes - replaced;
        table.make_room(self.max_bytes, &mut gone);
        drop(table);
        drop(gone);
    }

    /// Drops the cached replies of a directory that has changed according to this watch.
    pub(crate) fn has_changed(&self, key: &Key, watch: &Arc<dyn EntriesWatch>) {
        let mut table = self.table.lock();
        let is_it = table.kept.get(key).is_some_and(|kept| Arc::ptr_eq(&kept.watch, watch));
        let gone = if is_it { table.take(key) } else { None };
        drop(table);
        drop(gone);
    }

    /// Drops everything, because the exports were replaced.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut *self.table.lock());
        drop(gone);
    }

    /// Drops directories that changed or are unused, so that changes in them cost nothing extra. Called about once a second.
    pub(crate) fn maintain(&self, now: Duration) {
        let watches: Vec<_> = {
            let table = self.table.lock();
            let of = |(key, kept): (&Key, &WatchedDirectory)| (*key, Arc::clone(&kept.watch), kept.last);
            table.kept.iter().map(of).collect()
        };
        for (key, watch, last) in watches {
            if now.saturating_sub(last) > IDLE || !watch.is_unchanged() {
                self.has_changed(&key, &watch);
            }
        }
    }
}

impl Table {
    /// Counts a listing of a directory that is not watched.
    fn count(&mut self, key: &Key, form: &Form, now: Duration) -> Lookup {
        if form.cookie != 0 {
            return Lookup::Nothing;
        }
        if self.counted.len() >= MAX_COUNTED && !self.counted.contains_key(key) {
            self.counted.clear();
        }
        let first = Counted { listed: 0, wanted: FIRST_WANTED, last: now };
        let counted = self.counted.entry(*key).or_insert(first);
        if now.saturating_sub(counted.last) > REPEAT_INTERVAL_MAX {
            *counted = first;
        }
        counted.last = now;
        counted.listed += 1;
        if counted.listed < counted.wanted {
            return Lookup::Nothing;
        }
        // The next watch starts late, unless this one is worth its cost.
        *counted = Counted { listed: 0, wanted: (counted.wanted * 2).min(MOST_WANTED), last: now };
        Lookup::Wanted
    }

    /// Removes a directory.
    fn take(&mut self, key: &Key) -> Option<WatchedDirectory> {
        let kept = self.kept.remove(key)?;
        self.bytes -= kept.bytes;
        if let Some(counted) = self.counted.get_mut(key) {
            counted.wanted = if kept.hits >= WORTH_IT { FIRST_WANTED } else { kept.wanted };
        }
        Some(kept)
    }

    /// Removes directories, the least recently listed first, until there is space.
    fn make_room(&mut self, max_bytes: usize, gone: &mut Vec<Option<WatchedDirectory>>) {
        while self.bytes > max_bytes || self.kept.len() > MAX_DIRECTORIES {
            // Deterministic, so that simulations can be repeated.
            let order = |(key, kept): &(&Key, &WatchedDirectory)| {
                (kept.last, key.export, Bytes::copy_from_slice(&key.directory))
            };
            let Some((&key, _)) = self.kept.iter().min_by_key(order) else { return };
            gone.push(self.take(&key));
        }
    }
}
