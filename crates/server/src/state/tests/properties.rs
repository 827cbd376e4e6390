//! Random sequences of operations against small models.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// A client's view of a slot, which the server must share.
#[derive(Default)]
struct SlotModel {
    sequence_id: u32,
    running: Option<SlotRequest>,
    /// The reply to a retransmission; `None` inside if it was not cached.
    reply: Option<Option<Bytes>>,
}

proptest! {
    /// Exactly-once execution: on three slots, requests are sent, repeated, dropped or finished in any order; each begins once, and its
    /// retransmissions get its reply.
    #[test]
    fn every_request_is_executed_once(
        steps in prop::collection::vec((0u8..6, 0usize..3, any::<bool>()), 1..100),
    ) {
        let world = World::new();
        let peer = world.peer("a");
        let mut slots: [SlotModel; 3] = Default::default();
        for (number, (what, slot_id, flag)) in steps.into_iter().enumerate() {
            let slot = &mut slots[slot_id];
            let send = |sequence_id: u32, digest: u64| {
                let arguments = SequenceArgs { sequence_id, ..peer.arguments(slot_id as u32) };
                world.state.sequence(world.now, peer.connection, &arguments, digest)
            };
            let last = slot.sequence_id;
            match what {
                // The next request.
                0 | 1 => match (send(last.wrapping_add(1), u64::from(last) + 1), slot.running.is_some()) {
                    (Ok(Sequenced::New(running)), false) => {
                        (slot.sequence_id, slot.running, slot.reply) = (last + 1, Some(running), None);
                    }
                    (Err(status), true) => prop_assert_eq!(status, Status::SEQ_MISORDERED),
                    (other, _) => prop_assert!(false, "{other:?}"),
                },
                // It ends, or is dropped.
                2 => if let Some(running) = slot.running.take() {
                    let reply = Bytes::from(format!("reply {number}"));
                    slot.reply = Some(flag.then(|| reply.clone()));
                    if flag { running.finish(world.now, Some(&reply)) } else { drop(running) }
                },
                // A retransmission of the last one.
                3 => match send(last, u64::from(last)) {
                    Ok(Sequenced::Replay(replay)) => prop_assert_eq!(Some(replay.reply), slot.reply.clone()),
                    Err(Status::DELAY) => prop_assert!(slot.running.is_some()),
                    Err(Status::SEQ_MISORDERED) => prop_assert_eq!(last, 0, "a slot never used"),
                    other => prop_assert!(false, "{other:?}"),
                },
                // Another request with the same sequence ID.
                4 if last > 0 => prop_assert_eq!(send(last, 1 << 40).err(), Some(Status::SEQ_FALSE_RETRY)),
                // A sequence ID far away.
                _ => {
                    let far = last.wrapping_add(if flag { 2 } else { u32::MAX });
                    prop_assert_eq!(send(far, u64::from(far)).err(), Some(Status::SEQ_MISORDERED));
                }
            }
        }
    }

    /// Three owners with three verifiers and two principals register, confirm, leave and expire. The client that was confirmed last is
    /// the owner's only one.
    #[test]
    fn an_owner_has_one_confirmed_client(
        steps in prop::collection::vec((0u8..5, 0usize..3, 0u8..3, 0u32..2), 1..80),
    ) {
        let mut world = World::new();
        let owners = ["a", "b", "c"];
        // By owner: client ID, verifier, principal, sessions.
        let mut confirmed: HashMap<usize, (u64, u8, u32, Vec<SessionId>)> = HashMap::new();
        let mut unconfirmed: HashMap<usize, (u64, u8, u32)> = HashMap::new();
        for (what, owner, verifier, uid) in steps {
            let principal = Principal::System(uid);
            match what {
                0 | 1 => {
                    let answer = world.exchange(owners[owner], verifier, &principal);
                    let known = confirmed.get(&owner).cloned();
                    match known {
                        Some((id, v, u, _)) if (v, u) == (verifier, uid) => {
                            prop_assert_eq!(answer.map(|id| (id.client_id, id.confirmed)), Ok((id, true)));
                            unconfirmed.remove(&owner);
                        }
                        Some((_, _, u, sessions)) if u != uid && !sessions.is_empty() => {
                            prop_assert_eq!(answer, Err(Status::CLID_INUSE));
                        }
                        known => {
                            let id = answer.unwrap();
                            prop_assert!(!id.confirmed);
                            if known.is_some_and(|(_, _, u, _)| u != uid) {
                                confirmed.remove(&owner);
                            }
                            unconfirmed.insert(owner, (id.client_id, verifier, uid));
                        }
                    }
                }
                2 => if let Some((id, verifier, uid)) = unconfirmed.remove(&owner) {
                    let created = create_as(&world, id, 1, &Principal::System(uid)).unwrap();
                    confirmed.insert(owner, (id, verifier, uid, vec![created.session_id]));
                },
                3 => if let Some((id, _, _, sessions)) = confirmed.get_mut(&owner) {
                    match sessions.pop() {
                        Some(session) => world.state.destroy_session(ConnectionId(1), &session).unwrap(),
                        None => {
                            prop_assert_eq!(world.state.destroy_client(world.now, *id, None), Ok(()));
                            confirmed.remove(&owner);
                        }
                    }
                },
                _ => if verifier == 0 {
                    world.pass(LEASE);
                    world.state.expire(world.now);
                    confirmed.clear();
                    unconfirmed.clear();
                },
            }
            let counts = world.state.counts();
            prop_assert_eq!(counts.clients as usize, confirmed.len() + unconfirmed.len());
            let sessions: usize = confirmed.values().map(|(_, _, _, sessions)| sessions.len()).sum();
            prop_assert_eq!(counts.sessions as usize, sessions);
            prop_assert_eq!(world.state.audit(), Ok(()));
            prop_assert!(confirmed.values().flat_map(|c| &c.3).all(|id| world.state.sessions.get(id).is_some()));
        }
    }

    /// Three clients open, lock, unlock, close and stay silent over three files. Locks of clients with a lease never conflict,
    /// counters match, and no state is left.
    #[test]
    fn valid_locks_never_conflict(
        steps in prop::collection::vec((0u8..8, 0usize..3, 0u64..3, 0u64..30, 1u64..12, any::<bool>()), 1..150),
    ) {
        let mut world = World::new();
        let mut peers: Vec<Peer> = ["a", "b", "c"].iter().map(|owner| world.peer(owner)).collect();
        let mut opens: HashMap<(usize, u64), Stateid> = HashMap::new();
        let mut locks: HashMap<(usize, u64), Stateid> = HashMap::new();
        let mut bytes: HashMap<(usize, u64, u64), bool> = HashMap::new();
        let mut incarnation = 1;
        for (what, who, fileid, offset, length, write) in steps {
            let at = (who, fileid);
            let span = offset..offset + length;
            match what {
                0 | 1 => {
                    let stateid = world.open(&peers[who], fileid, "o", BOTH);
                    opens.insert(at, stateid);
                }
                2..=4 => if let Some(open) = opens.get(&at) {
                    let lock_type = if write { LockType::Write } else { LockType::Read };
                    let got = world.lock(&peers[who], &(fileid, *open), "l", lock_type, range(offset, length));
                    let in_the_way = bytes.iter().any(|((other, f, byte), w)| {
                        *other != who && *f == fileid && span.contains(byte) && (write || *w)
                    });
                    match got {
                        Ok(stateid) => {
                            prop_assert!(!in_the_way);
                            locks.insert(at, stateid);
                            bytes.extend(span.map(|byte| ((who, fileid, byte), write)));
                        }
                        Err(LockError::Denied(_)) => prop_assert!(in_the_way),
                        Err(LockError::Status(status)) => prop_assert!(false, "{status:?}"),
                    }
                },
                5 => if let Some(stateid) = locks.get_mut(&at) {
                    let asked = range(offset, length);
                    *stateid =
                        world.state.unlock(world.now, &peers[who].client, file(fileid), stateid, asked).unwrap();
                    bytes.retain(|(w, f, byte), _| (*w, *f) != at || !span.contains(byte));
                },
                6 => if let Some(stateid) = opens.remove(&at) {
                    world.close(&peers[who], fileid, &stateid).unwrap();
                    locks.remove(&at);
                    bytes.retain(|(w, f, _), _| (*w, *f) != at);
                },
                _ => if write {
                // All but one are silent for a lease; one of them returns as another incarnation.
                    world.pass(LEASE);
                    peers[who].ping(&world);
                    let lost = (who + 1) % 3;
                    incarnation += 1;
                    peers[lost] = world.fresh_peer(["a", "b", "c"][lost], incarnation);
                    world.state.reclaim_complete(&peers[lost].client).unwrap();
                    let third = (who + 2) % 3;
                    peers[third].ping(&world);
                    opens.retain(|(w, _), _| *w != lost);
                    locks.retain(|(w, _), _| *w != lost);
                    bytes.retain(|(w, _, _), _| *w != lost);
                },
            }
            prop_assert_eq!(world.state.counts().opens as usize, opens.len());
            prop_assert_eq!(world.pinned(), opens.len());
            prop_assert_eq!(world.state.audit(), Ok(()));
        }
        for (who, owner) in ["a", "b", "c"].iter().enumerate() {
            world.state.destroy_session(peers[who].connection, &peers[who].session).unwrap();
            world.pass(LEASE);
            world.state.destroy_client(world.now, peers[who].client.id(), None).unwrap();
            prop_assert!(!world.exchange(owner, 200, &ROOT).unwrap().confirmed);
        }
        prop_assert!(world.state.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}

fn create_as(
    world: &World,
    client_id: u64,
    sequence: u32,
    principal: &Principal,
) -> Result<CreateSessionOk, Status> {
    world.state.create_session(
        world.now,
        &CreateSession {
            client_id,
            sequence,
            flags: CreateSessionFlags::empty(),
            fore_channel: &channel(4),
            back_channel: &ChannelAttributes::default(),
            callback_program: 0,
            security: &SecParmsList::default(),
            lacks_context: false,
            minor: 1,
            outbox: Some(&world.outbox),
            principal,
            connection: ConnectionId(1),
        },
    )
}
