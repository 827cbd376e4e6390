use super::*;

#[test]
fn expired_state_is_kept_until_it_conflicts() {
    let mut world = World::new();
    let mut a = world.peer("a");
    let open = world.try_open(&a, 1, "o", BOTH, ShareDeny::WRITE).unwrap().stateid;
    let lock = world.lock(&a, &(1, open), "l", LockType::Write, range(0, 10)).unwrap();
    world.pass(LEASE * 3);
    world.state.expire(world.now);
    assert_eq!(a.ping(&world), SequenceStatus::empty(), "it returned in time: nothing is lost");
    assert_eq!(world.state.test_stateid(&a.client, &lock), Status::OK);

    let b = world.peer("b");
    assert_eq!(world.try_open(&b, 1, "o", WRITE, NONE), Err(Status::SHARE_DENIED), "the lease is renewed");
    world.pass(LEASE);
    let other = world.peer("c");
    let granted = world.try_open(&other, 1, "o", WRITE, NONE);
    assert!(granted.is_ok(), "an expired lease prevents nothing");
    let flags = a.ping(&world);
    assert_eq!(flags, SequenceStatus::EXPIRED_SOME_STATE_REVOKED);
    assert_eq!(world.close(&a, 1, &open), Err(Status::EXPIRED));
    assert_eq!(world.state.test_stateid(&a.client, &lock), Status::EXPIRED);
    assert_eq!(world.state.free_stateid(&a.client, &lock), Ok(()));
    assert_eq!(a.ping(&world), flags, "until all of it is acknowledged");
    assert_eq!(world.state.free_stateid(&a.client, &open), Ok(()));
    assert_eq!(a.ping(&world), SequenceStatus::empty());
    assert_eq!(world.state.test_stateid(&a.client, &open), Status::BAD_STATEID);
}

#[test]
fn an_expired_lock_is_revoked_with_its_stateid() {
    let mut world = World::new();
    let mut a = world.peer("a");
    let open = (1, world.open(&a, 1, "o", BOTH));
    let lock = world.lock(&a, &open, "l", LockType::Write, range(0, 10)).unwrap();
    world.lock(&a, &open, "l", LockType::Write, range(100, 10)).unwrap();
    let other = world.lock(&a, &open, "m", LockType::Write, range(200, 10)).unwrap();
    world.pass(LEASE);
    let b = world.peer("b");
    let of_b = (1, world.open(&b, 1, "o", BOTH));
    assert_eq!(world.in_the_way(&b, 1, "x", LockType::Write, range(5, 1)), None, "TEST_STATEID reports it");
    assert_eq!(world.state.counts().locks, 3, "and evicts nothing");
    world.lock(&b, &of_b, "x", LockType::Write, range(5, 1)).unwrap();
    // RFC 8881 §8.4.3: "it must revoke all locks associated with a given stateid, even if the conflict is with only a subset".
    assert_eq!(world.state.counts().locks, 2);
    assert_eq!(a.ping(&world), SequenceStatus::EXPIRED_SOME_STATE_REVOKED);
    assert_eq!(world.state.test_stateid(&a.client, &Stateid { seqid: 0, ..lock }), Status::EXPIRED);
    assert_eq!(world.state.test_stateid(&a.client, &other), Status::OK);
    assert_eq!(world.state.test_stateid(&a.client, &open.1), Status::OK);
}

#[test]
fn nothing_is_revoked_if_another_conflict_remains() {
    let mut world = World::new();
    let a = world.peer("a");
    let expired = (1, world.open(&a, 1, "o", BOTH));
    let lock = world.lock(&a, &expired, "l", LockType::Read, range(0, 10)).unwrap();
    world.pass(LEASE);
    let (b, c) = (world.peer("b"), world.peer("c"));
    let of_b = (1, world.open(&b, 1, "o", BOTH));
    world.lock(&b, &of_b, "l", LockType::Read, range(5, 10)).unwrap();
    let of_c = (1, world.open(&c, 1, "o", BOTH));
    let denied = world.lock(&c, &of_c, "l", LockType::Write, range(0, 20));
    assert!(
        matches!(denied, Err(LockError::Denied(d)) if d.offset == 5 && d.lock_type == LockType::Read),
        "b's"
    );
    assert_eq!(world.state.test_stateid(&a.client, &lock), Status::OK);
    assert_eq!(world.try_open(&c, 1, "p", READ, ShareDeny::WRITE), Err(Status::SHARE_DENIED));
    assert_eq!(world.state.test_stateid(&a.client, &expired.1), Status::OK);
}

