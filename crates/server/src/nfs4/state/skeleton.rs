//! The public interface, before its parts come.
#![allow(clippy::todo, unused_variables, clippy::missing_panics_doc)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use vfs::{Authority, Pin};

use super::wire::{
    ChannelAttributes, ClientId, CreateSessionFlags, CreateSessionOk, DirFromClient, DirFromServer,
    LockDenied, LockType, SequenceArgs, SequenceOk, SessionId, ShareAccess, ShareDeny, Stateid, Status,
    Verifier,
};
use crate::{ConnectionId, Settings};

/// All NFSv4 state of a server; one for all cores.
#[derive(Debug)]
pub struct State {}

/// Who sent a request, as far as client records tell principals apart (RFC 8881 §18.35.4).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// AUTH_NONE.
    Anonymous,
    /// AUTH_SYS: the user on the client, before squashing.
    System(u32),
    /// RPCSEC_GSS: the principal's name.
    Gss(Bytes),
}

/// A client record. Sessions and state hold on to it.
#[derive(Debug)]
pub struct Client {}

impl Client {
    /// `clientid4`.
    #[must_use]
    pub fn id(&self) -> ClientId {
        todo!()
    }
}

/// What EXCHANGE_ID asks. The operation checks flags and state protection itself (only SP4_NONE exists here).
#[derive(Debug, Clone, Copy)]
pub struct ExchangeId<'a> {
    /// `co_ownerid`.
    pub owner: &'a [u8],
    /// `co_verifier`.
    pub verifier: Verifier,
    /// Of the request.
    pub principal: &'a Principal,
    /// `EXCHGID4_FLAG_UPD_CONFIRMED_REC_A`.
    pub update: bool,
}

/// What EXCHANGE_ID answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangedId {
    /// `eir_clientid`.
    pub client_id: ClientId,
    /// `eir_sequenceid`.
    pub sequence_id: u32,
    /// `EXCHGID4_FLAG_CONFIRMED_R`.
    pub confirmed: bool,
}

/// What CREATE_SESSION asks.
#[derive(Debug, Clone, Copy)]
pub struct CreateSession<'a> {
    /// `csa_clientid`.
    pub client_id: ClientId,
    /// `csa_sequence`.
    pub sequence: u32,
    /// `csa_flags`.
    pub flags: CreateSessionFlags,
    /// `csa_fore_chan_attrs`.
    pub fore_channel: &'a ChannelAttributes,
    /// `csa_back_chan_attrs`.
    pub back_channel: &'a ChannelAttributes,
    /// `csa_cb_program`.
    pub callback_program: u32,
    /// Of the request.
    pub principal: &'a Principal,
    /// Over which it came.
    pub connection: ConnectionId,
}

/// What SEQUENCE leads to.
#[derive(Debug)]
pub enum Sequenced {
    /// Execute the rest of the compound.
    New(Running),
    /// Answer without executing.
    Replay(Replay),
}

/// Answer to a retransmission.
#[derive(Debug, Clone)]
pub struct Replay {
    /// SEQUENCE's result.
    pub sequence: SequenceOk,
    /// The bytes given to [`Running::finish`]; `None` where they were not kept: then the reply is SEQUENCE with
    /// `sequence`, and the next operation, if there is one, with RETRY_UNCACHED_REP (RFC 8881 §2.10.6.1.3).
    pub reply: Option<Bytes>,
}

/// A request that has its slot. It is executed once, whatever happens to it.
#[derive(Debug)]
#[must_use = "dropping it ends the request without a reply"]
pub struct Running {}

