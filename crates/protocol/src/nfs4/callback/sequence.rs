//! CB_SEQUENCE (RFC 8881 §20.9).

use xdr::{Decode, Encode, List};

use crate::nfs4::types::{Outcome, SessionId};

/// Maximum number of sessions, and of calls of one session, in a callback: the slots of a large session.
pub const MAX_REFERRING: usize = 1024;

/// `referring_call4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct ReferringCall {
    /// The sequence ID.
    pub sequence_id: u32,
    /// The slot.
    pub slot_id: u32,
}

/// `referring_call_list4`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct ReferringCallList {
    /// The session.
    pub session_id: SessionId,
    /// The calls.
    pub calls: List<ReferringCall, MAX_REFERRING>,
}

/// `CB_SEQUENCE4args`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct CbSequenceArgs {
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
    /// Calls whose replies the client must see before this callback.
    pub referring_calls: List<ReferringCallList, MAX_REFERRING>,
}

/// `CB_SEQUENCE4resok`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CbSequenceOk {
    /// The session.
    pub session_id: SessionId,
    /// Repeated from the request.
    pub sequence_id: u32,
    /// Repeated from the request.
    pub slot_id: u32,
    /// Highest slot that the client accepts.
    pub highest_slot_id: u32,
    /// Target highest slot.
    pub target_highest_slot_id: u32,
}

/// `CB_SEQUENCE4res`.
pub type CbSequenceResult = Outcome<CbSequenceOk>;
