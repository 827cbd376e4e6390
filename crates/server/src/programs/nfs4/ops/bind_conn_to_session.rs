//! BIND_CONN_TO_SESSION (RFC 8881 §18.34): binds a connection to a session.

use protocol::nfs4::ops::backchannel::{BindConnToSessionArgs, BindConnToSessionOk};
use protocol::nfs4::types::OpNum;
use xdr::{Decode, Encode, Reader, Writer};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let BindConnToSessionArgs { session_id, direction, .. } = BindConnToSessionArgs::decode(arguments)?;
    compound.state().admit_to_session(OpNum::BIND_CONN_TO_SESSION, &session_id, &compound.credential())?;
    let connection = compound.request.connection;
    let outbox = Some(&connection.outbox);
    let direction = compound.state().bind_connection(connection.id, outbox, &session_id, direction)?;
    compound.state().note_session_address(&session_id, connection.peer, compound.minor);
    // RDMA is not supported: the connection stays as it is.
    BindConnToSessionOk { session_id, direction, use_rdma: false }.encode(reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::backchannel::{DirFromClient, DirFromServer};
    use protocol::nfs4::types::{HasStatus, Status};

    use super::*;
    use crate::testing::{Lab, lab};

    fn bind(session_id: [u8; 16]) -> Op {
        Op::BindConnToSession(BindConnToSessionArgs {
            session_id,
            direction: DirFromClient::FORE_OR_BOTH,
            use_rdma: true,
        })
    }

    #[test]
    fn comes_first_and_alone_on_a_new_connection() {
        let mut lab = lab();
        let mut new = Lab::without_session(lab.server.clone(), 5);
        let OpResult::BindConnToSession(bound) = new.alone(bind(lab.session)) else { panic!() };
        let bound = bound.into_result().unwrap();
        assert!(matches!(bound.direction, DirFromServer::FORE | DirFromServer::BOTH));
        assert!(!bound.use_rdma);
        assert_eq!(new.alone(bind([7; 16])).status(), Status::BADSESSION);
        // RFC 8881 §18.34.3: "It MUST be the only operation in the COMPOUND procedure."
        assert_eq!(lab.status(vec![bind([7; 16])]), Status::NOT_ONLY_OP);
    }
}
