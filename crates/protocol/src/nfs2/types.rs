//! Basic data types (RFC 1094 §2.3).

use xdr::{Decode, DecodeError, Encode, Opaque, Reader, Writer};

/// Bytes of a file handle (RFC 1094 §2.3, `FHSIZE`).
pub const FHSIZE: usize = 32;
/// Bytes of a READDIR cookie (`COOKIESIZE`).
pub const COOKIESIZE: usize = 4;
/// The maximum number of bytes of a READ or WRITE (`MAXDATA`).
pub const MAXDATA: usize = 8192;
/// The maximum length in bytes of a symbolic link's content (`MAXPATHLEN`).
pub const MAXPATHLEN: usize = 1024;
/// The maximum length in bytes of a name (`MAXNAMLEN`).
pub const MAXNAMLEN: usize = 255;

/// The maximum length in bytes of a decoded name: above [`MAXNAMLEN`], so that a longer name is rejected with
/// `NAMETOOLONG`.
pub const MAX_NAME_WIRE: usize = 1024;

/// A name within a directory (`filename`).
pub type Filename = Opaque<MAX_NAME_WIRE>;
/// A symbolic link's content (`path`).
pub type Path = Opaque<MAXPATHLEN>;
/// A file handle (`fhandle`).
pub type FileHandle = [u8; FHSIZE];
/// A READDIR cookie (`nfscookie`).
pub type Cookie = [u8; COOKIESIZE];

xdr::constants! {
    /// The status of a procedure (RFC 1094 §2.3.1, `stat`).
    pub struct Stat: u32 {
        /// The call completed successfully.
        OK = 0,
        /// Not owner.
        PERM = 1,
        /// No such file or directory.
        NOENT = 2,
        /// A hard error occurred.
        IO = 5,
        /// No such device or address.
        NXIO = 6,
        /// Permission denied.
        ACCES = 13,
        /// The file exists.
        EXIST = 17,
        /// No such device.
        NODEV = 19,
        /// Not a directory.
        NOTDIR = 20,
        /// Is a directory.
        ISDIR = 21,
        /// The file would be too large.
        FBIG = 27,
        /// No space left on the device.
        NOSPC = 28,
        /// The file system is read-only.
        ROFS = 30,
        /// The name is too long.
        NAMETOOLONG = 63,
        /// The directory is not empty.
        NOTEMPTY = 66,
        /// The quota is exhausted.
        DQUOT = 69,
        /// The handle's file no longer exists, or access to it was revoked.
        STALE = 70,
        /// WRITECACHE's cache was flushed.
        WFLUSH = 99,
    }
}

xdr::constants! {
    /// The type of a file (RFC 1094 §2.3.2, `ftype`).
    pub struct FileType: u32 {
        /// No file; a socket too (RFC 1094 §2.3.5).
        NON = 0,
        /// A regular file.
        REG = 1,
        /// A directory.
        DIR = 2,
        /// A block device.
        BLK = 3,
        /// A character device.
        CHR = 4,
        /// A symbolic link.
        LNK = 5,
    }
}

/// The results of a procedure that returns only the status on failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// `NFS_OK` and the results.
    Ok(T),
    /// Any other status.
    Fail(Stat),
}

impl<T> Outcome<T> {
    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> Stat {
        match self {
            Self::Ok(_) => Stat::OK,
            Self::Fail(status) => *status,
        }
    }
}

impl<T: Encode> Encode for Outcome<T> {
    fn encode(&self, writer: &mut Writer) {
        self.status().encode(writer);
        match self {
            Self::Ok(ok) => ok.encode(writer),
            Self::Fail(status) => debug_assert_ne!(*status, Stat::OK, "a failure has another status"),
        }
    }
}

impl<T: Decode> Decode for Outcome<T> {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        match Stat::decode(reader)? {
            Stat::OK => T::decode(reader).map(Self::Ok),
            status => Ok(Self::Fail(status)),
        }
    }
}

/// A point in time (RFC 1094 §2.3.4, `timeval`), from 1970 to 2106.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct TimeVal {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: u32,
    /// Microseconds of the second. The decoder accepts values above 10^6 - 1; check before use.
    pub useconds: u32,
}

/// Attributes of a file (RFC 1094 §2.3.5, `fattr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Fattr {
    /// The file type.
    pub file_type: FileType,
    /// The mode bits, including those of the type (`S_IFMT`).
    pub mode: u32,
    /// The number of names.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// The size in bytes.
    pub size: u32,
    /// The size in bytes of a block.
    pub blocksize: u32,
    /// The number of a device, as the server's system writes it.
    pub rdev: u32,
    /// Storage used, in blocks of 512 bytes in practice.
    pub blocks: u32,
    /// The file system.
    pub fsid: u32,
    /// The file ID.
    pub fileid: u32,
    /// Last access.
    pub atime: TimeVal,
    /// Last change of the data.
    pub mtime: TimeVal,
    /// Last change of the attributes.
    pub ctime: TimeVal,
}

/// Attributes to set (RFC 1094 §2.3.6, `sattr`): "A value of -1 indicates a field that should be ignored".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct Sattr {
    /// The mode bits.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// The size in bytes.
    pub size: u32,
    /// Last access.
    pub atime: TimeVal,
    /// Last change of the data. By a convention of clients, 1000000 microseconds mean the server's time.
    pub mtime: TimeVal,
}

impl Sattr {
    /// The value of a field that is not to be set.
    pub const IGNORE: u32 = u32::MAX;

    /// Nothing to set.
    pub const NONE: Self = {
        let time = TimeVal { seconds: Self::IGNORE, useconds: Self::IGNORE };
        let ignore = Self::IGNORE;
        Self { mode: ignore, uid: ignore, gid: ignore, size: ignore, atime: time, mtime: time }
    };
}

/// A name in a directory (RFC 1094 §2.3.10, `diropargs`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct DirOpArgs {
    /// The directory.
    pub dir: FileHandle,
    /// The name.
    pub name: Filename,
}

/// A file and its attributes (RFC 1094 §2.3.11, `diropok`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct DirOpOk {
    /// The file.
    pub file: FileHandle,
    /// The attributes.
    pub attributes: Fattr,
}

/// Attributes, or the status of the failure (RFC 1094 §2.3.9, `attrstat`).
pub type AttrStat = Outcome<Fattr>;

/// A file, or the status of the failure (RFC 1094 §2.3.11, `diropres`).
pub type DirOpRes = Outcome<DirOpOk>;
