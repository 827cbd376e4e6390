use super::*;
use crate::state::tables::wire::{DirFromClient, DirFromServer};

#[test]
fn retransmission_gets_the_cached_reply() {
    let world = World::new();
    let mut peer = world.peer("a");
    peer.start(&world, 3).finish(world.now, Some(b"reply of one"));
    for _ in 0..3 {
        assert_eq!(replay(peer.send_again(&world, 3)), Some(Bytes::from_static(b"reply of one")));
    }
    peer.start(&world, 3).finish(world.now, Some(b"two"));
    assert_eq!(replay(peer.send_again(&world, 3)), Some(Bytes::from_static(b"two")));
}

#[test]
fn retransmission_over_another_connection_gets_the_cached_reply() {
    let world = World::new();
    let mut peer = world.peer("a");
    peer.start(&world, 0).finish(world.now, Some(b"reply"));
    world.state.connection_closed(peer.connection);
    peer.connection = ConnectionId(999);
    assert_eq!(replay(peer.send_again(&world, 0)), Some(Bytes::from_static(b"reply")));
}

#[test]
fn retransmission_during_execution_waits_and_then_gets_the_reply() {
    let world = World::new();
    let mut peer = world.peer("a");
    let running = peer.start(&world, 0);
    assert_eq!(peer.send_again(&world, 0).err(), Some(Status::DELAY));
    running.finish(world.now, Some(b"done"));
    assert_eq!(replay(peer.send_again(&world, 0)), Some(Bytes::from_static(b"done")));
}

#[test]
fn a_request_dropped_in_the_middle_is_not_executed_again() {
    let world = World::new();
    let mut peer = world.peer("a");
    drop(peer.start(&world, 0));
    assert_eq!(replay(peer.send_again(&world, 0)), None);
    peer.start(&world, 0).finish(world.now, None);
}

#[test]
fn two_requests_on_one_slot_are_misordered() {
    let world = World::new();
    let mut peer = world.peer("a");
    let running = peer.start(&world, 0);
    assert_eq!(peer.send(&world, 0).err(), Some(Status::SEQ_MISORDERED));
    running.finish(world.now, Some(b"first"));
    peer.sequence[0] -= 1;
    assert_eq!(replay(peer.send_again(&world, 0)), Some(Bytes::from_static(b"first")));
}

#[test]
fn another_request_under_the_same_sequence_id_is_a_false_retry() {
    let world = World::new();
    let mut peer = world.peer("a");
    let first = world.state.digest(0, b"RENAME a b", 10);
    let send =
        |peer: &Peer, digest| world.state.sequence(world.now, peer.connection, &peer.arguments(0), digest);
    peer.sequence[0] = 1;
    let Ok(Sequenced::New(running)) = send(&peer, first) else { panic!("a new request") };
    let other = world.state.digest(0, b"RENAME a c", 10);
    assert_eq!(send(&peer, other).err(), Some(Status::SEQ_FALSE_RETRY), "while it runs");
    running.finish(world.now, Some(b"ok"));
    for (caller, request, length) in [(0, b"RENAME a c", 10), (0, b"RENAME a b", 11), (1, b"RENAME a b", 10)]
    {
        let digest = world.state.digest(caller, request, length);
        assert_eq!(send(&peer, digest).err(), Some(Status::SEQ_FALSE_RETRY));
    }
    assert_eq!(replay(send(&peer, first)), Some(Bytes::from_static(b"ok")), "the slot is unchanged");
}

