//! Callbacks: probes, slots, replies in any order, lost connections, clients that answer nothing or nonsense.

use bytes::Bytes;
use protocol::nfs4::callback::sequence::{CbSequenceArgs, CbSequenceOk};
use protocol::nfs4::callback::{self, CbCompoundResult, CbOp, CbOpResult};
use protocol::nfs4::ops::backchannel::{AuthSysParms, CallbackSecParms, GssCallbackHandles};
use protocol::nfs4::ops::secinfo::GssService;
use protocol::nfs4::types::Outcome;
use rpc::auth::AuthFlavor;
use rpc::message::{AcceptStatus, CallHeader, ReplyHeader, encode_success};
use xdr::{Encode, List, Opaque, Writer};

use super::*;
use crate::state::tables::callback::{Callback, Sent};
use crate::state::tables::wire::DirFromClient;
use crate::testing::{Call, drain};

const DOWN: SequenceStatus = SequenceStatus::CB_PATH_DOWN.union(SequenceStatus::CB_PATH_DOWN_SESSION);

impl Call {
    /// Slot, sequence ID, and the number in CB_RECALL_ANY, by which tests distinguish callbacks.
    fn place(&self) -> (u32, u32, u32) {
        let CbOp::RecallAny(args) = self.operation() else { panic!() };
        let CbSequenceArgs { slot_id, sequence_id, .. } = self.sequence();
        (slot_id, sequence_id, args.objects_to_keep)
    }

    /// Returns a reply of success.
    fn done(&self) -> Bytes {
        self.results(CbOpResult::RecallAny(Outcome::Ok(())))
    }

    /// Returns the session of CB_SEQUENCE, and the highest slot that its client should use.
    fn recalled_slots(&self) -> (SessionId, u32) {
        let CbOp::RecallSlot(args) = self.operation() else { panic!() };
        (self.sequence().session_id, args.target_highest_slot_id)
    }
}

/// Returns a client that accepts callbacks, with its own outbox.
pub(super) fn reachable(world: &mut World, owner: &str) -> Peer {
    world.outbox = Arc::default();
    let peer = world.peer(owner);
    let trial = drain(&world.outbox).pop().expect("the path is tried");
    assert!(world.state.callback_replied(peer.connection, &world.outbox, trial.reply(&())));
    peer
}

fn send(world: &World, peer: &Peer, numbers: impl IntoIterator<Item = u32>) {
    for number in numbers {
        world.state.call(&peer.client, Callback::recall_any(number));
    }
}

fn answer(world: &World, peer: &Peer, reply: Bytes) -> bool {
    world.state.callback_replied(peer.connection, &world.outbox, reply)
}

#[test]
fn a_client_is_reachable_after_it_answered_a_probe() {
    let world = World::new();
    let peer = world.peer("a");
    assert!(!peer.client.is_reachable());
    let mut calls = drain(&world.outbox);
    let trial = calls.pop().unwrap();
    assert!(calls.is_empty());
    let CallHeader { program, version, procedure, .. } = trial.header;
    assert_eq!((program, version, procedure), (0x4000_0000, 1, callback::PROC_NULL));
    assert!(answer(&world, &peer, trial.reply(&())));
    assert!(peer.client.is_reachable());
    assert!(!answer(&world, &peer, trial.reply(&())), "answered before");
    // The client program has ended: it would never return a delegation.
    let other = world.peer("b");
    let trial = drain(&world.outbox).pop().unwrap();
    let mut refusal = Writer::new();
    ReplyHeader::accepted(trial.header.xid, AcceptStatus::ProgramUnavailable).encode(&mut refusal);
    assert!(answer(&world, &other, refusal.into_bytes()));
    assert!(!other.client.is_reachable());
    let mut other = other;
    assert_eq!(other.ping(&world), DOWN);
    world.outbox.close();
}

/// RPCSEC_GSS contexts for callbacks.
fn contexts() -> CallbackSecParms {
    let (service, handle) = (GssService::Integrity, Opaque::from_static(b"handle"));
    CallbackSecParms::Gss(GssCallbackHandles {
        service,
        handle_from_server: handle.clone(),
        handle_from_client: handle,
    })
}

