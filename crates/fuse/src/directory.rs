//! Replies to READDIR and READDIRPLUS.

use zerocopy::IntoBytes;

use crate::abi;
use crate::reply::Data;
use crate::types::Entry;

/// Bytes to which records are aligned.
const ALIGNMENT: usize = 8;

/// A part of a listing, of at most as many bytes as the request has space for.
#[derive(Debug)]
pub struct Listing {
    bytes: Vec<u8>,
    size: usize,
}

impl Listing {
    /// Starts a reply of at most `size` bytes, which is [`Readdir::size`](crate::Readdir::size).
    pub fn new(size: u32) -> Self {
        Self { bytes: Vec::new(), size: size as usize }
    }

    /// Adds an entry, and returns whether it found room. `next` is the position after it; `mode` gives its type.
    #[must_use = "an entry without room belongs to the next reply"]
    pub fn push(&mut self, inode: u64, next: u64, mode: u32, name: &[u8]) -> bool {
        self.push_record(&[], inode, next, mode, name)
    }

    fn push_record(&mut self, before: &[u8], inode: u64, next: u64, mode: u32, name: &[u8]) -> bool {
        let length = (before.len() + size_of::<abi::Dirent>() + name.len()).next_multiple_of(ALIGNMENT);
        if self.bytes.len() + length > self.size {
            return false;
        }
        // A name has at most NAME_MAX bytes; a longer one would not fit a request.
        let header =
            abi::Dirent { ino: inode, off: next, namelen: name.len() as u32, kind: (mode >> 12) & 0xf };
        let end = self.bytes.len() + length;
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        true
    }
}

impl From<Listing> for Data {
    fn from(listing: Listing) -> Self {
        listing.bytes.into()
    }
}

/// A part of a listing with attributes.
#[derive(Debug)]
pub struct ListingPlus(Listing);

impl ListingPlus {
    /// As [`Listing::new`].
    pub fn new(size: u32) -> Self {
        Self(Listing::new(size))
    }

    /// Adds an entry, and returns whether it found room. Each entry with a node other than 0 counts as one lookup of it; `.` and `..` must
    /// have node 0.
    #[must_use = "an entry without room belongs to the next reply"]
    pub fn push(&mut self, entry: &Entry, next: u64, name: &[u8]) -> bool {
        let attributes = entry.attributes;
        self.0.push_record(entry.to_abi().as_bytes(), attributes.inode, next, attributes.mode, name)
    }
}

impl From<ListingPlus> for Data {
    fn from(listing: ListingPlus) -> Self {
        listing.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_has_the_layout_of_the_kernel() {
        let mut listing = Listing::new(64);
        assert!(listing.push(7, 3, 0o100_644, b"abc"));
        let mut expected = Vec::new();
        expected.extend(7_u64.to_ne_bytes());
        expected.extend(3_u64.to_ne_bytes());
        expected.extend(3_u32.to_ne_bytes());
        // DT_REG
        expected.extend(8_u32.to_ne_bytes());
        expected.extend(b"abc\0\0\0\0\0");
        assert_eq!(Data::from(listing), Data::from(expected));
    }

    #[test]
    fn an_entry_without_room_is_refused() {
        let mut listing = Listing::new(63);
        assert!(listing.push(1, 1, 0o040_755, b"12345678"));
        assert!(!listing.push(2, 2, 0o040_755, b"1"));
        let Data(parts) = listing.into();
        assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), 32);
    }
}
