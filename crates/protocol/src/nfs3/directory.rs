//! CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK (RFC 1813 §3.3.8–3.3.15).

use xdr::{Decode, Encode};

use super::{
    CreateVerf, DirOpArgs, FileHandle, FileType, NfsPath, Outcome, PostOpAttr, PostOpFh, Sattr, SpecData,
    WccData,
};

/// How to create a file (§3.3.8, `createhow3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum CreateHow {
    /// An existing file is accepted.
    #[xdr(case = 0)]
    Unchecked(Sattr),
    /// An existing file is an error.
    #[xdr(case = 1)]
    Guarded(Sattr),
    /// An existing file is an error unless it was created with this verifier.
    #[xdr(case = 2)]
    Exclusive(CreateVerf),
}

/// Arguments of CREATE (§3.3.8).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateArgs {
    /// The directory and the name.
    pub where_: DirOpArgs,
    /// The mode of creation.
    pub how: CreateHow,
}

/// Results of CREATE, MKDIR, SYMLINK and MKNOD on success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CreateOk {
    /// The new object.
    pub obj: PostOpFh,
    /// The attributes.
    pub obj_attributes: PostOpAttr,
    /// The directory's attributes before and after the call.
    pub dir_wcc: WccData,
}

/// Results of CREATE; a failure has the directory's attributes before and after the call.
pub type CreateResult = Outcome<CreateOk, WccData>;

/// Arguments of MKDIR (§3.3.9).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct MkdirArgs {
    /// The directory and the name.
    pub where_: DirOpArgs,
    /// Initial attributes.
    pub attributes: Sattr,
}

/// Results of MKDIR, like those of CREATE.
pub type MkdirResult = CreateResult;

/// Arguments of SYMLINK (§3.3.10).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct SymlinkArgs {
    /// The directory and the name.
    pub where_: DirOpArgs,
    /// Initial attributes.
    pub symlink_attributes: Sattr,
    /// The link's content.
    pub symlink_data: NfsPath,
}

/// Results of SYMLINK, like those of CREATE.
pub type SymlinkResult = CreateResult;

/// A device to create (§3.3.11, `devicedata3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct DeviceData {
    /// Initial attributes.
    pub dev_attributes: Sattr,
    /// The device numbers.
    pub spec: SpecData,
}

/// The object that MKNOD creates (§3.3.11, `mknoddata3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub enum MknodData {
    /// A character device.
    #[xdr(case = FileType::CHR.0)]
    CharacterDevice(DeviceData),
    /// A block device.
    #[xdr(case = FileType::BLK.0)]
    BlockDevice(DeviceData),
    /// A socket.
    #[xdr(case = FileType::SOCK.0)]
    Socket(Sattr),
    /// A named pipe.
    #[xdr(case = FileType::FIFO.0)]
    Fifo(Sattr),
    /// Another type, which the server rejects with `BADTYPE`.
    #[xdr(default)]
    Other(u32),
}

/// Arguments of MKNOD (§3.3.11).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct MknodArgs {
    /// The directory and the name.
    pub where_: DirOpArgs,
    /// The type and attributes of the object.
    pub what: MknodData,
}

/// Results of MKNOD, like those of CREATE.
pub type MknodResult = CreateResult;

/// Arguments of REMOVE (§3.3.12).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RemoveArgs {
    /// The name to remove.
    pub object: DirOpArgs,
}

/// Results of REMOVE: the directory's attributes before and after the call.
pub type RemoveResult = Outcome<WccData, WccData>;

/// Arguments of RMDIR (§3.3.13), like those of REMOVE.
pub type RmdirArgs = RemoveArgs;

/// Results of RMDIR, like those of REMOVE.
pub type RmdirResult = RemoveResult;

/// Arguments of RENAME (§3.3.14).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct RenameArgs {
    /// The old name.
    pub from: DirOpArgs,
    /// The new name.
    pub to: DirOpArgs,
}

/// Results of RENAME on success and on failure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct RenameWcc {
    /// The source directory's attributes before and after the call.
    pub fromdir_wcc: WccData,
    /// The target directory's attributes before and after the call.
    pub todir_wcc: WccData,
}

/// Results of RENAME.
pub type RenameResult = Outcome<RenameWcc, RenameWcc>;

/// Arguments of LINK (§3.3.15).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LinkArgs {
    /// The file.
    pub file: FileHandle,
    /// The new name.
    pub link: DirOpArgs,
}

/// Results of LINK on success and on failure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct LinkWcc {
    /// The file's attributes.
    pub file_attributes: PostOpAttr,
    /// The directory's attributes before and after the call.
    pub linkdir_wcc: WccData,
}

/// Results of LINK.
pub type LinkResult = Outcome<LinkWcc, LinkWcc>;
