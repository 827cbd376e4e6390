//! CREATE_SESSION, DESTROY_SESSION, SEQUENCE, RECLAIM_COMPLETE (RFC 8881 §18.36, §18.37, §18.46, §18.51).

use xdr::{Decode, Encode, List};

use super::backchannel::SecParmsList;
use crate::nfs4::macros::flags;
use crate::nfs4::types::{ClientId, Outcome, SessionId};

/// `channel_attrs4`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct ChannelAttributes {
    /// RDMA padding in bytes.
    pub header_pad_size: u32,
    /// Maximum request in bytes, RPC header included.
    pub max_request_size: u32,
    /// Maximum reply in bytes, RPC header included.
    pub max_response_size: u32,
    /// Maximum cached reply, in bytes.
    pub max_response_size_cached: u32,
    /// Maximum number of operations in a compound.
    pub max_operations: u32,
    /// Number of slots.
    pub max_requests: u32,
    /// RDMA inbound read queue depth.
    pub rdma_ird: List<u32, 1>,
}

flags! {
    /// `csa_flags` and `csr_flags`, `CREATE_SESSION4_FLAG_*`.
    pub struct CreateSessionFlags {
        /// The reply cache survives a restart.
        PERSIST = 1,
        /// This connection is the back channel too.
        CONN_BACK_CHAN = 2,
        /// This connection steps up to RDMA.
        CONN_RDMA = 4,
    }
}

/// `CREATE_SESSION4args`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateSessionArgs {
    /// The client.
    pub client_id: ClientId,
    /// Sequence ID of the client's CREATE_SESSIONs.
    pub sequence: u32,
    /// Requested flags.
    pub flags: CreateSessionFlags,
    /// Limits of the fore channel.
    pub fore_channel: ChannelAttributes,
    /// Limits of the back channel.
    pub back_channel: ChannelAttributes,
    /// Program number of callbacks.
    pub callback_program: u32,
    /// Security of callbacks.
    pub sec_parms: SecParmsList,
}

/// `CREATE_SESSION4resok`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CreateSessionOk {
    /// The session.
    pub session_id: SessionId,
    /// Repeated from the request.
    pub sequence: u32,
    /// Granted flags.
    pub flags: CreateSessionFlags,
    /// Limits of the fore channel.
    pub fore_channel: ChannelAttributes,
    /// Limits of the back channel.
    pub back_channel: ChannelAttributes,
}

/// `CREATE_SESSION4res`.
pub type CreateSessionResult = Outcome<CreateSessionOk>;

/// `DESTROY_SESSION4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct DestroySessionArgs {
    /// The session.
    pub session_id: SessionId,
}

/// `DESTROY_SESSION4res`.
pub type DestroySessionResult = Outcome<()>;

/// `SEQUENCE4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SequenceArgs {
    /// The session.
    pub session_id: SessionId,
    /// The slot's last sequence ID plus one.
    pub sequence_id: u32,
    /// The slot.
    pub slot_id: u32,
    /// Highest slot in use.
    pub highest_slot_id: u32,
    /// Whether the reply must be cached.
    pub cache_this: bool,
}

impl SequenceArgs {
    /// Creates the arguments of a client that uses only slot 0, without a cached reply.
    #[must_use]
    pub const fn in_first_slot(session_id: SessionId, sequence_id: u32) -> Self {
        Self { session_id, sequence_id, slot_id: 0, highest_slot_id: 0, cache_this: false }
    }
}

flags! {
    /// `sr_status_flags`, `SEQ4_STATUS_*`.
    pub struct SequenceStatus {
        /// The client has no working callback path.
        CB_PATH_DOWN = 0x0001,
        /// The GSS contexts for callbacks expire soon.
        CB_GSS_CONTEXTS_EXPIRING = 0x0002,
        /// The GSS contexts for callbacks have expired.
        CB_GSS_CONTEXTS_EXPIRED = 0x0004,
        /// The lease expired and all state was revoked.
        EXPIRED_ALL_STATE_REVOKED = 0x0008,
        /// The lease expired and some state was revoked.
        EXPIRED_SOME_STATE_REVOKED = 0x0010,
        /// An administrator revoked state.
        ADMIN_STATE_REVOKED = 0x0020,
        /// Delegations or layouts were revoked.
        RECALLABLE_STATE_REVOKED = 0x0040,
        /// State has moved to another server.
        LEASE_MOVED = 0x0080,
        /// The server restarted; the client must reclaim state.
        RESTART_RECLAIM_NEEDED = 0x0100,
        /// This session has no working callback path.
        CB_PATH_DOWN_SESSION = 0x0200,
        /// The back channel is in an unrecoverable state.
        BACKCHANNEL_FAULT = 0x0400,
        /// A device of a layout changed.
        DEVID_CHANGED = 0x0800,
        /// A device of a layout was deleted.
        DEVID_DELETED = 0x1000,
    }
}

/// `SEQUENCE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct SequenceOk {
    /// The session.
    pub session_id: SessionId,
    /// Repeated from the request.
    pub sequence_id: u32,
    /// Repeated from the request.
    pub slot_id: u32,
    /// Highest slot that the server accepts.
    pub highest_slot_id: u32,
    /// Target highest slot.
    pub target_highest_slot_id: u32,
    /// Conditions that the client should handle.
    pub status_flags: SequenceStatus,
}

/// `SEQUENCE4res`.
pub type SequenceResult = Outcome<SequenceOk>;

/// `RECLAIM_COMPLETE4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReclaimCompleteArgs {
    /// Whether only the current handle's file system is reclaimed.
    pub one_fs: bool,
}

/// `RECLAIM_COMPLETE4res`.
pub type ReclaimCompleteResult = Outcome<()>;
