//! Bounds of waits for recalled delegations, and revocation afterwards.

use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::session::SequenceStatus;
use protocol::nfs4::ops::stateid::{FreeStateidArgs, TestStateidArgs};
use protocol::nfs4::types::{Stateid, Status};
use xdr::List;

use super::{
    BOTH, LEASE_SECONDS, READ, Scene, WRITE, counts, hold, read, recalled, return_delegation, scene, status,
    write,
};
use crate::testing::{Lab, at, open, putfh};

/// Bound of a wait with the default lease time of 90 s.
const WAIT_SECONDS: u64 = 10;

#[test]
fn bounds_wait_and_revokes_after_lease_time() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    lab.file(&["export", "second"], b"");
    let (stateid, kept) = (hold(&mut holder, "file", READ), hold(&mut holder, "second", READ));
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", WRITE)]));
    assert_eq!(status(flight.poll()), None);
    assert_eq!(recalled(&holder).len(), 1);
    lab.pass(WAIT_SECONDS - 1);
    assert_eq!(status(flight.poll()), None);
    lab.pass(1);
    assert_eq!(status(flight.poll()), Some(Status::DELAY));
    for second in WAIT_SECONDS..LEASE_SECONDS {
        (holder.seconds, other.seconds) = (lab.seconds, lab.seconds);
        for client in [&mut lab, &mut holder, &mut other] {
            assert_eq!(client.status(vec![]), Status::OK, "they live");
        }
        assert_eq!(holder.status(vec![putfh(file), read(stateid)]), Status::OK, "{second} s");
        lab.pass(1);
    }
    // §10.4.5: only that delegation is revoked.
    holder.seconds = lab.seconds;
    assert_eq!(holder.status(vec![putfh(file), read(stateid)]), Status::DELEG_REVOKED);
    let second = lab.handle(&["export", "second"]);
    assert_eq!(holder.status(vec![putfh(second), read(kept)]), Status::OK);
    other.seconds = lab.seconds;
    assert_eq!(other.status(at(&["export"], vec![open("file", b"o", WRITE)])), Status::OK);
    let flags = |holder: &mut Lab| match &holder.run(vec![]).results[0] {
        OpResult::Sequence(sequence) => sequence.as_result().unwrap().status_flags,
        other => panic!("{other:?}"),
    };
    assert_eq!(flags(&mut holder), SequenceStatus::RECALLABLE_STATE_REVOKED);
    let test = Op::TestStateid(TestStateidArgs { stateids: List::new(vec![stateid, kept]).unwrap() });
    let OpResult::TestStateid(tested) = holder.last(vec![test]) else { panic!() };
    assert_eq!(tested.into_result().unwrap().into_vec(), [Status::DELEG_REVOKED, Status::OK]);
    assert_eq!(return_delegation(&mut holder, file, stateid), Status::DELEG_REVOKED);
    let free = |stateid| Op::FreeStateid(FreeStateidArgs { stateid });
    assert_eq!(holder.status(vec![free(kept)]), Status::LOCKS_HELD);
    assert_eq!(holder.status(vec![free(stateid)]), Status::OK);
    assert_eq!(flags(&mut holder), SequenceStatus::empty());
    // The new writer of the file, now its only user, has a delegation; the second file's is still held.
    assert_eq!(counts(&lab), (1, 2, 0));
}

#[test]
fn waiters_continue_when_holder_lease_ends() {
    let Scene { mut lab, mut holder, mut other, .. } = scene();
    hold(&mut holder, "file", READ);
    // Its lease has expired, so waits for it end (§8.4.3).
    lab.pass(LEASE_SECONDS / 2);
    other.seconds = lab.seconds;
    assert_eq!(other.status(vec![]), Status::OK, "otherwise it would be removed too");
    lab.pass(LEASE_SECONDS / 2);
    other.seconds = lab.seconds;
    assert_eq!(other.status(at(&["export"], vec![open("file", b"o", WRITE)])), Status::OK);
    assert!(holder.calls().is_empty());
    holder.seconds = lab.seconds;
    let OpResult::Sequence(sequence) = &holder.run(vec![]).results[0] else { panic!() };
    let flags = sequence.as_result().unwrap().status_flags;
    // RECALLABLE_STATE_REVOKED, without which Linux's client would not check its delegations.
    let lost = SequenceStatus::EXPIRED_SOME_STATE_REVOKED | SequenceStatus::RECALLABLE_STATE_REVOKED;
    assert_eq!(flags, lost);
}