#[test]
fn errors_of_sequence_change_neither_slot_nor_lease() {
    let mut world = World::new();
    let mut peer = world.peer("a");
    peer.start(&world, 0).finish(world.now, Some(b"reply"));
    world.pass(LEASE);
    let send = |change: &dyn Fn(&mut SequenceArgs)| {
        let mut arguments = peer.arguments(0);
        change(&mut arguments);
        world.state.sequence(world.now, peer.connection, &arguments, 1).err()
    };
    assert_eq!(send(&|a| a.sequence_id += 2), Some(Status::SEQ_MISORDERED));
    assert_eq!(send(&|a| a.sequence_id -= 1), Some(Status::SEQ_MISORDERED));
    assert_eq!(send(&|a| a.slot_id = 64), Some(Status::BADSLOT));
    assert_eq!(send(&|a| a.highest_slot_id = 64), Some(Status::BAD_HIGH_SLOT));
    assert_eq!(send(&|a| a.session_id[9] ^= 1), Some(Status::BADSESSION));
    assert!(peer.client.is_expired(world.now, LEASE), "an error renews no lease");
    assert_eq!(replay(peer.send_again(&world, 0)), Some(Bytes::from_static(b"reply")));
    assert!(!peer.client.is_expired(world.now, LEASE), "a replay renews it");
    assert_eq!(peer.ping(&world), SequenceStatus::empty(), "the next request is accepted");
}

#[test]
fn a_reply_is_cached_only_on_request() {
    let world = World::new();
    let peer = world.peer("a");
    let mut arguments = peer.arguments(0);
    (arguments.sequence_id, arguments.cache_this) = (1, false);
    let send = || world.state.sequence(world.now, peer.connection, &arguments, 0);
    let Ok(Sequenced::New(running)) = send() else { panic!("a new request") };
    assert!(!running.cache_this());
    running.finish(world.now, Some(b"long list"));
    assert_eq!(replay(send()), None);
}

#[test]
fn sequence_returns_the_slots_requested_and_granted() {
    let world = World::new();
    let mut peer = world.peer("a");
    let running = peer.start(&world, 5);
    let sequence = *running.sequence();
    assert_eq!((sequence.session_id, sequence.sequence_id, sequence.slot_id), (peer.session, 1, 5));
    assert_eq!((sequence.highest_slot_id, sequence.target_highest_slot_id), (63, 63));
    assert_eq!(running.channel().max_requests, 64);
    running.finish(world.now, None);
}

#[test]
fn window_grows_from_64_slots_to_500_concurrent_requests() {
    let world = World::new();
    let mut peer = world.peer("a");
    peer.sequence.resize(1024, 0);
    let beyond = |peer: &Peer, highest_slot_id| {
        let arguments = SequenceArgs { highest_slot_id, sequence_id: 9, ..peer.arguments(0) };
        world.state.sequence(world.now, peer.connection, &arguments, 0).err()
    };
    assert_eq!(beyond(&peer, 64), Some(Status::BAD_HIGH_SLOT));
    // As Linux's client does: up to the lower of both limits in the last reply.
    let mut last = 63;
    let running: Vec<SlotRequest> = (0..512)
        .map(|slot| {
            assert!(slot <= last, "slot {slot} waits");
            let running = peer.start(&world, slot);
            let reported = running.sequence();
            assert!(reported.target_highest_slot_id <= reported.highest_slot_id);
            last = reported.target_highest_slot_id;
            running
        })
        .collect();
    let counts = world.state.counts();
    assert_eq!((counts.slots_in_use, counts.slots_full, counts.slots), (512, 0, 1024));
    assert_eq!(beyond(&peer, 1023), Some(Status::SEQ_MISORDERED), "all of them are granted");
    assert_eq!(beyond(&peer, 1024), Some(Status::BAD_HIGH_SLOT));
    running.into_iter().for_each(|running| running.finish(world.now, Some(b"done")));
    assert_eq!(replay(peer.send_again(&world, 511)), Some(Bytes::from_static(b"done")));
}

#[test]
fn create_session_has_its_own_reply_cache() {
    let world = World::new();
    let id = world.exchange("a", 1, &ROOT).unwrap();
    let sequence = id.sequence_id;
    // RFC 8881 §18.36.4: the slot starts at eir_sequenceid - 1 with a contrived SEQ_MISORDERED.
    assert_eq!(world.create(id.client_id, sequence.wrapping_sub(1), 1), Err(Status::SEQ_MISORDERED));
    assert_eq!(world.create(id.client_id, sequence + 1, 1), Err(Status::SEQ_MISORDERED));
    let first = world.create(id.client_id, sequence, 1).unwrap();
    assert_eq!(world.create(id.client_id, sequence, 1).unwrap(), first, "a replay");
    assert_eq!(world.state.counts().sessions, 1);
    let second = world.create(id.client_id, sequence + 1, 1).unwrap();
    assert_ne!(second.session_id, first.session_id);
    assert_eq!(world.create(id.client_id, sequence, 1), Err(Status::SEQ_MISORDERED));
    assert_eq!(world.state.counts().sessions, 2);
    assert_eq!(world.create(id.client_id ^ 1 << 40, 1, 1), Err(Status::STALE_CLIENTID), "another instance's");
}

