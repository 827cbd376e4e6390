use super::*;
use crate::state::tables::ids::CLIENT_IDS_TRIED;

#[test]
fn a_new_owner_gets_an_unconfirmed_record_and_confirms_it() {
    let world = World::new();
    let first = world.exchange("a", 1, &ROOT).unwrap();
    assert!(!first.confirmed);
    let second = world.exchange("a", 1, &ROOT).unwrap();
    assert_ne!(second.client_id, first.client_id, "an unconfirmed record is replaced");
    assert_eq!(world.create(first.client_id, 1, 1), Err(Status::STALE_CLIENTID));
    world.create(second.client_id, second.sequence_id, 1).unwrap();
    let third = world.exchange("a", 1, &ROOT).unwrap();
    assert_eq!((third.client_id, third.confirmed), (second.client_id, true));
    assert_eq!(world.state.counts().clients, 1);
}

#[test]
fn a_restarted_client_loses_its_old_state_when_it_confirms() {
    let world = World::new();
    let mut old = world.peer("a");
    let stateid = world.open(&old, 1, "o", BOTH);
    world.lock(&old, &(1, stateid), "l", LockType::Write, range(0, 10)).unwrap();
    let id = world.exchange("a", 2, &ROOT).unwrap();
    assert!(!id.confirmed);
    old.ping(&world);
    assert_eq!(world.state.counts().clients, 2, "both records, until CREATE_SESSION");
    assert_eq!((world.state.counts().opens, world.pinned()), (1, 1));
    world.create(id.client_id, id.sequence_id, 1).unwrap();
    let counts = world.state.counts();
    assert_eq!((counts.clients, counts.sessions, counts.opens, counts.locks), (1, 1, 0, 0));
    assert_eq!(world.pinned(), 0);
    assert_eq!(old.send(&world, 0).err(), Some(Status::BADSESSION));
    let late = world.try_open(&old, 1, "o", READ, NONE);
    assert_eq!(
        late,
        Err(Status::DEADSESSION),
        "a request of the old incarnation still in progress adds nothing"
    );
}

#[test]
fn another_restart_before_confirming_replaces_the_unconfirmed_record() {
    let world = World::new();
    let old = world.peer("a");
    let second = world.exchange("a", 2, &ROOT).unwrap();
    let third = world.exchange("a", 3, &ROOT).unwrap();
    assert_eq!(world.create(second.client_id, second.sequence_id, 1), Err(Status::STALE_CLIENTID));
    let again = world.exchange("a", 1, &ROOT).unwrap();
    assert_eq!((again.client_id, again.confirmed), (old.client.id(), true), "the old incarnation is alive");
    assert_eq!(world.create(third.client_id, third.sequence_id, 1), Err(Status::STALE_CLIENTID));
}

#[test]
fn another_principal_collides_unless_the_record_is_unused_or_expired() {
    let mut world = World::new();
    let other = Principal::System(7);
    let peer = world.peer("a");
    assert_eq!(world.exchange("a", 1, &other), Err(Status::CLID_INUSE));
    assert_eq!(world.exchange("a", 2, &other), Err(Status::CLID_INUSE));
    world.pass(LEASE);
    let taken = world.exchange("a", 2, &other).unwrap();
    assert!(!taken.confirmed);
    assert!(world.state.sessions.get(&peer.session).is_none(), "the expired record is deleted");

    let idle = world.peer("b");
    world.state.destroy_session(idle.connection, &idle.session).unwrap();
    assert!(world.exchange("b", 1, &other).is_ok(), "a record without sessions and state gives way");
}

#[test]
fn updates_need_a_confirmed_record_of_the_same_client() {
    let world = World::new();
    let update = |verifier: u8, principal: &Principal| {
        let by = &Credential { principal: principal.clone(), is_protected: false };
        let (owner, verifier, protect) = (b"a".as_slice(), [verifier; 8], StateProtect::None);
        world
            .state
            .exchange_id(world.now, &ExchangeId { owner, verifier, by, update: true, protect, from: None })
    };
    assert_eq!(update(1, &ROOT), Err(Status::NOENT));
    let id = world.exchange("a", 1, &ROOT).unwrap();
    assert_eq!(update(1, &ROOT), Err(Status::NOENT), "unconfirmed is not enough");
    world.create(id.client_id, id.sequence_id, 1).unwrap();
    assert_eq!(update(2, &ROOT), Err(Status::NOT_SAME));
    assert_eq!(update(2, &Principal::System(7)), Err(Status::NOT_SAME));
    assert_eq!(update(1, &Principal::Anonymous), Err(Status::PERM));
    assert_eq!(update(1, &ROOT).unwrap().client_id, id.client_id);
}

#[test]
fn a_client_id_in_use_is_not_destroyed() {
    let mut world = World::new();
    let peer = world.peer("a");
    let id = peer.client.id();
    let destroy = |world: &World, sequenced| world.state.destroy_client(world.now, id, sequenced);
    assert_eq!(destroy(&world, None), Err(Status::CLIENTID_BUSY), "it has a session");
    let stateid = world.open(&peer, 1, "o", READ);
    world.state.destroy_session(peer.connection, &peer.session).unwrap();
    assert_eq!(destroy(&world, None), Err(Status::CLIENTID_BUSY), "it has an open");
    world.close(&peer, 1, &stateid).unwrap();
    assert_eq!(destroy(&world, Some(&peer.client)), Err(Status::CLIENTID_BUSY), "by its own session");
    assert_eq!(destroy(&world, None), Ok(()));
    assert_eq!(destroy(&world, None), Err(Status::STALE_CLIENTID));
    assert_eq!(world.state.counts(), Default::default());

    let unconfirmed = world.exchange("b", 1, &ROOT).unwrap().client_id;
    assert_eq!(world.state.destroy_client(world.now, unconfirmed, None), Ok(()));
    let expired = world.peer("c");
    world.open(&expired, 1, "o", READ);
    world.pass(LEASE);
    assert_eq!(world.state.destroy_client(world.now, expired.client.id(), None), Ok(()), "its lease is over");
    assert_eq!(world.state.counts(), Default::default());
}

