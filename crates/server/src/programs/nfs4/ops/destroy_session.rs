//! DESTROY_SESSION (RFC 8881 §18.37).

use protocol::nfs4::ops::session::DestroySessionArgs;
use protocol::nfs4::types::{OpNum, Status};
use xdr::{Decode, Reader};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let DestroySessionArgs { session_id } = DestroySessionArgs::decode(arguments)?;
    // "If the COMPOUND request starts with SEQUENCE, and if the sessionids specified in SEQUENCE and DESTROY_SESSION are
    // the same, then … DESTROY_SESSION MUST be the final operation in the COMPOUND request" (§18.37.3).
    let is_own = compound.session().is_some_and(|running| running.sequence().session_id == session_id);
    if is_own && compound.index + 1 != compound.count {
        return Err(Status::NOT_ONLY_OP.into());
    }
    compound.state().admit_to_session(OpNum::DESTROY_SESSION, &session_id, &compound.credential())?;
    Ok(compound.state().destroy_session(compound.request.connection.id, &session_id)?)
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::types::HasStatus;

    use super::*;
    use crate::testing::{compound, lab};

    #[test]
    fn the_session_is_gone_afterwards() {
        let mut lab = lab();
        let destroy = Op::DestroySession(DestroySessionArgs { session_id: lab.session });
        assert_eq!(lab.status(vec![destroy.clone(), Op::PutRootFh]), Status::NOT_ONLY_OP);
        assert_eq!(lab.alone(destroy.clone()).status(), Status::OK);
        assert_eq!(lab.alone(destroy).status(), Status::BADSESSION);
        let next = lab.next(false);
        assert_eq!(lab.send(&compound(vec![next])).status, Status::BADSESSION);
    }

    #[test]
    fn a_compound_may_end_its_own_session() {
        let mut lab = lab();
        let destroy = Op::DestroySession(DestroySessionArgs { session_id: lab.session });
        assert_eq!(lab.status(vec![destroy]), Status::OK);
        let next = lab.next(false);
        assert_eq!(lab.send(&compound(vec![next])).status, Status::BADSESSION);
    }
}
