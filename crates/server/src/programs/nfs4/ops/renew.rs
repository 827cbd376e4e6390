//! RENEW (RFC 7530 §16.28), version 4.0 only: renews the lease of a client.

use protocol::nfs4::ops::setclientid::RenewArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Reader};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let RenewArgs { client_id } = RenewArgs::decode(arguments)?;
    let principal = compound.principal();
    let client = compound.state().renewed(compound.now(), client_id, compound.sender(&principal))?;
    compound.set_sender(std::sync::Arc::clone(&client));
    // RFC 7530 §16.28.5: "Even though it returns NFS4ERR_CB_PATH_DOWN, the server MUST renew the lease".
    if client.lacks_callback_path() { Err(Status::CB_PATH_DOWN.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;

    use super::*;
    use crate::testing::minor0::v40_lab;

    #[test]
    fn renews_a_lease_or_reports_its_loss() {
        let mut lab = v40_lab();
        lab.open("file", b"owner");
        let mut other = lab.other(b"other");
        let renew = |client_id| vec![Op::Renew(RenewArgs { client_id })];
        for _ in 0..3 {
            lab.lab.seconds += 60;
            assert_eq!(lab.status(renew(lab.client_id)), Status::OK);
            lab.lab.server.maintain(lab.lab.now());
        }
        assert_eq!(lab.lab.server.counts().opens, 1);
        other.lab.seconds = lab.lab.seconds;
        assert_eq!(
            other.status(renew(other.client_id)),
            Status::EXPIRED,
            "it held no state and its record is removed"
        );
        assert_eq!(lab.status(renew(5)), Status::STALE_CLIENTID);
    }
}
