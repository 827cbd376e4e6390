//! Sessions without a background task, with the server of this workspace, in one thread.

mod world;

use bytes::Bytes;
use client::engine::CallError;
use client::error::OpError;
use client::raw::{CompoundOutcome, Unexecuted, send_compound};
use client::{Read, ReadOp};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::read_plus::Extent;
use protocol::nfs4::ops::session::SequenceArgs;
use protocol::nfs4::types::{Handle, Outcome, Status};
use rpc::message::{Rejection, RpcError};
use server::Versions;
use world::{CONTENT, Wire, poll, user, world};

#[test]
fn reads_a_file_and_leaves_no_state() {
    let world = world(|_| {});
    let wire = Wire::new(&world);
    let session = wire.session(1).unwrap();
    let mut content = Vec::new();
    loop {
        let read = world.read(content.len() as u64, 10);
        let outcome = wire.run(session.call(&user(), &read.operations(ReadOp::Read))).unwrap();
        let data = read.data(&outcome.results).unwrap();
        assert_eq!(data.size, Some(CONTENT.len() as u64));
        let [Extent::Data(piece)] = &data.content[..] else { panic!("{data:?}") };
        content.extend_from_slice(piece);
        if data.is_end {
            break;
        }
    }
    assert_eq!(content, CONTENT);
    assert_eq!((world.server.counts().clients, world.server.counts().sessions), (1, 1));
    wire.run(session.destroy()).unwrap();
    assert_eq!((world.server.counts().clients, world.server.counts().sessions), (0, 0));
}

#[test]
fn calls_take_slots_and_complete_in_any_order() {
    let world = world(|_| {});
    let wire = Wire::new(&world);
    let (session, user, read) = (wire.session(1).unwrap(), user(), world.read(0, 4));
    let ops = read.operations(ReadOp::Read);
    let mut calls: Vec<_> = (0..20).map(|_| Box::pin(session.call(&user, &ops))).collect();
    assert!(calls.iter_mut().all(|call| poll(call).is_none()));
    let requests = wire.requests();
    assert_eq!(requests.len(), 16, "one in each slot");
    for request in requests.into_iter().rev() {
        wire.deliver(world.reply(request));
    }
    for mut call in calls {
        assert_eq!(wire.exchange(&mut call).unwrap().unwrap().status, Status::OK);
    }
    assert_eq!(session.sequences().iter().sum::<u32>(), 21, "with RECLAIM_COMPLETE");
}

#[test]
fn failed_call_does_not_affect_the_next() {
    let world = world(|_| {});
    let wire = Wire::new(&world);
    let (session, user) = (wire.session(1).unwrap(), user());
    let call = |read: &Read| wire.run(session.call(&user, &read.operations(ReadOp::Read))).unwrap();
    let handle = Handle::new(b"no such file").unwrap();
    let missing = Read { handle, ..world.read(0, 4) };
    let CompoundOutcome { status, results } = call(&missing);
    assert_eq!((status, missing.data(&results)), (Status::BADHANDLE, None));
    assert_eq!(call(&world.read(0, 4)).status, Status::OK);
}

#[test]
fn a_request_with_a_wrong_sequence_is_sent_as_it_is() {
    let world = world(|_| {});
    let wire = Wire::new(&world);
    let session = wire.session(1).unwrap();
    let send = |sequence: Option<SequenceArgs>| {
        let (caller, ops) = (user(), [Op::PutRootFh]);
        wire.run(send_compound(&wire.engine, wire.connection, &caller, 2, sequence, &ops)).unwrap()
    };
    let in_slot = |slot_id, sequence_id| SequenceArgs {
        slot_id,
        sequence_id,
        ..SequenceArgs::in_first_slot(session.id(), 1)
    };
    let next = session.sequences()[0] + 1;
    assert_eq!(send(Some(in_slot(0, next + 1))).status, Status::SEQ_MISORDERED);
    assert_eq!(send(Some(in_slot(999, 1))).status, Status::BADSLOT);
    assert_eq!(send(Some(SequenceArgs::in_first_slot([9; 16], 1))).status, Status::BADSESSION);
    // RFC 8881 §18.46.3: without a session only a few operations are allowed.
    assert_eq!(send(None).status, Status::OP_NOT_IN_SESSION);
    let result = send(Some(in_slot(0, next)));
    assert!(matches!(result.results[..], [OpResult::Sequence(Outcome::Ok(_)), OpResult::PutRootFh(_)]));
}

