//! The network lock manager, versions 1, 3 and 4. The structures are from X/Open's "Protocols for Interworking: XNFS"; RFC 1813
//! §6 defines the differences of version 4.
//!
//! Versions 1 and 3 have offsets and lengths of 32 bits, and fewer statuses; version 1 has no SHARE, UNSHARE, NM_LOCK and FREE_ALL.
//! So structures with offsets are generic over their type: `Lock` is that of version 4, `Lock<u32>` that of the others. Version 2
//! has no description and is not used.
//!
//! The procedures TEST to GRANTED have two forms: a call with a result, or two calls without results, one in each direction
//! (`_MSG`, `_RES`).

use xdr::{Decode, DecodeError, Encode, Opaque, Reader, Writer};

use crate::procedure::{Effect, Procedure, ProgramVersion};

/// The program's number (RFC 1813 §6.1.2).
pub const PROGRAM: u32 = 100_021;
/// The version for NFS version 3.
pub const VERSION: u32 = 4;
/// The version with share reservations, for NFS version 2.
pub const VERSION_3: u32 = 3;
/// The first version, for NFS version 2.
pub const VERSION_1: u32 = 1;

/// The maximum length in bytes of a name (XNFS, `LM_MAXSTRLEN`).
pub const MAXSTRLEN: usize = 1024;
/// The maximum length in bytes of a [`NetObj`] (XNFS, `MAXNETOBJ_SZ`).
pub const MAXNETOBJ_SZ: usize = 1024;

/// The name of a host.
pub type Name = Opaque<MAXSTRLEN>;
/// Data that are opaque to the other side: a cookie, an owner, a file handle (`netobj`).
pub type NetObj = Opaque<MAXNETOBJ_SZ>;

xdr::constants! {
    /// The procedures (RFC 1813 §6.2).
    pub struct Proc: u32 {
        /// Does nothing.
        NULL = 0,
        /// Finds a conflicting lock. Arguments: [`TestArgs`]; results: [`TestRes`].
        TEST = 1,
        /// Sets a lock. Arguments: [`LockArgs`]; results: [`Res`].
        LOCK = 2,
        /// Cancels a waiting request. Arguments: [`CancelArgs`]; results: [`Res`].
        CANCEL = 3,
        /// Removes a lock. Arguments: [`UnlockArgs`]; results: [`Res`].
        UNLOCK = 4,
        /// From the server: grants a waiting request. Arguments: [`TestArgs`]; results: [`Res`].
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
        /// Sets a lock of a host that is not monitored. Arguments: [`LockArgs`]; results: [`Res`].
        NM_LOCK = 22,
        /// Removes all locks of a host. Arguments: [`Notify`].
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
        /// The request waits; the server sends GRANTED later.
        BLOCKED = 3,
        /// The server is in its grace period and accepts only reclaims.
        DENIED_GRACE_PERIOD = 4,
        /// Waiting would be a deadlock.
        DEADLCK = 5,
        /// The file system is read-only.
        ROFS = 6,
        /// The handle's file no longer exists.
        STALE_FH = 7,
        /// The range is beyond the server's largest offset.
        FBIG = 8,
        /// Another failure; a retry is useless.
        FAILED = 9,
    }
}

/// The holder of a lock (`nlm4_holder`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Holder<O = u64> {
    /// Whether the lock is exclusive.
    pub exclusive: bool,
    /// The process that holds it.
    pub svid: i32,
    /// The host or process that holds it.
    pub oh: NetObj,
    /// Offset of the lock's first byte.
    pub l_offset: O,
    /// Number of bytes; 0 means to the end of the file.
    pub l_len: O,
}

/// A held or requested lock (`nlm4_lock`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Lock<O = u64> {
    /// The host that makes the request.
    pub caller_name: Name,
    /// The file: an NFS version 3 handle.
    pub fh: NetObj,
    /// The host or process that makes the request.
    pub oh: NetObj,
    /// The process that makes the request.
    pub svid: i32,
    /// Offset of the lock's first byte.
    pub l_offset: O,
    /// Number of bytes; 0 means to the end of the file.
    pub l_len: O,
}

impl From<Lock<u32>> for Lock {
    fn from(lock: Lock<u32>) -> Self {
        let Lock { caller_name, fh, oh, svid, l_offset, l_len } = lock;
        Self { caller_name, fh, oh, svid, l_offset: l_offset.into(), l_len: l_len.into() }
    }
}

/// Arguments of TEST and GRANTED (`nlm4_testargs`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct TestArgs<O = u64> {
    /// Repeated in the result.
    pub cookie: NetObj,
    /// Whether the lock is exclusive.
    pub exclusive: bool,
    /// The lock.
    pub alock: Lock<O>,
}

