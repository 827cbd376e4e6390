//! OPEN_CONFIRM (RFC 7530 §16.18), version 4.0 only: confirms an open-owner that was new to the server.

use protocol::nfs4::ops::open_state::OpenConfirmArgs;
use protocol::nfs4::types::{OpNum, Status};
use xdr::{Decode, Encode, Reader, Writer};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::sequencing::V40Operation;
use crate::programs::nfs4::status::Result;
use crate::state::{OwnerEffect, OwnerRequest};

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let start = arguments.position();
    let args = OpenConfirmArgs::decode(arguments)?;
    let asked = V40Operation::since(OpNum::OPEN_CONFIRM, arguments, start);
    let turn = compound.begin_stateid_request(&asked, &args.open_stateid, args.seqid)?;
    let body = reply.mark();
    let done = confirm(compound, turn.as_ref(), &args, reply);
    compound.end_owner_request(turn, done, body, reply)
}

fn confirm(
    compound: &Compound<'_>,
    turn: Option<&OwnerRequest>,
    args: &OpenConfirmArgs,
    reply: &mut Writer,
) -> Result<OwnerEffect> {
    let file = compound.file(Status::BAD_STATEID)?;
    let key = file.key(compound.server());
    compound.state().confirm_open(compound.actor(turn)?, key, &args.open_stateid)?.encode(reply);
    Ok(OwnerEffect::Confirmed)
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::Op;
    use protocol::nfs4::ops::close::CloseArgs;
    use protocol::nfs4::ops::open::OpenResultFlags;
    use protocol::nfs4::ops::read::ReadArgs;
    use protocol::nfs4::ops::setclientid::RenewArgs;
    use protocol::nfs4::types::{Handle, Stateid};

    use super::*;
    use crate::testing::minor0::{V40Lab, v40_lab};
    use crate::testing::putfh;

    /// Returns a client with an unconfirmed open.
    fn unconfirmed() -> (V40Lab, Handle, Stateid) {
        let mut lab = v40_lab();
        let op = lab.open_op("file", b"second");
        let (file, ok) = lab.opened(op);
        assert!(ok.flags.contains(OpenResultFlags::CONFIRM));
        (lab, file, ok.stateid)
    }

    fn renew(lab: &mut V40Lab) {
        for _ in 0..2 {
            lab.lab.seconds += 60;
            let renew = Op::Renew(RenewArgs { client_id: lab.client_id });
            assert_eq!(lab.status(vec![renew]), Status::OK);
            lab.lab.server.maintain(lab.lab.now());
        }
    }

    fn read(stateid: Stateid) -> Op {
        Op::Read(ReadArgs { stateid, offset: 0, count: 1 })
    }

    #[test]
    fn an_open_is_usable_once_confirmed() {
        let (mut lab, file, stateid) = unconfirmed();
        assert_eq!(lab.status(vec![putfh(file), read(stateid)]), Status::BAD_STATEID);
        let confirm = lab.confirm_op(stateid, b"second");
        assert_eq!(lab.status(vec![putfh(file), confirm.clone()]), Status::OK);
        assert_eq!(lab.status(vec![putfh(file), confirm]), Status::OK, "a retransmission");
        let confirmed = Stateid { seqid: stateid.seqid + 1, ..stateid };
        assert_eq!(lab.status(vec![putfh(file), read(confirmed)]), Status::OK);
        let again = lab.confirm_op(confirmed, b"second");
        assert_eq!(lab.status(vec![putfh(file), again]), Status::BAD_STATEID);
    }

    #[test]
    fn a_wrong_seqid_drops_the_unconfirmed_open() {
        let (mut lab, file, stateid) = unconfirmed();
        let wrong = Op::OpenConfirm(OpenConfirmArgs { open_stateid: stateid, seqid: 50 });
        assert_eq!(lab.status(vec![putfh(file), wrong]), Status::BAD_SEQID);
        assert_eq!(lab.lab.server.counts().opens, 0);
    }

    #[test]
    fn a_wrong_seqid_of_another_operation_keeps_it() {
        let (mut lab, file, stateid) = unconfirmed();
        let wrong = Op::Close(CloseArgs { seqid: 50, open_stateid: stateid });
        assert_eq!(lab.status(vec![putfh(file), wrong]), Status::BAD_SEQID);
        assert_eq!(lab.lab.server.counts().opens, 1);
        let confirm = lab.confirm_op(stateid, b"second");
        assert_eq!(lab.status(vec![putfh(file), confirm]), Status::OK);
    }

    #[test]
    fn another_open_replaces_the_unconfirmed_one() {
        let (mut lab, _, stateid) = unconfirmed();
        lab.next(b"second");
        let op = lab.open_op("file", b"second");
        let (file, ok) = lab.opened(op);
        assert!(ok.flags.contains(OpenResultFlags::CONFIRM) && ok.stateid.other != stateid.other);
        assert_eq!(lab.lab.server.counts().opens, 1);
        let confirm = lab.confirm_op(ok.stateid, b"second");
        assert_eq!(lab.status(vec![putfh(file), confirm]), Status::OK);
    }

    #[test]
    fn an_unconfirmed_open_ends_with_the_lease() {
        let (mut lab, ..) = unconfirmed();
        renew(&mut lab);
        assert_eq!(lab.lab.server.counts().opens, 0);
    }

    #[test]
    fn only_an_unknown_owner_needs_confirmation() {
        let mut lab = v40_lab();
        let (file, open) = lab.open("file", b"owner");
        let op = lab.open_op("file", b"owner");
        let (_, ok) = lab.opened(op);
        assert!(!ok.flags.contains(OpenResultFlags::CONFIRM) && ok.stateid.other == open.other);
        let close = lab.close_op(ok.stateid, b"owner");
        assert_eq!(lab.status(vec![putfh(file), close]), Status::OK);
        renew(&mut lab);
        let op = lab.open_op("file", b"owner");
        assert!(lab.opened(op).1.flags.contains(OpenResultFlags::CONFIRM));
    }
}
