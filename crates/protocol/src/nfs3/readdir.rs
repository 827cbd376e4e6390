//! READDIR and READDIRPLUS (RFC 1813 §3.3.16, §3.3.17).

use xdr::{Chain, Decode, Encode};

use super::{CookieVerf, FileHandle, Filename, MAX_TRANSFER, Outcome, PostOpAttr, PostOpFh};

/// Size of the smallest READDIR entry in bytes, with the boolean before it.
const SMALLEST_ENTRY: usize = 4 + 8 + 4 + 4 + 8;

/// The maximum number of entries in a decoded reply.
pub const MAX_ENTRIES: usize = MAX_TRANSFER / SMALLEST_ENTRY;

/// Arguments of READDIR (§3.3.16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirArgs {
    /// The directory.
    pub dir: FileHandle,
    /// The cookie of the last received entry; 0 to start.
    pub cookie: u64,
    /// The verifier that came with the cookie; zeros to start.
    pub cookieverf: CookieVerf,
    /// The maximum size of the encoded results, in bytes.
    pub count: u32,
}

/// An entry of READDIR (`entry3`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Entry {
    /// The file ID.
    pub fileid: u64,
    /// The name.
    pub name: Filename,
    /// The cookie to continue after this entry.
    pub cookie: u64,
}

/// Entries of READDIR (`dirlist3`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct DirList {
    /// The entries.
    pub entries: Chain<Entry, MAX_ENTRIES>,
    /// Whether these are the last entries of the directory.
    pub eof: bool,
}

/// Results of READDIR on success.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirOk {
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
    /// The verifier to send with the cookies of this reply.
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
    /// The cookie of the last received entry; 0 to start.
    pub cookie: u64,
    /// The verifier that came with the cookie; zeros to start.
    pub cookieverf: CookieVerf,
    /// The maximum size of names, file IDs and cookies, in bytes.
    pub dircount: u32,
    /// The maximum size of the encoded results, in bytes.
    pub maxcount: u32,
}

/// An entry of READDIRPLUS (`entryplus3`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct EntryPlus {
    /// The file ID.
    pub fileid: u64,
    /// The name.
    pub name: Filename,
    /// The cookie to continue after this entry.
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
    /// Whether these are the last entries of the directory.
    pub eof: bool,
}

/// Results of READDIRPLUS on success.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirplusOk {
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
    /// The verifier to send with the cookies of this reply.
    pub cookieverf: CookieVerf,
    /// The entries.
    pub reply: DirListPlus,
}

/// Results of READDIRPLUS; a failure has the directory's attributes.
pub type ReaddirplusResult = Outcome<ReaddirplusOk, PostOpAttr>;