#[test]
fn callbacks_use_an_offered_flavor() {
    let offers = [
        (vec![contexts(), sys()], Some(AuthFlavor::SYS)),
        (vec![contexts(), CallbackSecParms::None], Some(AuthFlavor::NONE)),
        (vec![], Some(AuthFlavor::NONE)),
        (vec![contexts()], None),
    ];
    for (offered, flavor) in offers {
        let world = World::new();
        with_security(&world, offered, 1);
        let trial = drain(&world.outbox).pop();
        assert_eq!(trial.map(|trial| trial.header.credential.flavor), flavor);
    }
}

#[test]
fn backchannel_ctl_keeps_the_flavor_and_may_open_the_path() {
    let world = World::new();
    let session = with_security(&world, vec![contexts()], 1).session_id;
    let running = world.state.sessions.get(&session).unwrap();
    let mut peer = Peer {
        client: Arc::clone(&running.client),
        session,
        connection: ConnectionId(9),
        sequence: vec![0; 4],
    };
    let mut control = |offered| {
        let running = peer.start(&world, 0);
        world.state.control_back_channel(&running, 0x4567_0001, &List::new(offered).unwrap());
        running.finish(world.now, Some(b"done"));
        drain(&world.outbox).pop().map(|trial| (trial.header.program, trial.header.credential.flavor))
    };
    assert_eq!(control(vec![contexts()]), None, "nothing but contexts still");
    assert_eq!(control(vec![]), None, "RFC 8881 §2.10.8.2: \"it MUST NOT use unoffered combinations\"");
    assert_eq!(control(vec![contexts(), sys()]), Some((0x4567_0001, AuthFlavor::SYS)));
    // RFC 8881 §18.33.3: "adds (not replaces) RPCSEC_GSS handles".
    assert_eq!(control(vec![contexts()]), None, "nothing new to be tried");
    world.state.call(&running.client, Callback::recall_any(3));
    assert_eq!(drain(&world.outbox).pop().unwrap().header.credential.flavor, AuthFlavor::SYS);
}

fn sys() -> CallbackSecParms {
    CallbackSecParms::Sys(AuthSysParms {
        stamp: 7,
        machine_name: Opaque::from_static(b"client"),
        uid: 11,
        gid: 12,
        gids: List::default(),
    })
}

/// Creates a session that offers this security for callbacks.
fn with_security(world: &World, offered: Vec<CallbackSecParms>, minor: u32) -> CreateSessionOk {
    let id = world.exchange("a", 1, &ROOT).unwrap();
    let request = CreateSession {
        client_id: id.client_id,
        sequence: id.sequence_id,
        flags: CreateSessionFlags::CONN_BACK_CHAN,
        fore_channel: &channel(4),
        back_channel: &channel(4),
        callback_program: 0x4567_0000,
        security: &List::new(offered).unwrap(),
        lacks_context: false,
        minor,
        principal: &ROOT,
        connection: ConnectionId(9),
        outbox: Some(&world.outbox),
    };
    world.state.create_session(world.now, &request).unwrap()
}

#[test]
fn callbacks_carry_the_clients_program_and_credentials() {
    let world = World::new();
    let created = with_security(&world, vec![sys()], 2);
    let trial = drain(&world.outbox).pop().unwrap();
    assert_eq!(trial.header.program, 0x4567_0000);
    assert_eq!(trial.header.credential.flavor, AuthFlavor::SYS);
    let client = Arc::clone(&world.state.sessions.get(&created.session_id).unwrap().client);
    world.state.call(&client, Callback::recall_any(3));
    let call = drain(&world.outbox).pop().unwrap();
    assert_eq!(call.header.procedure, callback::PROC_COMPOUND);
    // A callback has the minor version of its session.
    assert_eq!(call.compound.as_ref().unwrap().minor_version, 2);
    assert_eq!(call.sequence().session_id, created.session_id);
    assert_eq!(call.place(), (0, 1, 3));
}

