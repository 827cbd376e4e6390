//! Reclaims within one server.

use super::*;
use crate::state::IoKind;

fn reclaim(world: &World, peer: &Peer, deny: ShareDeny) -> Result<Stateid, Status> {
    let request = OpenRequest {
        file: file(1),
        owner: Arc::from(b"o".as_slice()),
        opener: 0,
        access: BOTH,
        deny,
        truncates: false,
        reclaim: true,
        pin: world.pin.clone(),
    };
    world.state.open(world.now, &peer.client, request).map(|grant| grant.stateid)
}

fn reclaim_lock(world: &World, peer: &Peer, open_stateid: Stateid) -> Result<Stateid, LockError> {
    let owner = Arc::from(b"l".as_slice());
    let locker = Locker::New { open_stateid, owner: &owner };
    let lock_type = LockType::Write;
    let request =
        LockRequest { file: file(1), lock_type, range: range(0, 9), reclaim: true, locker, notice: None };
    world.state.lock(world.now, &peer.client, &request)
}

#[test]
fn reclaims_opens_and_locks_after_restart() {
    let world = World::with(&settings(), &["a", "b"]);
    assert!(world.state.in_grace(world.now));
    let mut a = world.fresh_peer("a", 1);
    assert_eq!(a.ping(&world), SequenceStatus::RESTART_RECLAIM_NEEDED);
    assert_eq!(world.try_open(&a, 1, "o", READ, NONE), Err(Status::GRACE), "reclaims come first");
    let open = reclaim(&world, &a, NONE).unwrap();
    let lock = reclaim_lock(&world, &a, open).unwrap();
    assert_eq!(world.lock(&a, &(1, open), "m", LockType::Read, range(50, 1)), Err(Status::GRACE.into()));
    assert_eq!(world.state.check_io(world.now, &a.client, file(1), &lock, IoKind::Write).map(|_| ()), Ok(()));
    let anonymous = world.state.check_io(world.now, &a.client, file(1), &Stateid::ANONYMOUS, IoKind::Read);
    assert_eq!(anonymous, Err(Status::GRACE), "a deny may still be reclaimed");
    assert_eq!(world.state.reclaim_complete(&a.client), Ok(()));
    assert_eq!(world.state.reclaim_complete(&a.client), Err(Status::COMPLETE_ALREADY));
    assert_eq!(a.ping(&world), SequenceStatus::empty());
    assert_eq!(reclaim(&world, &a, NONE), Err(Status::NO_GRACE), "it has completed its reclaims");
    assert_eq!(world.try_open(&a, 2, "o", READ, NONE), Err(Status::GRACE), "another may still reclaim");

    let b = world.fresh_peer("b", 1);
    assert_eq!(reclaim(&world, &b, ShareDeny::READ), Err(Status::RECLAIM_CONFLICT));
    let of_b = reclaim(&world, &b, NONE).unwrap();
    assert_eq!(reclaim_lock(&world, &b, of_b), Err(Status::RECLAIM_CONFLICT.into()));
    world.state.reclaim_complete(&b.client).unwrap();
    assert!(!world.state.in_grace(world.now), "the last known client has completed");
    assert!(world.try_open(&a, 2, "o", READ, NONE).is_ok());
}

#[test]
fn unknown_clients_wait_and_reclaim_nothing() {
    let mut world = World::with(&settings(), &["a"]);
    let mut stranger = world.fresh_peer("stranger", 1);
    assert_eq!(stranger.ping(&world), SequenceStatus::empty());
    // RFC 8881 §15.1.9.3: "The client making the request has no current role in reclaiming locks."
    assert_eq!(reclaim(&world, &stranger, NONE), Err(Status::NO_GRACE));
    world.state.reclaim_complete(&stranger.client).unwrap();
    assert_eq!(world.try_open(&stranger, 1, "o", READ, NONE), Err(Status::GRACE));
    let test = LockTest { file: file(1), lock_type: LockType::Read, range: range(0, 1), owner: b"l" };
    assert_eq!(world.state.lock_test(world.now, &stranger.client, &test), Err(Status::GRACE.into()));
    world.pass(LEASE);
    stranger.ping(&world);
    assert!(world.try_open(&stranger, 1, "o", READ, NONE).is_ok(), "grace ends by time too");
    let late = world.fresh_peer("a", 1);
    assert_eq!(reclaim(&world, &late, NONE), Err(Status::NO_GRACE));
}

#[test]
fn reclaims_extend_the_grace_period_up_to_another_lease() {
    let second = Duration::from_secs(1);
    let mut world = World::with(&settings(), &["late", "away"]);
    world.pass(LEASE - second);
    let mut late = world.fresh_peer("late", 1);
    for _ in 0..LEASE.as_secs() {
        assert!(reclaim(&world, &late, NONE).is_ok(), "{:?}", world.now);
        world.pass(second);
        late.ping(&world);
    }
    world.pass(second);
    assert_eq!(reclaim(&world, &late, NONE), Err(Status::NO_GRACE));
    assert!(!world.state.in_grace(world.now));
}

#[test]
fn the_grace_period_does_not_wait_for_idle_reclaimers() {
    let mut world = World::with(&settings(), &["done", "away"]);
    let done = world.fresh_peer("done", 1);
    world.pass(LEASE - Duration::from_secs(5));
    assert!(reclaim(&world, &done, NONE).is_ok());
    world.pass(Duration::from_secs(5));
    assert!(!world.state.in_grace(world.now));
}

#[test]
fn without_records_there_is_no_grace_period() {
    let world = World::new();
    assert!(!world.state.in_grace(world.now));
    let peer = world.fresh_peer("a", 1);
    assert_eq!(reclaim(&world, &peer, NONE), Err(Status::NO_GRACE));
    // RFC 8881 §18.51.3: RECLAIM_COMPLETE comes before the first lock even if there is nothing to reclaim.
    assert_eq!(world.try_open(&peer, 1, "o", READ, NONE), Err(Status::GRACE));
    world.state.reclaim_complete(&peer.client).unwrap();
    assert!(world.try_open(&peer, 1, "o", READ, NONE).is_ok());
}

#[test]
fn the_server_does_not_wait_for_a_recorded_client_that_leaves() {
    let world = World::with(&settings(), &["a"]);
    let peer = world.fresh_peer("a", 1);
    world.state.destroy_session(peer.connection, &peer.session).unwrap();
    world.state.destroy_client(world.now, peer.client.id(), None).unwrap();
    assert!(!world.state.in_grace(world.now));
}
