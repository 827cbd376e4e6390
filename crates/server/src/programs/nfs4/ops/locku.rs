//! LOCKU (RFC 8881 §18.12): unlocks a byte range.

use protocol::nfs4::ops::lock::LockUArgs;
use protocol::nfs4::types::{OpNum, Status};
use xdr::{Decode, Encode, Reader, Writer};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::sequencing::V40Operation;
use crate::programs::nfs4::status::Result;
use crate::state::{LockRange, OwnerEffect, OwnerRequest};

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let start = arguments.position();
    let args = LockUArgs::decode(arguments)?;
    let asked = V40Operation::since(OpNum::LOCKU, arguments, start);
    let turn = compound.begin_stateid_request(&asked, &args.lock_stateid, args.seqid)?;
    let body = reply.mark();
    let done = unlock(compound, turn.as_ref(), &args, reply);
    compound.end_owner_request(turn, done, body, reply)
}

fn unlock(
    compound: &mut Compound<'_>,
    turn: Option<&OwnerRequest>,
    args: &LockUArgs,
    reply: &mut Writer,
) -> Result<OwnerEffect> {
    turn.map_or(Ok(()), |turn| turn.admit(Status::ACCESS))?;
    let file = compound.file(Status::BAD_STATEID)?;
    let range = LockRange::new(args.offset, args.length).ok_or(Status::INVAL)?;
    let stateid = compound.stateid(args.lock_stateid)?;
    let key = file.key(compound.server());
    let unlocked = compound.state().unlock(compound.now(), compound.actor(turn)?, key, &stateid, range)?;
    unlocked.encode(reply);
    compound.set_stateid(unlocked);
    Ok(OwnerEffect::None)
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::lock::{LockOutcome, LockType};
    use protocol::nfs4::types::Stateid;

    use super::*;
    use crate::testing::minor0::{unlock, v40_lab};
    use crate::testing::{lab, putfh};

    #[test]
    fn refuses_the_stateid_of_an_open() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let (file, open) = lab.open(&["export", "file"], b"owner");
        for lock_stateid in [open, Stateid::ANONYMOUS, Stateid { seqid: 1, other: [7; 12] }] {
            let unlock = Op::LockU(LockUArgs {
                lock_type: LockType::Write,
                seqid: 0,
                lock_stateid,
                offset: 0,
                length: 1,
            });
            assert_eq!(lab.status(vec![putfh(file), unlock]), Status::BAD_STATEID);
        }
    }

    #[test]
    fn in_version_4_0_a_retransmission_unlocks_nothing() {
        let mut lab = v40_lab();
        let (file, open) = lab.open("file", b"owner");
        let lock = lab.lock_op(open, b"owner", b"locker", 0);
        let OpResult::Lock(LockOutcome::Ok(locked)) = lab.last(vec![putfh(file), lock]) else { panic!() };
        let unlocked = lab.last(vec![putfh(file), unlock(locked, 2)]);
        assert_eq!(lab.last(vec![putfh(file), unlock(locked, 2)]), unlocked);
        assert_eq!(lab.status(vec![putfh(file), unlock(locked, 3)]), Status::OLD_STATEID);
        assert_eq!(lab.status(vec![putfh(file), unlock(locked, 9)]), Status::BAD_SEQID);
    }
}
