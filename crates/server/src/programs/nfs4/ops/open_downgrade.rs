//! OPEN_DOWNGRADE (RFC 8881 §18.18).

use protocol::nfs4::ops::open_state::OpenDowngradeArgs;
use protocol::nfs4::types::{OpNum, Status};
use xdr::{Decode, Encode, Reader, Writer};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::sequencing::V40Operation;
use crate::programs::nfs4::status::Result;
use crate::state::{OwnerEffect, OwnerRequest};

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let start = arguments.position();
    let args = OpenDowngradeArgs::decode(arguments)?;
    let asked = V40Operation::since(OpNum::OPEN_DOWNGRADE, arguments, start);
    let turn = compound.begin_stateid_request(&asked, &args.open_stateid, args.seqid)?;
    let body = reply.mark();
    let done = downgrade(compound, turn.as_ref(), &args, reply);
    compound.end_owner_request(turn, done, body, reply)
}

fn downgrade(
    compound: &mut Compound<'_>,
    turn: Option<&OwnerRequest>,
    args: &OpenDowngradeArgs,
    reply: &mut Writer,
) -> Result<OwnerEffect> {
    // RFC 7530 §13.2 does not list ACCESS for OPEN_DOWNGRADE.
    turn.map_or(Ok(()), |turn| turn.admit(Status::BAD_STATEID))?;
    let OpenDowngradeArgs { open_stateid, share_access, share_deny, .. } = *args;
    let file = compound.file(Status::BAD_STATEID)?;
    let stateid = compound.exact_stateid(open_stateid)?;
    let key = file.key(compound.server());
    let client = compound.actor(turn)?;
    let downgraded = compound.state().open_downgrade(client, key, &stateid, share_access, share_deny)?;
    downgraded.encode(reply);
    compound.set_stateid(downgraded);
    Ok(OwnerEffect::None)
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::open::{ShareAccess, ShareDeny};
    use protocol::nfs4::ops::write::WriteArgs;
    use protocol::nfs4::types::{StableHow, Stateid};
    use xdr::Opaque;

    use super::*;
    use crate::testing::minor0::v40_lab;
    use crate::testing::{at, lab, open, putfh};

    #[test]
    fn reduces_to_the_access_of_another_open() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        lab.ok(at(&["export"], vec![open("file", b"owner", ShareAccess::READ)]));
        let (file, stateid) = lab.open(&["export", "file"], b"owner");
        let downgrade = |access| {
            Op::OpenDowngrade(OpenDowngradeArgs {
                open_stateid: stateid,
                seqid: 0,
                share_access: access,
                share_deny: ShareDeny::empty(),
            })
        };
        let nothing = ShareAccess::empty();
        assert_eq!(lab.status(vec![putfh(file), downgrade(nothing)]), Status::INVAL);
        let write = Op::Write(WriteArgs {
            stateid: Stateid::CURRENT,
            offset: 0,
            stable: StableHow::Unstable,
            data: Opaque::from_static(b"x"),
        });
        let ops = vec![putfh(file), downgrade(ShareAccess::READ), write];
        let result = lab.run(ops);
        assert_eq!(result.status, Status::OPENMODE);
        let OpResult::OpenDowngrade(done) = &result.results[2] else { panic!("{result:?}") };
        let done = done.as_result().unwrap();
        assert_eq!((done.other, done.seqid), (stateid.other, stateid.seqid + 1));
    }

    #[test]
    fn in_version_4_0_it_advances_the_owner_seqid() {
        let mut lab = v40_lab();
        let (file, open_stateid) = lab.open("file", b"owner");
        let read = ShareAccess::READ;
        let downgrade = |seqid, share_access| {
            let args =
                OpenDowngradeArgs { open_stateid, seqid, share_access, share_deny: ShareDeny::empty() };
            vec![putfh(file), Op::OpenDowngrade(args)]
        };
        let seqid = lab.next(b"owner");
        assert_eq!(lab.status(downgrade(seqid, read)), Status::INVAL, "no OPEN was for reading alone");
        assert_eq!(lab.status(downgrade(seqid, read)), Status::INVAL, "a retransmission");
        assert_eq!(lab.status(downgrade(seqid, ShareAccess::BOTH)), Status::BAD_SEQID, "not that request");
        let seqid = lab.next(b"owner");
        let OpResult::OpenDowngrade(first) = lab.last(downgrade(seqid, ShareAccess::BOTH)) else { panic!() };
        let OpResult::OpenDowngrade(again) = lab.last(downgrade(seqid, ShareAccess::BOTH)) else { panic!() };
        assert_eq!(first, again);
        assert_eq!(first.into_result().unwrap().seqid, open_stateid.seqid + 1);
    }
}
