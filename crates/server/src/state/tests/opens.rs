use vfs::Authority;

use super::*;
use crate::state::IoKind;

#[test]
fn an_open_is_upgraded_downgraded_and_closed() {
    let world = World::new();
    let peer = world.peer("a");
    let first = world.open(&peer, 1, "o", READ);
    assert_eq!(first.seqid, 1);
    let second = world.open(&peer, 1, "o", BOTH);
    assert_eq!((second.other, second.seqid), (first.other, 2), "one open an owner and file");
    let downgrade =
        |stateid: &Stateid, access| world.state.open_downgrade(&peer.client, file(1), stateid, access, NONE);
    assert_eq!(downgrade(&second, WRITE), Err(Status::INVAL), "never opened so");
    assert_eq!(downgrade(&first, READ), Err(Status::OLD_STATEID));
    let third = downgrade(&second, READ).unwrap();
    assert_eq!((third.other, third.seqid), (first.other, 3));
    assert_eq!(world.close(&peer, 1, &second), Err(Status::OLD_STATEID));
    let future = Stateid { seqid: 4, ..third };
    assert_eq!(world.close(&peer, 1, &future), Err(Status::BAD_STATEID));
    assert_eq!(world.pinned(), 1);
    assert_eq!(world.close(&peer, 1, &Stateid { seqid: 0, ..third }), Ok(()), "0 is the present one");
    assert_eq!(world.close(&peer, 1, &third), Err(Status::BAD_STATEID));
    assert_eq!((world.state.counts().opens, world.pinned()), (0, 0));
    let again = world.open(&peer, 1, "o", READ);
    assert_ne!(again.other, first.other, "an `other` value is not used again");
}

#[test]
fn opens_of_different_owners_files_and_clients_are_separate() {
    let world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let opens = [
        world.open(&a, 1, "o", READ),
        world.open(&a, 1, "p", READ),
        world.open(&a, 2, "o", READ),
        world.open(&b, 1, "o", READ),
    ];
    for (n, open) in opens.iter().enumerate() {
        assert!(opens[..n].iter().all(|other| other.other != open.other));
    }
    assert_eq!(world.close(&b, 1, &opens[0]), Err(Status::BAD_STATEID), "another client's");
    assert_eq!(world.close(&a, 2, &opens[0]), Err(Status::BAD_STATEID), "another file's");
    assert_eq!(world.state.counts().opens, 4);
}

/// RFC 8881 §9.7's pseudocode, over all current opens.
#[test]
fn share_conflicts_match_a_list_of_opens() {
    let world = World::new();
    let peers = [world.peer("a"), world.peer("b"), world.peer("c")];
    let mut held: Vec<(usize, u32, u32, Stateid)> = Vec::new();
    let mut random = 1u32;
    for _ in 0..4000 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (who, access, deny) = ((random >> 8) as usize % 3, (random >> 12) % 3 + 1, (random >> 16) % 4);
        if random >> 30 == 0 && !held.is_empty() {
            let (who, _, _, stateid) = held.swap_remove((random >> 20) as usize % held.len());
            world.close(&peers[who], 1, &stateid).unwrap();
            continue;
        }
        let denied = held.iter().any(|(_, a, d, _)| access & d != 0 || deny & a != 0);
        let (access_bits, deny_bits) =
            (ShareAccess::from_bits_retain(access), ShareDeny::from_bits_retain(deny));
        match world.try_open(&peers[who], 1, "o", access_bits, deny_bits) {
            Err(status) => {
                assert_eq!(status, Status::SHARE_DENIED);
                assert!(denied, "{access}/{deny} denied without reason");
            }
            Ok(grant) => {
                assert!(!denied, "{access}/{deny} granted despite {held:?}");
                match held.iter_mut().find(|open| open.0 == who) {
                    Some(open) => *open = (who, open.1 | access, open.2 | deny, grant.stateid),
                    None => held.push((who, access, deny, grant.stateid)),
                }
            }
        }
    }
}

