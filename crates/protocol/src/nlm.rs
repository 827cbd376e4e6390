//! The network lock manager, version 4 (RFC 1813 §6, which gives the differences to version 3; the structures that it leaves out
//! are those of X/Open's "Protocols for Interworking: XNFS").
//!
//! Each of TEST to GRANTED comes in two forms: as a call with a result, and as a pair of calls, one each way, without results
//! (`_MSG`, `_RES`).

use xdr::{Decode, DecodeError, Encode, Opaque, Reader, Writer};

use crate::procedure::{Effect, Procedure, ProgramVersion};

/// The program's number (RFC 1813 §6.1.2).
pub const PROGRAM: u32 = 100_021;
/// The version that goes with NFS version 3.
pub const VERSION: u32 = 4;

/// The greatest length in bytes of a name (XNFS, `LM_MAXSTRLEN`).
pub const MAXSTRLEN: usize = 1024;
/// The greatest length in bytes of a [`NetObj`] (XNFS, `MAXNETOBJ_SZ`).
pub const MAXNETOBJ_SZ: usize = 1024;

/// The name of a machine.
pub type Name = Opaque<MAXSTRLEN>;
/// Something that the other side does not look into: a cookie, an owner, a file handle (`netobj`).
pub type NetObj = Opaque<MAXNETOBJ_SZ>;

xdr::constants! {
    /// The procedures (RFC 1813 §6.2).
    pub struct Proc: u32 {
        /// Does nothing.
        NULL = 0,
        /// Looks for a conflicting lock. Arguments: [`TestArgs`]; results: [`TestRes`].
        TEST = 1,
        /// Sets a lock. Arguments: [`LockArgs`]; results: [`Res`].
        LOCK = 2,
        /// Takes back a request that waits. Arguments: [`CancelArgs`]; results: [`Res`].
        CANCEL = 3,
        /// Removes a lock. Arguments: [`UnlockArgs`]; results: [`Res`].
        UNLOCK = 4,
        /// From the server: a request that waited is granted. Arguments: [`TestArgs`]; results: [`Res`].
        GRANTED = 5,
        /// TEST without a result.
        TEST_MSG = 6,
        /// LOCK without a result.
        LOCK_MSG = 7,
        /// CANCEL without a result.
        CANCEL_MSG = 8,
        /// UNLOCK without a result.
        UNLOCK_MSG = 9,
        /// GRANTED without a result.
        GRANTED_MSG = 10,
        /// The result of TEST_MSG. Arguments: [`TestRes`].
        TEST_RES = 11,
        /// The result of LOCK_MSG. Arguments: [`Res`].
        LOCK_RES = 12,
        /// The result of CANCEL_MSG. Arguments: [`Res`].
        CANCEL_RES = 13,
        /// The result of UNLOCK_MSG. Arguments: [`Res`].
        UNLOCK_RES = 14,
        /// The result of GRANTED_MSG. Arguments: [`Res`].
        GRANTED_RES = 15,
        /// Sets a share reservation. Arguments: [`ShareArgs`]; results: [`ShareRes`].
        SHARE = 20,
        /// Removes a share reservation. Arguments: [`ShareArgs`]; results: [`ShareRes`].
        UNSHARE = 21,
        /// Sets a lock that nobody monitors. Arguments: [`LockArgs`]; results: [`Res`].
        NM_LOCK = 22,
        /// Removes all locks of a machine. Arguments: [`Notify`].
        FREE_ALL = 23,
    }
}

xdr::constants! {
    /// The status of a procedure (RFC 1813 §6.1.4, `nlm4_stats`).
    pub struct Stats: u32 {
        /// The call completed successfully.
        GRANTED = 0,
        /// The call failed; for a lock, it may succeed later.
        DENIED = 1,
        /// The server lacks resources.
        DENIED_NOLOCKS = 2,
        /// The request waits; GRANTED will come.
        BLOCKED = 3,
        /// The server takes reclaims only, after a restart.
        DENIED_GRACE_PERIOD = 4,
        /// Waiting would never end.
        DEADLCK = 5,
        /// The file system is read-only.
        ROFS = 6,
        /// The handle's file is gone.
        STALE_FH = 7,
        /// The range is beyond what the server supports.
        FBIG = 8,
        /// Another failure; trying again is useless.
        FAILED = 9,
    }
}

/// The holder of a lock (`nlm4_holder`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Holder {
    /// Whether the lock is exclusive.
    pub exclusive: bool,
    /// The process.
    pub svid: i32,
    /// The machine or process.
    pub oh: NetObj,
    /// Where the lock begins, in bytes.
    pub l_offset: u64,
    /// How many bytes; 0 means to the end of the file.
    pub l_len: u64,
}

/// A lock, held or asked for (`nlm4_lock`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Lock {
    /// Who asks.
    pub caller_name: Name,
    /// The file: an NFS version 3 handle.
    pub fh: NetObj,
    /// The machine or process that asks.
    pub oh: NetObj,
    /// The process that asks.
    pub svid: i32,
    /// Where the lock begins, in bytes.
    pub l_offset: u64,
    /// How many bytes; 0 means to the end of the file.
    pub l_len: u64,
}

/// Arguments of TEST and GRANTED (`nlm4_testargs`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct TestArgs {
    /// Comes back in the result.
    pub cookie: NetObj,
    /// Whether the lock is exclusive.
    pub exclusive: bool,
    /// The lock.
    pub alock: Lock,
}

