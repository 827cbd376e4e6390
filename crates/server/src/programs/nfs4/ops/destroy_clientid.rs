//! DESTROY_CLIENTID (RFC 8881 §18.50).

use protocol::nfs4::ops::exchange_id::DestroyClientIdArgs;
use protocol::nfs4::types::OpNum;
use xdr::{Decode, Reader};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let DestroyClientIdArgs { client_id } = DestroyClientIdArgs::decode(arguments)?;
    compound.state().admit_to_client(OpNum::DESTROY_CLIENTID, client_id, &compound.credential())?;
    let sequenced = compound.session().map(|running| &**running.client());
    Ok(compound.state().destroy_client(compound.now(), client_id, sequenced)?)
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::session::DestroySessionArgs;
    use protocol::nfs4::types::{HasStatus, Status};

    use super::*;
    use crate::testing::lab;

    #[test]
    fn a_client_with_a_session_is_busy() {
        let mut lab = lab();
        let destroy = Op::DestroyClientId(DestroyClientIdArgs { client_id: lab.client_id });
        assert_eq!(lab.alone(destroy.clone()).status(), Status::CLIENTID_BUSY);
        assert_eq!(lab.status(vec![destroy.clone()]), Status::CLIENTID_BUSY);
        let session = Op::DestroySession(DestroySessionArgs { session_id: lab.session });
        assert_eq!(lab.alone(session).status(), Status::OK);
        assert_eq!(lab.alone(destroy.clone()).status(), Status::OK);
        assert_eq!(lab.alone(destroy).status(), Status::STALE_CLIENTID);
    }
}
