//! The table from error numbers to [`vfs::Error`].

use rustix::io::Errno;
use vfs::Error;

/// Translates the error of a system call.
///
/// A shortage in the server itself (descriptors, memory), and a lease that a local process must release first, are
/// [`Error::Later`]: the client tries again, and its program sees no error. An error that no call here should return
/// becomes [`Error::ServerFault`] and is logged.
pub(crate) fn translate(errno: Errno) -> Error {
    match errno {
        Errno::PERM => Error::NotPermitted,
        Errno::NOENT => Error::NotFound,
        Errno::IO | Errno::REMOTEIO | Errno::NOTCONN | Errno::SHUTDOWN | Errno::BADMSG | Errno::UCLEAN => {
            Error::Io
        }
        Errno::NXIO | Errno::NODEV => Error::NoDevice,
        Errno::ACCESS => Error::Access,
        Errno::EXIST => Error::Exists,
        Errno::XDEV => Error::CrossDevice,
        Errno::NOTDIR => Error::NotDirectory,
        Errno::ISDIR => Error::IsDirectory,
        Errno::LOOP => Error::IsSymlink,
        Errno::INVAL => Error::Invalid,
        Errno::FBIG | Errno::OVERFLOW => Error::TooLarge,
        Errno::NOSPC => Error::NoSpace,
        Errno::DQUOT => Error::Quota,
        Errno::ROFS => Error::ReadOnly,
        Errno::MLINK => Error::TooManyLinks,
        Errno::NAMETOOLONG => Error::NameTooLong,
        Errno::NOTEMPTY => Error::NotEmpty,
        Errno::STALE => Error::Stale,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => Error::NotSupported,
        Errno::NODATA => Error::NoXattr,
        Errno::TOOBIG | Errno::RANGE => Error::TooBig,
        Errno::BUSY | Errno::TXTBSY => Error::Busy,
        Errno::AGAIN | Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::INTR => Error::Later,
        other => {
            tracing::error!(errno = other.raw_os_error(), "unexpected error of a system call");
            Error::ServerFault
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_space_and_read_only_have_their_own_errors() {
        // RFC 1813 §2.6 has a status of its own for each.
        assert_eq!(translate(Errno::DQUOT), Error::Quota);
        assert_eq!(translate(Errno::NOSPC), Error::NoSpace);
        assert_eq!(translate(Errno::ROFS), Error::ReadOnly);
    }

    #[test]
    fn a_shortage_in_the_server_is_a_retry_later() {
        assert_eq!(translate(Errno::MFILE), Error::Later);
        assert_eq!(translate(Errno::NFILE), Error::Later);
    }

    #[test]
    fn an_unknown_errno_is_a_server_fault() {
        assert_eq!(translate(Errno::BADF), Error::ServerFault);
    }
}
