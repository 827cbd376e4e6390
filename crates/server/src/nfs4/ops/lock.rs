//! LOCK (RFC 8881 §18.10): locks a range of bytes.

use protocol::nfs4::ops::lock::{LockArgs, Locker as WireLocker};
use protocol::nfs4::types::Status;
use xdr::{Decode, Encode, Reader, Writer};

use crate::nfs4::compound::Compound;
use crate::nfs4::state::{LockError, LockRange, LockRequest, Locker};
use crate::nfs4::status::{Failure, Result};

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let arguments = LockArgs::decode(arguments)?;
    let file = compound.file(Status::ISDIR)?;
    let range = LockRange::new(arguments.offset, arguments.length)?;
    let locker = match &arguments.locker {
        WireLocker::New(new) => {
            Locker::New { open_stateid: compound.stateid(new.open_stateid)?, owner: &new.lock_owner.owner }
        }
        WireLocker::Existing(existing) => Locker::Existing(compound.stateid(existing.lock_stateid)?),
    };
    let request = LockRequest {
        file: file.key(compound.server()),
        lock_type: arguments.lock_type,
        range,
        reclaim: arguments.reclaim,
        locker,
    };
    match compound.state().lock(compound.now(), compound.client()?, &request) {
        Ok(stateid) => {
            stateid.encode(reply);
            compound.set_stateid(stateid);
            Ok(())
        }
        Err(error) => Err(denied(error, reply)),
    }
}

/// Writes the lock that is in the way, where one is.
pub(super) fn denied(error: LockError, reply: &mut Writer) -> Failure {
    match error {
        LockError::Denied(lock) => {
            lock.encode(reply);
            Failure::Written(Status::DENIED)
        }
        LockError::Status(status) => status.into(),
    }
}

#[cfg(test)]
mod tests {
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::lock::{
        LockDenied, LockOutcome, LockTArgs, LockType, LockUArgs, OpenToLockOwner,
    };
    use protocol::nfs4::types::{Handle, StateOwner, Stateid};
    use xdr::Opaque;

    use super::*;
    use crate::testing::{Lab, lab, putfh};

    fn owner(owner: &'static [u8]) -> StateOwner {
        StateOwner { client_id: 0, owner: Opaque::from_static(owner) }
    }

    fn lock(open_stateid: Stateid, name: &'static [u8], offset: u64, length: u64) -> Op {
        let new = OpenToLockOwner { open_seqid: 0, open_stateid, lock_seqid: 0, lock_owner: owner(name) };
        let locker = WireLocker::New(new);
        Op::Lock(LockArgs { lock_type: LockType::Write, reclaim: false, offset, length, locker })
    }

    fn locked(lab: &mut Lab, file: Handle, op: Op) -> LockOutcome<Stateid> {
        match lab.run(vec![putfh(file), op]).results.into_vec().pop() {
            Some(OpResult::Lock(result)) => result,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn locks_tests_and_unlocks() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let (file, open) = lab.open(&["export", "file"], b"owner");
        let LockOutcome::Ok(stateid) = locked(&mut lab, file, lock(open, b"one", 10, 10)) else { panic!() };

        let mut other = lab.other(b"other client");
        let (_, others_open) = other.open(&["export", "file"], b"owner");
        let LockOutcome::Denied(LockDenied { offset, length, lock_type, owner: holder }) =
            locked(&mut other, file, lock(others_open, b"two", 15, u64::MAX))
        else {
            panic!()
        };
        assert_eq!((offset, length, lock_type), (10, 10, LockType::Write));
        assert_eq!(&*holder.owner, b"one");
        let test = |offset| {
            let (lock_type, length) = (LockType::Read, 1);
            Op::LockT(LockTArgs { lock_type, offset, length, owner: owner(b"two") })
        };
        assert_eq!(other.status(vec![putfh(file), test(19)]), Status::DENIED);
        assert_eq!(other.status(vec![putfh(file), test(20)]), Status::OK);

        let unlock = Op::LockU(LockUArgs {
            lock_type: LockType::Write,
            seqid: 0,
            lock_stateid: stateid,
            offset: 0,
            length: u64::MAX,
        });
        lab.ok(vec![putfh(file), unlock]);
        assert_eq!(other.status(vec![putfh(file), test(19)]), Status::OK);
    }

    #[test]
    fn refuses_impossible_ranges_and_stateids() {
        let mut lab = lab();
        lab.file(&["export", "file"], b"");
        let (file, open) = lab.open(&["export", "file"], b"owner");
        for (offset, length) in [(0, 0), (u64::MAX, 2), (2, u64::MAX - 1)] {
            let result = locked(&mut lab, file, lock(open, b"one", offset, length));
            assert_eq!(result, LockOutcome::Error(Status::INVAL), "{length} at {offset}");
        }
        let unknown = Stateid { seqid: 1, other: [7; 12] };
        let result = locked(&mut lab, file, lock(unknown, b"one", 0, 1));
        assert_eq!(result, LockOutcome::Error(Status::BAD_STATEID));
    }
}
