//! The state of a large site: 100,000 opens and locks of one file, 10,000 clients.

use super::*;

const MANY: u64 = 100_000;

#[test]
fn a_hundred_thousand_locks_of_a_file_conflict_with_others() {
    let world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let open = (0, world.open(&a, 0, "o", BOTH));
    let first = world.lock(&a, &open, "l", LockType::Write, range(0, 10)).unwrap();
    let locker = Locker::Existing(Stateid { seqid: 0, ..first });
    let at = |place: u64| range(20 * place, 10);
    for place in 1..MANY {
        let request = LockRequest {
            file: file(0),
            lock_type: LockType::Write,
            range: at(place),
            reclaim: false,
            locker,
            notice: None,
        };
        world.state.lock(world.now, &a.client, &request).unwrap();
    }
    assert_eq!(world.state.counts().locks, MANY);
    let way = |peer, owner, range| world.in_the_way(peer, 0, owner, LockType::Write, range);
    for place in [0, 1, 777, MANY / 2, MANY - 1] {
        let (owner, offset, _) = way(&b, "l", at(place)).expect("an owner of another client");
        assert_eq!((&owner[..], offset), (&b"l"[..], 20 * place));
        assert_eq!(way(&b, "l", range(20 * place + 10, 10)), None, "between two ranges");
    }
    assert_eq!(way(&b, "m", range(0, u64::MAX)).unwrap().1, 0, "the first range");
    assert_eq!(way(&a, "l", range(0, u64::MAX)), None, "its own");
    let second = (0, world.open(&b, 0, "o", BOTH));
    world.lock(&b, &second, "m", LockType::Write, range(20 * MANY, 1)).unwrap();
    assert_eq!(way(&a, "l", range(0, u64::MAX)).unwrap().1, 20 * MANY, "after all own ranges");
    world.close(&a, 0, &Stateid { seqid: 0, ..open.1 }).unwrap();
    assert_eq!(world.state.counts().locks, 1);
}

#[test]
fn one_reader_among_a_hundred_thousand_writers_conflicts_with_deny_read() {
    let world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let writers: Vec<Stateid> = (0..MANY).map(|n| world.open(&a, 0, &format!("w{n}"), WRITE)).collect();
    let reader = world.open(&a, 0, "r", READ);
    let denied = |deny| world.try_open(&b, 0, "o", WRITE, deny).map(|_| ());
    assert_eq!(denied(ShareDeny::READ), Err(Status::SHARE_DENIED));
    world.close(&a, 0, &reader).unwrap();
    assert_eq!(denied(ShareDeny::READ), Ok(()));
    assert_eq!(denied(ShareDeny::WRITE), Err(Status::SHARE_DENIED), "its own open writes as well");
    assert_eq!(
        world.try_open(&a, 0, "r", READ, NONE).map(|_| ()),
        Err(Status::SHARE_DENIED),
        "found among opens that do not conflict"
    );
    for writer in &writers {
        world.close(&a, 0, writer).unwrap();
    }
    assert_eq!(world.state.counts().opens, 1);
}

#[test]
fn ten_thousand_clients_register_renew_and_expire() {
    let mut world = World::new();
    let mut peers: Vec<Peer> = (0..10_000).map(|n| world.peer(&format!("client {n}"))).collect();
    for (fileid, peer) in (0..).zip(&peers) {
        world.open(peer, fileid, "o", READ);
    }
    world.pass(LEASE - SECOND);
    for peer in peers.iter_mut().step_by(2) {
        peer.ping(&world);
    }
    let session = world.state.sessions.get(&peers[0].session).unwrap();
    assert_eq!(session.slots.target_highest(), 63, "idle clients use no scarce resource");
    drop(session);
    world.pass(SECOND);
    // Each sweep removes as if a limit were reached, and examines a bounded number of clients.
    for _ in 0..100 {
        world.state.remove_expired(world.now);
    }
    let counts = world.state.counts();
    assert_eq!((counts.clients, counts.sessions, counts.opens), (5_000, 5_000, 5_000));
}
