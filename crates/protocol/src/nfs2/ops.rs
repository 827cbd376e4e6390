//! Arguments and results of the procedures (RFC 1094 §2.2) that are not among the basic types.

use xdr::{Chain, Decode, Encode, Opaque};

use super::{Cookie, DirOpArgs, Fattr, FileHandle, Filename, MAXDATA, Outcome, Path, Sattr};

/// Arguments of SETATTR (§2.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SattrArgs {
    /// The file.
    pub file: FileHandle,
    /// What to set.
    pub attributes: Sattr,
}

/// Results of READLINK (§2.2.6).
pub type ReadlinkRes = Outcome<Path>;

/// Arguments of READ (§2.2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReadArgs {
    /// The file.
    pub file: FileHandle,
    /// Where to begin, in bytes.
    pub offset: u32,
    /// How many bytes at most.
    pub count: u32,
    /// Unused.
    pub totalcount: u32,
}

/// Results of READ on success.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReadOk {
    /// The file's attributes.
    pub attributes: Fattr,
    /// The bytes.
    pub data: Opaque<MAXDATA>,
}

/// Results of READ.
pub type ReadRes = Outcome<ReadOk>;

/// Arguments of WRITE (§2.2.9).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct WriteArgs {
    /// The file.
    pub file: FileHandle,
    /// Unused.
    pub beginoffset: u32,
    /// Where to begin, in bytes.
    pub offset: u32,
    /// Unused.
    pub totalcount: u32,
    /// The bytes, sharing the receive buffer.
    pub data: Opaque<MAXDATA>,
}

/// Arguments of CREATE and MKDIR (§2.2.10, §2.2.15).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateArgs {
    /// Where.
    pub where_: DirOpArgs,
    /// Initial attributes.
    pub attributes: Sattr,
}

/// Arguments of RENAME (§2.2.12).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RenameArgs {
    /// The name that goes.
    pub from: DirOpArgs,
    /// The name that comes.
    pub to: DirOpArgs,
}

/// Arguments of LINK (§2.2.13).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LinkArgs {
    /// The file.
    pub from: FileHandle,
    /// Its further name.
    pub to: DirOpArgs,
}

/// Arguments of SYMLINK (§2.2.14).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SymlinkArgs {
    /// Where.
    pub from: DirOpArgs,
    /// The link's content.
    pub to: Path,
    /// Initial attributes; UNIX servers ignore them.
    pub attributes: Sattr,
}

/// Arguments of READDIR (§2.2.17).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirArgs {
    /// The directory.
    pub dir: FileHandle,
    /// The cookie of the last entry seen; zeros to begin.
    pub cookie: Cookie,
    /// The greatest size in bytes of the results, XDR and all.
    pub count: u32,
}

/// Bytes of the smallest entry of READDIR, the mark in front of it included.
const SMALLEST_ENTRY: usize = 4 + 4 + 4 + 4 + 4;

/// The greatest number of entries of one reply that is decoded. READDIR is bounded by `MAXDATA` as READ is.
pub const MAX_ENTRIES: usize = MAXDATA / SMALLEST_ENTRY;

/// An entry of READDIR (`entry`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Entry {
    /// The file within the file system.
    pub fileid: u32,
    /// The name.
    pub name: Filename,
    /// Where to go on after this entry.
    pub cookie: Cookie,
}

/// Results of READDIR on success.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirOk {
    /// The entries.
    pub entries: Chain<Entry, MAX_ENTRIES>,
    /// Whether the directory ends here.
    pub eof: bool,
}

/// Results of READDIR.
pub type ReaddirRes = Outcome<ReaddirOk>;

/// Results of STATFS on success (§2.2.18).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct StatfsOk {
    /// The preferred size in bytes of a READ or WRITE.
    pub tsize: u32,
    /// The size in bytes of a block.
    pub bsize: u32,
    /// Blocks in all.
    pub blocks: u32,
    /// Blocks free.
    pub bfree: u32,
    /// Blocks free for users without privilege.
    pub bavail: u32,
}

/// Results of STATFS.
pub type StatfsRes = Outcome<StatfsOk>;
