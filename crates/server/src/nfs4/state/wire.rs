//! Stand-ins for the wire types, until `protocol::nfs4` has them.
#![allow(missing_docs)]

pub type Verifier = [u8; 8];
pub type SessionId = [u8; 16];
pub type ClientId = u64;

xdr::constants! {
    /// `nfsstat4`.
    pub struct Status: u32 {
        OK = 0, PERM = 1, NOENT = 2, INVAL = 22, NOSPC = 28, TOOSMALL = 10005, SERVERFAULT = 10006, DELAY = 10008, DENIED = 10010,
        EXPIRED = 10011, LOCKED = 10012, GRACE = 10013, SHARE_DENIED = 10015, CLID_INUSE = 10017,
        STALE_CLIENTID = 10022, STALE_STATEID = 10023, OLD_STATEID = 10024, BAD_STATEID = 10025, NOT_SAME = 10027,
        NO_GRACE = 10033, RECLAIM_BAD = 10034, RECLAIM_CONFLICT = 10035, LOCKS_HELD = 10037, OPENMODE = 10038,
        BAD_RANGE = 10042, ADMIN_REVOKED = 10047, BADSESSION = 10052, BADSLOT = 10053, COMPLETE_ALREADY = 10054,
        CONN_NOT_BOUND_TO_SESSION = 10055, SEQ_MISORDERED = 10063, CLIENTID_BUSY = 10074, SEQ_FALSE_RETRY = 10076,
        BAD_HIGH_SLOT = 10077, DEADSESSION = 10078, DELEG_REVOKED = 10087,
    }
}

/// `stateid4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Stateid {
    pub seqid: u32,
    pub other: [u8; 12],
}

impl Stateid {
    pub const ANONYMOUS: Self = Self { seqid: 0, other: [0; 12] };
    pub const READ_BYPASS: Self = Self { seqid: u32::MAX, other: [0xff; 12] };
    pub const CURRENT: Self = Self { seqid: 1, other: [0; 12] };
    pub const INVALID: Self = Self { seqid: u32::MAX, other: [0; 12] };
    #[must_use]
    pub fn is_special(&self) -> bool {
        self.other == [0; 12] || self.other == [0xff; 12]
    }
}

/// `nfs_lock_type4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockType {
    Read = 1,
    Write = 2,
    ReadWait = 3,
    WriteWait = 4,
}
impl LockType {
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteWait)
    }
}

/// `state_owner4`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct StateOwner {
    pub client_id: ClientId,
    pub owner: xdr::Opaque<1024>,
}

/// `LOCK4denied`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockDenied {
    pub offset: u64,
    pub length: u64,
    pub lock_type: LockType,
    pub owner: StateOwner,
}

/// `channel_attrs4`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChannelAttributes {
    pub header_pad_size: u32,
    pub max_request_size: u32,
    pub max_response_size: u32,
    pub max_response_size_cached: u32,
    pub max_operations: u32,
    pub max_requests: u32,
    pub rdma_ird: xdr::List<u32, 1>,
}

macro_rules! flags {
    ($(#[$meta:meta])* pub struct $name:ident { $($item:ident = $value:expr),* $(,)? }) => {
        bitflags::bitflags! {
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
            pub struct $name: u32 { $(const $item = $value;)* const _ = !0; }
        }
    };
}

flags! {
    /// `csa_flags`.
    pub struct CreateSessionFlags { PERSIST = 1, CONN_BACK_CHAN = 2, CONN_RDMA = 4 }
}
flags! {
    /// `sr_status_flags`.
    pub struct SequenceStatus {
        CB_PATH_DOWN = 0x0001, EXPIRED_ALL_STATE_REVOKED = 0x0008, EXPIRED_SOME_STATE_REVOKED = 0x0010,
        ADMIN_STATE_REVOKED = 0x0020, RECALLABLE_STATE_REVOKED = 0x0040, RESTART_RECLAIM_NEEDED = 0x0100,
        CB_PATH_DOWN_SESSION = 0x0200,
    }
}
flags! {
    /// `share_access`.
    pub struct ShareAccess { READ = 1, WRITE = 2, BOTH = 3 }
}
impl ShareAccess {
    #[must_use]
    pub const fn access(self) -> Self {
        self.intersection(Self::BOTH)
    }
}
flags! {
    /// `share_deny`.
    pub struct ShareDeny { READ = 1, WRITE = 2, BOTH = 3 }
}

xdr::constants! {
    /// `channel_dir_from_client4`.
    pub struct DirFromClient: u32 { FORE = 1, BACK = 2, FORE_OR_BOTH = 3, BACK_OR_BOTH = 7 }
}
xdr::constants! {
    /// `channel_dir_from_server4`.
    pub struct DirFromServer: u32 { FORE = 1, BACK = 2, BOTH = 3 }
}

/// `SEQUENCE4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceArgs {
    pub session_id: SessionId,
    pub sequence_id: u32,
    pub slot_id: u32,
    pub highest_slot_id: u32,
    pub cache_this: bool,
}

/// `SEQUENCE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceOk {
    pub session_id: SessionId,
    pub sequence_id: u32,
    pub slot_id: u32,
    pub highest_slot_id: u32,
    pub target_highest_slot_id: u32,
    pub status_flags: SequenceStatus,
}

/// `CREATE_SESSION4resok`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateSessionOk {
    pub session_id: SessionId,
    pub sequence: u32,
    pub flags: CreateSessionFlags,
    pub fore_channel: ChannelAttributes,
    pub back_channel: ChannelAttributes,
}