#[test]
fn a_request_in_progress_keeps_the_lease() {
    let mut world = World::new();
    let mut a = world.peer("a");
    world.try_open(&a, 1, "o", BOTH, ShareDeny::BOTH).unwrap();
    let running = a.start(&world, 0);
    world.pass(LEASE * 2);
    let b = world.peer("b");
    assert_eq!(world.try_open(&b, 1, "o", READ, NONE), Err(Status::SHARE_DENIED));
    running.finish(world.now, None);
    world.pass(LEASE - SECOND);
    assert_eq!(world.try_open(&b, 1, "o", READ, NONE), Err(Status::SHARE_DENIED), "a lease from its end");
    world.pass(SECOND);
    assert!(world.try_open(&b, 1, "o", READ, NONE).is_ok());
}

#[test]
fn a_lease_lasts_from_the_end_of_a_request_that_waited() {
    let mut world = World::new();
    let mut a = world.peer("a");
    world.try_open(&a, 1, "o", BOTH, ShareDeny::BOTH).unwrap();
    let running = a.start(&world, 0);
    world.pass(LEASE * 2);
    running.finish_untimed(None);
    // RFC 8881 §8.3: "no sooner than the sum of current time and the value of the lease_time attribute".
    let b = world.peer("b");
    assert_eq!(world.try_open(&b, 1, "o", READ, NONE), Err(Status::SHARE_DENIED));
    world.pass(LEASE - SECOND);
    assert_eq!(world.try_open(&b, 1, "o", READ, NONE), Err(Status::SHARE_DENIED));
    world.pass(SECOND);
    assert!(world.try_open(&b, 1, "o", READ, NONE).is_ok(), "once");
}

#[test]
fn io_of_others_revokes_an_expired_deny() {
    let mut world = World::new();
    let a = world.peer("a");
    let open = world.try_open(&a, 1, "o", READ, ShareDeny::WRITE).unwrap().stateid;
    let write =
        |world: &World| world.state.check_stateless_io(world.now, file(1), crate::state::IoKind::Write);
    assert_eq!(write(&world), Err(Status::LOCKED));
    world.pass(LEASE);
    assert_eq!(write(&world), Ok(()));
    assert_eq!(world.state.test_stateid(&a.client, &open), Status::EXPIRED);
}

#[test]
fn sweeps_remove_expired_records_only() {
    let mut world = World::new();
    let unconfirmed = world.exchange("unconfirmed", 1, &ROOT).unwrap();
    let stateless = world.peer("stateless");
    let holder = world.peer("holder");
    world.open(&holder, 1, "o", READ);
    world.pass(LEASE - SECOND);
    let mut alive = world.peer("alive");
    assert_eq!(world.state.expire(world.now).clients, 0);
    world.pass(SECOND);
    assert_eq!(world.state.expire(world.now).clients, 2);
    assert_eq!(world.create(unconfirmed.client_id, 1, 1), Err(Status::STALE_CLIENTID));
    assert!(world.state.sessions.get(&stateless.session).is_none());
    assert!(world.state.sessions.get(&holder.session).is_some(), "courtesy");
    alive.ping(&world);
    world.pass(Duration::from_secs(24 * 60 * 60));
    assert_eq!(world.state.expire(world.now).clients, 2, "a day is enough");
    assert_eq!(world.state.counts(), Default::default());
    assert_eq!(world.pinned(), 0);
}

#[test]
fn a_record_not_confirmed_within_a_lease_is_removed() {
    let mut world = World::new();
    let in_time = world.exchange("in time", 1, &ROOT).unwrap();
    let late = world.exchange("late", 1, &ROOT).unwrap();
    world.pass(LEASE - SECOND);
    assert!(world.create(in_time.client_id, in_time.sequence_id, 1).is_ok());
    world.pass(SECOND);
    assert_eq!(world.create(late.client_id, late.sequence_id, 1), Err(Status::STALE_CLIENTID));
    assert_eq!(world.state.counts().clients, 1, "without a sweep");
}

#[test]
fn a_sweep_is_bounded_and_resumed() {
    let mut world = World::new();
    for n in 0..1000 {
        world.exchange(&format!("client {n}"), 1, &ROOT).unwrap();
    }
    world.pass(LEASE);
    let mut rounds = 0;
    loop {
        rounds += 1;
        let swept = world.state.expire(world.now);
        assert!(swept.clients <= 256);
        if !swept.more {
            break;
        }
    }
    assert_eq!(rounds, 4);
    assert_eq!(world.state.counts(), Default::default());
}
