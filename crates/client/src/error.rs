//! Errors: of one protocol operation ([`OpError`]), and of a library call ([`Error`]).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use protocol::nfs4::types::Status;
use rpc::auth::AuthStatus;
use rpc::message::{Rejection, RpcError};

use crate::engine::CallError;
use crate::errno::Errno;

/// The failure of an operation. NFS 2 and 3 have the same numbers of status codes as version 4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpError {
    /// The server refused it.
    Status(Status),
    /// No usable reply arrived.
    Call(CallError),
    /// The server's reply contradicts the protocol; names the error.
    BadReply(&'static str),
    /// The export accepts only these security flavors (RFC 5531 §8.2, RFC 2623 §2.3), none of which this client has.
    Flavors(Arc<[u32]>),
    /// This version of the protocol, or this server, does not have the operation.
    Unsupported(&'static str),
    /// The server has dropped a lock of this file: it restarted, or the lease expired. Data under the lock may have
    /// changed. Operations on the file fail until the lock is unlocked or the file is closed.
    LockLost,
    /// The server does not have the file system; names the places where it is, as mount(8) writes them.
    Moved(Arc<str>),
    /// A mount was refused with this status. The reason may be the port from which the client calls.
    MountRefused(Status),
    /// The caller's argument cannot be sent; names the error.
    Invalid(Errno, &'static str),
}

/// The side that caused an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call itself: a missing file, missing permission, a wrong argument.
    Caller,
    /// The server: an I/O error, a full disk, a wrong reply.
    Server,
    /// The network, or a server that cannot be reached.
    Network,
    /// This client: it was closed, or reached a limit.
    Client,
}

impl From<CallError> for OpError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<RpcError> for OpError {
    fn from(error: RpcError) -> Self {
        Self::Call(CallError::Rpc(error))
    }
}

impl From<Status> for OpError {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl OpError {
    /// Returns whether an object no longer exists: its name may now refer to another one.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Status(Status::STALE | Status::BADHANDLE | Status::FHEXPIRED))
    }

    /// Returns whether a name does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Status(Status::NOENT))
    }

    /// Returns the error number for a program.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Status(status) | Self::MountRefused(status) => errno_of(*status),
            Self::Call(CallError::Unreachable(_)) => Errno::EHOSTUNREACH,
            Self::Call(CallError::TimedOut) => Errno::ETIMEDOUT,
            Self::Call(CallError::Rpc(RpcError::Denied(_))) => Errno::EACCES,
            Self::Call(CallError::Rpc(RpcError::NotExecuted(_))) => Errno::EPROTONOSUPPORT,
            Self::Call(CallError::Rpc(RpcError::Garbled(_))) | Self::BadReply(_) => Errno::EPROTO,
            Self::Call(CallError::Closed) | Self::LockLost => Errno::EIO,
            Self::Call(CallError::Busy) => Errno::EAGAIN,
            Self::Flavors(_) => Errno::EACCES,
            Self::Moved(_) => Errno::EREMOTE,
            Self::Unsupported(_) => Errno::EOPNOTSUPP,
            Self::Invalid(errno, _) => *errno,
        }
    }

    /// Returns the side that caused the error.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Status(status) => match *status {
                Status::IO | Status::NOSPC | Status::SERVERFAULT | Status::DQUOT | Status::BADXDR => {
                    Fault::Server
                }
                _ => Fault::Caller,
            },
            Self::Call(CallError::Unreachable(_) | CallError::TimedOut) => Fault::Network,
            Self::Call(CallError::Closed | CallError::Busy) => Fault::Client,
            Self::Call(CallError::Rpc(RpcError::Denied(_))) => Fault::Caller,
            Self::Call(CallError::Rpc(_)) | Self::BadReply(_) | Self::Unsupported(_) | Self::LockLost => {
                Fault::Server
            }
            Self::Flavors(_) | Self::Moved(_) | Self::MountRefused(_) | Self::Invalid(..) => Fault::Caller,
        }
    }
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(Status::CLID_INUSE) => f.write_str(
                "another user has state at the server under this client's name (CLID_INUSE): try again after \
                 the lease time, or use version 4.1",
            ),
            Self::Status(status) => write!(f, "{} ({status:?})", errno_of(*status)),
            Self::Call(CallError::Rpc(RpcError::Denied(Rejection::AuthError(AuthStatus::TOOWEAK)))) => {
                write!(
                    f,
                    "the server does not accept this user or this source port (AUTH_TOOWEAK): run as root, \
                     or let the export accept it (`insecure`)"
                )
            }
            Self::MountRefused(status) => write!(
                f,
                "{} ({status:?}): the path or the export is not for this user or machine, or the server refuses ports \
                 above 1023, from which this process calls: then run as root without `noresvport`, or let the export \
                 accept them (`insecure`)",
                errno_of(*status)
            ),
            Self::Call(error) => error.fmt(f),
            Self::BadReply(what) => write!(f, "the server's reply is wrong: {what}"),
            Self::Flavors(flavors) => {
                let names: Vec<_> = flavors.iter().map(|flavor| flavor_name(*flavor)).collect();
                let names = names.join(", ");
                write!(f, "the export takes the security flavors {names} only, and this client has sys")
            }
            Self::Unsupported(what) => write!(f, "the server does not support {what}"),
            Self::LockLost => f.write_str("the server has dropped a lock of this file"),
            Self::Moved(places) => write!(f, "the file system is on another server: {places} (MOVED)"),
            Self::Invalid(_, what) => f.write_str(what),
        }
    }
}

