//! `nfsstat4`: the status of an operation.

use xdr::{Decode, DecodeError, Encode, Reader, Writer};

xdr::constants! {
    /// `nfsstat4` of all minor versions (RFC 7863, RFC 8276; definitions in RFC 8881 §15.1).
    pub struct Status: u32 {
        /// The operation succeeded.
        OK = 0,
        /// Only the owner or a privileged user may do this.
        PERM = 1,
        /// The object does not exist.
        NOENT = 2,
        /// A hard error of the storage.
        IO = 5,
        /// The device does not exist.
        NXIO = 6,
        /// The caller has no permission.
        ACCESS = 13,
        /// The name already exists.
        EXIST = 17,
        /// The operation would cross file systems.
        XDEV = 18,
        /// The object is not a directory.
        NOTDIR = 20,
        /// The object is a directory.
        ISDIR = 21,
        /// An argument is not valid for the operation.
        INVAL = 22,
        /// The file would exceed the maximum size.
        FBIG = 27,
        /// The file system is full.
        NOSPC = 28,
        /// The file system is read-only.
        ROFS = 30,
        /// The object has the maximum number of hard links.
        MLINK = 31,
        /// The name is longer than the file system allows.
        NAMETOOLONG = 63,
        /// The directory is not empty.
        NOTEMPTY = 66,
        /// The owner's quota is used up.
        DQUOT = 69,
        /// The file handle's object no longer exists.
        STALE = 70,
        /// The file handle is not valid on this server.
        BADHANDLE = 10001,
        /// The READDIR cookie is no longer valid.
        BAD_COOKIE = 10003,
        /// The operation is not supported.
        NOTSUPP = 10004,
        /// The reply exceeds the size that the client allows.
        TOOSMALL = 10005,
        /// An error of the server without a protocol code.
        SERVERFAULT = 10006,
        /// CREATE does not support this type.
        BADTYPE = 10007,
        /// The server needs more time; the client retries later.
        DELAY = 10008,
        /// NVERIFY found the attributes equal.
        SAME = 10009,
        /// A conflicting lock is held.
        DENIED = 10010,
        /// The lease of the state has expired.
        EXPIRED = 10011,
        /// The I/O met a mandatory lock or a share reservation.
        LOCKED = 10012,
        /// The server is in its grace period and accepts only reclaims.
        GRACE = 10013,
        /// A volatile file handle has expired.
        FHEXPIRED = 10014,
        /// The OPEN conflicts with another's share reservation.
        SHARE_DENIED = 10015,
        /// The object requires another security flavor; see SECINFO.
        WRONGSEC = 10016,
        /// Another principal uses the client ID.
        CLID_INUSE = 10017,
        /// The server ran out of a resource (v4.0 only).
        RESOURCE = 10018,
        /// The file system has moved; see `fs_locations`.
        MOVED = 10019,
        /// The operation needs a current file handle, but none is set.
        NOFILEHANDLE = 10020,
        /// The server does not support this minor version.
        MINOR_VERS_MISMATCH = 10021,
        /// The client ID is of another instance of the server.
        STALE_CLIENTID = 10022,
        /// The stateid is of another instance of the server.
        STALE_STATEID = 10023,
        /// The stateid's seqid is older than the current one.
        OLD_STATEID = 10024,
        /// The stateid names no state.
        BAD_STATEID = 10025,
        /// The v4.0 owner's seqid is not the expected one.
        BAD_SEQID = 10026,
        /// VERIFY found the attributes different.
        NOT_SAME = 10027,
        /// The server cannot handle how the range overlaps existing locks.
        LOCK_RANGE = 10028,
        /// The object is a symbolic link.
        SYMLINK = 10029,
        /// RESTOREFH without a saved file handle.
        RESTOREFH = 10030,
        /// A file system of the lease has moved (v4.0).
        LEASE_MOVED = 10031,
        /// An attribute is not supported by the file system.
        ATTRNOTSUPP = 10032,
        /// A reclaim came after the grace period.
        NO_GRACE = 10033,
        /// The client did not hold the reclaimed state.
        RECLAIM_BAD = 10034,
        /// The reclaim conflicts with state granted since.
        RECLAIM_CONFLICT = 10035,
        /// The arguments cannot be decoded.
        BADXDR = 10036,
        /// CLOSE while byte-range locks are held.
        LOCKS_HELD = 10037,
        /// The access mode of the open does not allow the I/O.
        OPENMODE = 10038,
        /// The owner's name could not be translated.
        BADOWNER = 10039,
        /// The name contains a character that the server does not support.
        BADCHAR = 10040,
        /// The name is not allowed (for instance `.` and `..`).
        BADNAME = 10041,
        /// The server cannot represent the range of the lock.
        BAD_RANGE = 10042,
        /// The server cannot change a lock's type atomically.
        LOCK_NOTSUPP = 10043,
        /// The operation number is not defined.
        OP_ILLEGAL = 10044,
        /// A blocking lock would deadlock.
        DEADLOCK = 10045,
        /// An open file prevents the operation.
        FILE_OPEN = 10046,
        /// An administrator revoked the state.
        ADMIN_REVOKED = 10047,
        /// The callback path does not work (v4.0).
        CB_PATH_DOWN = 10048,
        /// The iomode of a layout is not valid.
        BADIOMODE = 10049,
        /// The layout is not valid.
        BADLAYOUT = 10050,
        /// The digest of SET_SSV is wrong.
        BAD_SESSION_DIGEST = 10051,
        /// The session does not exist.
        BADSESSION = 10052,
        /// The slot is beyond the session's slot table.
        BADSLOT = 10053,
        /// RECLAIM_COMPLETE was sent already.
        COMPLETE_ALREADY = 10054,
        /// The connection is not bound to the session.
        CONN_NOT_BOUND_TO_SESSION = 10055,
        /// The client already has a request for this delegation.
        DELEG_ALREADY_WANTED = 10056,
        /// Callbacks of the session are outstanding.
        BACK_CHAN_BUSY = 10057,
        /// No layout is available now; the client may retry.
        LAYOUTTRYLATER = 10058,
        /// No layout is available for this file.
        LAYOUTUNAVAILABLE = 10059,
        /// The client has no such layout to recall.
        NOMATCHING_LAYOUT = 10060,
        /// A pending recall conflicts with the request.
        RECALLCONFLICT = 10061,
        /// The layout type is not supported.
        UNKNOWN_LAYOUTTYPE = 10062,
        /// The sequence ID of the slot is neither the next nor the last one.
        SEQ_MISORDERED = 10063,
        /// SEQUENCE is not the first operation.
        SEQUENCE_POS = 10064,
        /// The request exceeds the channel's size.
        REQ_TOO_BIG = 10065,
        /// The reply exceeds the channel's size.
        REP_TOO_BIG = 10066,
        /// The reply exceeds the channel's maximum cached size.
        REP_TOO_BIG_TO_CACHE = 10067,
        /// The reply to the retransmitted request was not cached.
        RETRY_UNCACHED_REP = 10068,
        /// The compound cannot be recovered after a restart.
        UNSAFE_COMPOUND = 10069,
        /// The compound has more operations than the channel allows.
        TOO_MANY_OPS = 10070,
        /// The operation must follow SEQUENCE.
        OP_NOT_IN_SESSION = 10071,
        /// None of the hash algorithms is supported.
        HASH_ALG_UNSUPP = 10072,
        /// The client ID still has state or sessions.
        CLIENTID_BUSY = 10074,
        /// A READ from a data server met a hole of a sparse file.
        PNFS_IO_HOLE = 10075,
        /// The retransmission differs from the request it repeats.
        SEQ_FALSE_RETRY = 10076,
        /// `sa_highest_slotid` is beyond the slot table.
        BAD_HIGH_SLOT = 10077,
        /// The session persists but accepts no new requests.
        DEADSESSION = 10078,
        /// None of the encryption algorithms is supported.
        ENCR_ALG_UNSUPP = 10079,
        /// I/O to a data server without a layout.
        PNFS_NO_LAYOUT = 10080,
        /// The operation must be alone in its compound.
        NOT_ONLY_OP = 10081,
        /// State protection requires another principal.
        WRONG_CRED = 10082,
        /// The operation does not support this object type.
        WRONG_TYPE = 10083,
        /// A directory delegation is not available.
        DIRDELEG_UNAVAIL = 10084,
        /// The client rejects the delegation that was pushed.
        REJECT_DELEG = 10085,
        /// A layout return is in progress.
        RETURNCONFLICT = 10086,
        /// The delegation was revoked.
        DELEG_REVOKED = 10087,
        /// The other server of a copy does not support it (v4.2 from here).
        PARTNER_NOTSUPP = 10088,
        /// The other server of a copy does not authorize it.
        PARTNER_NO_AUTH = 10089,
        /// The arm of the union is not supported.
        UNION_NOTSUPP = 10090,
        /// The destination does not allow the copy.
        OFFLOAD_DENIED = 10091,
        /// The label format is not supported.
        WRONG_LFS = 10092,
        /// The label is not valid.
        BADLABEL = 10093,
        /// The copy cannot meet the required properties.
        OFFLOAD_NO_REQS = 10094,
        /// The extended attribute does not exist (RFC 8276).
        NOXATTR = 10095,
        /// The extended attribute's value is larger than the server allows (RFC 8276).
        XATTR2BIG = 10096,
    }
}

