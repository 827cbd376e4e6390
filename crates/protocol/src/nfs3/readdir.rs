//! READDIR and READDIRPLUS (RFC 1813 §3.3.16, §3.3.17).

use xdr::{Chain, Decode, Encode};

use super::{CookieVerf, FileHandle, Filename, MAX_TRANSFER, Outcome, PostOpAttr, PostOpFh};

/// Bytes of the smallest entry of READDIR, the mark in front of it included.
const SMALLEST_ENTRY: usize = 4 + 8 + 4 + 4 + 8;

/// The greatest number of entries of one reply that is decoded.
pub const MAX_ENTRIES: usize = MAX_TRANSFER / SMALLEST_ENTRY;

/// Arguments of READDIR (§3.3.16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirArgs {
    /// The directory.
    pub dir: FileHandle,
    /// The cookie of the last entry seen; 0 to begin.
    pub cookie: u64,
    /// The verifier that came with the cookie; zeros to begin.
    pub cookieverf: CookieVerf,
    /// The greatest size in bytes of the results, XDR and all.
    pub count: u32,
}

/// An entry of READDIR (`entry3`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Entry {
    /// The file within the file system.
    pub fileid: u64,
    /// The name.
    pub name: Filename,
    /// Where to go on after this entry.
    pub cookie: u64,
}

/// Entries of READDIR (`dirlist3`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct DirList {
    /// The entries.
    pub entries: Chain<Entry, MAX_ENTRIES>,
    /// Whether the directory ends here.
    pub eof: bool,
}

/// Results of READDIR on success.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirOk {
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
    /// To be sent with the cookies of this reply.
    pub cookieverf: CookieVerf,
    /// The entries.
    pub reply: DirList,
}

/// Results of READDIR; a failure has the directory's attributes.
pub type ReaddirResult = Outcome<ReaddirOk, PostOpAttr>;

/// Arguments of READDIRPLUS (§3.3.17).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirplusArgs {
    /// The directory.
    pub dir: FileHandle,
    /// The cookie of the last entry seen; 0 to begin.
    pub cookie: u64,
    /// The verifier that came with the cookie; zeros to begin.
    pub cookieverf: CookieVerf,
    /// The greatest size in bytes of names, file numbers and cookies alone.
    pub dircount: u32,
    /// The greatest size in bytes of the results, XDR and all.
    pub maxcount: u32,
}

/// An entry of READDIRPLUS (`entryplus3`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct EntryPlus {
    /// The file within the file system.
    pub fileid: u64,
    /// The name.
    pub name: Filename,
    /// Where to go on after this entry.
    pub cookie: u64,
    /// The file's attributes.
    pub name_attributes: PostOpAttr,
    /// The file's handle.
    pub name_handle: PostOpFh,
}

/// Entries of READDIRPLUS (`dirlistplus3`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct DirListPlus {
    /// The entries.
    pub entries: Chain<EntryPlus, MAX_ENTRIES>,
    /// Whether the directory ends here.
    pub eof: bool,
}

/// Results of READDIRPLUS on success.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirplusOk {
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
    /// To be sent with the cookies of this reply.
    pub cookieverf: CookieVerf,
    /// The entries.
    pub reply: DirListPlus,
}

/// Results of READDIRPLUS; a failure has the directory's attributes.
pub type ReaddirplusResult = Outcome<ReaddirplusOk, PostOpAttr>;
