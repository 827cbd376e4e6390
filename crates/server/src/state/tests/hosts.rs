//! Limits by address.

use super::*;
use crate::state::{CallbackClient, SetClientId};

const A: &str = "192.0.2.1";
const B: &str = "192.0.2.2";
const C: &str = "192.0.2.3";

impl World {
    /// Creates clients of an address until one is refused, at most `most`.
    fn peers_at(&self, from: &str, most: usize) -> Vec<Peer> {
        (0..most).map_while(|n| self.peer_at(from, &format!("client {n}")).ok()).collect()
    }

    /// As [`clients`], each with an open.
    fn holders_at(&self, from: &str, most: usize, first: u64) -> Vec<Peer> {
        let holder = |fileid: u64| {
            let peer = self.peer_at(from, &format!("client {fileid}")).ok()?;
            self.open(&peer, fileid, "o", READ);
            Some(peer)
        };
        (first..first + most as u64).map_while(holder).collect()
    }

    /// Opens files of a client until one OPEN is delayed.
    fn open_all(&self, peer: &Peer, first: u64) -> u64 {
        (first..first + 100_000)
            .take_while(|fileid| self.try_open(peer, *fileid, "o", READ, NONE).is_ok())
            .count() as u64
    }

    fn is_there(&self, peer: &Peer) -> bool {
        self.state.sessions.get(&peer.session).is_some()
    }
}

#[test]
fn an_address_that_fills_the_table_leaves_room_for_others() {
    let world = World::with(&Settings { max_clients: 100, ..settings() }, &[]);
    let greedy = world.peers_at(A, 200);
    assert_eq!(greedy.len(), 100, "one address may use the whole limit while no other needs it");
    // A client without state yields until both addresses have as many.
    let others = world.peers_at(B, 200);
    assert_eq!(others.len(), 50);
    assert_eq!(greedy.iter().filter(|peer| world.is_there(peer)).count(), 50);
    assert!(others.iter().all(|peer| world.is_there(peer)));
    assert!(world.peer_at(A, "one more").is_err());
    assert!(world.peer_at(C, "the first").is_ok());
    assert_eq!((world.state.counts().clients, world.state.audit()), (100, Ok(())));
}

#[test]
fn clients_with_state_do_not_yield_to_other_addresses() {
    let mut world = World::with(&Settings { max_clients: 100, ..settings() }, &[]);
    let mut greedy = world.holders_at(A, 100, 0);
    // An address gets the rest of the extra eighth.
    let others = [world.holders_at(B, 100, 100), world.holders_at(C, 100, 200)];
    assert_eq!(others.each_ref().map(Vec::len), [6, 3]);
    assert!(world.peer_at(A, "one more").is_err());
    assert!(greedy.iter().chain(others.iter().flatten()).all(|peer| world.is_there(peer)));
    assert_eq!(world.state.counts().opens, 109);
    // An expired lease yields to an address that holds less.
    world.pass(LEASE - SECOND);
    for peer in &mut greedy[1..] {
        peer.ping(&world);
    }
    world.pass(SECOND);
    assert!(world.peer_at("192.0.2.4", "the first").is_ok());
    assert!(!world.is_there(&greedy[0]));
    assert!(greedy[1..].iter().all(|peer| world.is_there(peer)));
}

#[test]
fn an_address_with_more_clients_removes_no_expired_client_of_another() {
    let mut world = World::with(&Settings { max_clients: 10, ..settings() }, &[]);
    let courteous = world.peer_at(B, "silent").unwrap();
    world.open(&courteous, 1, "o", READ);
    let mut greedy = world.holders_at(A, 9, 2);
    world.pass(LEASE - SECOND);
    for peer in &mut greedy {
        peer.ping(&world);
    }
    world.pass(SECOND);
    assert!(world.peer_at(A, "one more").is_err());
    assert!(world.is_there(&courteous));
}

#[test]
fn a_flood_of_names_removes_no_other_addresses_clients() {
    let world = World::with(&Settings { max_clients: 10, ..settings() }, &[]);
    let slow = world.exchange_at(Some(B.parse().unwrap()), "slow", 1, &ROOT).unwrap();
    let callback = CallbackClient { from: Some(C.parse().unwrap()), ..CallbackClient::default() };
    let request = SetClientId { owner: b"slow", verifier: [1; 8], principal: &ROOT, callback: &callback };
    let slow0 = world.state.set_client_id(world.now, &request).unwrap();
    for n in 0..1000 {
        world.exchange_at(Some(A.parse().unwrap()), &format!("flood {n}"), 1, &ROOT).unwrap();
    }
    assert!(world.create(slow.client_id, slow.sequence_id, 1).is_ok());
    assert!(world.state.confirm_client_id(world.now, slow0.client_id, slow0.confirm, &ROOT).is_ok());
    assert_eq!((world.state.counts().clients, world.state.audit()), (10, Ok(())));
}

#[test]
fn names_of_one_address_leave_state_for_other_addresses() {
    let world = World::with(&Settings { max_state: 8192, ..settings() }, &[]);
    let greedy = world.peers_at(A, 5);
    let held: Vec<u64> = (0..).zip(&greedy).map(|(n, peer)| world.open_all(peer, n << 32)).collect();
    assert_eq!(held, [2048, 2048, 2048, 2048, 0], "a quarter for each, and all for their address");
    let (b, c) = (world.peer_at(B, "b").unwrap(), world.peer_at(C, "c").unwrap());
    assert_eq!((world.open_all(&b, 5 << 32), world.open_all(&c, 6 << 32)), (512, 256));
    assert_eq!(world.open_all(&greedy[4], 7 << 32), 0);
    assert_eq!(world.state.counts().opens, 8192 + 512 + 256);
}