#[test]
fn a_failed_create_session_confirms_nothing_and_may_be_retried() {
    let world = World::new();
    let old = world.peer("a");
    let id = world.exchange("a", 2, &ROOT).unwrap();
    let small = ChannelAttributes { max_response_size: 20, ..channel(1) };
    let request = CreateSession {
        client_id: id.client_id,
        sequence: id.sequence_id,
        flags: CreateSessionFlags::empty(),
        fore_channel: &small,
        back_channel: &channel(1),
        callback_program: 0,
        security: &SecParmsList::default(),
        lacks_context: false,
        minor: 1,
        outbox: Some(&world.outbox),
        principal: &ROOT,
        connection: ConnectionId(9),
    };
    assert_eq!(world.state.create_session(world.now, &request), Err(Status::TOOSMALL));
    assert_eq!(world.state.create_session(world.now, &request), Err(Status::TOOSMALL), "a replay");
    let valid = CreateSession { fore_channel: &channel(1), ..request };
    assert!(world.state.sessions.get(&old.session).is_some(), "the old incarnation is unchanged");
    let unknown = CreateSession {
        sequence: id.sequence_id + 1,
        flags: CreateSessionFlags::from_bits_retain(8),
        ..valid
    };
    assert_eq!(world.state.create_session(world.now, &unknown), Err(Status::INVAL));
    let stranger = CreateSession { sequence: id.sequence_id + 2, principal: &Principal::System(5), ..valid };
    assert_eq!(world.state.create_session(world.now, &stranger), Err(Status::CLID_INUSE));
    let right = CreateSession { sequence: id.sequence_id + 2, ..valid };
    let lacking = CreateSession { lacks_context: true, ..right };
    assert_eq!(world.state.create_session(world.now, &lacking), Err(Status::NOENT));
    assert!(
        world.state.create_session(world.now, &right).is_ok(),
        "another principal does not advance the sequence"
    );
    assert!(world.state.sessions.get(&old.session).is_none());
    // RFC 8881 §18.36.4: with the client ID confirmed, "the client ID confirmation phase is skipped and only the session
    // creation phase occurs".
    let another = CreateSession { sequence: id.sequence_id + 3, principal: &Principal::System(5), ..valid };
    let made = world.state.create_session(world.now, &another).unwrap();
    let replayed = CreateSession { fore_channel: &small, lacks_context: true, ..another };
    assert_eq!(
        world.state.create_session(world.now, &replayed),
        Ok(made),
        "a successful request is not executed again"
    );
}

#[test]
fn back_channel_is_granted_on_request() {
    let world = World::new();
    let id = world.exchange("a", 1, &ROOT).unwrap();
    let created = world.create(id.client_id, id.sequence_id, 1).unwrap();
    assert_eq!(created.flags, CreateSessionFlags::CONN_BACK_CHAN);
    assert_eq!(created.back_channel, channel(16), "the server must not change what the client offers");
    let without = CreateSession {
        client_id: id.client_id,
        sequence: id.sequence_id + 1,
        flags: CreateSessionFlags::PERSIST | CreateSessionFlags::CONN_RDMA,
        fore_channel: &channel(1),
        back_channel: &ChannelAttributes::default(),
        callback_program: 0,
        security: &SecParmsList::default(),
        lacks_context: false,
        minor: 1,
        outbox: Some(&world.outbox),
        principal: &ROOT,
        connection: ConnectionId(1),
    };
    let created = world.state.create_session(world.now, &without).unwrap();
    assert_eq!(created.flags, CreateSessionFlags::empty());
}