#[test]
fn concurrent_callbacks_are_bounded_by_the_slots_of_the_client() {
    let mut world = World::new();
    // The client offers 16 slots.
    let peer = reachable(&mut world, "a");
    send(&world, &peer, 0..20);
    let calls = drain(&world.outbox);
    let places: Vec<_> = calls.iter().map(Call::place).collect();
    assert_eq!(places, (0..16).map(|slot| (slot, 1, slot)).collect::<Vec<_>>());
    // Like `sa_highest_slotid` in the other direction (RFC 8881 §18.46.3): the highest slot in use.
    assert_eq!(calls[4].sequence().highest_slot_id, 4);
    for (index, number) in [(9, 16), (2, 17)] {
        assert!(answer(&world, &peer, calls[index].done()));
        let next = drain(&world.outbox);
        assert_eq!(next.len(), 1);
        assert_eq!(next[0].place(), (index as u32, 2, number));
    }
    assert!(!answer(&world, &peer, calls[9].done()), "nothing waits for it");
    assert!(drain(&world.outbox).is_empty());
}

#[test]
fn unanswered_callbacks_are_resent_over_the_next_connection() {
    let mut world = World::new();
    let mut peer = reachable(&mut world, "a");
    send(&world, &peer, [5]);
    let lost = drain(&world.outbox).pop().unwrap();
    let old = std::mem::take(&mut world.outbox);
    old.close();
    world.state.connection_closed(peer.connection);
    assert!(!peer.client.is_reachable());
    peer.connection = ConnectionId(50);
    assert_eq!(peer.ping(&world), DOWN);
    let bind = |world: &World| {
        let both = DirFromClient::FORE_OR_BOTH;
        world.state.bind_connection(ConnectionId(50), Some(&world.outbox), &peer.session, both).unwrap();
    };
    bind(&world);
    let calls = drain(&world.outbox);
    assert_eq!(calls.len(), 2, "a trial, and the callback");
    // RFC 8881 §2.10.6.2: under the same sequence ID.
    assert_eq!(calls[1].place(), lost.place());
    assert!(answer(&world, &peer, calls[1].done()));
    assert!(peer.client.is_reachable(), "an answer is as good as a trial's");
    assert_eq!(peer.ping(&world), SequenceStatus::empty());
}

#[test]
fn another_connection_of_the_session_takes_over() {
    let mut world = World::new();
    let mut peer = reachable(&mut world, "a");
    let first = Arc::clone(&world.outbox);
    send(&world, &peer, [5]);
    let sent = drain(&first).pop().unwrap();
    world.outbox = Arc::default();
    let back = DirFromClient::BACK;
    world.state.bind_connection(ConnectionId(60), Some(&world.outbox), &peer.session, back).unwrap();
    assert_eq!(drain(&world.outbox).len(), 1, "a probe; a callback in progress is not repeated");
    first.close();
    world.state.connection_closed(peer.connection);
    assert_eq!(drain(&world.outbox).pop().unwrap().place(), sent.place());
    assert_eq!(peer.ping(&world), SequenceStatus::empty(), "the path works");
}

#[test]
fn a_silent_client_loses_its_callback_path() {
    let mut world = World::new();
    let mut peer = reachable(&mut world, "a");
    world.state.expire(world.now);
    send(&world, &peer, 0..100);
    let calls = drain(&world.outbox);
    assert_eq!(calls.len(), 16);
    world.pass(14 * SECOND);
    world.state.expire(world.now);
    assert_eq!(peer.ping(&world), SequenceStatus::empty(), "it has time");
    world.pass(SECOND);
    world.state.expire(world.now);
    assert_eq!(peer.ping(&world), DOWN);
    assert!(!peer.client.is_reachable());
    assert!(!answer(&world, &peer, calls[0].done()), "too late: it will be asked again");
    // Linux's client binds the same connection again when it sees the flag.
    let (connection, both) = (peer.connection, DirFromClient::FORE_OR_BOTH);
    world.state.bind_connection(connection, Some(&world.outbox), &peer.session, both).unwrap();
    let again = drain(&world.outbox);
    let places = |calls: &[Call]| calls.iter().map(Call::place).collect::<Vec<_>>();
    assert_eq!(places(&again[1..]), places(&calls));
    assert_eq!(peer.ping(&world), SequenceStatus::empty());
}