impl From<TestArgs<u32>> for TestArgs {
    fn from(TestArgs { cookie, exclusive, alock }: TestArgs<u32>) -> Self {
        Self { cookie, exclusive, alock: alock.into() }
    }
}

/// Arguments of LOCK (`nlm4_lockargs`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct LockArgs<O = u64> {
    /// Repeated in the result.
    pub cookie: NetObj,
    /// Whether to wait.
    pub block: bool,
    /// Whether the lock is exclusive.
    pub exclusive: bool,
    /// The lock.
    pub alock: Lock<O>,
    /// Whether the lock was held before the server restarted.
    pub reclaim: bool,
    /// The state number of the caller's status monitor.
    pub state: i32,
}

impl From<LockArgs<u32>> for LockArgs {
    fn from(LockArgs { cookie, block, exclusive, alock, reclaim, state }: LockArgs<u32>) -> Self {
        Self { cookie, block, exclusive, alock: alock.into(), reclaim, state }
    }
}

/// Arguments of CANCEL (`nlm4_cancargs`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CancelArgs<O = u64> {
    /// Repeated in the result.
    pub cookie: NetObj,
    /// As in the LOCK to cancel.
    pub block: bool,
    /// As in the LOCK to cancel.
    pub exclusive: bool,
    /// As in the LOCK to cancel.
    pub alock: Lock<O>,
}

impl From<CancelArgs<u32>> for CancelArgs {
    fn from(CancelArgs { cookie, block, exclusive, alock }: CancelArgs<u32>) -> Self {
        Self { cookie, block, exclusive, alock: alock.into() }
    }
}

/// Arguments of UNLOCK (`nlm4_unlockargs`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct UnlockArgs<O = u64> {
    /// Repeated in the result.
    pub cookie: NetObj,
    /// The range.
    pub alock: Lock<O>,
}

impl From<UnlockArgs<u32>> for UnlockArgs {
    fn from(UnlockArgs { cookie, alock }: UnlockArgs<u32>) -> Self {
        Self { cookie, alock: alock.into() }
    }
}

/// Results of most procedures (`nlm4_res`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Res {
    /// Repeated from the call.
    pub cookie: NetObj,
    /// The status.
    pub stat: Stats,
}

/// The outcome of a TEST (`nlm4_testrply`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestReply<O = u64> {
    /// `DENIED`, with the holder of the conflicting lock.
    Denied(Holder<O>),
    /// Any other status.
    Other(Stats),
}

impl<O: Encode> Encode for TestReply<O> {
    fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Denied(holder) => {
                Stats::DENIED.encode(writer);
                holder.encode(writer);
            }
            Self::Other(stat) => {
                debug_assert_ne!(*stat, Stats::DENIED, "DENIED has a holder");
                stat.encode(writer);
            }
        }
    }
}

impl<O: Decode> Decode for TestReply<O> {
    fn decode(reader: &mut Reader) -> Result<Self, DecodeError> {
        match Stats::decode(reader)? {
            Stats::DENIED => Holder::decode(reader).map(Self::Denied),
            stat => Ok(Self::Other(stat)),
        }
    }
}

/// Results of TEST (`nlm4_testres`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct TestRes<O = u64> {
    /// Repeated from the call.
    pub cookie: NetObj,
    /// The outcome.
    pub stat: TestReply<O>,
}

xdr::constants! {
    /// The accesses that a share reservation denies to others (`fsh4_mode`).
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
    /// The accesses that a share reservation grants (`fsh4_access`).
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
    /// The host that makes the request.
    pub caller_name: Name,
    /// The file: an NFS version 3 handle.
    pub fh: NetObj,
    /// The host or process that makes the request.
    pub oh: NetObj,
    /// The accesses denied to others.
    pub mode: ShareMode,
    /// The accesses granted.
    pub access: ShareAccess,
}

/// Arguments of SHARE and UNSHARE (`nlm4_shareargs`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ShareArgs {
    /// Repeated in the result.
    pub cookie: NetObj,
    /// The reservation.
    pub share: Share,
    /// Whether it was held before the server restarted.
    pub reclaim: bool,
}

/// Results of SHARE and UNSHARE (`nlm4_shareres`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ShareRes {
    /// Repeated from the call.
    pub cookie: NetObj,
    /// The status.
    pub stat: Stats,
    /// Unused.
    pub sequence: i32,
}

/// Arguments of FREE_ALL (`nlm4_notify`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct Notify {
    /// The host that restarted.
    pub name: Name,
    /// The state number of its status monitor.
    pub state: i32,
}

/// The procedures. A repeated LOCK is granted again, because the caller already holds the lock. But a late LOCK, UNLOCK or
/// CANCEL could undo a newer operation of the same process, so the replies are cached.
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
        Procedure::new(23, "FREE_ALL", Effect::Once),
    ],
};