#[test]
fn invalid_modes_are_refused() {
    let world = World::new();
    let peer = world.peer("a");
    let try_open = |access, deny| world.try_open(&peer, 1, "o", access, deny).err();
    assert_eq!(try_open(ShareAccess::empty(), NONE), Some(Status::INVAL));
    assert_eq!(try_open(READ, ShareDeny::from_bits_retain(8)), Some(Status::INVAL));
}

#[test]
fn io_needs_the_access_of_its_open() {
    let world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let io = |peer: &Peer, stateid: &Stateid, kind| {
        world.state.check_io(world.now, &peer.client, file(1), stateid, kind).map(|permit| permit.authority)
    };
    let reader = world.open(&a, 1, "r", READ);
    let writer = world.open(&a, 1, "w", WRITE);
    assert_eq!(io(&a, &reader, IoKind::Read), Ok(Authority::Opened));
    assert_eq!(io(&a, &reader, IoKind::Write), Err(Status::OPENMODE));
    assert_eq!(io(&a, &writer, IoKind::Write), Ok(Authority::Opened));
    // A READ through an open for writing is allowed, with the caller's own rights.
    assert_eq!(io(&a, &writer, IoKind::Read), Ok(Authority::Caller));
    assert_eq!(io(&b, &reader, IoKind::Read), Err(Status::BAD_STATEID));
    assert_eq!(io(&b, &Stateid::ANONYMOUS, IoKind::Write), Ok(Authority::Caller));
    for invalid in [Stateid::INVALID, Stateid::CURRENT, Stateid { seqid: 5, other: [0xff; 12] }] {
        assert_eq!(io(&a, &invalid, IoKind::Read), Err(Status::BAD_STATEID));
    }
    let lock = world.lock(&a, &(1, writer), "l", LockType::Write, range(0, 1)).unwrap();
    assert_eq!(io(&a, &lock, IoKind::Write), Ok(Authority::Opened), "a lock stateid has its open's access");
    let newest =
        world.state.check_io(world.now, &a.client, file(1), &Stateid { seqid: 0, ..lock }, IoKind::Write);
    assert_eq!(newest.unwrap().stateid, lock);
}

#[test]
fn a_deny_mode_refuses_io_without_an_open() {
    let world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let writer = world.open(&b, 1, "w", WRITE);
    let open = world.try_open(&a, 1, "o", READ, ShareDeny::READ);
    let open = open.unwrap().stateid;
    let io = |stateid: &Stateid, kind| {
        world.state.check_io(world.now, &b.client, file(1), stateid, kind).map(|permit| permit.authority)
    };
    assert_eq!(io(&Stateid::ANONYMOUS, IoKind::Read), Err(Status::LOCKED));
    assert_eq!(io(&Stateid::ANONYMOUS, IoKind::Write), Ok(Authority::Caller));
    assert_eq!(io(&writer, IoKind::Read), Err(Status::LOCKED), "an open for writing does not permit reading");
    // RFC 8881 §8.2.3: READ bypass passes a READ; in a WRITE it is the anonymous one.
    assert_eq!(io(&Stateid::READ_BYPASS, IoKind::Read), Ok(Authority::Caller));
    assert_eq!(world.state.check_stateless_io(world.now, file(1), IoKind::Read), Err(Status::LOCKED));
    assert_eq!(world.state.check_stateless_io(world.now, file(2), IoKind::Read), Ok(()));
    world.close(&b, 1, &writer).unwrap();
    let both = world.state.open_downgrade(&a.client, file(1), &open, READ, ShareDeny::READ).unwrap();
    world.close(&a, 1, &both).unwrap();
    assert_eq!(world.state.check_stateless_io(world.now, file(1), IoKind::Read), Ok(()));
    let deny = world.try_open(&a, 1, "o", READ, ShareDeny::WRITE).unwrap().stateid;
    assert_eq!(io(&Stateid::READ_BYPASS, IoKind::Write), Err(Status::LOCKED));
    world.close(&a, 1, &deny).unwrap();
}

