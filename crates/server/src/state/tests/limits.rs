use super::*;

#[test]
fn a_flood_of_exchange_ids_replaces_its_own_records() {
    let world = World::with(&Settings { max_clients: 10, ..settings() }, &[]);
    let peers: Vec<Peer> = (0..5).map(|n| world.peer(&format!("peer {n}"))).collect();
    for n in 0..100 {
        world.exchange(&format!("flood {n}"), 1, &ROOT).unwrap();
    }
    assert_eq!(world.state.counts().clients, 10);
    assert!(peers.iter().all(|peer| world.state.sessions.get(&peer.session).is_some()));
}

#[test]
fn confirmed_records_are_bounded_and_expired_ones_yield() {
    let mut world = World::with(&Settings { max_clients: 3, ..settings() }, &[]);
    let mut peers: Vec<Peer> = ["a", "b", "c"].iter().map(|owner| world.peer(owner)).collect();
    for peer in &peers {
        world.open(peer, 1, "o", READ);
    }
    assert_eq!(world.exchange("d", 1, &ROOT), Err(Status::DELAY));
    world.pass(LEASE);
    peers[1].ping(&world);
    assert!(world.exchange("d", 1, &ROOT).is_ok());
    assert!(world.state.sessions.get(&peers[1].session).is_some(), "a client that renews its lease stays");
    assert_eq!(world.state.counts().opens, 1);
}

#[test]
fn opens_and_locks_are_bounded_and_expired_ones_yield() {
    let mut world = World::with(&Settings { max_state: 10, ..settings() }, &[]);
    let mut a = world.peer("a");
    let open = (0, world.open(&a, 0, "o", BOTH));
    let lock = world.lock(&a, &open, "l", LockType::Write, range(0, 100)).unwrap();
    for fileid in 1..8 {
        world.open(&a, fileid, "o", BOTH);
    }
    assert_eq!(world.try_open(&a, 9, "o", READ, NONE), Err(Status::DELAY));
    assert_eq!(world.lock(&a, &open, "m", LockType::Write, range(500, 1)), Err(Status::DELAY.into()));
    let unlock = |at| world.state.unlock(world.now, &a.client, file(0), &Stateid { seqid: 0, ..lock }, at);
    assert_eq!(unlock(range(40, 10)), Err(Status::DELAY), "it would leave two ranges");
    assert!(unlock(range(50, 50)).is_ok(), "releasing state needs no room");
    assert!(unlock(range(0, 50)).is_ok());
    assert_eq!(world.state.counts().locks, 0);
    assert!(world.try_open(&a, 9, "o", READ, NONE).is_ok());
    a.ping(&world);
    world.pass(LEASE);
    let b = world.peer("b");
    assert!(world.try_open(&b, 10, "o", READ, NONE).is_ok());
    assert_eq!((world.state.counts().clients, world.state.counts().opens), (1, 1));
}

#[test]
fn one_client_leaves_room_for_the_others() {
    let world = World::with(&Settings { max_state: 8192, ..settings() }, &[]);
    let (a, b) = (world.peer("a"), world.peer("b"));
    let open = (0, world.open(&a, 0, "o", BOTH));
    // Two owners of 1024 bytes weigh five each.
    let long = |first: &str| format!("{first}{}", "x".repeat(1023));
    world.open(&a, 1, &long("p"), BOTH);
    world.open(&a, 1, &long("q"), BOTH);
    let lock = world.lock(&a, &open, "l", LockType::Write, range(0, 1)).unwrap();
    let locked = (0..4096).filter(|n| {
        let locker = Locker::Existing(Stateid { seqid: 0, ..lock });
        let (file, range) = (file(0), range(4 + 2 * n, 1));
        let request =
            LockRequest { file, lock_type: LockType::Write, range, reclaim: false, locker, notice: None };
        world.state.lock(world.now, &a.client, &request).is_ok()
    });
    let locked = locked.count();
    // A quarter of the limit, less the opens, the lock stateid, its first range and the range that a LOCK might split.
    assert_eq!(locked, 2048 - (1 + 2 * 5) - 2 - 1);
    assert_eq!(world.try_open(&a, 2, "o", READ, NONE).map(|_| ()), Ok(()));
    assert_eq!(world.try_open(&a, 3, "o", READ, NONE), Err(Status::DELAY));
    assert!(world.try_open(&b, 3, "o", READ, NONE).is_ok());
    world.close(&a, 0, &open.1).unwrap();
    assert!(world.try_open(&a, 3, "o", READ, NONE).is_ok(), "closed opens do not count");
}

#[test]
fn one_client_s_sessions_leave_memory_for_the_others() {
    let world = World::with(&Settings { slot_cache_bytes: 1 << 20, ..settings() }, &[]);
    let (a, b) = ["a", "b"].map(|owner| world.exchange(owner, 1, &ROOT).unwrap()).into();
    let made = (1..64).take_while(|n| world.create(a.client_id, *n, 1).is_ok()).count();
    assert!((2..=32).contains(&made), "{made} sessions of at least 8 KiB in 256 KiB");
    assert!(world.state.counts().slot_cache_bytes <= 256 << 10);
    assert!(world.create(b.client_id, b.sequence_id, 2).is_ok());
}

#[test]
fn sessions_are_bounded_by_memory_and_expired_ones_yield() {
    let mut world = World::with(&Settings { slot_cache_bytes: 100_000, ..settings() }, &[]);
    let mut peers = Vec::new();
    let refused = (0..100).find_map(|n| {
        let id = world.exchange(&format!("client {n}"), 1, &ROOT).unwrap();
        match world.create(id.client_id, id.sequence_id, 1) {
            Ok(session) => {
                peers.push(session);
                None
            }
            Err(status) => Some((status, id)),
        }
    });
    let (status, id) = refused.expect("a hundred sessions do not fit");
    assert_eq!(status, Status::DELAY);
    assert!((5..13).contains(&peers.len()), "{} sessions of at least 8 KiB", peers.len());
    assert!(world.state.counts().slot_cache_bytes <= 100_000);
    world.pass(LEASE - SECOND);
    let waiting = world.exchange("patient", 1, &ROOT).unwrap();
    world.pass(SECOND);
    assert!(world.create(waiting.client_id, waiting.sequence_id, 1).is_ok(), "expired sessions go");
    assert_eq!(world.create(id.client_id, id.sequence_id, 1), Err(Status::STALE_CLIENTID));
}

#[test]
fn a_client_has_a_bounded_number_of_sessions() {
    let world = World::new();
    let id = world.exchange("a", 1, &ROOT).unwrap();
    let last = (1..100).map(|n| world.create(id.client_id, n, 1)).take_while(Result::is_ok).count();
    assert_eq!(last, 64);
    assert_eq!(world.state.counts().sessions, 64);
}
