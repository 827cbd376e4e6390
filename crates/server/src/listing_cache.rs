//! Replies to READDIR that are told again.
//!
//! Criteria first. A listing asks the file system for every entry, which is nearly all that it costs; who lists a directory again and again is
//! mostly told the same. What is told again must be true: what this server has changed shows at once, whoever asks and by whichever
//! version, and so does what others have changed, as far as the backend can see it. Where it cannot see it at all, nothing is kept. And nobody
//! learns anything that a listing of its own would not have told.
//!
//! So a directory that is listed repeatedly is watched with all its entries ([`vfs::Backend::watch_entries`]) from *before* it is looked at, and
//! what READDIR then writes is kept, byte for byte, with what it was asked for. Before it is told again,
//! - the caller's right to list the directory and to look its entries up is judged by the backend, each time;
//! - the watch is asked, behind that, whether anything has changed: then all that was kept of the directory goes;
//! - it must not be older than [`MAX_AGE`], which bounds what no watch shows (times of access, for one).
//!
//! What depends on the caller is never kept: a reply with the change attribute of the caller's delegation, one in which an object could not be
//! looked at, one with free space or ACLs, or a change attribute that a coarse clock will move by itself.
//!
//! A client that has something delegated is told of it as it was at the grant, whatever others have done to it since
//! ([`State::granted_change`](crate::state::State::granted_change)). What was looked at when nothing of its own was otherwise stays true for it as
//! long as nothing changes and nothing more is delegated to it; so a reply says for whom it is not ([`Page::is_for`]).
//!
//! Bounds: bytes ([`Settings::kept_listings_bytes`](crate::Settings::kept_listings_bytes)), with what the kernel holds for an entry that is watched, and directories. What is not
//! asked for goes; a directory that changes as often as it is listed is watched ever more rarely. The rejected alternative, attributes of
//! single entries, would be of use to LOOKUP and GETATTR too, but encoding a thousand of them takes longer than all of this.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use protocol::nfs4::types::{Bitmap, ClientId};
use vfs::{EntriesWatch, Handle, Verifier};

use crate::{ExportId, ExportTable};

/// How old a reply may be: what the backend's watch does not show is told so late at most.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(1);
/// How long a directory stays watched that nobody lists.
pub(crate) const IDLE: Duration = Duration::from_secs(10);
/// How soon listings must follow each other to count as repeated.
pub(crate) const WITHIN: Duration = Duration::from_secs(10);
/// ListingCache after which a directory is watched, at first.
pub(crate) const FIRST_WANTED: u32 = 2;
/// The same where what was kept was of little use, each time twice as many, up to this.
pub(crate) const MOST_WANTED: u32 = 64;
/// ListingCache told again that pay for a watch: it costs about as much as one and a half.
pub(crate) const WORTH_IT: u32 = 4;
/// Directories watched at once: each takes a descriptor, and in Linux one of a user's 128 groups.
pub(crate) const MAX_DIRECTORIES: usize = 32;
/// Directories whose listings are counted.
pub(crate) const MAX_COUNTED: usize = 1024;
/// What a watched entry is charged: about what inode and mark take in Linux.
const ENTRY_BYTES: usize = 1536;
/// What a reply is charged beside its bytes.
const PAGE_BYTES: usize = 256;
/// Clients that a reply says it is not for. Where they would be more, it is for none that has anything delegated.
pub(crate) const MAX_EXCEPT: usize = 16;

/// Which READDIR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Version 3's.
    Nfs3,
    /// Version 3's READDIRPLUS.
    Nfs3Plus,
    /// Version 4's, of this minor version.
    Nfs4(u32),
}

/// All that a reply depends on, beside the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) kind: Kind,
    pub(crate) cookie: u64,
    pub(crate) verifier: Verifier,
    /// Attributes that are asked for, in version 4.
    pub(crate) mask: Bitmap,
    /// Whether objects are to be looked at.
    pub(crate) plus: bool,
    /// Room in bytes: of names and cookies, and of all; what was written of each before.
    pub(crate) room: [usize; 4],
}

/// A directory of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) export: ExportId,
    pub(crate) directory: Handle,
}

/// What was kept, of all directories.
#[derive(Debug)]
pub(crate) struct ListingCache {
    max_bytes: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    counted: HashMap<Key, Counted>,
    kept: HashMap<Key, Kept>,
    bytes: usize,
}

/// How often a directory was listed lately.
#[derive(Debug, Clone, Copy)]
struct Counted {
    listed: u32,
    wanted: u32,
    last: Duration,
}

/// A directory that is watched, and what was told of it since.
#[derive(Debug)]
struct Kept {
    watch: Arc<dyn EntriesWatch>,
    /// Whose options and numbers are in what was told; the allocation stays, so that no other table is taken for it.
    exports: Weak<ExportTable>,
    pages: HashMap<Form, Page>,
    bytes: usize,
    last: Duration,
    /// ListingCache, from their beginning, that were told again.
    told: u32,
    wanted: u32,
}

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) bytes: Bytes,
    /// When its request came: it was looked at behind that.
    pub(crate) made: Duration,
    /// Delegations granted before it was looked at.
    pub(crate) grants: u64,
    /// Clients that may have been told otherwise of something that they had delegated.
    pub(crate) except: Vec<ClientId>,
}

