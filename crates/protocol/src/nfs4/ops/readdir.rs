//! READDIR (RFC 8881 §18.23).

use xdr::{Chain, Decode, Encode};

use crate::nfs4::attributes::FileAttributes;
use crate::nfs4::types::{Bitmap, Component, Cookie, Outcome, Verifier};

/// Maximum number of entries in a reply. An entry takes at least 28 bytes, so a reply of 1 MiB, the
/// Linux client's maximum, has fewer than 40,000.
pub const MAX_ENTRIES: usize = 40_000;

/// `READDIR4args`. Current handle: the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReadDirArgs {
    /// 0, or the cookie of the last received entry. 1 and 2 are reserved.
    pub cookie: Cookie,
    /// The verifier that came with the cookie.
    pub cookie_verifier: Verifier,
    /// A hint: bytes of names and cookies.
    pub dircount: u32,
    /// Maximum size of `READDIR4resok` in bytes.
    pub maxcount: u32,
    /// Requested attributes of each entry.
    pub attributes: Bitmap,
}

/// `entry4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct DirEntry {
    /// The cookie to continue after this entry.
    pub cookie: Cookie,
    /// The name.
    pub name: Component,
    /// Its attributes, or `rdattr_error`.
    pub attributes: FileAttributes,
}

/// `READDIR4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadDirOk {
    /// The verifier to send with the cookies.
    pub cookie_verifier: Verifier,
    /// The entries.
    pub entries: Chain<DirEntry, MAX_ENTRIES>,
    /// Whether these are the last.
    pub eof: bool,
}

/// `READDIR4res`.
pub type ReadDirResult = Outcome<ReadDirOk>;
