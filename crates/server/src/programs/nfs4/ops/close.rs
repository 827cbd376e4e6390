//! CLOSE (RFC 8881 §18.2).

use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::types::{OpNum, Stateid, Status};
use xdr::{Decode, Encode, Reader, Writer};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::sequencing::V40Operation;
use crate::programs::nfs4::status::Result;
use crate::state::{OwnerEffect, OwnerRequest};

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let start = arguments.position();
    let CloseArgs { open_stateid, seqid } = CloseArgs::decode(arguments)?;
    let asked = V40Operation::since(OpNum::CLOSE, arguments, start);
    let turn = compound.begin_stateid_request(&asked, &open_stateid, seqid)?;
    let body = reply.mark();
    let done = close(compound, turn.as_ref(), open_stateid, reply);
    compound.end_owner_request(turn, done, body, reply)
}

fn close(
    compound: &mut Compound<'_>,
    turn: Option<&OwnerRequest>,
    open_stateid: Stateid,
    reply: &mut Writer,
) -> Result<OwnerEffect> {
    // RFC 7530 §13.2 does not list ACCESS for CLOSE.
    turn.map_or(Ok(()), |turn| turn.admit(Status::BAD_STATEID))?;
    let file = compound.file(Status::BAD_STATEID)?;
    let stateid = compound.exact_stateid(open_stateid)?;
    let last = compound.state().close(compound.actor(turn)?, file.key(compound.server()), &stateid)?;
    // RFC 8881 §18.2.4: "the server SHOULD return the invalid special stateid". RFC 7530 §16.2 has no such stateid.
    let closed = if turn.is_some() { last } else { Stateid::INVALID };
    closed.encode(reply);
    compound.set_stateid(closed);
    Ok(OwnerEffect::Closed(stateid))
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::read::ReadArgs;

    use super::*;
    use crate::testing::minor0::v40_lab;
    use crate::testing::{lab, putfh};

    #[test]
    fn the_stateid_is_gone_afterwards() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let other_file = lab.file(&["export", "other"], b"");
        let (file, stateid) = lab.open(&["export", "file"], b"owner");
        let close = || Op::Close(CloseArgs { seqid: 0, open_stateid: stateid });
        assert_eq!(lab.status(vec![putfh(other_file), close()]), Status::BAD_STATEID, "of another file");
        let OpResult::Close(closed) = lab.last(vec![putfh(file), close()]) else { panic!() };
        assert_eq!(closed.into_result(), Ok(Stateid::INVALID));
        assert_eq!(lab.status(vec![putfh(file), close()]), Status::BAD_STATEID);
        let read = Op::Read(ReadArgs { stateid, offset: 0, count: 1 });
        assert_eq!(lab.status(vec![putfh(file), read]), Status::BAD_STATEID);
    }

    #[test]
    fn in_version_4_0_a_retransmission_gets_the_first_reply() {
        let mut lab = v40_lab();
        let (file, open) = lab.open("file", b"owner");
        let close = lab.close_op(open, b"owner");
        let closed = lab.last(vec![putfh(file), close.clone()]);
        assert_eq!(lab.last(vec![putfh(file), close]), closed);
        let next = Op::Close(CloseArgs { seqid: lab.next(b"owner"), open_stateid: open });
        assert_eq!(lab.status(vec![putfh(file), next]), Status::BAD_STATEID, "closed already");
        let out_of_order = Op::Close(CloseArgs { seqid: 50, open_stateid: open });
        assert_eq!(lab.status(vec![putfh(file), out_of_order]), Status::BAD_SEQID);
    }
}
