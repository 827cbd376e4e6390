//! Listings of directories, as pages of entries between two cookies.
//!
//! A page is valid in the directory's [`Epoch`] and under the server's cookie verifier. The cache has a bound of its own,
//! and one directory uses at most a quarter of it: a huge listing evicts neither other listings nor other caches.
//!
//! READDIRPLUS is used as the NFSv3 design paper (1994) §4.3.3 says: when a directory is read for the first time, and
//! after another client changed it. While it is unchanged, the attributes of its entries are probably cached.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;

use super::FileId;
use super::attributes::Epoch;
use super::bounded::{Bounded, Value};
use super::limiter::User;
use crate::attributes::FileKind;

#[cfg(test)]
mod tests;

/// Bytes that are accounted for one directory, besides its pages.
pub const DIRECTORY_BYTES: u64 = 192;
/// Bytes that are accounted for one page, besides its entries.
pub const PAGE_BYTES: u64 = 192;
/// Bytes that are accounted for one entry, besides its name.
pub const ENTRY_BYTES: u64 = 80;
/// One directory's part of the cache: a fourth.
const DIRECTORY_PART: u64 = 4;
/// The cookie from which a directory is read first.
pub const FIRST_COOKIE: u64 = 0;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, raw bytes.
    pub name: Bytes,
    /// The position at which reading continues after this entry.
    pub cookie: u64,
    /// Number of the object in its file system.
    pub fileid: u64,
    /// The object, if the server sent it.
    pub kind: Option<FileKind>,
    /// The object, if the server sent its handle.
    pub file: Option<FileId>,
}

/// The entries of one reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The entries in the server's order.
    pub entries: Arc<[DirectoryEntry]>,
    /// The position at which reading continues: the cookie of the last entry that the server sent, `.` and `..` included.
    pub next_cookie: u64,
    /// Set if the directory ends here.
    pub end: bool,
}

/// How a page is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Names alone.
    Readdir,
    /// Names with handles and attributes.
    ReaddirPlus,
}

/// Why a server's page is invalid. Further reading would not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPage {
    /// A cookie leads back to where reading was before.
    CookieLoop,
    /// Reading would continue where it began, but the directory does not end.
    NoProgress,
}

/// The moment when a READDIR or READDIRPLUS was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the reply needs it"]
pub struct ReadStarted {
    directory: FileId,
    listing: u64,
    cookie: u64,
    method: Method,
}

impl ReadStarted {
    /// Requests names alone, because the reader does not need more.
    pub fn names_only(self) -> Self {
        Self { method: Method::Readdir, ..self }
    }

    /// Returns the request to send.
    pub fn method(&self) -> Method {
        self.method
    }
}

struct Header {
    epoch: Epoch,
    /// Changes with everything that makes pages invalid.
    listing: u64,
    verifier: Option<[u8; 8]>,
    /// Set once the entries' attributes were read in this epoch.
    plus_read: bool,
    /// Memory of this listing's pages, or their memory before they were evicted.
    bytes: u64,
}

impl Value for Header {}

struct CachedPage {
    listing: u64,
    page: Page,
}

impl Value for CachedPage {}

/// The listings of many directories, bounded by bytes.
pub struct DirectoryCache {
    headers: Bounded<FileId, Header>,
    pages: Bounded<(FileId, u64), CachedPage>,
    capacity: u64,
    readdirplus: bool,
    last_listing: u64,
}

impl DirectoryCache {
    /// Creates a cache of at most `capacity` bytes, which are reserved for `user`. `nordirplus` is `readdirplus` false.
    pub fn new(user: User, capacity: u64, readdirplus: bool) -> Self {
        let headers = Bounded::new(user.clone(), capacity / 8, DIRECTORY_BYTES);
        let pages = Bounded::new(user, capacity - capacity / 8, PAGE_BYTES + 32 * ENTRY_BYTES);
        Self { headers, pages, capacity, readdirplus, last_listing: 0 }
    }

    /// Returns the page that follows `cookie`, if it is valid in the directory's present epoch.
    pub fn page(&self, directory: FileId, epoch: Epoch, cookie: u64) -> Option<&Page> {
        let header = self.headers.get(&directory).filter(|header| header.epoch == epoch)?;
        let cached = self.pages.get(&(directory, cookie))?;
        (cached.listing == header.listing).then_some(&cached.page)
    }

    /// Returns the verifier that belongs to the cookies of the directory's cached pages.
    pub fn verifier(&self, directory: FileId) -> Option<[u8; 8]> {
        self.headers.get(&directory)?.verifier
    }

