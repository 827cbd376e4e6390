//! OPEN_DOWNGRADE (RFC 8881 §18.18).

use protocol::nfs4::ops::open_state::OpenDowngradeArgs;
use protocol::nfs4::types::Status;
use xdr::{Decode, Encode, Reader, Writer};

use crate::nfs4::compound::Compound;
use crate::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let OpenDowngradeArgs { open_stateid, share_access, share_deny, .. } =
        OpenDowngradeArgs::decode(arguments)?;
    let file = compound.file(Status::BAD_STATEID)?;
    let stateid = compound.exact_stateid(open_stateid)?;
    let key = file.key(compound.server());
    let downgraded =
        compound.state().open_downgrade(compound.client()?, key, &stateid, share_access, share_deny)?;
    downgraded.encode(reply);
    compound.set_stateid(downgraded);
    Ok(())
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::open::{ShareAccess, ShareDeny};
    use protocol::nfs4::ops::write::WriteArgs;
    use protocol::nfs4::types::{StableHow, Stateid};
    use xdr::Opaque;

    use super::*;
    use crate::testing::{at, lab, open, putfh};

    #[test]
    fn takes_away_what_other_opens_gave() {
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
}
