//! Errors of backends as `nfsstat4`, for compounds and for copies in the background.

use protocol::nfs4::types::Status;

/// Returns the status for an error of a backend (RFC 8881 §15.1).
pub(crate) const fn of_backend(error: vfs::Error) -> Status {
    use vfs::Error as E;
    match error {
        E::NotPermitted => Status::PERM,
        E::NotFound => Status::NOENT,
        E::Io => Status::IO,
        E::NoDevice => Status::NXIO,
        E::Access => Status::ACCESS,
        E::Exists => Status::EXIST,
        E::CrossDevice => Status::XDEV,
        E::NotDirectory => Status::NOTDIR,
        E::IsDirectory => Status::ISDIR,
        E::IsSymlink => Status::SYMLINK,
        E::WrongKind => Status::WRONG_TYPE,
        E::Invalid => Status::INVAL,
        E::TooLarge => Status::FBIG,
        E::NoSpace => Status::NOSPC,
        E::Quota => Status::DQUOT,
        E::ReadOnly => Status::ROFS,
        E::TooManyLinks => Status::MLINK,
        E::NameTooLong => Status::NAMETOOLONG,
        E::BadName => Status::BADNAME,
        E::NotEmpty => Status::NOTEMPTY,
        E::Stale => Status::STALE,
        E::BadHandle => Status::BADHANDLE,
        E::BadCookie => Status::BAD_COOKIE,
        // No NFSv4 operation has a guard: a backend that says this is broken.
        E::NotSync | E::ServerFault => Status::SERVERFAULT,
        E::NotSupported => Status::NOTSUPP,
        E::NoXattr => Status::NOXATTR,
        E::TooBig => Status::XATTR2BIG,
        E::Busy => Status::FILE_OPEN,
        // The paper of 1994 on NFSv3 introduced JUKEBOX for data that must first be fetched; DELAY is its name here.
        E::Later => Status::DELAY,
    }
}