#[test]
fn a_misordered_back_channel_is_reported_and_other_sessions_continue() {
    type Nonsense = fn(&Call) -> Bytes;
    let nonsense: [Nonsense; 4] = [
        |call| call.refusal(Status::SEQ_MISORDERED),
        |call| call.reply(&0xdead_beef_u32),
        |call| {
            let results = List::new(vec![CbOpResult::RecallAny(Outcome::Ok(()))]).unwrap();
            call.reply(&CbCompoundResult { status: Status::OK, tag: Opaque::default(), results })
        },
        |call| {
            let ok = CbSequenceOk {
                session_id: [9; 16],
                sequence_id: 1,
                slot_id: 0,
                highest_slot_id: 0,
                target_highest_slot_id: 0,
            };
            let results = List::new(vec![CbOpResult::Sequence(Outcome::Ok(ok))]).unwrap();
            call.reply(&CbCompoundResult { status: Status::OK, tag: Opaque::default(), results })
        },
    ];
    for reply in nonsense {
        let mut world = World::new();
        let mut peer = reachable(&mut world, "a");
        send(&world, &peer, [5]);
        let call = drain(&world.outbox).pop().unwrap();
        assert!(answer(&world, &peer, reply(&call)));
        assert_eq!(peer.ping(&world), SequenceStatus::BACKCHANNEL_FAULT);
        assert!(!peer.client.is_reachable(), "a delegation could not be recalled");
        let both = DirFromClient::FORE_OR_BOTH;
        world.state.bind_connection(peer.connection, Some(&world.outbox), &peer.session, both).unwrap();
        for trial in drain(&world.outbox) {
            assert!(answer(&world, &peer, trial.reply(&())));
        }
        assert!(!peer.client.is_reachable(), "that it answers a trial is not enough");
        send(&world, &peer, [6]);
        assert!(drain(&world.outbox).is_empty(), "it carries no more callbacks");
        // The client must create another session.
        let id = peer.client.id();
        let created = world.create(id, 2, 70).unwrap();
        let calls = drain(&world.outbox);
        let numbers: Vec<_> =
            calls[1..].iter().map(|call| (call.sequence().session_id, call.place().2)).collect();
        assert_eq!(numbers, [(created.session_id, 5), (created.session_id, 6)]);
        assert!(answer(&world, &peer, calls[0].reply(&())));
        assert!(peer.client.is_reachable(), "over the new one");
    }
}

#[test]
fn one_working_session_keeps_a_client_reachable() {
    let mut world = World::new();
    let peer = reachable(&mut world, "a");
    world.create(peer.client.id(), 2, peer.connection.0).unwrap();
    drain(&world.outbox);
    send(&world, &peer, [5]);
    let call = drain(&world.outbox).pop().unwrap();
    assert_eq!(call.sequence().session_id, peer.session);
    assert!(answer(&world, &peer, call.refusal(Status::SEQ_MISORDERED)));
    assert!(peer.client.is_reachable());
}

#[test]
fn a_misordered_session_does_not_replace_a_lost_one() {
    for is_destroyed in [false, true] {
        let mut world = World::new();
        let peer = reachable(&mut world, "a");
        let second = world.create(peer.client.id(), 2, 70).unwrap();
        drain(&world.outbox);
        send(&world, &peer, [5]);
        let call = drain(&world.outbox).pop().unwrap();
        assert_eq!(call.sequence().session_id, peer.session);
        assert!(answer(&world, &peer, call.refusal(Status::SEQ_MISORDERED)));
        assert!(peer.client.is_reachable());
        if is_destroyed {
            world.state.destroy_session(ConnectionId(70), &second.session_id).unwrap();
        } else {
            world.state.connection_closed(ConnectionId(70));
        }
        assert!(!peer.client.is_reachable(), "a delegation could not be recalled");
    }
}