/// Arguments of LOCK (`nlm4_lockargs`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LockArgs {
    /// Comes back in the result.
    pub cookie: NetObj,
    /// Whether to wait.
    pub block: bool,
    /// Whether the lock is exclusive.
    pub exclusive: bool,
    /// The lock.
    pub alock: Lock,
    /// Whether the lock was held before the server restarted.
    pub reclaim: bool,
    /// The state number of the caller's status monitor.
    pub state: i32,
}

/// Arguments of CANCEL (`nlm4_cancargs`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CancelArgs {
    /// Comes back in the result.
    pub cookie: NetObj,
    /// As in the LOCK that is taken back.
    pub block: bool,
    /// As in the LOCK that is taken back.
    pub exclusive: bool,
    /// As in the LOCK that is taken back.
    pub alock: Lock,
}

/// Arguments of UNLOCK (`nlm4_unlockargs`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct UnlockArgs {
    /// Comes back in the result.
    pub cookie: NetObj,
    /// The range.
    pub alock: Lock,
}

/// Results of most procedures (`nlm4_res`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Res {
    /// The call's.
    pub cookie: NetObj,
    /// The status.
    pub stat: Stats,
}

/// What a TEST found (`nlm4_testrply`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestReply {
    /// `DENIED`, and who holds a conflicting lock.
    Denied(Holder),
    /// Any other status.
    Other(Stats),
}

impl Encode for TestReply {
    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Denied(holder) => {
                Stats::DENIED.encode(writer);
                holder.encode(writer);
            }
            Self::Other(stat) => {
                debug_assert_ne!(*stat, Stats::DENIED, "DENIED tells the holder");
                stat.encode(writer);
            }
        }
    }
}

impl Decode for TestReply {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        match Stats::decode(reader)? {
            Stats::DENIED => Holder::decode(reader).map(Self::Denied),
            stat => Ok(Self::Other(stat)),
        }
    }
}

/// Results of TEST (`nlm4_testres`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct TestRes {
    /// The call's.
    pub cookie: NetObj,
    /// What was found.
    pub stat: TestReply,
}

xdr::constants! {
    /// What a share reservation denies others (`fsh4_mode`).
    pub struct ShareMode: u32 {
        /// Nothing.
        DN = 0,
        /// Reading.
        DR = 1,
        /// Writing.
        DW = 2,
        /// Both.
        DRW = 3,
    }
}

xdr::constants! {
    /// What a share reservation is for (`fsh4_access`).
    pub struct ShareAccess: u32 {
        /// Nothing.
        NONE = 0,
        /// Reading.
        R = 1,
        /// Writing.
        W = 2,
        /// Both.
        RW = 3,
    }
}

/// A share reservation (`nlm4_share`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Share {
    /// Who asks.
    pub caller_name: Name,
    /// The file: an NFS version 3 handle.
    pub fh: NetObj,
    /// The machine or process that asks.
    pub oh: NetObj,
    /// What others are denied.
    pub mode: ShareMode,
    /// What it is for.
    pub access: ShareAccess,
}

/// Arguments of SHARE and UNSHARE (`nlm4_shareargs`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ShareArgs {
    /// Comes back in the result.
    pub cookie: NetObj,
    /// The reservation.
    pub share: Share,
    /// Whether it was held before the server restarted.
    pub reclaim: bool,
}

/// Results of SHARE and UNSHARE (`nlm4_shareres`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ShareRes {
    /// The call's.
    pub cookie: NetObj,
    /// The status.
    pub stat: Stats,
    /// Unused.
    pub sequence: i32,
}

/// Arguments of FREE_ALL (`nlm4_notify`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Notify {
    /// The machine that restarted.
    pub name: Name,
    /// The state number of its status monitor.
    pub state: i32,
}

/// What is known of each procedure. A repeated LOCK is granted again, as the caller holds it already; but a LOCK, UNLOCK or CANCEL that
/// comes late may undo what the same process did since, and only a kept reply tells the one from the other.
pub static TABLE: ProgramVersion = ProgramVersion {
    program: PROGRAM,
    version: VERSION,
    name: "nlm4",
    procedures: &[
        Procedure::new(0, "NULL", Effect::None),
        Procedure::new(1, "TEST", Effect::None),
        Procedure::new(2, "LOCK", Effect::Once),
        Procedure::new(3, "CANCEL", Effect::Once),
        Procedure::new(4, "UNLOCK", Effect::Once),
        Procedure::new(5, "GRANTED", Effect::Once),
        Procedure::new(6, "TEST_MSG", Effect::None),
        Procedure::new(7, "LOCK_MSG", Effect::Once),
        Procedure::new(8, "CANCEL_MSG", Effect::Once),
        Procedure::new(9, "UNLOCK_MSG", Effect::Once),
        Procedure::new(10, "GRANTED_MSG", Effect::Once),
        Procedure::new(11, "TEST_RES", Effect::Repeatable),
        Procedure::new(12, "LOCK_RES", Effect::Repeatable),
        Procedure::new(13, "CANCEL_RES", Effect::Repeatable),
        Procedure::new(14, "UNLOCK_RES", Effect::Repeatable),
        Procedure::new(15, "GRANTED_RES", Effect::Repeatable),
        Procedure::new(20, "SHARE", Effect::Once),
        Procedure::new(21, "UNSHARE", Effect::Once),
        Procedure::new(22, "NM_LOCK", Effect::Once),
        Procedure::new(23, "FREE_ALL", Effect::Repeatable),
    ],
};