#[test]
fn lease_expiry_revokes_recalled_delegation() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    let stateid = hold(&mut holder, "file", READ);
    lab.pass(1);
    other.seconds = lab.seconds;
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", WRITE)]));
    assert_eq!(status(flight.poll()), None);
    // The holder's lease expires one second before the delegation's own deadline.
    lab.pass(LEASE_SECONDS - 1);
    other.seconds = lab.seconds;
    assert_eq!(status(flight.poll()), Some(Status::DELAY));
    assert_eq!(other.status(at(&["export"], vec![open("file", b"o", WRITE)])), Status::OK);
    holder.seconds = lab.seconds;
    assert_eq!(holder.status(vec![putfh(file), read(stateid)]), Status::DELEG_REVOKED);
}

#[test]
fn eviction_ends_waits_for_holder() {
    let Scene { lab, mut holder, mut other, .. } = scene();
    hold(&mut holder, "file", READ);
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", BOTH)]));
    assert_eq!(status(flight.poll()), None);
    let (_, lost) = lab.server.evict(lab.now(), "holder").unwrap();
    assert_eq!(lost.delegations, 1);
    assert_eq!(status(flight.poll()), Some(Status::OK));
    assert_eq!(counts(&lab), (1, 0, 0));
}

#[test]
fn dropped_operation_leaves_no_waiter() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    let stateid = hold(&mut holder, "file", READ);
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", WRITE)]));
    assert_eq!(status(flight.poll()), None);
    drop(flight);
    assert_eq!(recalled(&holder).len(), 1);
    assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
    assert_eq!(counts(&lab), (0, 0, 0));
    assert!(lab.server.shared.state.is_quiet());
    drop(lab.run(vec![]));
}

#[test]
fn limits_waiting_operations_of_a_connection() {
    let Scene { lab, mut holder, mut other, file } = scene();
    hold(&mut holder, "file", READ);
    let mut flights: Vec<_> =
        (1..60).map(|slot| other.start(slot, vec![putfh(file), write(Stateid::ANONYMOUS)])).collect();
    let answers: Vec<_> = flights.iter_mut().map(|flight| status(flight.poll())).collect();
    assert!(answers[..48].iter().all(Option::is_none));
    // RFC 8881 §15.1.1.3: the clients retry.
    assert!(answers[48..].iter().all(|answer| *answer == Some(Status::DELAY)), "{answers:?}");
    drop(flights);
    assert!(lab.server.shared.state.is_quiet());
}

#[test]
fn waiter_for_many_delegations_is_woken_rarely() {
    let Scene { lab, mut other, file, .. } = scene();
    let names: [&'static [u8]; 9] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i"];
    let mut holders: Vec<Lab> = (20..).zip(names).map(|(id, name)| lab.reachable(name, id)).collect();
    let held: Vec<Stateid> = holders.iter_mut().map(|holder| hold(holder, "file", READ)).collect();
    let own = hold(&mut other, "file", READ);
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"w", BOTH)]));
    for (holder, stateid) in holders.iter_mut().zip(held) {
        assert_eq!(status(flight.poll()), None);
        assert_eq!(recalled(holder).len(), 1);
        assert_eq!(return_delegation(holder, file, stateid), Status::OK);
    }
    assert_eq!(status(flight.poll()), Some(Status::OK), "only its own remains");
    // Woken once at first, and when 8, 4 and 2 were left.
    assert_eq!(lab.server.delegation_counts().waits.load(Relaxed), 4);
    assert_eq!(return_delegation(&mut other, file, own), Status::OK);
}