#[test]
fn a_closed_connection_carries_no_callbacks() {
    let mut world = World::new();
    let mut peer = reachable(&mut world, "a");
    let old = std::mem::take(&mut world.outbox);
    old.close();
    world.state.connection_closed(peer.connection);
    // A request that was already sent.
    let both = DirFromClient::FORE_OR_BOTH;
    world.state.bind_connection(peer.connection, Some(&old), &peer.session, both).unwrap();
    peer.connection = ConnectionId(50);
    assert_eq!(peer.ping(&world), DOWN);
}

#[test]
fn a_delayed_callback_is_retried() {
    let mut world = World::new();
    let peer = reachable(&mut world, "a");
    send(&world, &peer, [5]);
    let call = drain(&world.outbox).pop().unwrap();
    assert!(answer(&world, &peer, call.refusal(Status::DELAY)));
    assert!(drain(&world.outbox).is_empty(), "not at once");
    world.pass(SECOND);
    world.state.expire(world.now);
    assert_eq!(drain(&world.outbox).pop().unwrap().place(), call.place());
}

/// Returns a client to which a callback was just sent.
fn called() -> (World, Peer, Call) {
    let mut world = World::new();
    let peer = reachable(&mut world, "a");
    world.state.expire(world.now);
    send(&world, &peer, [5]);
    let call = drain(&world.outbox).pop().unwrap();
    (world, peer, call)
}

#[test]
fn repeated_delay_does_not_lose_the_path() {
    let (mut world, mut peer, first) = called();
    assert!(answer(&world, &peer, first.refusal(Status::DELAY)));
    for second in 1..40 {
        world.pass(SECOND);
        world.state.expire(world.now);
        let again = drain(&world.outbox).pop().unwrap_or_else(|| panic!("asked again after {second} s"));
        assert_eq!(again.place(), first.place());
        assert_eq!(peer.ping(&world), SequenceStatus::empty(), "after {second} s");
        assert!(answer(&world, &peer, again.refusal(Status::DELAY)));
    }
}

#[test]
fn a_resent_callback_has_a_new_deadline() {
    let (mut world, mut peer, first) = called();
    for after in [14, 14] {
        world.pass(after * SECOND);
        world.state.expire(world.now);
        assert_eq!(peer.ping(&world), SequenceStatus::empty());
        // Its connection is lost, and another one is bound.
        let old = std::mem::take(&mut world.outbox);
        old.close();
        world.state.connection_closed(peer.connection);
        peer.connection = ConnectionId(peer.connection.0 + 50);
        let both = DirFromClient::FORE_OR_BOTH;
        world.state.bind_connection(peer.connection, Some(&world.outbox), &peer.session, both).unwrap();
        assert_eq!(drain(&world.outbox).pop().unwrap().place(), first.place());
    }
    world.pass(14 * SECOND);
    world.state.expire(world.now);
    assert_eq!(peer.ping(&world), SequenceStatus::empty());
    world.pass(SECOND);
    world.state.expire(world.now);
    assert_eq!(peer.ping(&world), DOWN, "it has had its time");
}

#[test]
fn callbacks_wait_while_the_outbox_is_full() {
    let mut world = World::new();
    let peer = reachable(&mut world, "a");
    while world.outbox.call(Sent::Probe([0; 16]), |_| Bytes::new()) {}
    send(&world, &peer, [5]);
    for _ in 0..3 {
        world.pass(SECOND);
        // It is queued again although the outbox is still full.
        world.state.expire(world.now);
    }
    world.outbox.close();
    world.state.connection_closed(peer.connection);
    world.outbox = Arc::default();
    let both = DirFromClient::FORE_OR_BOTH;
    world.state.bind_connection(ConnectionId(50), Some(&world.outbox), &peer.session, both).unwrap();
    assert_eq!(drain(&world.outbox)[1].place(), (0, 1, 5));
}

#[test]
fn a_rebound_connection_is_probed_once_at_a_time() {
    let world = World::new();
    let peer = world.peer("a");
    let both = DirFromClient::FORE_OR_BOTH;
    let bind = || {
        world.state.bind_connection(peer.connection, Some(&world.outbox), &peer.session, both).unwrap();
    };
    (0..100).for_each(|_| bind());
    let trial = drain(&world.outbox);
    assert_eq!(trial.len(), 1);
    assert!(answer(&world, &peer, trial[0].reply(&())));
    bind();
    assert_eq!(drain(&world.outbox).len(), 1, "that one was answered");
}

