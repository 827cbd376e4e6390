//! Conversion of failures to `nfsstat4`.

use bytes::Bytes;
use protocol::nfs4::types::Status;
use xdr::DecodeError;

pub(crate) use crate::nfs4_status::of_backend;
use crate::state::SavedReply;

/// The reason for a failure of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// With this status, and no further results.
    Status(Status),
    /// With this status; results that belong to it are already written (`LOCK4denied`, for instance).
    Written(Status),
    /// SEQUENCE found a retransmission: the cached reply of the whole compound.
    Replay(Bytes),
    /// An owner's seqid shows a retransmission of version 4.0: this is the operation's cached result.
    Saved(Box<SavedReply>),
}

/// The result of an operation whose results, if any, are already in the reply.
pub(crate) type Result<T = ()> = std::result::Result<T, Failure>;

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<vfs::Error> for Failure {
    fn from(error: vfs::Error) -> Self {
        Self::Status(of_backend(error))
    }
}

impl From<DecodeError> for Failure {
    /// RFC 8881 §15.1.1.1: BADXDR where arguments "do not match those specified in the XDR definition".
    fn from(_: DecodeError) -> Self {
        Self::Status(Status::BADXDR)
    }
}

/// Returns the status for minor version `minor`. Version 4.0 has no WRONG_TYPE (RFC 7530 §13.1 has INVAL), and no errors of
/// sessions: a lack of room is RESOURCE ("the server may exhaust available resources", §13.1.3.4), and a client whose record was
/// removed meanwhile is EXPIRED.
pub(crate) const fn in_minor(status: Status, minor: u32) -> Status {
    match (status, minor) {
        (Status::WRONG_TYPE, 0) => Status::INVAL,
        (Status::REP_TOO_BIG, 0) => Status::RESOURCE,
        (Status::DEADSESSION, 0) => Status::EXPIRED,
        // RFC 7530 §9.1.4.4: "revoked state … NFS4ERR_EXPIRED, NFS4ERR_BAD_STATEID, or NFS4ERR_ADMIN_REVOKED, as appropriate".
        (Status::DELEG_REVOKED, 0) => Status::ADMIN_REVOKED,
        _ => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translates_errors_that_clients_handle() {
        // RFC 8881 §15.1.1.3: only DELAY makes a client retry.
        assert_eq!(of_backend(vfs::Error::Later), Status::DELAY);
        assert_eq!(of_backend(vfs::Error::Stale), Status::STALE);
        assert_eq!(of_backend(vfs::Error::NoSpace), Status::NOSPC);
        assert_eq!(of_backend(vfs::Error::Quota), Status::DQUOT);
        assert_eq!(in_minor(Status::WRONG_TYPE, 0), Status::INVAL);
        assert_eq!(in_minor(Status::WRONG_TYPE, 1), Status::WRONG_TYPE);
    }
}
