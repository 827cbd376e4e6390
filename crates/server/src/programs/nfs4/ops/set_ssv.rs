//! SET_SSV (RFC 8881 §18.47).

use protocol::nfs4::ops::ssv::SetSsvArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Reader};

use crate::programs::nfs4::status::Result;

/// "It MUST NOT be used if the client did not opt for SP4_SSV state protection …; the server returns NFS4ERR_INVAL in
/// that case" (§18.47.3): EXCHANGE_ID refuses SP4_SSV.
pub(crate) fn run(arguments: &mut Reader) -> Result {
    SetSsvArgs::decode(arguments)?;
    Err(Status::INVAL.into())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;

    use super::*;
    use crate::testing::lab;

    #[test]
    fn is_invalid_without_ssv_protection() {
        let args = SetSsvArgs { ssv: Default::default(), digest: Default::default() };
        assert_eq!(lab().status(vec![Op::SetSsv(args)]), Status::INVAL);
    }
}