#[test]
fn only_bound_connections_destroy_a_session() {
    let world = World::new();
    let mut peer = world.peer("a");
    let stranger = ConnectionId(12_345);
    assert_eq!(world.state.destroy_session(stranger, &peer.session), Err(Status::CONN_NOT_BOUND_TO_SESSION));
    let home = std::mem::replace(&mut peer.connection, stranger);
    peer.ping(&world);
    world.state.connection_closed(home);
    assert_eq!(world.state.destroy_session(home, &peer.session), Err(Status::CONN_NOT_BOUND_TO_SESSION));
    let running = peer.start(&world, 1);
    assert_eq!(
        world.state.destroy_session(stranger, &peer.session),
        Ok(()),
        "SEQUENCE has associated the connection"
    );
    running.finish(world.now, Some(b"the last reply"));
    assert_eq!(world.state.destroy_session(stranger, &peer.session), Err(Status::BADSESSION));
    assert_eq!(peer.send(&world, 0).err(), Some(Status::BADSESSION));
    assert_eq!((world.state.counts().sessions, world.state.counts().slots), (0, 0));
    assert_eq!(world.state.counts().slot_cache_bytes, 0);
}

#[test]
fn no_connection_binds_to_a_destroyed_session() {
    let world = World::new();
    let peer = world.peer("a");
    let session = world.state.sessions.get(&peer.session).unwrap();
    world.state.destroy_session(peer.connection, &peer.session).unwrap();
    // A request that looked the session up before it was destroyed.
    session.touch(ConnectionId(77), &world.state.connections);
    assert!(!session.is_bound(ConnectionId(77)));
    assert!(world.state.connections.is_empty(), "or it would be remembered without end");
}

#[test]
fn sequence_reports_a_lost_back_channel_until_it_is_bound_again() {
    let world = World::new();
    let mut peer = world.peer("a");
    assert_eq!(peer.ping(&world), SequenceStatus::empty());
    world.state.connection_closed(peer.connection);
    peer.connection = ConnectionId(50);
    let down = SequenceStatus::CB_PATH_DOWN | SequenceStatus::CB_PATH_DOWN_SESSION;
    assert_eq!(peer.ping(&world), down);
    let bind = |direction| {
        world.state.bind_connection(ConnectionId(50), Some(&world.outbox), &peer.session, direction)
    };
    // RFC 8881 §18.34.3: the connection is on the fore channel now; only a request that accepts that does not demand a change.
    assert_eq!(bind(DirFromClient::FORE), Ok(DirFromServer::FORE));
    assert_eq!(bind(DirFromClient::BACK), Err(Status::INVAL));
    assert_eq!(bind(DirFromClient::BACK_OR_BOTH), Err(Status::INVAL));
    assert_eq!(bind(DirFromClient(5)), Err(Status::INVAL));
    assert_eq!(bind(DirFromClient::FORE_OR_BOTH), Ok(DirFromServer::BOTH));
    assert_eq!(bind(DirFromClient::FORE_OR_BOTH), Ok(DirFromServer::BOTH), "a repetition has no effect");
    assert_eq!(bind(DirFromClient::FORE), Err(Status::INVAL));
    assert_eq!(peer.ping(&world), SequenceStatus::empty());
    let other = |direction| {
        world.state.bind_connection(ConnectionId(51), Some(&world.outbox), &peer.session, direction)
    };
    assert_eq!(other(DirFromClient::BACK), Ok(DirFromServer::BACK));
    assert_eq!(other(DirFromClient::FORE_OR_BOTH), Err(Status::INVAL));
    world.state.connection_closed(ConnectionId(50));
    peer.connection = ConnectionId(52);
    assert_eq!(peer.ping(&world), SequenceStatus::empty(), "the second one remains");
    assert_eq!(
        world.state.bind_connection(ConnectionId(1), Some(&world.outbox), &[7; 16], DirFromClient::FORE),
        Err(Status::BADSESSION)
    );
}
