//! Sessions with the server of this workspace, in one thread.

mod world;

use bytes::Bytes;
use client::{CompoundOutcome, Identity, Read, ReadOp, Reply, Session, SessionError};
use protocol::nfs4::ops::read_plus::Extent;
use protocol::nfs4::types::{Handle, Status};
use rpc::message::{AcceptStatus, Rejection, RpcError, encode_success};
use server::Versions;
use world::{CONTENT, session, user, world};
use xdr::{Opaque, Writer};

fn executed(answer: Reply) -> CompoundOutcome {
    answer.outcome.expect("it is executed")
}

#[test]
fn reads_a_file_and_leaves_no_state() {
    let world = world(|_| {});
    let mut session = world.ready();
    assert_eq!(session.max_read(), 1 << 20);
    let mut content = Vec::new();
    loop {
        let read = world.read(content.len() as u64, 10);
        let call = session.call(&user(), read.operations(ReadOp::Read)).unwrap();
        world.exchange(&mut session).unwrap();
        let answer = session.poll_answer().unwrap();
        assert_eq!(answer.call, call);
        let data = read.data(&executed(answer).results).unwrap();
        assert_eq!(data.size, Some(CONTENT.len() as u64));
        let [Extent::Data(piece)] = &data.content[..] else { panic!("{data:?}") };
        content.extend_from_slice(piece);
        if data.is_end {
            break;
        }
    }
    assert_eq!(content, CONTENT);
    assert_eq!((world.server.counts().clients, world.server.counts().sessions), (1, 1));
    assert!(session.close());
    world.exchange(&mut session).unwrap();
    assert!(session.is_closed() && !session.can_call());
    assert_eq!((world.server.counts().clients, world.server.counts().sessions), (0, 0));
}

#[test]
fn calls_take_slots_and_complete_in_any_order() {
    let world = world(|_| {});
    let mut session = world.ready();
    let read = world.read(0, 4);
    let mut calls: Vec<_> =
        std::iter::from_fn(|| session.call(&user(), read.operations(ReadOp::Read))).collect();
    assert_eq!(calls.len(), 16);
    assert!(!session.can_call() && !session.close(), "replies are pending");
    let mut records: Vec<_> = std::iter::from_fn(|| session.poll_record()).collect();
    records.reverse();
    for record in records {
        session.handle_record(world.reply(record)).unwrap();
    }
    let answered: Vec<_> = std::iter::from_fn(|| session.poll_answer()).map(|answer| answer.call).collect();
    calls.reverse();
    assert_eq!(answered, calls);
    assert!(session.can_call() && !session.is_waiting());
}

#[test]
fn failed_call_does_not_affect_the_next() {
    let world = world(|_| {});
    let mut session = world.ready();
    let handle = Handle::new(b"no such file").unwrap();
    let missing = Read { handle, ..world.read(0, 4) };
    session.call(&user(), missing.operations(ReadOp::Read)).unwrap();
    world.exchange(&mut session).unwrap();
    let failed = executed(session.poll_answer().unwrap());
    assert_eq!((failed.status, missing.data(&failed.results)), (Status::BADHANDLE, None));
    let read = world.read(0, 4);
    session.call(&user(), read.operations(ReadOp::Read)).unwrap();
    world.exchange(&mut session).unwrap();
    assert_eq!(executed(session.poll_answer().unwrap()).status, Status::OK);
}

#[test]
fn new_session_replaces_the_lost_one() {
    let world = world(|_| {});
    let mut lost = world.ready();
    let owner = Opaque::from_static(b"destination");
    let mut again = Session::new(Identity { owner, verifier: [2; 8], credential: user() }, 1);
    world.exchange(&mut again).unwrap();
    assert_eq!((world.server.counts().clients, world.server.counts().sessions), (1, 1));
    lost.call(&user(), world.read(0, 4).operations(ReadOp::Read)).unwrap();
    assert_eq!(world.exchange(&mut lost), Err(SessionError::Refused(Status::BADSESSION)));
}

#[test]
fn recognizes_a_server_without_version_4_2() {
    for versions in [Versions::V3, Versions::V3 | Versions::V4_1] {
        let world = world(|settings| settings.versions = versions);
        let error = world.exchange(&mut session()).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
    }
    assert!(!SessionError::Refused(Status::BADSESSION).is_unsupported());
}

#[test]
fn unexpected_record_ends_the_session() {
    let reply = |xid, results: &[u8]| {
        let mut reply = Writer::new();
        encode_success(&mut reply, xid);
        reply.raw(results);
        reply.into_bytes()
    };
    let mut short = session();
    assert!(matches!(short.handle_record(Bytes::from_static(b"xid")), Err(SessionError::Garbled(_))));
    let mut other = session();
    assert_eq!(other.handle_record(reply(78, &[])), Err(SessionError::Unexpected));
    let mut cut_off = session();
    assert!(matches!(cut_off.handle_record(reply(77, &[0; 8])), Err(SessionError::Garbled(_))));
    // NFS4_OK, no tag, no results: RFC 8881 §16.2.3 requires a result for each executed operation.
    let mut empty = session();
    assert_eq!(empty.handle_record(reply(77, &[0; 12])), Err(SessionError::Unexpected));
    let mut called = session();
    let record = called.poll_record().unwrap();
    assert_eq!(called.handle_record(record), Err(SessionError::Unexpected), "a call is not a reply");
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
    for status in [AcceptStatus::GarbageArguments, AcceptStatus::SystemError] {
        let mut session = world.ready();
        session.call(&user(), world.read(0, 4).operations(ReadOp::Read)).unwrap();
        let call = session.poll_record().unwrap();
        let number = if status == AcceptStatus::SystemError { 5 } else { 4 };
        // REPLY, MSG_ACCEPTED, no verifier.
        let reply = without_results(&call, &[1, 0, 0, 0, number]);
        let error = session.handle_record(reply).unwrap_err();
        assert_eq!(error, SessionError::Rejected(RpcError::NotExecuted(status)));
        assert!(session.poll_answer().is_none());
    }
}

#[test]
fn denied_credential_leaves_the_slot_unchanged() {
    let world = world(|_| {});
    let mut session = world.ready();
    session.call(&user(), world.read(0, 4).operations(ReadOp::Read)).unwrap();
    let call = session.poll_record().unwrap();
    // REPLY, MSG_DENIED, AUTH_ERROR, AUTH_BADCRED.
    session.handle_record(without_results(&call, &[1, 1, 1, 1])).unwrap();
    let denied = session.poll_answer().unwrap().outcome.unwrap_err();
    assert!(matches!(denied, RpcError::Denied(Rejection::AuthError(_))), "{denied}");
    session.call(&user(), world.read(0, 4).operations(ReadOp::Read)).unwrap();
    world.exchange(&mut session).unwrap();
    assert_eq!(executed(session.poll_answer().unwrap()).status, Status::OK);
}

#[test]
fn second_reply_ends_the_session() {
    let world = world(|_| {});
    let mut session = world.ready();
    session.call(&user(), world.read(0, 4).operations(ReadOp::Read)).unwrap();
    let reply = world.reply(session.poll_record().unwrap());
    assert_eq!(session.handle_record(reply.clone()), Ok(()));
    assert_eq!(session.handle_record(reply), Err(SessionError::Unexpected));
}
