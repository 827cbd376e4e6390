//! LOCK (RFC 8881 §18.10): locks a byte range.

use std::sync::Arc;

use protocol::nfs4::ops::lock::{LockArgs, Locker as WireLocker};
use protocol::nfs4::types::{Handle, OpNum, Status};
use xdr::{Decode, Encode, Reader, Writer};

use crate::files::object::{File, Object};
use crate::programs::nfs4::compound::Compound;
use crate::programs::nfs4::sequencing::V40Operation;
use crate::programs::nfs4::status::{Failure, Result};
use crate::state::{LockError, LockNotice, LockRange, LockRequest, Locker, OwnerEffect, OwnerRequest};

pub(crate) fn run(compound: &mut Compound<'_>, arguments: &mut Reader, reply: &mut Writer) -> Result {
    let start = arguments.position();
    let args = LockArgs::decode(arguments)?;
    let asked = V40Operation::since(OpNum::LOCK, arguments, start);
    let turn = match &args.locker {
        WireLocker::New(new) => {
            let seqids = (new.open_seqid, new.lock_seqid);
            compound.begin_lock_request(&asked, &new.open_stateid, &new.lock_owner, seqids)?
        }
        WireLocker::Existing(existing) => {
            compound.begin_stateid_request(&asked, &existing.lock_stateid, existing.lock_seqid)?
        }
    };
    let body = reply.mark();
    let done = lock(compound, turn.as_ref(), &args, reply);
    compound.end_owner_request(turn, done, body, reply)
}

fn lock(
    compound: &mut Compound<'_>,
    turn: Option<&OwnerRequest>,
    arguments: &LockArgs,
    reply: &mut Writer,
) -> Result<OwnerEffect> {
    let file = compound.file(Status::ISDIR)?;
    let range = LockRange::new(arguments.offset, arguments.length).ok_or(Status::INVAL)?;
    let name;
    let locker = match &arguments.locker {
        WireLocker::New(new) => {
            let from_turn = turn.map(|turn| Arc::clone(turn.owner()));
            name = from_turn.unwrap_or_else(|| Arc::from(&new.lock_owner.owner[..]));
            Locker::New { open_stateid: compound.stateid(new.open_stateid)?, owner: &name }
        }
        WireLocker::Existing(existing) => Locker::Existing(compound.stateid(existing.lock_stateid)?),
    };
    let request = LockRequest {
        file: file.key(compound.server()),
        lock_type: arguments.lock_type,
        range,
        reclaim: arguments.reclaim,
        locker,
        notice: if arguments.lock_type.waits() { notice(compound, file) } else { None },
    };
    match compound.state().lock(compound.now(), compound.actor(turn)?, &request) {
        Ok(stateid) => {
            stateid.encode(reply);
            compound.set_stateid(stateid);
            Ok(OwnerEffect::Locked(stateid))
        }
        Err(error) => Err(denied(error, reply)),
    }
}

/// Returns the method to notify the client when the lock may be free.
fn notice<'c>(compound: &'c Compound<'_>, file: File<'_>) -> Option<LockNotice<'c>> {
    let wire = Object::File(file).seal(&compound.server().settings().handle_key);
    let handle = Handle::new(&wire).ok()?;
    Some(LockNotice { handle, asked_by: compound.session() })
}

