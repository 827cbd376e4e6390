use std::fmt;

/// Result of a [`Backend`](crate::Backend) operation.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason for a failure of an operation. There is one kind per protocol status; each server translates it in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Error {
    /// Not the owner, or not privileged (EPERM).
    NotPermitted,
    /// No such name (ENOENT).
    NotFound,
    /// The device failed (EIO). Also a less specific error of fsync.
    Io,
    /// No such device (ENXIO, ENODEV).
    NoDevice,
    /// Permission bits or an ACL refuse the caller (EACCES).
    Access,
    /// The name is taken (EEXIST).
    Exists,
    /// Would cross file systems (EXDEV).
    CrossDevice,
    /// Not a directory (ENOTDIR).
    NotDirectory,
    /// Is a directory (EISDIR).
    IsDirectory,
    /// Is a symbolic link where none may be (ELOOP with O_NOFOLLOW).
    IsSymlink,
    /// The operation does not apply to this kind of object.
    WrongKind,
    /// An argument is invalid (EINVAL).
    Invalid,
    /// Above the greatest size (EFBIG).
    TooLarge,
    /// The device is full (ENOSPC).
    NoSpace,
    /// The caller's quota is used up (EDQUOT).
    Quota,
    /// The file system is read-only (EROFS).
    ReadOnly,
    /// Too many hard links (EMLINK).
    TooManyLinks,
    /// A name is too long (ENAMETOOLONG).
    NameTooLong,
    /// The name is not allowed: empty, `.`, `..`, or with a slash or NUL.
    BadName,
    /// A directory has entries (ENOTEMPTY).
    NotEmpty,
    /// The handle's file was removed (ESTALE).
    Stale,
    /// The handle was never one of this backend.
    BadHandle,
    /// A directory cookie that was never issued, or is no longer valid.
    BadCookie,
    /// A SETATTR guard does not match the change time.
    NotSync,
    /// The backend cannot do this (ENOTSUP, EOPNOTSUPP).
    NotSupported,
    /// No such extended attribute (ENODATA).
    NoXattr,
    /// A value is larger than can be stored or returned (E2BIG, ERANGE).
    TooBig,
    /// Busy now (EBUSY, ETXTBSY).
    Busy,
    /// The operation cannot be done yet: retry later (media offline). JUKEBOX in v3, DELAY in v4.
    Later,
    /// An internal error; the log has the details.
    ServerFault,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPermitted => "operation not permitted",
            Self::NotFound => "no such file or directory",
            Self::Io => "input/output error",
            Self::NoDevice => "no such device",
            Self::Access => "permission denied",
            Self::Exists => "file exists",
            Self::CrossDevice => "would cross file systems",
            Self::NotDirectory => "not a directory",
            Self::IsDirectory => "is a directory",
            Self::IsSymlink => "is a symbolic link",
            Self::WrongKind => "not possible on this kind of file",
            Self::Invalid => "invalid argument",
            Self::TooLarge => "file too large",
            Self::NoSpace => "no space left on device",
            Self::Quota => "quota exceeded",
            Self::ReadOnly => "read-only file system",
            Self::TooManyLinks => "too many links",
            Self::NameTooLong => "name too long",
            Self::BadName => "name not allowed",
            Self::NotEmpty => "directory not empty",
            Self::Stale => "file handle is stale",
            Self::BadHandle => "file handle is invalid",
            Self::BadCookie => "directory cookie is invalid",
            Self::NotSync => "file changed since",
            Self::NotSupported => "not supported",
            Self::NoXattr => "no such extended attribute",
            Self::TooBig => "value too big",
            Self::Busy => "busy",
            Self::Later => "not available yet",
            Self::ServerFault => "server fault",
        })
    }
}

impl std::error::Error for Error {}
