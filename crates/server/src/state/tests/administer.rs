//! Snapshots of clients, and administration.

use core::net::SocketAddr;

use super::*;
use crate::state::{CallbackPath, ClientSnapshot, ClientStatus, Evicted, GraceSnapshot, Reclaimers, SlotUse};

fn look(world: &World) -> Vec<ClientSnapshot> {
    let (clients, omitted) = world.state.snapshot_clients(world.now, usize::MAX, |_| true);
    assert_eq!(omitted, 0);
    clients
}

#[test]
fn snapshot_shows_the_state_of_a_client() {
    let mut world = World::new();
    let mut peer = world.peer("client");
    let address: SocketAddr = "10.0.0.7:812".parse().unwrap();
    world.state.note_client_address(peer.client.id(), address, 2);
    let open = world.open(&peer, 1, "a", BOTH);
    world.open(&peer, 2, "a", READ);
    for start in [0, 20] {
        let range = range(start, 10);
        world.lock(&peer, &(1, open), &format!("locker {start}"), LockType::Write, range).unwrap();
    }
    peer.ping(&world);
    peer.ping(&world);
    assert!(replay(peer.send_again(&world, 0)).is_some());
    let running = peer.start(&world, 3);
    let shown = look(&world);
    assert_eq!(shown.len(), 1);
    let shown = &shown[0];
    assert_eq!((shown.id, &shown.owner[..]), (peer.client.id(), &b"client"[..]));
    assert_eq!((shown.address, shown.minor), (Some(address), Some(2)));
    assert_eq!((shown.status, shown.lease_left, shown.active), (ClientStatus::Active, LEASE, 1));
    assert_eq!((shown.opens, shown.locks, shown.delegations, shown.revoked), (2, 2, 0, 0));
    assert_eq!(shown.callbacks, CallbackPath::Untried);
    assert_eq!(shown.sessions.len(), 1);
    let slots = SlotUse {
        granted: 64,
        target: 64,
        reply_max: 4096,
        in_use: 1,
        reply_bytes: 4,
        replayed: 1,
        ..SlotUse::default()
    };
    assert_eq!((shown.sessions[0].connections, shown.sessions[0].slots), (1, slots));
    running.finish(world.now, None);
    world.pass(SECOND);
    assert_eq!(look(&world)[0].lease_left, LEASE - SECOND);
    // Returned state is no longer shown.
    world.close(&peer, 1, &open).unwrap();
    let shown = &look(&world)[0];
    assert_eq!((shown.opens, shown.locks, shown.active), (1, 0, 0));
}

#[test]
fn snapshot_status_follows_the_lease() {
    let mut world = World::new();
    world.exchange("unconfirmed", 1, &ROOT).unwrap();
    let peer = world.peer("client");
    world.open(&peer, 1, "a", BOTH);
    let standings = |world: &World| look(world).iter().map(|client| client.status).collect::<Vec<_>>();
    assert_eq!(standings(&world), [ClientStatus::Unconfirmed, ClientStatus::Active]);
    world.pass(LEASE);
    world.state.expire(world.now);
    assert_eq!(standings(&world), [ClientStatus::Courtesy]);
    assert_eq!(look(&world)[0].lease_left, Duration::ZERO);
}

#[test]
fn snapshot_is_bounded_and_counts_omitted_clients() {
    let world = World::new();
    // More than one batch under the lock.
    let ids: Vec<u64> =
        (0..600).map(|n| world.exchange(&format!("{n}"), 1, &ROOT).unwrap().client_id).collect();
    let shown = |most| world.state.snapshot_clients(world.now, most, |client| client.id() != ids[300]);
    let (clients, omitted) = shown(usize::MAX);
    let expected: Vec<u64> = ids.iter().copied().filter(|id| *id != ids[300]).collect();
    assert_eq!(clients.iter().map(|client| client.id).collect::<Vec<_>>(), expected);
    assert_eq!(omitted, 0);
    let (clients, omitted) = shown(10);
    assert_eq!(clients.iter().map(|client| client.id).collect::<Vec<_>>(), ids[..10]);
    assert_eq!(omitted, 589);
}