impl std::error::Error for OpError {}

/// Returns the name of a security flavor, as in nfs(5) and exports(5).
fn flavor_name(flavor: u32) -> Cow<'static, str> {
    match flavor {
        0 => "none".into(),
        1 => "sys".into(),
        390_003 => "krb5".into(),
        390_004 => "krb5i".into(),
        390_005 => "krb5p".into(),
        other => other.to_string().into(),
    }
}

/// Version 3's `NFS3ERR_NODEV`, which version 4 does not have.
const NODEV: Status = Status(protocol::nfs3::NfsStat::NODEV.0);
/// Version 3's `NFS3ERR_REMOTE`, which version 4 does not have.
const REMOTE: Status = Status(protocol::nfs3::NfsStat::REMOTE.0);

/// Returns the error number of Linux's client for a status.
fn errno_of(status: Status) -> Errno {
    match status {
        Status::PERM => Errno::EPERM,
        Status::NOENT => Errno::ENOENT,
        Status::NXIO => Errno::ENXIO,
        Status::ACCESS | Status::WRONGSEC => Errno::EACCES,
        Status::EXIST => Errno::EEXIST,
        Status::XDEV => Errno::EXDEV,
        NODEV => Errno::ENODEV,
        Status::NOTDIR => Errno::ENOTDIR,
        Status::ISDIR => Errno::EISDIR,
        Status::INVAL | Status::UNION_NOTSUPP | Status::BADNAME | Status::BADTYPE => Errno::EINVAL,
        Status::FBIG => Errno::EFBIG,
        Status::NOSPC => Errno::ENOSPC,
        Status::ROFS => Errno::EROFS,
        Status::MLINK => Errno::EMLINK,
        Status::NAMETOOLONG => Errno::ENAMETOOLONG,
        Status::NOTEMPTY => Errno::ENOTEMPTY,
        Status::DQUOT => Errno::EDQUOT,
        Status::STALE | Status::BADHANDLE | Status::FHEXPIRED => Errno::ESTALE,
        Status::NOTSUPP
        | Status::OP_ILLEGAL
        | Status::ATTRNOTSUPP
        | Status::OFFLOAD_NO_REQS
        | Status::OFFLOAD_DENIED => Errno::EOPNOTSUPP,
        Status::TOOSMALL => Errno::EOVERFLOW,
        Status::SYMLINK => Errno::ELOOP,
        Status::LOCKED | Status::DENIED | Status::DELAY => Errno::EAGAIN,
        Status::DEADLOCK => Errno::EDEADLK,
        Status::NOXATTR => Errno::ENODATA,
        Status::XATTR2BIG => Errno::E2BIG,
        Status::FILE_OPEN => Errno::EBUSY,
        Status::SHARE_DENIED => Errno::EACCES,
        Status::LOCK_NOTSUPP => Errno::ENOLCK,
        // The file is not open for this kind of access.
        Status::OPENMODE => Errno::EBADF,
        Status::MOVED | Status::LEASE_MOVED | REMOTE => Errno::EREMOTE,
        Status::BAD_STATEID | Status::OLD_STATEID | Status::EXPIRED | Status::ADMIN_REVOKED => Errno::EIO,
        _ => Errno::EIO,
    }
}

/// The failure of a call of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The operation, for instance "open".
    pub operation: &'static str,
    /// The file's path, as the caller named it.
    pub path: Option<Vec<u8>>,
    /// The server's name, as the caller named it.
    pub server: Arc<str>,
    /// The cause.
    pub cause: OpError,
}

impl Error {
    /// Returns the error number for a program.
    #[must_use]
    pub fn errno(&self) -> Errno {
        self.cause.errno()
    }

    /// Returns the side that caused the error.
    #[must_use]
    pub fn fault(&self) -> Fault {
        self.cause.fault()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        if let Some(path) = &self.path {
            write!(f, " {}", path.escape_ascii())?;
        }
        write!(f, " on {}: {}", self.server, self.cause)
    }
}

impl std::error::Error for Error {}
