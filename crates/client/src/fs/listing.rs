//! Listings of directories: one whole, or parts of many in few requests.

use std::collections::HashSet;

use protocol::nfs4::types::Status;

use super::FileSystem;
use crate::attributes::FileKind;
use crate::error::OpError;
use crate::many::ListPart;
use crate::results::{DirEntry, DirPage, FileHandle, Object};

/// Maximum bytes of one reply to a listing: some thousand entries with attributes.
const BYTES_MAX: u32 = 1 << 20;
/// Minimum bytes of a part if many directories share replies: about a hundred entries.
const BYTES_MIN: u32 = 32 << 10;
/// Listings of many directories end early once they have this many entries: about 50 MB.
const ENTRIES_MAX: usize = 1 << 17;
/// Maximum number of entries of a listing. A server that returns more has no end of them.
const LISTED_MAX: usize = 1 << 24;

/// A directory's entries as far as they were listed.
#[derive(Debug, Clone)]
pub struct Listing {
    /// Entries in the server's order, without `.` and `..`.
    pub entries: Vec<DirEntry>,
    /// The start of the rest; `None` if there is no rest.
    position: Option<(u64, [u8; 8])>,
    /// Positions reached so far.
    cookies: HashSet<u64>,
    /// Maximum number of entries.
    max: usize,
}

impl Default for Listing {
    /// Returns the start of a listing.
    fn default() -> Self {
        let position = Some((0, [0; 8]));
        Self { entries: Vec::new(), position, cookies: HashSet::new(), max: LISTED_MAX }
    }
}

impl Listing {
    /// Returns whether these are all entries.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.position.is_none()
    }

    fn add(&mut self, page: DirPage) -> Result<(), OpError> {
        if !page.eof && !self.cookies.insert(page.next_cookie) {
            return Err(OpError::BadReply("a listing whose cookies form a loop"));
        }
        if page.entries.len() > self.max - self.entries.len() {
            return Err(OpError::BadReply("a listing without an end"));
        }
        self.entries.extend(page.entries);
        self.position = (!page.eof).then_some((page.next_cookie, page.verifier));
        Ok(())
    }
}

impl FileSystem {
    /// Lists directories with handles and attributes, many in a request and many requests in flight. Handles and attributes that
    /// the server left out are looked up. Together the listings have a bounded number of entries, and are incomplete beyond it:
    /// [`Self::list_rest`] returns the rest.
    ///
    /// # Errors
    /// As [`Self::list`], for each directory.
    pub async fn list_many(&self, directories: &[Object]) -> Vec<Result<Listing, OpError>> {
        let start = |object: &Object| match object.attributes.kind {
            FileKind::Directory => Ok(Listing::default()),
            _ => Err(OpError::Status(Status::NOTDIR)),
        };
        let mut listings: Vec<Result<Listing, OpError>> = directories.iter().map(start).collect();
        let mut entries = 0;
        while entries < ENTRIES_MAX && self.list_next(directories, &mut listings, &mut entries).await {}
        self.look_up_missing(directories, &mut listings).await;
        listings
    }

    /// Lists the next part of each listing that is not whole; returns whether there were any.
    async fn list_next(
        &self,
        directories: &[Object],
        listings: &mut [Result<Listing, OpError>],
        entries: &mut usize,
    ) -> bool {
        let position = |listing: &Result<Listing, OpError>| listing.as_ref().ok()?.position;
        let unfinished: Vec<usize> =
            (0..listings.len()).filter(|at| position(&listings[*at]).is_some()).collect();
        let max = self.info().read_max.min(BYTES_MAX);
        let share = max / u32::try_from(unfinished.len()).unwrap_or(u32::MAX).max(1);
        let bytes = share.max(BYTES_MIN.min(max));
        let part = |at: &usize| {
            let position = position(&listings[*at]).unwrap_or_default();
            ListPart { directory: directories[*at].handle, position, bytes }
        };
        let parts: Vec<ListPart> = unfinished.iter().map(part).collect();
        if parts.is_empty() {
            return false;
        }
        let pages = self.client().list_many(self.caller(), &parts).await;
        for (at, page) in unfinished.into_iter().zip(pages) {
            let listing = &mut listings[at];
            let added = page.and_then(|mut page| {
                self.mounted().correct_sizes(&mut page.entries);
                *entries += page.entries.len();
                listing.as_mut().map_or(Ok(()), |listing| listing.add(page))
            });
            if let Err(error) = added {
                *listing = Err(error);
            }
        }
        true
    }

    /// Looks up the objects that a server has left out. An entry that was removed, or is a referral, is omitted; another failure fails the listing
    /// of the directory.
    async fn look_up_missing(&self, directories: &[Object], listings: &mut [Result<Listing, OpError>]) {
        let mut missing = Vec::new();
        for (at, listing) in listings.iter().enumerate() {
            for (number, entry) in listing.iter().flat_map(|listing| &listing.entries).enumerate() {
                if entry.object.is_none() {
                    missing.push((at, number, entry.name.clone()));
                }
            }
        }
        if missing.is_empty() {
            return;
        }
        let names: Vec<_> =
            missing.iter().map(|(at, _, name)| (directories[*at].handle, &name[..])).collect();
        let found = self.client().stat_many(self.caller(), &names).await;
        for ((at, number, _), object) in missing.iter().zip(found) {
            match (object, &mut listings[*at]) {
                (Ok(object), Ok(listing)) => listing.entries[*number].object = Some(object),
                // An entry that is on another server cannot be used here.
                (Err(OpError::Status(Status::MOVED)), _) => {}
                (Err(error), listing @ Ok(_)) if !error.is_missing() => *listing = Err(error),
                _ => {}
            }
        }
        for listing in listings.iter_mut().flatten() {
            listing.entries.retain(|entry| entry.object.is_some());
        }
    }

    /// Lists the rest of a directory, with handles and attributes if `plus`, and returns all entries.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn list_rest(
        &self,
        directory: FileHandle,
        mut listing: Listing,
        plus: bool,
    ) -> Result<Vec<DirEntry>, OpError> {
        let bytes = self.info().read_max.min(BYTES_MAX);
        while let Some(position) = listing.position {
            let read = self.client().read_directory(self.caller(), directory, position, bytes, plus);
            let mut page = read.await?;
            self.mounted().correct_sizes(&mut page.entries);
            listing.add(page)?;
        }
        Ok(listing.entries)
    }

    /// Returns all entries of a directory that [`Self::list_many`] has begun to list.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub async fn list_whole(&self, directory: &Object, listing: Listing) -> Result<Vec<DirEntry>, OpError> {
        if listing.is_whole() {
            return Ok(listing.entries);
        }
        let entries = self.list_rest(directory.handle, listing, true).await?;
        let whole = Listing { entries, position: None, ..Listing::default() };
        let mut listings = [Ok(whole)];
        self.look_up_missing(std::slice::from_ref(directory), &mut listings).await;
        let [listing] = listings;
        listing.map(|listing| listing.entries)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_listing_has_a_maximum_of_entries() {
        let mut listing = Listing { max: 5, ..Listing::default() };
        let page = |cookie| {
            let entry = DirEntry { name: Bytes::from_static(b"name"), fileid: cookie, cookie, object: None };
            let (entries, next_cookie) = (vec![entry; 2], cookie);
            DirPage { entries, next_cookie, verifier: [0; 8], eof: false, directory: None }
        };
        assert_eq!((listing.add(page(1)), listing.add(page(2))), (Ok(()), Ok(())));
        assert!(matches!(listing.add(page(3)), Err(OpError::BadReply(_))));
    }
}
