//! CREATE: create an object other than a regular file (RFC 8881 §18.4).

use xdr::{Decode, Encode};

use crate::nfs4::attributes::FileAttributes;
use crate::nfs4::types::{Bitmap, ChangeInfo, Component, FileType, LinkText, Outcome, SpecData};

/// `createtype4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub enum CreateType {
    /// `NF4LNK`: a symbolic link with this text.
    #[xdr(case = FileType::LINK.0)]
    Link(LinkText),
    /// `NF4BLK`: a block device.
    #[xdr(case = FileType::BLOCK.0)]
    Block(SpecData),
    /// `NF4CHR`: a character device.
    #[xdr(case = FileType::CHARACTER.0)]
    Character(SpecData),
    /// Any other type: `NF4SOCK`, `NF4FIFO` and `NF4DIR`. The server rejects all others with BADTYPE.
    #[xdr(default)]
    Other(u32),
}

impl CreateType {
    /// A directory.
    pub const DIRECTORY: Self = Self::Other(FileType::DIRECTORY.0);
    /// A socket.
    pub const SOCKET: Self = Self::Other(FileType::SOCKET.0);
    /// A named pipe.
    pub const FIFO: Self = Self::Other(FileType::FIFO.0);

    /// Returns the type of the object.
    #[must_use]
    pub const fn file_type(&self) -> FileType {
        match self {
            Self::Link(_) => FileType::LINK,
            Self::Block(_) => FileType::BLOCK,
            Self::Character(_) => FileType::CHARACTER,
            Self::Other(file_type) => FileType(*file_type),
        }
    }
}

/// `CREATE4args`. Current handle: the directory.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateArgs {
    /// The type of the object.
    pub object_type: CreateType,
    /// The name.
    pub name: Component,
    /// The attributes.
    pub attributes: FileAttributes,
}

/// `CREATE4resok`. Current handle afterwards: the new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CreateOk {
    /// The directory's change.
    pub change: ChangeInfo,
    /// Attributes that were set.
    pub attributes_set: Bitmap,
}

/// `CREATE4res`.
pub type CreateResult = Outcome<CreateOk>;
