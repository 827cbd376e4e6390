//! Arguments and results of procedures (RFC 1094 §2.2), other than the basic types.

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
    /// Offset of the first byte.
    pub offset: u32,
    /// Maximum number of bytes.
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
    /// Offset of the first byte.
    pub offset: u32,
    /// Unused.
    pub totalcount: u32,
    /// The bytes, sharing the receive buffer.
    pub data: Opaque<MAXDATA>,
}

/// Arguments of CREATE and MKDIR (§2.2.10, §2.2.15).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateArgs {
    /// The directory and the name.
    pub where_: DirOpArgs,
    /// Initial attributes.
    pub attributes: Sattr,
}

/// Arguments of RENAME (§2.2.12).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RenameArgs {
    /// The old name.
    pub from: DirOpArgs,
    /// The new name.
    pub to: DirOpArgs,
}

/// Arguments of LINK (§2.2.13).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LinkArgs {
    /// The file.
    pub from: FileHandle,
    /// The new name.
    pub to: DirOpArgs,
}

/// Arguments of SYMLINK (§2.2.14).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SymlinkArgs {
    /// The directory and the name.
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
    /// The cookie of the last received entry; zeros to start.
    pub cookie: Cookie,
    /// The maximum size of the encoded results, in bytes.
    pub count: u32,
}

/// Size of the smallest READDIR entry in bytes, with the boolean before it.
const SMALLEST_ENTRY: usize = 4 + 4 + 4 + 4 + 4;

/// The maximum number of entries in a reply: `MAXDATA` limits READDIR as it limits READ.
pub const MAX_ENTRIES: usize = MAXDATA / SMALLEST_ENTRY;

/// An entry of READDIR (`entry`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Entry {
    /// The file ID.
    pub fileid: u32,
    /// The name.
    pub name: Filename,
    /// The cookie to continue after this entry.
    pub cookie: Cookie,
}

/// Results of READDIR on success.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct ReaddirOk {
    /// The entries.
    pub entries: Chain<Entry, MAX_ENTRIES>,
    /// Whether these are the last entries of the directory.
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
    /// Total blocks.
    pub blocks: u32,
    /// Free blocks.
    pub bfree: u32,
    /// Free blocks for unprivileged users.
    pub bavail: u32,
}

/// Results of STATFS.
pub type StatfsRes = Outcome<StatfsOk>;
