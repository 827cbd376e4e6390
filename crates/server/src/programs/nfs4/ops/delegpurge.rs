//! DELEGPURGE (RFC 8881 §18.5).

use protocol::nfs4::ops::delegation::DelegPurgeArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Reader};

use crate::programs::nfs4::status::Result;

/// "The server MAY support DELEGPURGE, but if it does not, it MUST NOT support CLAIM_DELEGATE_PREV and MUST NOT support
/// CLAIM_DELEG_PREV_FH" (§18.5.3): no delegation outlives the client instance that it was granted to.
pub(crate) fn run(arguments: &mut Reader) -> Result {
    DelegPurgeArgs::decode(arguments)?;
    Err(Status::NOTSUPP.into())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;

    use super::*;
    use crate::testing::lab;

    #[test]
    fn comes_only_with_claims_of_previous_delegations() {
        assert_eq!(lab().status(vec![Op::DelegPurge(DelegPurgeArgs { client_id: 0 })]), Status::NOTSUPP);
    }
}