impl Running {
    /// SEQUENCE's result.
    #[must_use]
    pub fn sequence(&self) -> &SequenceOk {
        todo!()
    }
    /// Whose request it is.
    #[must_use]
    pub fn client(&self) -> &Arc<Client> {
        todo!()
    }
    /// Limits of the fore channel: operations, request, reply and cached reply (REP_TOO_BIG_TO_CACHE).
    #[must_use]
    pub fn channel(&self) -> &ChannelAttributes {
        todo!()
    }
    /// `sa_cachethis`.
    #[must_use]
    pub fn cache_this(&self) -> bool {
        todo!()
    }
    /// Ends the request. `reply` is the encoded COMPOUND result from its status on; it is kept (copied) where the client
    /// asked, or where it is short, and at most `ca_maxresponsesize_cached` bytes. `None` for a reply that is not at hand
    /// as bytes (a payload). Renews the lease (RFC 8881 §8.3).
    pub fn finish(self, now: Duration, reply: Option<&[u8]>) {
        todo!()
    }
}

/// Names a file among all exports, whichever handle it was reached by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The export's `fsid`.
    pub fsid: (u64, u64),
    /// Inode number. It does not come back while the file is open: the open's pin keeps it.
    pub fileid: u64,
}

/// What OPEN asks.
#[derive(Debug)]
pub struct OpenRequest<'a> {
    /// The file.
    pub file: FileKey,
    /// The open-owner's bytes; the client is the session's.
    pub owner: &'a [u8],
    /// `share_access`; wishes for delegations are ignored here.
    pub access: ShareAccess,
    /// `share_deny`.
    pub deny: ShareDeny,
    /// CLAIM_PREVIOUS.
    pub reclaim: bool,
    /// From the backend.
    pub pin: Arc<dyn Pin>,
}

/// What OPEN gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenGrant {
    /// The open's stateid.
    pub stateid: Stateid,
    /// For [`State::withdraw_open`].
    pub(super) previous: Option<()>,
}

/// What I/O wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoKind {
    /// READ.
    Read,
    /// WRITE, SETATTR of the size, ALLOCATE, …
    Write,
}

/// I/O may go ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoPermit {
    /// Whether the open answers for the access, or the caller must have it.
    pub authority: Authority,
    /// The stateid with its present seqid; special ones as they came.
    pub stateid: Stateid,
}

/// A valid range of bytes (RFC 8881 §18.10.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {}

impl LockRange {
    /// # Errors
    /// INVAL where `length` is 0, or the range ends behind 2^64 - 1.
    pub fn new(offset: u64, length: u64) -> Result<Self, Status> {
        todo!()
    }
}

/// Whose lock.
#[derive(Debug, Clone, Copy)]
pub enum Locker<'a> {
    /// `open_to_lock_owner4`.
    New {
        /// The open.
        open_stateid: Stateid,
        /// The lock-owner's bytes.
        owner: &'a [u8],
    },
    /// `exist_lock_owner4`: the lock stateid.
    Existing(Stateid),
}

/// What LOCK asks.
#[derive(Debug, Clone, Copy)]
pub struct LockRequest<'a> {
    /// The file.
    pub file: FileKey,
    /// Type.
    pub lock_type: LockType,
    /// Bytes.
    pub range: LockRange,
    /// Whether it reclaims.
    pub reclaim: bool,
    /// Whose.
    pub locker: Locker<'a>,
}

/// What LOCKT asks.
#[derive(Debug, Clone, Copy)]
pub struct LockTest<'a> {
    /// The file.
    pub file: FileKey,
    /// Type.
    pub lock_type: LockType,
    /// Bytes.
    pub range: LockRange,
    /// The lock-owner's bytes.
    pub owner: &'a [u8],
}

/// Why there is no lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockError {
    /// DENIED, by this lock.
    Denied(Box<LockDenied>),
    /// Any other status.
    Status(Status),
}

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Client records, confirmed or not.
    pub clients: u64,
    /// Sessions.
    pub sessions: u64,
    /// Slots granted.
    pub slots: u64,
    /// Opens.
    pub opens: u64,
    /// Byte ranges locked.
    pub locks: u64,
    /// Delegations.
    pub delegations: u64,
    /// Bytes that cached replies hold.
    pub slot_cache_bytes: u64,
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Client records removed.
    pub clients: usize,
    /// Whether records are left that this sweep has not looked at: call again soon.
    pub more: bool,
}

