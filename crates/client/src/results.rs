//! Results of operations in all versions of the protocol.

use std::sync::Arc;

use bytes::Bytes;
use protocol::nfs4::types::Handle;

use crate::attributes::{Attributes, Changed, FileKind};
use crate::opens::OpenFile;
pub use crate::opens::OpenMode;

/// A file handle. Those of version 3 are at most 64 bytes long, those of version 4 at most 128.
pub type FileHandle = Handle;

/// An object that was looked up or created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// Its handle.
    pub handle: FileHandle,
    /// Its attributes.
    pub attributes: Attributes,
}

/// The state of an open file at the server: an open of version 4, nothing in version 3.
#[derive(Debug, Clone, Default)]
pub struct OpenState {
    pub(crate) file: Option<Arc<OpenFile>>,
    /// Whether the server keeps the file while it is open although its last name is removed.
    pub(crate) preserves_unlinked: bool,
}

/// How OPEN handles a file that is missing or exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// The file must exist.
    No,
    /// It is created if it is missing (`O_CREAT`).
    IfMissing,
    /// It must be missing (`O_CREAT | O_EXCL`). The verifier identifies a repetition; it must be unique to the call.
    Exclusive([u8; 8]),
    /// It must be missing. Without a verifier, a repetition that the server does not recognize fails with EEXIST.
    Guarded,
}

/// A file that was opened.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The file.
    pub object: Object,
    /// Its state at the server.
    pub state: OpenState,
    /// The change of the directory; `None` if it certainly was not changed.
    pub directory: Option<Changed>,
    /// The number of the file's delegation, if the server has granted one.
    pub delegation: Option<u64>,
}

/// Bytes that were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadReply {
    /// The bytes, a slice of the received record.
    pub data: Bytes,
    /// Whether they reach the end of the file.
    pub eof: bool,
    /// The file's attributes, if the reply had them.
    pub attributes: Option<Attributes>,
}

/// The stability of written data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// They may be lost until a COMMIT.
    Unstable,
    /// The data are stable, and the metadata needed to read them.
    DataSync,
    /// Data and metadata are stable.
    FileSync,
}

/// The result of a WRITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteReply {
    /// Bytes written, from 1 to the length of the data.
    pub count: u32,
    /// Their stability; at least the requested one.
    pub stability: Stability,
    /// Differs from that of an earlier WRITE or COMMIT if unstable data may have been lost.
    pub verifier: [u8; 8],
    /// The file before and after.
    pub file: Changed,
}

/// The result of a COMMIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitReply {
    /// As in [`WriteReply`].
    pub verifier: [u8; 8],
    /// The file before and after.
    pub file: Changed,
}

/// The kind of range to find in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Data.
    Data,
    /// A hole; the end of a file is one too.
    Hole,
}

/// The ranges of a copy or clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranges {
    /// The first byte in the source.
    pub source_offset: u64,
    /// The first byte in the destination.
    pub destination_offset: u64,
    /// Bytes; 0 means all bytes that follow in the source.
    pub count: u64,
}

/// The result of a COPY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyReply {
    /// Bytes that were copied, from the start of the range; 0 if the source ends there.
    pub count: u64,
    /// Their stability.
    pub stability: Stability,
    /// As in [`WriteReply`].
    pub verifier: [u8; 8],
    /// The change of the destination. Attributes after a copy in the background are unknown.
    pub file: Changed,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: any bytes but `/` and NUL.
    pub name: Bytes,
    /// The file's number.
    pub fileid: u64,
    /// The cookie to continue after this entry.
    pub cookie: u64,
    /// The object, if handle and attributes were requested and sent.
    pub object: Option<Object>,
}

/// A part of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirPage {
    /// Entries in the server's order, without `.` and `..`.
    pub entries: Vec<DirEntry>,
    /// The cookie of the last entry that the server sent, `.` and `..` included.
    pub next_cookie: u64,
    /// To be sent back with the next cookie.
    pub verifier: [u8; 8],
    /// Whether the listing ends here.
    pub eof: bool,
    /// The directory's attributes, if the reply had them.
    pub directory: Option<Attributes>,
}

/// The kind of an object to create other than a regular file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewObject {
    /// A directory.
    Directory,
    /// A symbolic link to this path.
    Symlink(Bytes),
    /// A block device with these numbers.
    BlockDevice(u32, u32),
    /// A character device with these numbers.
    CharacterDevice(u32, u32),
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
}

impl NewObject {
    /// Returns the type that the object has.
    #[must_use]
    pub fn file_kind(&self) -> FileKind {
        match self {
            Self::Directory => FileKind::Directory,
            Self::Symlink(_) => FileKind::Symlink,
            Self::BlockDevice(..) => FileKind::BlockDevice,
            Self::CharacterDevice(..) => FileKind::CharacterDevice,
            Self::Socket => FileKind::Socket,
            Self::Fifo => FileKind::Fifo,
        }
    }
}

/// Properties of a file system that do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsInfo {
    /// Maximum bytes of a READ.
    pub read_max: u32,
    /// Maximum bytes of a WRITE.
    pub write_max: u32,
    /// Maximum size of a file.
    pub file_size_max: u64,
    /// Maximum length of a name.
    pub name_max: u32,
    /// Maximum number of names of a file.
    pub link_max: u32,
    /// Lease time in seconds; 0 in version 3.
    pub lease_seconds: u32,
}

/// Free space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FsStat {
    /// Bytes in total.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Bytes that this caller may use.
    pub available_bytes: u64,
    /// Files in total.
    pub total_files: u64,
    /// Files that could be created.
    pub free_files: u64,
    /// Files that this caller may create.
    pub available_files: u64,
}

impl OpenMode {
    /// Returns the permissions that an open needs ([`access`]).
    pub(crate) const fn permissions(self) -> u32 {
        let read = if self.read { access::READ } else { 0 };
        let write = if self.write { access::MODIFY | access::EXTEND } else { 0 };
        read | write
    }
}

/// Permissions to query by ACCESS, with the numbers of RFC 1813 §3.3.4.
pub mod access {
    /// Read data, or list a directory.
    pub const READ: u32 = 0x01;
    /// Look up a name.
    pub const LOOKUP: u32 = 0x02;
    /// Change data.
    pub const MODIFY: u32 = 0x04;
    /// Add data or names.
    pub const EXTEND: u32 = 0x08;
    /// Delete a name.
    pub const DELETE: u32 = 0x10;
    /// Execute.
    pub const EXECUTE: u32 = 0x20;
}