#[test]
fn new_session_replaces_the_lost_one() {
    let world = world(|_| {});
    let wire = Wire::new(&world);
    let (lost, again) = (wire.session(1).unwrap(), wire.session(2).unwrap());
    assert_eq!((world.server.counts().clients, world.server.counts().sessions), (1, 1));
    let ops = world.read(0, 4).operations(ReadOp::Read);
    let failed = wire.run(lost.call(&user(), &ops)).unwrap_err();
    assert_eq!((failed, lost.lost()), (Unexecuted::SessionLost { was_sent: true }, Some(Status::BADSESSION)));
    assert_eq!(wire.run(again.call(&user(), &ops)).unwrap().status, Status::OK);
}

#[test]
fn recognizes_a_server_without_version_4_2() {
    for versions in [Versions::V3, Versions::V3 | Versions::V4_1] {
        let world = world(|settings| settings.versions = versions);
        let error = Wire::new(&world).session(1).err();
        assert!(matches!(error, Some(OpError::Unsupported(_))), "{error:?}");
    }
}

/// Returns a reply without results (RFC 5531 §9).
fn without_results(call: &Bytes, words: &[u32]) -> Bytes {
    let reply = words.iter().flat_map(|word| word.to_be_bytes());
    call[..4].iter().copied().chain(reply).collect()
}

/// It is unknown whether SEQUENCE was executed (RFC 8881 §2.10.6.2), and so the slot's next sequence ID.
#[test]
fn failed_rpc_call_ends_the_session() {
    let world = world(|_| {});
    // GARBAGE_ARGS, SYSTEM_ERR.
    for number in [4, 5] {
        let wire = Wire::new(&world);
        let session = wire.session(1).unwrap();
        let (user, ops) = (user(), world.read(0, 4).operations(ReadOp::Read));
        let mut call = Box::pin(session.call(&user, &ops));
        assert!(poll(&mut call).is_none());
        let requests = wire.requests();
        // REPLY, MSG_ACCEPTED, no verifier.
        wire.deliver(without_results(&requests[0], &[1, 0, 0, 0, number]));
        let failed = poll(&mut call).unwrap().unwrap_err();
        assert!(matches!(failed, Unexecuted::Call(CallError::Rpc(RpcError::NotExecuted(_)))), "{failed:?}");
        assert!(session.lost().is_some());
    }
}

#[test]
fn denied_credential_leaves_the_slot_unchanged() {
    let world = world(|_| {});
    let wire = Wire::new(&world);
    let session = wire.session(1).unwrap();
    let (user, ops) = (user(), world.read(0, 4).operations(ReadOp::Read));
    let mut call = Box::pin(session.call(&user, &ops));
    assert!(poll(&mut call).is_none());
    let requests = wire.requests();
    // REPLY, MSG_DENIED, AUTH_ERROR, AUTH_BADCRED.
    wire.deliver(without_results(&requests[0], &[1, 1, 1, 1]));
    let denied = poll(&mut call).unwrap().unwrap_err();
    let expected =
        matches!(denied, Unexecuted::Call(CallError::Rpc(RpcError::Denied(Rejection::AuthError(_)))));
    assert!(expected, "{denied:?}");
    assert_eq!(wire.run(session.call(&user, &ops)).unwrap().status, Status::OK);
}