impl State {
    /// The state of a server that starts at `now`. `previous` are the owners (`co_ownerid`) of clients that may have held
    /// state before: a grace period runs exactly where there are any.
    #[must_use]
    pub fn new(settings: &Settings, previous: Vec<Bytes>, now: Duration) -> Self {
        todo!()
    }

    /// EXCHANGE_ID (RFC 8881 §18.35).
    ///
    /// # Errors
    /// CLID_INUSE, NOENT, NOT_SAME, PERM, DELAY (no room for a record).
    pub fn exchange_id(&self, now: Duration, request: &ExchangeId<'_>) -> Result<ExchangedId, Status> {
        todo!()
    }

    /// CREATE_SESSION (RFC 8881 §18.36), its own replays among it.
    ///
    /// # Errors
    /// STALE_CLIENTID, SEQ_MISORDERED, CLID_INUSE, TOOSMALL, INVAL (flags), DELAY (no memory).
    pub fn create_session(
        &self,
        now: Duration,
        request: &CreateSession<'_>,
    ) -> Result<CreateSessionOk, Status> {
        todo!()
    }

    /// BIND_CONN_TO_SESSION (RFC 8881 §18.34).
    ///
    /// # Errors
    /// BADSESSION, INVAL.
    pub fn bind_connection(
        &self,
        connection: ConnectionId,
        session: &SessionId,
        direction: DirFromClient,
    ) -> Result<DirFromServer, Status> {
        todo!()
    }

    /// Forgets a connection that closed.
    pub fn connection_closed(&self, connection: ConnectionId) {}

    /// DESTROY_SESSION (RFC 8881 §18.37). Where it ends a compound of the same session, call it before
    /// [`Running::finish`] as any operation.
    ///
    /// # Errors
    /// BADSESSION, CONN_NOT_BOUND_TO_SESSION.
    pub fn destroy_session(&self, connection: ConnectionId, session: &SessionId) -> Result<(), Status> {
        todo!()
    }

    /// DESTROY_CLIENTID (RFC 8881 §18.50). `sequenced` is the client of the compound's SEQUENCE, if it has one.
    ///
    /// # Errors
    /// STALE_CLIENTID, CLIENTID_BUSY.
    pub fn destroy_client(
        &self,
        now: Duration,
        id: ClientId,
        sequenced: Option<&Client>,
    ) -> Result<(), Status> {
        todo!()
    }

    /// RECLAIM_COMPLETE (RFC 8881 §18.51); with `rca_one_fs` the operation answers OK and does not come here, since no
    /// file system migrates.
    ///
    /// # Errors
    /// COMPLETE_ALREADY.
    pub fn reclaim_complete(&self, now: Duration, client: &Client) -> Result<(), Status> {
        todo!()
    }

    /// SEQUENCE (RFC 8881 §18.46). `digest` is [`Self::digest`] of the request.
    ///
    /// # Errors
    /// BADSESSION, BADSLOT, BAD_HIGH_SLOT, SEQ_MISORDERED, SEQ_FALSE_RETRY, DELAY (still in progress; no memory).
    pub fn sequence(
        &self,
        now: Duration,
        connection: ConnectionId,
        request: &SequenceArgs,
        digest: u64,
    ) -> Result<Sequenced, Status> {
        todo!()
    }

    /// Tells requests apart: who sent it (the effective user, as a number), the compound's first bytes and its length.
    #[must_use]
    pub fn digest(&self, caller: u64, compound: &[u8], length: usize) -> u64 {
        todo!()
    }

    /// Whether this client may open now; before a file is created (RFC 8881 §8.4.2.1, §18.51.3).
    ///
    /// # Errors
    /// GRACE, NO_GRACE, RECLAIM_BAD.
    pub fn admit_open(&self, now: Duration, client: &Client, reclaim: bool) -> Result<(), Status> {
        todo!()
    }

