//! Basic data types (RFC 1813 §2.3–2.6).

use xdr::{Decode, DecodeError, Encode, InlineOpaque, Opaque, Reader, Writer};

/// The maximum length in bytes of a file handle (RFC 1813 §2.4, `NFS3_FHSIZE`).
pub const FHSIZE: usize = 64;
/// Bytes of a READDIR cookie verifier (`NFS3_COOKIEVERFSIZE`).
pub const COOKIEVERFSIZE: usize = 8;
/// Bytes of an exclusive CREATE's verifier (`NFS3_CREATEVERFSIZE`).
pub const CREATEVERFSIZE: usize = 8;
/// Bytes of a WRITE verifier (`NFS3_WRITEVERFSIZE`).
pub const WRITEVERFSIZE: usize = 8;

/// The maximum length in bytes of a decoded name. RFC 1813 sets no limit. This one is above that of every file system, so that
/// a longer name is usually rejected with `NAMETOOLONG`, not as garbage.
pub const MAX_NAME_WIRE: usize = 1024;

/// The maximum length in bytes of a symbolic link's decoded content. POSIX systems allow 4095.
pub const MAX_PATH_WIRE: usize = 4096;

/// The maximum number of bytes of a decoded READ, WRITE, READDIR or READDIRPLUS.
pub const MAX_TRANSFER: usize = 4 << 20;

/// A name in a directory (`filename3`): any bytes on the wire.
pub type Filename = Opaque<MAX_NAME_WIRE>;
/// A symbolic link's content (`nfspath3`).
pub type NfsPath = Opaque<MAX_PATH_WIRE>;
/// A file handle (`nfs_fh3`).
pub type FileHandle = InlineOpaque<FHSIZE>;
/// A READDIR cookie verifier (`cookieverf3`).
pub type CookieVerf = [u8; COOKIEVERFSIZE];
/// An exclusive CREATE's verifier (`createverf3`).
pub type CreateVerf = [u8; CREATEVERFSIZE];
/// A WRITE verifier (`writeverf3`).
pub type WriteVerf = [u8; WRITEVERFSIZE];

xdr::constants! {
    /// The status of a procedure (RFC 1813 §2.6, `nfsstat3`).
    pub struct NfsStat: u32 {
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
        /// A hard link across devices.
        XDEV = 18,
        /// No such device.
        NODEV = 19,
        /// Not a directory.
        NOTDIR = 20,
        /// Is a directory.
        ISDIR = 21,
        /// Invalid or unsupported argument.
        INVAL = 22,
        /// The file would be too large.
        FBIG = 27,
        /// No space left on the device.
        NOSPC = 28,
        /// The file system is read-only.
        ROFS = 30,
        /// Too many hard links.
        MLINK = 31,
        /// The name is too long.
        NAMETOOLONG = 63,
        /// The directory is not empty.
        NOTEMPTY = 66,
        /// The quota is exhausted.
        DQUOT = 69,
        /// The handle's file no longer exists, or access to it was revoked.
        STALE = 70,
        /// Too many levels of remote in the path.
        REMOTE = 71,
        /// The handle fails internal consistency checks.
        BADHANDLE = 10001,
        /// SETATTR's guard does not match.
        NOT_SYNC = 10002,
        /// The directory cookie is stale.
        BAD_COOKIE = 10003,
        /// The operation is not supported.
        NOTSUPP = 10004,
        /// The buffer or the request is too small.
        TOOSMALL = 10005,
        /// An error without a code of its own.
        SERVERFAULT = 10006,
        /// An object of this type cannot be created.
        BADTYPE = 10007,
        /// The server needs more time: retry later with a new transaction ID.
        JUKEBOX = 10008,
    }
}

xdr::constants! {
    /// The type of a file (`ftype3`).
    pub struct FileType: u32 {
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
        /// A socket.
        SOCK = 6,
        /// A named pipe.
        FIFO = 7,
    }
}

/// The results of a procedure, which depend on the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<T, F> {
    /// `NFS3_OK` and the results.
    Ok(T),
    /// Any other status and its data.
    Fail(NfsStat, F),
}

impl<T, F> Outcome<T, F> {
    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> NfsStat {
        match self {
            Self::Ok(_) => NfsStat::OK,
            Self::Fail(status, _) => *status,
        }
    }

    /// Converts into a `Result`.
    ///
    /// # Errors
    /// The status and data of a failure.
    pub fn into_result(self) -> Result<T, (NfsStat, F)> {
        match self {
            Self::Ok(ok) => Ok(ok),
            Self::Fail(status, fail) => Err((status, fail)),
        }
    }
}

