//! Operation numbers of COMPOUND and CB_COMPOUND.

xdr::constants! {
    /// `nfs_opnum4` of all minor versions (RFC 7863, RFC 8276).
    pub struct OpNum: u32 {
        /// Check access rights.
        ACCESS = 3,
        /// Close a file.
        CLOSE = 4,
        /// Commit written data to stable storage.
        COMMIT = 5,
        /// Create an object that is not a regular file.
        CREATE = 6,
        /// Purge delegations awaiting recovery.
        DELEGPURGE = 7,
        /// Return a delegation.
        DELEGRETURN = 8,
        /// Get attributes.
        GETATTR = 9,
        /// Get the current file handle.
        GETFH = 10,
        /// Create a hard link.
        LINK = 11,
        /// Lock a byte range.
        LOCK = 12,
        /// Test for a lock.
        LOCKT = 13,
        /// Unlock a byte range.
        LOCKU = 14,
        /// Look up a name.
        LOOKUP = 15,
        /// Look up the parent directory.
        LOOKUPP = 16,
        /// Continue if attributes differ.
        NVERIFY = 17,
        /// Open or create a regular file.
        OPEN = 18,
        /// Open the named-attribute directory.
        OPENATTR = 19,
        /// Confirm an open (v4.0).
        OPEN_CONFIRM = 20,
        /// Reduce an open's access.
        OPEN_DOWNGRADE = 21,
        /// Set the current file handle.
        PUTFH = 22,
        /// Set the public file handle.
        PUTPUBFH = 23,
        /// Set the root file handle.
        PUTROOTFH = 24,
        /// Read from a file.
        READ = 25,
        /// Read a directory.
        READDIR = 26,
        /// Read a symbolic link.
        READLINK = 27,
        /// Remove an object.
        REMOVE = 28,
        /// Rename an object.
        RENAME = 29,
        /// Renew a lease (v4.0).
        RENEW = 30,
        /// Make the saved file handle current.
        RESTOREFH = 31,
        /// Save the current file handle.
        SAVEFH = 32,
        /// Get the security flavors of a name.
        SECINFO = 33,
        /// Set attributes.
        SETATTR = 34,
        /// Negotiate a client ID (v4.0).
        SETCLIENTID = 35,
        /// Confirm a client ID (v4.0).
        SETCLIENTID_CONFIRM = 36,
        /// Continue if attributes are equal.
        VERIFY = 37,
        /// Write to a file.
        WRITE = 38,
        /// Release a lock owner (v4.0).
        RELEASE_LOCKOWNER = 39,
        /// Change the back channel's program and security.
        BACKCHANNEL_CTL = 40,
        /// Associate a connection with a session.
        BIND_CONN_TO_SESSION = 41,
        /// Negotiate a client ID.
        EXCHANGE_ID = 42,
        /// Create a session and confirm the client ID.
        CREATE_SESSION = 43,
        /// Destroy a session.
        DESTROY_SESSION = 44,
        /// Free a stateid without locks.
        FREE_STATEID = 45,
        /// Get a directory delegation.
        GET_DIR_DELEGATION = 46,
        /// Get a storage device's address.
        GETDEVICEINFO = 47,
        /// Get all devices of a file system (v4.1 only).
        GETDEVICELIST = 48,
        /// Commit writes made by a layout.
        LAYOUTCOMMIT = 49,
        /// Get a layout.
        LAYOUTGET = 50,
        /// Return a layout.
        LAYOUTRETURN = 51,
        /// Get the security flavors of an object.
        SECINFO_NO_NAME = 52,
        /// Name session, slot and sequence.
        SEQUENCE = 53,
        /// Set the secret state verifier.
        SET_SSV = 54,
        /// Test stateids for validity.
        TEST_STATEID = 55,
        /// Request a delegation.
        WANT_DELEGATION = 56,
        /// Destroy a client ID.
        DESTROY_CLIENTID = 57,
        /// Report the end of reclaims.
        RECLAIM_COMPLETE = 58,
        /// Reserve space.
        ALLOCATE = 59,
        /// Copy between files, also of other servers.
        COPY = 60,
        /// Announce a copy to the source server.
        COPY_NOTIFY = 61,
        /// Deallocate space.
        DEALLOCATE = 62,
        /// Advise on access patterns.
        IO_ADVISE = 63,
        /// Report errors of data servers.
        LAYOUTERROR = 64,
        /// Report statistics of a layout.
        LAYOUTSTATS = 65,
        /// Stop a background operation.
        OFFLOAD_CANCEL = 66,
        /// Poll a background operation.
        OFFLOAD_STATUS = 67,
        /// Read data and holes.
        READ_PLUS = 68,
        /// Find the next data or hole.
        SEEK = 69,
        /// Write a pattern repeatedly.
        WRITE_SAME = 70,
        /// Share a range copy-on-write.
        CLONE = 71,
        /// Read an extended attribute (RFC 8276).
        GETXATTR = 72,
        /// Set an extended attribute (RFC 8276).
        SETXATTR = 73,
        /// List extended attributes (RFC 8276).
        LISTXATTRS = 74,
        /// Remove an extended attribute (RFC 8276).
        REMOVEXATTR = 75,
        /// Used in replies for an undefined operation number.
        ILLEGAL = 10044,
    }
}