    /// OPEN (RFC 8881 §9.7, §9.9): a new open, or an upgrade of the owner's open of this file.
    ///
    /// # Errors
    /// As [`Self::admit_open`]; SHARE_DENIED (RECLAIM_CONFLICT in a reclaim), INVAL, DELAY (no room), DEADSESSION.
    pub fn open(
        &self,
        now: Duration,
        client: &Arc<Client>,
        request: OpenRequest<'_>,
    ) -> Result<OpenGrant, Status> {
        todo!()
    }

    /// Takes an OPEN back whose compound operation failed afterwards (truncation).
    pub fn withdraw_open(&self, client: &Client, grant: OpenGrant) {}

    /// OPEN_DOWNGRADE (RFC 8881 §18.18).
    ///
    /// # Errors
    /// INVAL, and as for every stateid: BAD_STATEID, OLD_STATEID, EXPIRED, ADMIN_REVOKED.
    pub fn open_downgrade(
        &self,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
        access: ShareAccess,
        deny: ShareDeny,
    ) -> Result<Stateid, Status> {
        todo!()
    }

    /// CLOSE (RFC 8881 §18.2); the open's byte-range locks go with it. The operation returns [`Stateid::INVALID`].
    ///
    /// # Errors
    /// As for every stateid.
    pub fn close(&self, client: &Client, file: FileKey, stateid: &Stateid) -> Result<(), Status> {
        todo!()
    }

    /// Whether I/O may go ahead (RFC 8881 §8.2.5, §9.1.2). The current stateid is replaced by the compound before.
    ///
    /// # Errors
    /// OPENMODE, LOCKED, GRACE, and as for every stateid.
    pub fn check_io(
        &self,
        now: Duration,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
        kind: IoKind,
    ) -> Result<IoPermit, Status> {
        todo!()
    }

    /// Whether I/O without any NFSv4 state (NFSv3) may go ahead: an open may deny it.
    ///
    /// # Errors
    /// LOCKED.
    pub fn check_stateless_io(&self, now: Duration, file: FileKey, kind: IoKind) -> Result<(), Status> {
        todo!()
    }

    /// LOCK (RFC 8881 §18.10).
    ///
    /// # Errors
    /// DENIED; GRACE, NO_GRACE, RECLAIM_BAD, RECLAIM_CONFLICT, OPENMODE, DELAY (no room), and as for every stateid.
    pub fn lock(
        &self,
        now: Duration,
        client: &Arc<Client>,
        request: &LockRequest<'_>,
    ) -> Result<Stateid, LockError> {
        todo!()
    }

    /// LOCKT (RFC 8881 §18.11).
    ///
    /// # Errors
    /// DENIED; GRACE.
    pub fn lock_test(&self, now: Duration, client: &Client, request: &LockTest<'_>) -> Result<(), LockError> {
        todo!()
    }

    /// LOCKU (RFC 8881 §18.12).
    ///
    /// # Errors
    /// As for every stateid; DELAY where splitting a range has no room.
    pub fn unlock(
        &self,
        client: &Client,
        file: FileKey,
        stateid: &Stateid,
        range: LockRange,
    ) -> Result<Stateid, Status> {
        todo!()
    }

    /// One status of TEST_STATEID (RFC 8881 §18.48): OK, or what using the stateid would answer.
    #[must_use]
    pub fn test_stateid(&self, client: &Client, stateid: &Stateid) -> Status {
        todo!()
    }

    /// FREE_STATEID (RFC 8881 §18.38).
    ///
    /// # Errors
    /// LOCKS_HELD, BAD_STATEID, OLD_STATEID.
    pub fn free_stateid(&self, client: &Client, stateid: &Stateid) -> Result<(), Status> {
        todo!()
    }

    /// Looks after a bounded number of client records: unconfirmed ones of a lease ago go, expired ones without state go,
    /// expired ones with state stay until something presses, or a day.
    pub fn expire(&self, now: Duration) -> Swept {
        todo!()
    }

    /// How much there is, for metrics.
    #[must_use]
    pub fn counts(&self) -> Counts {
        todo!()
    }
}
