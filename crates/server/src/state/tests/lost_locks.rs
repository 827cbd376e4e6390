//! Stateids of lost locks whose opens were not lost.

use super::*;

const LOST: SequenceStatus = SequenceStatus::EXPIRED_SOME_STATE_REVOKED;

/// Returns the result of TEST_STATEID.
fn tested(world: &World, peer: &Peer, stateid: &Stateid) -> Status {
    world.state.test_stateid(&peer.client, &Stateid { seqid: 0, ..*stateid })
}

/// Returns an open of file 1 with a lock of one byte under it.
fn locked(world: &World, peer: &Peer, owner: &str, at: u64) -> [Stateid; 2] {
    let open = world.open(peer, 1, owner, BOTH);
    [open, world.lock(peer, &(1, open), "l", LockType::Write, range(at, 1)).unwrap()]
}

/// Locks these bytes of file 1 as another client, against their holder.
fn take(world: &World, bytes: &[u64]) -> Peer {
    let taker = world.peer("taker");
    let open = world.open(&taker, 1, "t", BOTH);
    for at in bytes {
        world.lock(&taker, &(1, open), "t", LockType::Write, range(*at, 1)).unwrap();
    }
    taker
}

#[test]
fn close_frees_the_lost_locks_of_its_open_only() {
    let mut world = World::new();
    let (mut a, mut b) = (world.peer("a"), world.peer("b"));
    let [open, lost] = locked(&world, &a, "o", 0);
    let kept = world.lock(&a, &(1, open), "m", LockType::Write, range(1, 1)).unwrap();
    let [other_open, lost_there] = locked(&world, &a, "p", 2);
    let [_, lost_by_b] = locked(&world, &b, "o", 4);
    world.pass(LEASE);
    let taker = take(&world, &[0, 2, 4]);
    assert_eq!((a.ping(&world), b.ping(&world)), (LOST, LOST));
    // The owner locks again under the same open.
    let again = world.lock(&a, &(1, open), "l", LockType::Write, range(7, 1)).unwrap();
    assert_eq!(world.state.audit(), Ok(()));

    world.close(&a, 1, &open).unwrap();
    assert_eq!(world.state.audit(), Ok(()));
    for stateid in [&open, &lost, &kept, &again] {
        assert_eq!(tested(&world, &a, stateid), Status::BAD_STATEID);
        assert_eq!(world.state.free_stateid(&a.client, stateid), Err(Status::BAD_STATEID));
    }
    assert_eq!(tested(&world, &a, &lost_there), Status::EXPIRED, "of another open");
    assert_eq!(a.ping(&world), LOST, "until all losses are acknowledged");
    world.close(&a, 1, &other_open).unwrap();
    assert_eq!(tested(&world, &a, &lost_there), Status::BAD_STATEID);
    assert_eq!(a.ping(&world), SequenceStatus::empty());

    assert_eq!(
        (tested(&world, &b, &lost_by_b), b.ping(&world)),
        (Status::EXPIRED, LOST),
        "of another client"
    );
    assert_eq!(world.state.free_stateid(&b.client, &lost_by_b), Ok(()));
    let counts = world.state.counts();
    assert_eq!((counts.revoked, counts.opens, counts.locks), (0, 2, 3), "b's open, and all of the taker's");
    assert!(world.in_the_way(&a, 1, "l", LockType::Write, range(0, 1)).is_some_and(|held| held.0 == "t"));
    drop(taker);
    assert_eq!(world.state.audit(), Ok(()));
}

#[test]
fn close_frees_locks_revoked_by_the_administrator() {
    let world = World::new();
    let mut a = world.peer("a");
    let [open, lost] = locked(&world, &a, "o", 0);
    world.state.revoke(&a.client, &lost).unwrap();
    assert_eq!(a.ping(&world), SequenceStatus::ADMIN_STATE_REVOKED);
    world.close(&a, 1, &open).unwrap();
    assert_eq!(a.ping(&world), SequenceStatus::empty());
    assert_eq!(tested(&world, &a, &lost), Status::BAD_STATEID);
    assert_eq!(world.state.audit(), Ok(()));
}

#[test]
fn freeing_a_lost_open_frees_its_lost_locks() {
    let world = World::new();
    let mut a = world.peer("a");
    let [open, lost_before] = locked(&world, &a, "o", 0);
    let lost_with_it = world.lock(&a, &(1, open), "m", LockType::Write, range(1, 1)).unwrap();
    world.state.revoke(&a.client, &lost_before).unwrap();
    world.state.revoke(&a.client, &open).unwrap();
    assert_eq!(world.close(&a, 1, &open), Err(Status::ADMIN_REVOKED), "a lost lock is not closed");
    assert_eq!(world.state.counts().revoked, 3);
    assert_eq!(world.state.free_stateid(&a.client, &open), Ok(()));
    for stateid in [&lost_before, &lost_with_it] {
        assert_eq!(tested(&world, &a, stateid), Status::BAD_STATEID);
    }
    assert_eq!((a.ping(&world), world.state.counts().revoked), (SequenceStatus::empty(), 0));
    assert_eq!(world.state.audit(), Ok(()));
}

#[test]
fn lost_locks_are_freed_with_their_client() {
    let mut world = World::new();
    let a = world.peer("a");
    let [open, _] = locked(&world, &a, "o", 0);
    locked(&world, &a, "p", 1);
    world.pass(LEASE);
    let taker = take(&world, &[0, 1]);
    world.lock(&a, &(1, open), "l", LockType::Write, range(5, 1)).unwrap();
    world.state.evict(a.client.id()).unwrap();
    assert_eq!(world.state.audit(), Ok(()));
    world.state.evict(taker.client.id()).unwrap();
    assert_eq!(world.state.counts(), Default::default());
}