/// An operation that some minor version defines, for matches that the compiler proves complete. [`OpNum`] is any number from
/// the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
#[rustfmt::skip]
#[allow(missing_docs, reason = "each is described at its number in OpNum")]
pub enum Opcode {
    Access = OpNum::ACCESS.0,
    Close = OpNum::CLOSE.0,
    Commit = OpNum::COMMIT.0,
    Create = OpNum::CREATE.0,
    Delegpurge = OpNum::DELEGPURGE.0,
    Delegreturn = OpNum::DELEGRETURN.0,
    Getattr = OpNum::GETATTR.0,
    Getfh = OpNum::GETFH.0,
    Link = OpNum::LINK.0,
    Lock = OpNum::LOCK.0,
    Lockt = OpNum::LOCKT.0,
    Locku = OpNum::LOCKU.0,
    Lookup = OpNum::LOOKUP.0,
    Lookupp = OpNum::LOOKUPP.0,
    Nverify = OpNum::NVERIFY.0,
    Open = OpNum::OPEN.0,
    Openattr = OpNum::OPENATTR.0,
    OpenConfirm = OpNum::OPEN_CONFIRM.0,
    OpenDowngrade = OpNum::OPEN_DOWNGRADE.0,
    Putfh = OpNum::PUTFH.0,
    Putpubfh = OpNum::PUTPUBFH.0,
    Putrootfh = OpNum::PUTROOTFH.0,
    Read = OpNum::READ.0,
    Readdir = OpNum::READDIR.0,
    Readlink = OpNum::READLINK.0,
    Remove = OpNum::REMOVE.0,
    Rename = OpNum::RENAME.0,
    Renew = OpNum::RENEW.0,
    Restorefh = OpNum::RESTOREFH.0,
    Savefh = OpNum::SAVEFH.0,
    Secinfo = OpNum::SECINFO.0,
    Setattr = OpNum::SETATTR.0,
    Setclientid = OpNum::SETCLIENTID.0,
    SetclientidConfirm = OpNum::SETCLIENTID_CONFIRM.0,
    Verify = OpNum::VERIFY.0,
    Write = OpNum::WRITE.0,
    ReleaseLockowner = OpNum::RELEASE_LOCKOWNER.0,
    BackchannelCtl = OpNum::BACKCHANNEL_CTL.0,
    BindConnToSession = OpNum::BIND_CONN_TO_SESSION.0,
    ExchangeId = OpNum::EXCHANGE_ID.0,
    CreateSession = OpNum::CREATE_SESSION.0,
    DestroySession = OpNum::DESTROY_SESSION.0,
    FreeStateid = OpNum::FREE_STATEID.0,
    GetDirDelegation = OpNum::GET_DIR_DELEGATION.0,
    Getdeviceinfo = OpNum::GETDEVICEINFO.0,
    Getdevicelist = OpNum::GETDEVICELIST.0,
    Layoutcommit = OpNum::LAYOUTCOMMIT.0,
    Layoutget = OpNum::LAYOUTGET.0,
    Layoutreturn = OpNum::LAYOUTRETURN.0,
    SecinfoNoName = OpNum::SECINFO_NO_NAME.0,
    Sequence = OpNum::SEQUENCE.0,
    SetSsv = OpNum::SET_SSV.0,
    TestStateid = OpNum::TEST_STATEID.0,
    WantDelegation = OpNum::WANT_DELEGATION.0,
    DestroyClientid = OpNum::DESTROY_CLIENTID.0,
    ReclaimComplete = OpNum::RECLAIM_COMPLETE.0,
    Allocate = OpNum::ALLOCATE.0,
    Copy = OpNum::COPY.0,
    CopyNotify = OpNum::COPY_NOTIFY.0,
    Deallocate = OpNum::DEALLOCATE.0,
    IoAdvise = OpNum::IO_ADVISE.0,
    Layouterror = OpNum::LAYOUTERROR.0,
    Layoutstats = OpNum::LAYOUTSTATS.0,
    OffloadCancel = OpNum::OFFLOAD_CANCEL.0,
    OffloadStatus = OpNum::OFFLOAD_STATUS.0,
    ReadPlus = OpNum::READ_PLUS.0,
    Seek = OpNum::SEEK.0,
    WriteSame = OpNum::WRITE_SAME.0,
    Clone = OpNum::CLONE.0,
    Getxattr = OpNum::GETXATTR.0,
    Setxattr = OpNum::SETXATTR.0,
    Listxattrs = OpNum::LISTXATTRS.0,
    Removexattr = OpNum::REMOVEXATTR.0,
}

impl Opcode {
    /// Its number on the wire.
    #[inline]
    #[must_use]
    pub const fn number(self) -> OpNum {
        OpNum(self as u32)
    }
}

xdr::constants! {
    /// `nfs_cb_opnum4` of all minor versions (RFC 7863).
    pub struct CallbackOpNum: u32 {
        /// Get attributes from the holder of a write delegation.
        GETATTR = 3,
        /// Recall a delegation.
        RECALL = 4,
        /// Recall layouts.
        LAYOUTRECALL = 5,
        /// Report changes of a directory.
        NOTIFY = 6,
        /// Grant a delegation that the client wanted.
        PUSH_DELEG = 7,
        /// Ask the client to return some recallable objects.
        RECALL_ANY = 8,
        /// Report that recallable objects are available.
        RECALLABLE_OBJ_AVAIL = 9,
        /// Ask the client to use fewer slots.
        RECALL_SLOT = 10,
        /// Name session, slot and sequence.
        SEQUENCE = 11,
        /// Report that wanted delegations will not be granted.
        WANTS_CANCELLED = 12,
        /// Report that a lock may be available.
        NOTIFY_LOCK = 13,
        /// Report changes of storage devices.
        NOTIFY_DEVICEID = 14,
        /// Report the end of a background operation (v4.2).
        OFFLOAD = 15,
        /// Used in replies for an undefined operation number.
        ILLEGAL = 10044,
    }
}