#[test]
fn an_undone_open_leaves_no_state() {
    let world = World::new();
    let peer = world.peer("a");
    let new = world.try_open(&peer, 1, "o", READ, ShareDeny::WRITE).unwrap();
    world.state.withdraw_open(&peer.client, new);
    assert_eq!((world.state.counts().opens, world.pinned()), (0, 0));
    assert_eq!(world.state.check_stateless_io(world.now, file(1), IoKind::Write), Ok(()));

    let before = world.open(&peer, 1, "o", READ);
    let upgrade = world.try_open(&peer, 1, "o", WRITE, NONE).unwrap();
    world.state.withdraw_open(&peer.client, upgrade);
    let write = world.state.check_io(world.now, &peer.client, file(1), &before, IoKind::Write);
    assert_eq!(write, Err(Status::OPENMODE));
    assert_eq!(world.close(&peer, 1, &before), Ok(()), "the client's stateid is the present one");

    world.open(&peer, 1, "o", READ);
    let upgrade = world.try_open(&peer, 1, "o", WRITE, NONE).unwrap();
    let parallel = world.open(&peer, 1, "o", WRITE);
    world.state.withdraw_open(&peer.client, upgrade);
    assert_eq!(world.close(&peer, 1, &parallel), Ok(()), "a newer open stays");
}

#[test]
fn stateids_are_tested_and_freed() {
    let world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let open = world.open(&a, 1, "o", BOTH);
    let test = |peer: &Peer, stateid: &Stateid| world.state.test_stateid(&peer.client, stateid);
    let free = |stateid: &Stateid| world.state.free_stateid(&a.client, stateid);
    assert_eq!(test(&a, &open), Status::OK);
    assert_eq!(test(&b, &open), Status::BAD_STATEID);
    assert_eq!(test(&a, &Stateid { seqid: 9, ..open }), Status::BAD_STATEID);
    assert_eq!(test(&a, &Stateid::ANONYMOUS), Status::BAD_STATEID, "special ones are always invalid");
    let mut foreign = open;
    foreign.other[0] ^= 1;
    assert_eq!(test(&a, &foreign), Status::BAD_STATEID, "another instance's");
    assert_eq!(free(&open), Err(Status::LOCKS_HELD));
    let upgraded = world.open(&a, 1, "o", READ);
    assert_eq!(test(&a, &open), Status::OLD_STATEID);

    let lock = world.lock(&a, &(1, upgraded), "l", LockType::Read, range(0, 8)).unwrap();
    assert_eq!(free(&lock), Err(Status::LOCKS_HELD));
    let lock = world.state.unlock(world.now, &a.client, file(1), &lock, range(0, 8)).unwrap();
    assert_eq!(test(&a, &lock), Status::OK, "a lock stateid outlives its locks");
    assert_eq!(free(&lock), Ok(()));
    assert_eq!(test(&a, &lock), Status::BAD_STATEID);
    assert_eq!(free(&lock), Err(Status::BAD_STATEID));
}

#[test]
fn the_administrator_revokes_an_open() {
    let world = World::new();
    let mut peer = world.peer("a");
    let open = world.open(&peer, 1, "o", BOTH);
    let lock = world.lock(&peer, &(1, open), "l", LockType::Write, range(0, 8)).unwrap();
    world.state.revoke(&peer.client, &open).unwrap();
    assert_eq!(peer.ping(&world), SequenceStatus::ADMIN_STATE_REVOKED);
    assert_eq!(world.close(&peer, 1, &open), Err(Status::ADMIN_REVOKED));
    assert_eq!(world.state.test_stateid(&peer.client, &lock), Status::ADMIN_REVOKED);
    assert_eq!((world.pinned(), world.state.counts().revoked), (0, 2));
    world.state.free_stateid(&peer.client, &lock).unwrap();
    world.state.free_stateid(&peer.client, &open).unwrap();
    assert_eq!(peer.ping(&world), SequenceStatus::empty());
    assert_eq!(world.state.counts().revoked, 0);
}