#[test]
fn callbacks_of_a_destroyed_session_move_to_another() {
    let mut world = World::new();
    let peer = reachable(&mut world, "a");
    send(&world, &peer, [5]);
    // RFC 8881 §20.8: this one is about the session itself.
    world.state.call(&peer.client, Callback::recall_slot(7));
    assert_eq!(drain(&world.outbox).len(), 2);
    let created = world.create(peer.client.id(), 2, peer.connection.0).unwrap();
    drain(&world.outbox);
    world.state.destroy_session(peer.connection, &peer.session).unwrap();
    let [call] = &drain(&world.outbox)[..] else { panic!("one of the two") };
    assert_eq!((call.sequence().session_id, call.place()), (created.session_id, (0, 1, 5)));
}

#[test]
fn a_flood_of_unexpected_replies_leaves_no_state() {
    let mut world = World::new();
    let peer = reachable(&mut world, "a");
    for xid in 0..10_000_u32 {
        let mut reply = Writer::new();
        encode_success(&mut reply, xid.wrapping_mul(0x9e37_79b9) | 1 << 31);
        assert!(!answer(&world, &peer, reply.into_bytes()));
    }
    assert!(!answer(&world, &peer, Bytes::from_static(b"no reply")));
    send(&world, &peer, [1]);
    assert_eq!(drain(&world.outbox).len(), 1);
}

/// CB_RECALL_SLOT during as many seconds as a sweep over all sessions takes. The clients obey.
fn recalled(world: &mut World) -> Vec<(SessionId, u32)> {
    for _ in 0..16 {
        world.pass(SECOND);
        world.state.expire(world.now);
    }
    let done = || CbOpResult::RecallSlot(Outcome::Ok(()));
    let calls = drain(&world.outbox).into_iter().filter(|call| call.compound.is_some());
    calls
        .map(|call| {
            assert!(world.state.callback_replied(ConnectionId(1), &world.outbox, call.results(done())));
            call.recalled_slots()
        })
        .collect()
}

#[test]
fn scarce_slots_are_recalled_once() {
    let mut world = World::new();
    let peer = reachable(&mut world, "a");
    assert_eq!(recalled(&mut world), []);
    let memory = Arc::clone(&world.state.slot_memory);
    let left = settings().slot_cache_bytes - memory.used();
    memory.charge(left / 16 * 12 + 1000);
    assert_eq!(recalled(&mut world), [(peer.session, 31)]);
    assert_eq!(recalled(&mut world), [], "it knows");
    memory.charge(left / 16 * 4);
    // RFC 8881 §20.8: down to the slots that always find memory.
    assert_eq!(recalled(&mut world), [(peer.session, 1)]);
    memory.release(left / 16 * 16 + 1000);
    assert_eq!(recalled(&mut world), []);
    memory.charge(left);
    assert_eq!(recalled(&mut world), [(peer.session, 1)], "the target was raised in between");
}

#[test]
fn cb_recall_slot_waits_for_its_own_session() {
    let mut world = World::new();
    let a = reachable(&mut world, "a");
    let second = world.create(a.client.id(), 2, a.connection.0).unwrap().session_id;
    drain(&world.outbox);
    // A client without a callback path.
    let reached = std::mem::take(&mut world.outbox);
    let b = world.peer("b");
    let trial = drain(&world.outbox).pop().unwrap();
    let unreached = std::mem::replace(&mut world.outbox, reached);
    world.state.slot_memory.charge(settings().slot_cache_bytes);
    let mut reported = recalled(&mut world);
    reported.sort_unstable();
    let mut both = [(a.session, 1), (second, 1)];
    both.sort_unstable();
    assert_eq!(reported, both);
    assert!(drain(&unreached).is_empty());
    assert!(world.state.callback_replied(b.connection, &unreached, trial.reply(&())));
    assert_eq!(recalled(&mut world), []);
    let [call] = &drain(&unreached)[..] else { panic!("it can be called now") };
    assert_eq!(call.recalled_slots(), (b.session, 1));
}
