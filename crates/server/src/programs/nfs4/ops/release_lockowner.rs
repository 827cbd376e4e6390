//! RELEASE_LOCKOWNER (RFC 7530 §16.37), version 4.0 only: forgets a lock-owner.

use protocol::nfs4::ops::lock::ReleaseLockOwnerArgs;
use xdr::{Decode, Reader};

use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::status::Result;

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader) -> Result {
    let ReleaseLockOwnerArgs { lock_owner } = ReleaseLockOwnerArgs::decode(arguments)?;
    Ok(compound.state().release_lock_owner(compound.now(), &lock_owner)?)
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::lock::LockOutcome;
    use protocol::nfs4::types::Status;

    use super::*;
    use crate::testing::minor0::{lock_more, unlock, v40_lab};
    use crate::testing::putfh;

    #[test]
    fn an_owner_without_locks_is_forgotten_with_its_stateids() {
        let mut lab = v40_lab();
        let release = |lab: &crate::testing::minor0::V40Lab, owner| {
            vec![Op::ReleaseLockOwner(ReleaseLockOwnerArgs { lock_owner: lab.owner(owner) })]
        };
        assert_eq!(lab.status(release(&lab, b"stranger")), Status::OK);
        let (file, open) = lab.open("file", b"owner");
        let lock = lab.lock_op(open, b"owner", b"locker", 0);
        let OpResult::Lock(LockOutcome::Ok(locked)) = lab.last(vec![putfh(file), lock]) else { panic!() };
        assert_eq!(lab.status(release(&lab, b"locker")), Status::LOCKS_HELD);
        let OpResult::LockU(unlocked) = lab.last(vec![putfh(file), unlock(locked, 2)]) else { panic!() };
        let unlocked = unlocked.into_result().unwrap();
        assert_eq!(lab.status(release(&lab, b"locker")), Status::OK);
        assert_eq!(lab.status(vec![putfh(file), lock_more(unlocked, 3, 0)]), Status::BAD_STATEID);
        // Forgotten, it starts again with any seqid.
        let lock = lab.lock_op(open, b"owner", b"locker", 0);
        assert_eq!(lab.status(vec![putfh(file), lock]), Status::OK);
    }
}
