//! CLOSE (RFC 8881 §18.2).

use xdr::{Decode, Encode};

use crate::nfs4::types::{Outcome, Stateid};

/// `CLOSE4args`. Current handle: the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct CloseArgs {
    /// v4.0: seqid of the open owner. v4.1: ignored.
    pub seqid: u32,
    /// The open.
    pub open_stateid: Stateid,
}

/// `CLOSE4res`: a stateid that must not be used (v4.1: [`Stateid::INVALID`] by RFC 8881 §18.2.4).
pub type CloseResult = Outcome<Stateid>;