#[test]
fn an_evicted_client_loses_its_state_and_may_return() {
    let world = World::new();
    let (mut peer, other) = (world.peer("client"), world.peer("other"));
    let open = world.open(&peer, 1, "a", BOTH);
    world.lock(&peer, &(1, open), "locker", LockType::Write, range(0, 10)).unwrap();
    let others = world.open(&other, 1, "a", BOTH);
    let denied = world.lock(&other, &(1, others), "locker", LockType::Write, range(5, 1));
    assert!(matches!(denied, Err(LockError::Denied(_))));
    let running = peer.start(&world, 1);
    let lost = Evicted { sessions: 1, opens: 1, locks: 1, delegations: 0, revoked: 0 };
    assert_eq!(world.state.evict(peer.client.id()), Some(lost));
    world.lock(&other, &(1, others), "locker", LockType::Write, range(5, 1)).unwrap();
    assert_eq!(world.pinned(), 1);
    // RFC 8881 §15.1.11.1: "The specified session ID is unknown to the server": a session goes with its client.
    assert_eq!(peer.send(&world, 0).unwrap_err(), Status::BADSESSION);
    // A request in progress gets no new state.
    assert!(world.try_open(&peer, 2, "a", BOTH, NONE).is_err());
    running.finish(world.now, None);
    assert_eq!(world.state.evict(peer.client.id()), None);
    assert_eq!(world.create(peer.client.id(), 2, 1).unwrap_err(), Status::STALE_CLIENTID);
    let again = world.peer("client");
    world.open(&again, 2, "a", BOTH);
    let counts = world.state.counts();
    assert_eq!((counts.clients, counts.sessions, counts.opens, counts.locks), (2, 2, 2, 1));
}

#[test]
fn evicting_unknown_clients_changes_nothing() {
    let world = World::new();
    let peer = world.peer("client");
    assert_eq!(world.state.evict(peer.client.id() + 1), None);
    assert_eq!(world.state.evict(0), None);
    assert_eq!(look(&world).len(), 1);
}

#[test]
fn the_administrator_ends_the_grace_period() {
    let world = World::with(&settings(), &["a", "b"]);
    let waiting_for = |names: &[&'static str]| {
        let names: Vec<_> = names.iter().map(|name| Bytes::from_static(name.as_bytes())).collect();
        Some(GraceSnapshot { left: LEASE, waiting_for: Reclaimers { count: names.len(), names } })
    };
    assert_eq!(world.state.snapshot_grace(world.now, 9), waiting_for(&["a", "b"]));
    let shortened = world.state.snapshot_grace(world.now, 1).unwrap().waiting_for;
    assert_eq!((shortened.count, shortened.names), (2, vec![Bytes::from_static(b"a")]));
    let a = world.fresh_peer("a", 1);
    assert!(look(&world)[0].is_reclaiming);
    // An evicted client cannot reclaim, so the server does not wait for it.
    world.state.evict(a.client.id()).unwrap();
    assert_eq!(world.state.snapshot_grace(world.now, 9), waiting_for(&["b"]));
    assert_eq!(world.state.end_grace(world.now), Some(1));
    assert_eq!(world.state.snapshot_grace(world.now, 9), None);
    assert_eq!(world.state.end_grace(world.now), None, "it is over");
    let b = world.fresh_peer("b", 1);
    assert!(!b.client.is_reclaiming());
    world.state.reclaim_complete(&b.client).unwrap();
    world.open(&b, 1, "a", BOTH);
}

/// The name alone does not prove that it is the recorded client.
#[test]
fn evicting_an_unconfirmed_client_leaves_the_right_to_reclaim() {
    let world = World::with(&settings(), &["a"]);
    let waited_for =
        |world: &World| world.state.snapshot_grace(world.now, 9).map(|grace| grace.waiting_for.count);
    let unconfirmed = world.exchange("a", 1, &ROOT).unwrap();
    assert_eq!(world.state.evict(unconfirmed.client_id), Some(Evicted::default()));
    assert_eq!(waited_for(&world), Some(1));
    assert_eq!(world.create(unconfirmed.client_id, 1, 1).unwrap_err(), Status::STALE_CLIENTID);
    let peer = world.fresh_peer("a", 1);
    assert!(peer.client.is_reclaiming());
    world.state.reclaim_complete(&peer.client).unwrap();
    assert_eq!(waited_for(&world), None, "the last one has reclaimed");
}

#[test]
fn replies_of_idle_slots_are_released() {
    let mut world = World::new();
    let mut peer = world.peer("client");
    for slot in 2..40 {
        peer.start(&world, slot).finish(world.now, Some(&[0; 1000]));
    }
    let full = world.state.counts().slot_cache_bytes;
    for _ in 0..3 {
        world.pass(12 * SECOND);
        peer.ping(&world);
    }
    for _ in 0..16 {
        world.pass(SECOND);
        world.state.expire(world.now);
    }
    assert_eq!(world.state.counts().slot_cache_bytes, full - 38 * 1000);
    assert!(replay(peer.send_again(&world, 0)).is_some(), "the last one on slot 0 may still be requested");
    assert!(replay(peer.send_again(&world, 39)).is_none());
}
