//! SETCLIENTID_CONFIRM (RFC 7530 §16.34), version 4.0 only: confirms a client ID.

use protocol::nfs4::ops::setclientid::SetClientIdConfirmArgs;
use xdr::{Decode, Reader};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let SetClientIdConfirmArgs { client_id, confirm } = SetClientIdConfirmArgs::decode(arguments)?;
    let principal = compound.principal();
    let client = compound.state().confirm_client_id(compound.now(), client_id, confirm, &principal)?;
    compound.log_confirmed(&client);
    compound.set_sender(client);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::ops::setclientid::{SetClientIdOk, SetClientIdResult};
    use protocol::nfs4::types::Status;

    use crate::testing::minor0::v40_lab;

    #[test]
    fn confirms_a_given_id_within_a_lease() {
        let mut lab = v40_lab();
        let unknown = SetClientIdOk { client_id: 5, confirm: [0; 8] };
        assert_eq!(lab.confirm(&unknown), Status::STALE_CLIENTID);
        let SetClientIdResult::Ok(slow) = lab.set_client_id(b"slow", 1, 0) else { panic!() };
        lab.lab.seconds += 91;
        lab.lab.server.maintain(lab.lab.now());
        assert_eq!(lab.confirm(&slow), Status::STALE_CLIENTID);
    }
}
