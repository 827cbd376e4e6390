use super::*;

fn denied_by(result: Result<Stateid, LockError>) -> Option<(u64, u64, LockType, u64, Bytes)> {
    match result {
        Err(LockError::Denied(d)) => {
            Some((d.offset, d.length, d.lock_type, d.owner.client_id, d.owner.owner.bytes().clone()))
        }
        Err(LockError::Status(status)) => panic!("LOCK: {status:?}"),
        Ok(_) => None,
    }
}

#[test]
fn exclusive_locks_deny_others_and_name_the_holder() {
    let world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let of_a = (1, world.open(&a, 1, "o", BOTH));
    let of_b = (1, world.open(&b, 1, "o", BOTH));
    let lock = world.lock(&a, &of_a, "process 7", LockType::Write, range(100, 50)).unwrap();
    assert_eq!(lock.seqid, 1);
    let holder = Some((100, 50, LockType::Write, a.client.id(), Bytes::from_static(b"process 7")));
    // A client that learned another client's ID could create a session for it (RFC 8881 §18.36.4).
    let reported = denied_by(world.lock(&b, &of_b, "p", LockType::Read, range(149, 1))).expect("a conflict");
    assert_eq!(
        (reported.0, reported.1, reported.2, &reported.4[..]),
        (100, 50, LockType::Write, &b"process 7"[..])
    );
    assert!(
        reported.3 != a.client.id() && reported.3 != b.client.id(),
        "a number instead of the holder's client ID"
    );
    assert_eq!(
        denied_by(world.lock(&b, &of_b, "p", LockType::Read, range(100, 1))),
        Some(reported),
        "the same"
    );
    assert_eq!(denied_by(world.lock(&a, &of_a, "q", LockType::WriteWait, range(0, u64::MAX))), holder);
    assert_eq!(denied_by(world.lock(&b, &of_b, "p", LockType::Write, range(150, u64::MAX))), None);
    assert_eq!(denied_by(world.lock(&b, &of_b, "p", LockType::Write, range(0, 100))), None);
    let rest = denied_by(world.lock(&a, &of_a, "process 7", LockType::Write, range(120, 100)));
    assert!(matches!(rest, Some((150, u64::MAX, LockType::Write, id, _)) if id != b.client.id()), "{rest:?}");
    let counts = world.state.counts();
    assert_eq!((counts.locks, counts.opens), (3, 2), "a denied lock leaves no state");
}

#[test]
fn a_lock_stateid_counts_its_changes() {
    let world = World::new();
    let peer = world.peer("a");
    let open = world.open(&peer, 1, "o", BOTH);
    let first = world.lock(&peer, &(1, open), "l", LockType::Read, range(0, 10)).unwrap();
    let more = |stateid, lock_type, at| {
        let locker = Locker::Existing(stateid);
        let request =
            LockRequest { file: file(1), lock_type, range: at, reclaim: false, locker, notice: None };
        world.state.lock(world.now, &peer.client, &request)
    };
    let second = more(first, LockType::Write, range(5, 10)).unwrap();
    assert_eq!((second.other, second.seqid), (first.other, 2), "an upgrade of a part");
    assert_eq!(world.state.counts().locks, 2);
    assert_eq!(more(first, LockType::Read, range(0, 1)), Err(Status::OLD_STATEID.into()));
    assert_eq!(
        more(open, LockType::Read, range(0, 1)),
        Err(Status::BAD_STATEID.into()),
        "an open is not a lock"
    );
    let third = world.state.unlock(world.now, &peer.client, file(1), &second, range(7, 1)).unwrap();
    assert_eq!((third.seqid, world.state.counts().locks), (3, 3));
    let again = world.lock(&peer, &(1, open), "l", LockType::Write, range(0, 100)).unwrap();
    assert_eq!((again.other, again.seqid), (first.other, 4), "the same owner and open: the same state");
    assert_eq!(world.state.counts().locks, 1);
    let open_as_lock = world.lock(&peer, &(1, first), "x", LockType::Read, range(0, 1));
    assert_eq!(open_as_lock, Err(Status::BAD_STATEID.into()), "a lock stateid is not an open");
}

#[test]
fn locks_need_an_open_of_their_mode() {
    let world = World::new();
    let peer = world.peer("a");
    let (reader, writer) = (world.open(&peer, 1, "r", READ), world.open(&peer, 1, "w", WRITE));
    let lock = |open, lock_type| world.lock(&peer, &(1, open), "l", lock_type, range(0, 1)).err();
    assert_eq!(lock(reader, LockType::Write), Some(Status::OPENMODE.into()));
    assert_eq!(lock(writer, LockType::ReadWait), Some(Status::OPENMODE.into()));
    assert_eq!(lock(reader, LockType::Read), None);
    assert_eq!(lock(writer, LockType::WriteWait), None);
}

