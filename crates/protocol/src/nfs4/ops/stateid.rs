//! FREE_STATEID and TEST_STATEID (RFC 8881 §18.38, §18.48).

use xdr::{Decode, Encode, List};

use crate::nfs4::types::{Outcome, Stateid, Status};

/// Maximum number of stateids in a TEST_STATEID: 64 KiB of them. The Linux client sends one at a time.
pub const MAX_TESTED: usize = 4096;

/// `FREE_STATEID4args`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct FreeStateidArgs {
    /// The state.
    pub stateid: Stateid,
}

/// `FREE_STATEID4res`.
pub type FreeStateidResult = Outcome<()>;

/// `TEST_STATEID4args`.
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
pub struct TestStateidArgs {
    /// States to test.
    pub stateids: List<Stateid, MAX_TESTED>,
}

/// `TEST_STATEID4res`: a status per stateid, in the same order.
pub type TestStateidResult = Outcome<List<Status, MAX_TESTED>>;