/// Writes the conflicting lock, if the error is a conflict.
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
    use protocol::nfs4::callback::{CbOp, CbOpResult};
    use protocol::nfs4::compound::{Op, OpResult};
    use protocol::nfs4::ops::lock::{
        LockDenied, LockOutcome, LockTArgs, LockType, LockUArgs, OpenToLockOwner,
    };
    use protocol::nfs4::ops::open::{OpenResultFlags, ShareAccess};
    use protocol::nfs4::types::{Outcome, StateOwner, Stateid};
    use xdr::Opaque;

    use super::*;
    use crate::testing::minor0::{V40Lab, lock_more, unlock, v40_lab};
    use crate::testing::{Lab, at, lab, open, open_result, putfh};

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

    /// Opens for writing; returns the stateid and whether CB_NOTIFY_LOCK may come.
    fn opened(lab: &mut Lab, name: &'static [u8]) -> (Stateid, bool) {
        let results = lab.ok(at(&["export"], vec![open("file", name, ShareAccess::BOTH)]));
        let ok = open_result(results.last().unwrap());
        (ok.stateid, ok.flags.contains(OpenResultFlags::MAY_NOTIFY_LOCK))
    }

    #[test]
    fn a_waiter_is_notified_with_its_handle_and_owner() {
        let mut lab = lab();
        let file = lab.file(&["export", "file"], b"");
        let (held_open, may_hear) = opened(&mut lab, b"owner");
        assert!(!may_hear, "it has no back channel");
        let LockOutcome::Ok(held) = locked(&mut lab, file, lock(held_open, b"one", 0, 10)) else { panic!() };

        let mut other = lab.reachable(b"other", 12);
        let (others_open, may_hear) = opened(&mut other, b"owner");
        assert!(may_hear);
        let Op::Lock(args) = lock(others_open, b"two", 5, 10) else { panic!() };
        let waits = Op::Lock(LockArgs { lock_type: LockType::WriteWait, ..args });
        let LockOutcome::Denied(_) = locked(&mut other, file, waits.clone()) else { panic!() };
        let unlock = LockUArgs {
            lock_type: LockType::Write,
            seqid: 0,
            lock_stateid: held,
            offset: 0,
            length: u64::MAX,
        };
        lab.ok(vec![putfh(file), Op::LockU(unlock)]);

        let mut calls = other.calls();
        let call = calls.pop().expect("it is called");
        assert!(calls.is_empty());
        let CbOp::NotifyLock(reported) = call.operation() else { panic!("{:?}", call.operation()) };
        assert_eq!(reported.handle, file);
        assert_eq!(reported.lock_owner, StateOwner { client_id: other.client_id, ..owner(b"two") });
        // RFC 8881 §2.10.6.3: the client may not have seen the denial yet.
        let sequence = call.sequence();
        let [referring] = &sequence.referring_calls[..] else { panic!("{sequence:?}") };
        assert_eq!(referring.session_id, other.session);
        assert_eq!(referring.calls[0].sequence_id, other.sequence);
        other.answer(call.results(CbOpResult::NotifyLock(Outcome::Ok(()))));
        let LockOutcome::Ok(_) = locked(&mut other, file, waits) else { panic!() };
        let counts = lab.server.counts();
        assert_eq!((counts.locks_waiting, counts.locks_notified), (0, 1));
    }

    #[test]
    fn in_version_4_0_a_retransmission_gets_the_first_reply() {
        let mut lab = v40_lab();
        let (file, open) = lab.open("file", b"owner");
        let first = lab.lock_op(open, b"owner", b"locker", 0);
        let locked = lab.last(vec![putfh(file), first.clone()]);
        assert_eq!(lab.last(vec![putfh(file), first]), locked);
        let OpResult::Lock(LockOutcome::Ok(stateid)) = locked else { panic!("{locked:?}") };
        assert_eq!(stateid.seqid, 1);
        let more = |lab: &mut V40Lab, seqid| lab.send(vec![putfh(file), lock_more(stateid, seqid, 50)]);
        let (once, twice) = (more(&mut lab, 2), more(&mut lab, 2));
        assert_eq!((once.status, &once), (Status::OK, &twice));
        assert_eq!(more(&mut lab, 4).status, Status::BAD_SEQID);
        assert_eq!(lab.lab.server.counts().locks, 2);
    }

    #[test]
    fn in_version_4_0_a_retransmission_stays_denied() {
        let mut lab = v40_lab();
        let (file, open) = lab.open("file", b"owner");
        let lock = lab.lock_op(open, b"owner", b"locker", 0);
        let OpResult::Lock(LockOutcome::Ok(held)) = lab.last(vec![putfh(file), lock]) else { panic!() };
        let mut other = lab.other(b"other");
        let (_, others_open) = other.open("file", b"owner");
        let asked = other.lock_op(others_open, b"owner", b"locker", 5);
        let denied = other.send(vec![putfh(file), asked.clone()]);
        assert_eq!(denied.status, Status::DENIED);
        lab.last(vec![putfh(file), unlock(held, 2)]);
        assert_eq!(other.send(vec![putfh(file), asked]), denied);
        // The owner got no stateid; the client sends it again as new.
        let asked = other.lock_op(others_open, b"owner", b"locker", 5);
        assert_eq!(other.status(vec![putfh(file), asked]), Status::OK);
    }

    #[test]
    fn in_version_4_0_the_owner_belongs_to_the_client_of_the_open() {
        let mut lab = v40_lab();
        let (file, open) = lab.open("file", b"owner");
        let Op::Lock(mut args) = lab.lock_op(open, b"owner", b"locker", 0) else { panic!() };
        let WireLocker::New(new) = &mut args.locker else { panic!() };
        new.lock_owner.client_id = 5;
        assert_eq!(lab.status(vec![putfh(file), Op::Lock(args)]), Status::STALE_CLIENTID);
    }
}