    /// Notes that the page that follows `cookie` is read now, while the directory is in `epoch`.
    pub fn start(&mut self, directory: FileId, epoch: Epoch, cookie: u64) -> ReadStarted {
        let known = self.headers.get(&directory).filter(|header| header.epoch == epoch);
        let (listing, plus_read) = match known {
            Some(header) => (header.listing, header.plus_read),
            None => (self.new_listing(directory, epoch, false), false),
        };
        let method = if self.readdirplus && !plus_read { Method::ReaddirPlus } else { Method::Readdir };
        ReadStarted { directory, listing, cookie, method }
    }

    /// Handles the arrival of a page. It is cached if the directory did not change since its request, and if there is room.
    pub fn insert(&mut self, started: ReadStarted, verifier: [u8; 8], page: Page) -> Result<(), BadPage> {
        check(started.cookie, &page)?;
        let bytes = page_bytes(&page);
        let room = self.capacity / DIRECTORY_PART;
        let known = self.headers.change(&started.directory, |header| {
            if header.listing != started.listing {
                return Known::Old;
            }
            if *header.verifier.get_or_insert(verifier) != verifier {
                return Known::OtherVerifier(header.epoch, header.plus_read);
            }
            header.plus_read |= page.end && started.method == Method::ReaddirPlus;
            header.bytes += bytes;
            if header.bytes > room { Known::TooLarge } else { Known::Valid }
        });
        match known {
            Some(Known::Valid) => {
                let cached = CachedPage { listing: started.listing, page };
                self.pages.insert((started.directory, started.cookie), cached, bytes);
            }
            Some(Known::OtherVerifier(epoch, plus_read)) => {
                self.new_listing(started.directory, epoch, plus_read);
            }
            Some(Known::Old | Known::TooLarge) | None => {}
        }
        Ok(())
    }

    /// Drops the pages, but not the attributes of the entries: this client changed the directory, or the server refused a
    /// cookie.
    pub fn invalidate(&mut self, directory: FileId) {
        if let Some(header) = self.headers.get(&directory) {
            let (epoch, plus_read) = (header.epoch, header.plus_read);
            self.new_listing(directory, epoch, plus_read);
        }
    }

    /// Releases pages of at least `bytes`, if it has that many. Returns the bytes released.
    pub fn reclaim(&mut self, bytes: u64) -> u64 {
        let pages = self.pages.reclaim(bytes);
        if pages < bytes { pages + self.headers.reclaim(bytes - pages) } else { pages }
    }

    /// Returns the bytes accounted.
    pub fn bytes(&self) -> u64 {
        self.pages.bytes() + self.headers.bytes()
    }

    fn new_listing(&mut self, directory: FileId, epoch: Epoch, plus_read: bool) -> u64 {
        self.last_listing += 1;
        let listing = self.last_listing;
        let header = Header { epoch, listing, verifier: None, plus_read, bytes: 0 };
        self.headers.insert(directory, header, DIRECTORY_BYTES);
        listing
    }
}

/// The state of the listing that a page belongs to.
enum Known {
    Valid,
    /// The directory changed since the request was sent.
    Old,
    /// The server's cookies changed.
    OtherVerifier(Epoch, bool),
    /// The directory uses its part of the cache.
    TooLarge,
}

/// Detects cookies that form a loop while one reader walks through a directory, in constant space (Brent).
#[derive(Clone, Copy, Debug, Default)]
pub struct LoopGuard {
    remembered: Option<u64>,
    pages: u64,
    next_power: u64,
}

impl LoopGuard {
    /// Notes that the reader reads the page that follows `cookie` next.
    pub fn visit(&mut self, cookie: u64) -> Result<(), BadPage> {
        if self.remembered == Some(cookie) {
            return Err(BadPage::CookieLoop);
        }
        self.pages += 1;
        if self.pages > self.next_power {
            self.remembered = Some(cookie);
            self.next_power = self.pages.saturating_mul(2);
        }
        Ok(())
    }
}

fn check(cookie: u64, page: &Page) -> Result<(), BadPage> {
    if page.end {
        // Some servers give the last entry of a directory a cookie of no use.
        return Ok(());
    }
    if page.next_cookie == cookie {
        return Err(BadPage::NoProgress);
    }
    let mut seen = HashSet::with_capacity(page.entries.len() + 1);
    seen.insert(cookie);
    let distinct = page.entries.iter().all(|entry| seen.insert(entry.cookie));
    if distinct { Ok(()) } else { Err(BadPage::CookieLoop) }
}

fn page_bytes(page: &Page) -> u64 {
    let names: usize = page.entries.iter().map(|entry| entry.name.len()).sum();
    PAGE_BYTES + page.entries.len() as u64 * ENTRY_BYTES + names as u64
}