#[test]
fn counts_return_to_zero_when_clients_leave() {
    let world = World::new();
    let mut peers: Vec<Peer> = (0..20).map(|n| world.peer(&format!("client {n}"))).collect();
    for (n, peer) in peers.iter_mut().enumerate() {
        for fileid in 0..10 {
            let open = world.open(peer, fileid, "o", BOTH);
            let at = range(n as u64 * 100, 100);
            world.lock(peer, &(fileid, open), "l", LockType::Write, at).unwrap();
        }
        peer.ping(&world);
    }
    let counts = world.state.counts();
    assert_eq!((counts.clients, counts.sessions, counts.slots), (20, 20, 20 * 64));
    assert_eq!((counts.opens, counts.locks, world.pinned()), (200, 200, 200));
    for (n, _) in peers.iter().enumerate() {
        let id = world.exchange(&format!("client {n}"), 9, &ROOT).unwrap();
        let session = world.create(id.client_id, id.sequence_id, 1).unwrap().session_id;
        world.state.destroy_session(ConnectionId(1), &session).unwrap();
        world.state.destroy_client(world.now, id.client_id, None).unwrap();
    }
    assert_eq!(world.pinned(), 0);
    drop(peers);
    assert_eq!(world.state.counts(), Default::default());
    assert!(world.state.connections.is_empty());
    for shard in &world.state.shards {
        assert!(shard.lock().is_empty(), "nothing is left of a file, an owner or a client");
    }
}

#[test]
fn reused_client_ids_skip_existing_clients() {
    let mut world = World::new();
    let mut a = world.peer("a");
    let b = world.peer0("b", 1);
    let open = world.open(&a, 1, "o", BOTH);
    world.state.ids.repeat_client_ids();
    let later = [world.peer("c").client.id(), world.peer0("d", 1).id];
    assert!([a.client.id(), b.id].iter().all(|id| !later.contains(id)));
    a.ping(&world);
    world.close(&a, 1, &open).unwrap();
    assert_eq!(world.state.named_client(world.now, b.id).map(|client| client.id()), Ok(b.id));
    world.pass(LEASE);
    world.state.remove_expired(world.now);
    let reported = world.state.named_client(world.now, b.id).map(|client| client.id());
    assert_eq!(reported, Err(Status::EXPIRED), "this instance has issued it");
}

#[test]
fn request_without_a_free_client_id_is_delayed() {
    let world = World::new();
    for n in 0..CLIENT_IDS_TRIED {
        world.exchange(&format!("client {n}"), 1, &ROOT).unwrap();
    }
    world.state.ids.repeat_client_ids();
    assert_eq!(world.exchange("one more", 1, &ROOT), Err(Status::DELAY));
    assert!(world.exchange("one more", 1, &ROOT).is_ok());
    assert_eq!(world.state.counts().clients, CLIENT_IDS_TRIED as u64 + 1);
}

#[test]
fn a_flood_replaces_its_oldest_record() {
    let world = World::with(&Settings { max_clients: 4, ..settings() }, &[]);
    let flood: Vec<_> = (0..5).map(|n| world.exchange(&format!("flood {n}"), 1, &ROOT).unwrap()).collect();
    assert_eq!(world.create(flood[0].client_id, 1, 1), Err(Status::STALE_CLIENTID));
    for id in &flood[1..] {
        assert!(world.create(id.client_id, id.sequence_id, 1).is_ok(), "{id:?}");
    }
}

/// RFC 8881 §18.36.4 lets any principal create a session for a confirmed client ID without state protection.
#[test]
fn client_ids_cannot_be_guessed_from_another() {
    let world = World::new();
    let victims: Vec<_> = (0..10).map(|n| world.peer(&format!("victim {n}")).client.id()).collect();
    let own = world.peer("attacker").client.id();
    let near = (1..5000u64).flat_map(|by| [own.wrapping_add(by), own.wrapping_sub(by)]);
    let counted = (0..5000u64).map(|count| own >> 32 << 32 | count);
    for id in near.chain(counted).filter(|id| *id != own) {
        assert!(!victims.contains(&id));
        assert_eq!(world.create(id, 2, 9), Err(Status::STALE_CLIENTID));
    }
}

/// A version 4.0 client distinguishes a restart from a lost lease by the mark in client IDs and stateids.
#[test]
fn instances_have_different_marks() {
    let disk = Arc::new(crate::state::MemoryLog::default());
    let mut marks = Vec::new();
    for _ in 0..3 {
        // The same settings, so that the marks would be equal without the record.
        let world = World::after(&settings(), disk.records());
        let peer = world.peer0("a", 1);
        assert!(world.state.named_client(world.now, peer.id).is_ok());
        let before = marks.last().map(|(_, id)| world.state.named_client(world.now, *id).map(drop));
        assert_eq!(before.unwrap_or(Err(Status::STALE_CLIENTID)), Err(Status::STALE_CLIENTID));
        marks.push((world.state.ids.boot(), peer.id));
    }
    assert!(marks.windows(2).all(|pair| pair[0].0 != pair[1].0), "{marks:?}");
}
