//! DELEGRETURN (RFC 8881 §18.6).

use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Reader};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let DelegReturnArgs { stateid } = DelegReturnArgs::decode(arguments)?;
    let stateid = compound.stateid(stateid)?;
    let file = compound.file(Status::BAD_STATEID)?;
    let (state, now, key) = (compound.state(), compound.now(), file.key(compound.server()));
    if compound.minor == 0 {
        let principal = compound.principal();
        let holder = state.holder_for_return(now, &stateid, compound.sender(&principal))?;
        compound.set_sender(std::sync::Arc::clone(&holder));
        let returned = state.return_delegation(now, &holder, key, &stateid);
        if matches!(returned, Err(Status::EXPIRED | Status::ADMIN_REVOKED | Status::DELEG_REVOKED)) {
            // Version 4.0 has no FREE_STATEID to acknowledge the loss.
            let _ = state.free_stateid(&holder, &stateid);
        }
        return Ok(returned?);
    }
    Ok(state.return_delegation(now, compound.client()?, key, &stateid)?)
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;

    use super::*;
    use crate::testing::lab;

    #[test]
    fn refuses_the_stateid_of_an_open() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let (_, stateid) = lab.open(&["export", "file"], b"owner");
        let op = Op::DelegReturn(DelegReturnArgs { stateid });
        assert_eq!(lab.status_at(&["export", "file"], op), Status::BAD_STATEID);
    }
}