/// A client that has something delegated, and may have to be told otherwise than others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holder {
    pub(crate) client: ClientId,
    /// Which of all grants was its last.
    pub(crate) last_grant: u64,
}

/// What there is for a READDIR.
pub(crate) enum Found {
    Nothing,
    /// The directory should be watched.
    Wanted,
    Watched(Arc<dyn EntriesWatch>),
    Page(Arc<dyn EntriesWatch>, Bytes),
}

impl Page {
    /// Whether `holder`, where the caller is one, would be told the same: what it had delegated was as it was granted when this was looked at,
    /// and is so still. What was granted later may be granted as it was before a change that came before this look.
    fn is_for(&self, holder: Option<Holder>) -> bool {
        holder.is_none_or(|Holder { client, last_grant }| {
            last_grant <= self.grants && self.except.len() <= MAX_EXCEPT && !self.except.contains(&client)
        })
    }
}

impl ListingCache {
    /// Keeps up to `max_bytes`; nothing at all where that is 0.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, table: Mutex::default() }
    }

    /// Bytes that are kept, and directories that are watched for that.
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
    ) -> Found {
        if self.max_bytes == 0 {
            return Found::Nothing;
        }
        let mut table = self.table.lock();
        let Some(kept) = table.kept.get_mut(key) else { return table.count(key, form, now) };
        if Weak::as_ptr(&kept.exports) != Arc::as_ptr(exports) {
            return Found::Nothing;
        }
        kept.last = kept.last.max(now);
        let watch = Arc::clone(&kept.watch);
        match kept.pages.get(form) {
            Some(page) if now < page.made + MAX_AGE && page.is_for(holder) => {
                kept.told = kept.told.saturating_add(u32::from(form.cookie == 0));
                Found::Page(watch, page.bytes.clone())
            }
            _ => Found::Watched(watch),
        }
    }

    /// A directory is watched from now on.
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
        // Two may have watched it at once: what was told by the other's watch goes with that.
        let mut gone = vec![table.take(&key)];
        table.bytes += bytes;
        table
            .kept
            .insert(key, Kept { watch, exports, pages: HashMap::new(), bytes, last: now, told: 0, wanted });
        table.make_room(self.max_bytes, &mut gone);
        drop(table);
        // Behind the lock: giving marks back takes time.
        drop(gone);
    }

    pub(crate) fn put(&self, key: &Key, form: Form, watch: &Arc<dyn EntriesWatch>, page: Page) {
        let bytes = PAGE_BYTES + page.bytes.len();
        let mut gone = Vec::new();
        let mut table = self.table.lock();
        // Another watch knows nothing of what changed before it.
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

    /// What was told of a directory by this watch is not true any more.
    pub(crate) fn has_changed(&self, key: &Key, watch: &Arc<dyn EntriesWatch>) {
        let mut table = self.table.lock();
        let is_it = table.kept.get(key).is_some_and(|kept| Arc::ptr_eq(&kept.watch, watch));
        let gone = if is_it { table.take(key) } else { None };
        drop(table);
        drop(gone);
    }

    /// Lets go of everything: exports are others now.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut *self.table.lock());
        drop(gone);
    }

    /// Lets go of what changed and of what nobody asks for, so that nobody's changes cost more for it. To be called about once a second.
    pub(crate) fn maintain(&self, now: Duration) {
        let watches: Vec<_> = {
            let table = self.table.lock();
            let of = |(key, kept): (&Key, &Kept)| (*key, Arc::clone(&kept.watch), kept.last);
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
    fn count(&mut self, key: &Key, form: &Form, now: Duration) -> Found {
        if form.cookie != 0 {
            return Found::Nothing;
        }
        if self.counted.len() >= MAX_COUNTED && !self.counted.contains_key(key) {
            self.counted.clear();
        }
        let first = Counted { listed: 0, wanted: FIRST_WANTED, last: now };
        let counted = self.counted.entry(*key).or_insert(first);
        if now.saturating_sub(counted.last) > WITHIN {
            *counted = first;
        }
        counted.last = now;
        counted.listed += 1;
        if counted.listed < counted.wanted {
            return Found::Nothing;
        }
        // Unless it turns out to be worth it, the next time is far.
        *counted = Counted { listed: 0, wanted: (counted.wanted * 2).min(MOST_WANTED), last: now };
        Found::Wanted
    }

    /// Takes a directory out.
    fn take(&mut self, key: &Key) -> Option<Kept> {
        let kept = self.kept.remove(key)?;
        self.bytes -= kept.bytes;
        if let Some(counted) = self.counted.get_mut(key) {
            counted.wanted = if kept.told >= WORTH_IT { FIRST_WANTED } else { kept.wanted };
        }
        Some(kept)
    }

    /// Takes out what was not asked for longest, until there is room.
    fn make_room(&mut self, max_bytes: usize, gone: &mut Vec<Option<Kept>>) {
        while self.bytes > max_bytes || self.kept.len() > MAX_DIRECTORIES {
            // The same one each time that a simulation is run.
            let order =
                |(key, kept): &(&Key, &Kept)| (kept.last, key.export, Bytes::copy_from_slice(&key.directory));
            let Some((&key, _)) = self.kept.iter().min_by_key(order) else { return };
            gone.push(self.take(&key));
        }
    }
}