/// The result of an operation that returns only the status on failure: the protocol's
/// `union switch (nfsstat4 status) { case NFS4_OK: T; default: void; }`. `Outcome<()>` is the bare status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome<T> {
    /// `NFS4_OK` and the results.
    Ok(T),
    /// Any other status.
    Error(Status),
}

impl<T> Outcome<T> {
    /// Converts into a [`Result`].
    ///
    /// # Errors
    /// The status, if it is not `NFS4_OK`.
    pub fn into_result(self) -> Result<T, Status> {
        match self {
            Self::Ok(value) => Ok(value),
            Self::Error(status) => Err(status),
        }
    }

    /// Converts into a [`Result`] that borrows the value.
    ///
    /// # Errors
    /// The status, if it is not `NFS4_OK`.
    pub fn as_result(&self) -> Result<&T, Status> {
        match self {
            Self::Ok(value) => Ok(value),
            Self::Error(status) => Err(*status),
        }
    }
}

impl<T> From<Result<T, Status>> for Outcome<T> {
    fn from(result: Result<T, Status>) -> Self {
        match result {
            Ok(value) => Self::Ok(value),
            Err(status) => Self::Error(status),
        }
    }
}

impl<T: Decode> Decode for Outcome<T> {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        match Status::decode(reader)? {
            Status::OK => T::decode(reader).map(Self::Ok),
            status => Ok(Self::Error(status)),
        }
    }
}

impl<T: Encode> Encode for Outcome<T> {
    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Ok(value) => {
                Status::OK.encode(writer);
                value.encode(writer);
            }
            Self::Error(status) => status.encode(writer),
        }
    }
}

/// The result of an operation.
pub trait HasStatus {
    /// Returns the status of the operation.
    fn status(&self) -> Status;
}

impl<T> HasStatus for Outcome<T> {
    fn status(&self) -> Status {
        match self {
            Self::Ok(_) => Status::OK,
            Self::Error(status) => *status,
        }
    }
}