impl<T: Encode, F: Encode> Encode for Outcome<T, F> {
    #[inline]
    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Ok(ok) => {
                NfsStat::OK.encode(writer);
                ok.encode(writer);
            }
            Self::Fail(status, fail) => {
                debug_assert_ne!(*status, NfsStat::OK, "a failure has another status");
                status.encode(writer);
                fail.encode(writer);
            }
        }
    }
}

impl<T: Decode, F: Decode> Decode for Outcome<T, F> {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        match NfsStat::decode(reader)? {
            NfsStat::OK => T::decode(reader).map(Self::Ok),
            status => Ok(Self::Fail(status, F::decode(reader)?)),
        }
    }
}

/// Device numbers (`specdata3`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct SpecData {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

/// A point in time (`nfstime3`), from 1970 to 2106.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct NfsTime {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub seconds: u32,
    /// Nanoseconds of the second. The decoder accepts values above 10^9 - 1; check before use.
    pub nseconds: u32,
}

/// Attributes of a file (`fattr3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Decode)]
pub struct Fattr {
    /// The file type.
    pub file_type: FileType,
    /// The lower twelve mode bits.
    pub mode: u32,
    /// The number of names.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The owning group.
    pub gid: u32,
    /// The size in bytes.
    pub size: u64,
    /// Bytes of storage used.
    pub used: u64,
    /// The device numbers of a device file.
    pub rdev: SpecData,
    /// The file system.
    pub fsid: u64,
    /// The file ID.
    pub fileid: u64,
    /// Last access.
    pub atime: NfsTime,
    /// Last change of the data.
    pub mtime: NfsTime,
    /// Last change of the attributes.
    pub ctime: NfsTime,
}

/// The encoded size of [`Fattr`] in bytes.
pub const FATTR_LENGTH: usize = 84;

impl Fattr {
    /// Encodes in one write, because nearly every reply has these attributes.
    #[must_use]
    pub fn to_wire(&self) -> [u8; FATTR_LENGTH] {
        let halves = |value: u64| [(value >> 32) as u32, value as u32];
        let ([size_h, size_l], [used_h, used_l]) = (halves(self.size), halves(self.used));
        let ([fsid_h, fsid_l], [fileid_h, fileid_l]) = (halves(self.fsid), halves(self.fileid));
        let words: [u32; FATTR_LENGTH / 4] = [
            self.file_type.0,
            self.mode,
            self.nlink,
            self.uid,
            self.gid,
            size_h,
            size_l,
            used_h,
            used_l,
            self.rdev.major,
            self.rdev.minor,
            fsid_h,
            fsid_l,
            fileid_h,
            fileid_l,
            self.atime.seconds,
            self.atime.nseconds,
            self.mtime.seconds,
            self.mtime.nseconds,
            self.ctime.seconds,
            self.ctime.nseconds,
        ];
        let mut wire = [0; FATTR_LENGTH];
        wire.copy_from_slice(words.map(u32::to_be_bytes).as_flattened());
        wire
    }
}

impl Encode for Fattr {
    fn encode(&self, writer: &mut Writer) {
        writer.raw(&self.to_wire());
    }
}

/// Attributes after an operation, if known (`post_op_attr`).
pub type PostOpAttr = Option<Fattr>;

/// The handle of a created object, if known (`post_op_fh3`).
pub type PostOpFh = Option<FileHandle>;

/// The attributes that a client compares to detect changes by others (`wcc_attr`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct WccAttr {
    /// The size in bytes.
    pub size: u64,
    /// Last change of the data.
    pub mtime: NfsTime,
    /// Last change of the attributes.
    pub ctime: NfsTime,
}

impl From<&Fattr> for WccAttr {
    fn from(attributes: &Fattr) -> Self {
        Self { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime }
    }
}

/// Attributes before and after an operation (`wcc_data`). `before` must be absent if the file could change in between: RFC 1813
/// §2.6 requires both to be taken "atomically".
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct WccData {
    /// Before the operation (`pre_op_attr`).
    pub before: Option<WccAttr>,
    /// After the operation.
    pub after: PostOpAttr,
}

/// A change of a time (`set_atime`, `set_mtime`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub enum SetTime {
    /// None.
    #[default]
    #[xdr(case = 0)]
    DontChange,
    /// To the server's current time.
    #[xdr(case = 1)]
    ToServerTime,
    /// To this time.
    #[xdr(case = 2)]
    ToClientTime(NfsTime),
}

/// Attributes to set (`sattr3`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct Sattr {
    /// The lower twelve mode bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The owning group.
    pub gid: Option<u32>,
    /// The size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: SetTime,
    /// Last change of the data.
    pub mtime: SetTime,
}

/// A name in a directory (`diropargs3`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct DirOpArgs {
    /// The directory.
    pub dir: FileHandle,
    /// The name.
    pub name: Filename,
}