#[test]
fn an_owners_locks_replace_each_other_across_stateids() {
    let world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let (one, two) = (world.open(&a, 1, "one", BOTH), world.open(&a, 1, "two", BOTH));
    let first = world.lock(&a, &(1, one), "l", LockType::Write, range(0, 100)).unwrap();
    // RFC 8881 §9.5: the status of each byte is the lock-owner's last, for any stateid.
    let second = world.lock(&a, &(1, two), "l", LockType::Read, range(40, 20)).unwrap();
    assert_ne!(first.other, second.other);
    assert_eq!(world.state.test_stateid(&a.client, &first), Status::OK, "its seqid stays");
    let asks =
        |lock_type, at| world.in_the_way(&b, 1, "l", lock_type, at).map(|(_, start, length)| (start, length));
    assert_eq!(asks(LockType::Read, range(45, 1)), None);
    assert_eq!(asks(LockType::Write, range(45, 1)), Some((40, 20)));
    assert_eq!(asks(LockType::Read, range(60, 1)), Some((60, 40)));
    // A byte belongs to the open of its last LOCK: closing that frees it.
    world.close(&a, 1, &two).unwrap();
    assert_eq!(asks(LockType::Write, range(40, 20)), None);
    assert_eq!(asks(LockType::Write, range(39, 1)), Some((0, 40)));
    world.close(&a, 1, &one).unwrap();
    assert_eq!(world.state.counts().locks, 0);
    assert_eq!(world.state.test_stateid(&a.client, &first), Status::BAD_STATEID);
}

#[test]
fn lockt_ignores_own_locks() {
    let world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let open = world.open(&a, 1, "o", BOTH);
    world.lock(&a, &(1, open), "l", LockType::Write, range(5, u64::MAX)).unwrap();
    assert_eq!(world.in_the_way(&a, 1, "l", LockType::Write, range(0, 10)), None);
    let held = Some((Bytes::from_static(b"l"), 5, u64::MAX));
    assert_eq!(world.in_the_way(&a, 1, "m", LockType::Read, range(0, 10)), held);
    assert_eq!(
        world.in_the_way(&b, 1, "l", LockType::Read, range(0, 10)),
        held,
        "another client's of one name"
    );
    assert_eq!(world.in_the_way(&b, 1, "l", LockType::Write, range(0, 5)), None);
    assert_eq!(
        world.in_the_way(&b, 2, "l", LockType::Write, range(0, 5)),
        None,
        "a file that nobody has open"
    );
}

#[test]
fn unlocking_an_unlocked_range_succeeds() {
    let world = World::new();
    let peer = world.peer("a");
    let open = world.open(&peer, 1, "o", BOTH);
    let lock = world.lock(&peer, &(1, open), "l", LockType::Write, range(10, 10)).unwrap();
    let lock = world.state.unlock(world.now, &peer.client, file(1), &lock, range(0, u64::MAX)).unwrap();
    let lock = world.state.unlock(world.now, &peer.client, file(1), &lock, range(0, 5)).unwrap();
    assert_eq!((lock.seqid, world.state.counts().locks), (3, 0));
    assert_eq!(
        world.state.unlock(world.now, &peer.client, file(2), &lock, range(0, 5)),
        Err(Status::BAD_STATEID)
    );
}

#[test]
fn lock_stateids_are_freed_in_any_order() {
    let world = World::new();
    let peer = world.peer("a");
    let open = (1, world.open(&peer, 1, "o", BOTH));
    let mut locks: Vec<Stateid> = (0..8u64)
        .map(|n| world.lock(&peer, &open, &format!("owner {n}"), LockType::Write, range(n * 10, 5)).unwrap())
        .collect();
    for n in [0, 3, 5, 0] {
        let lock = locks.swap_remove(n);
        let lock = world.state.unlock(world.now, &peer.client, file(1), &lock, range(0, u64::MAX)).unwrap();
        assert_eq!(world.state.free_stateid(&peer.client, &lock), Ok(()));
    }
    assert!(locks.iter().all(|lock| world.state.test_stateid(&peer.client, lock) == Status::OK));
    assert_eq!(world.state.counts().locks, 4);
    world.close(&peer, 1, &open.1).unwrap();
    assert!(locks.iter().all(|lock| world.state.test_stateid(&peer.client, lock) == Status::BAD_STATEID));
    assert!(world.state.shards.iter().all(|shard| shard.lock().is_empty()));
}

/// 100,000 locks on one file, each found, tested and freed: an hour with a list, a moment with a tree.
#[test]
fn a_hundred_thousand_locks_on_one_file() {
    const LOCKS: u64 = 100_000;
    let world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let of_a = (1, world.open(&a, 1, "o", BOTH));
    world.open(&b, 1, "o", BOTH);
    let mut last = Stateid::default();
    for n in 0..LOCKS {
        // Half of them have one owner, the others an owner each.
        let owner = if n % 2 == 0 { "one".to_owned() } else { format!("owner {n}") };
        last = world.lock(&a, &of_a, &owner, LockType::Write, range(n * 10, 5)).unwrap();
    }
    assert_eq!(world.state.counts().locks, LOCKS);
    for n in (0..LOCKS).step_by(17) {
        assert!(world.in_the_way(&b, 1, "x", LockType::Read, range(n * 10 + 4, 1)).is_some());
        assert!(world.in_the_way(&b, 1, "x", LockType::Write, range(n * 10 + 5, 5)).is_none());
    }
    let free = world.state.unlock(world.now, &a.client, file(1), &last, range(0, u64::MAX));
    assert!(free.is_ok());
    assert_eq!(world.state.counts().locks, LOCKS - 1);
    world.close(&a, 1, &of_a.1).unwrap();
    assert_eq!(world.state.counts().locks, 0);
}
