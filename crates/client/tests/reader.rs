//! READs from a server over one connection, in virtual time.

mod world;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use client::{ReadData, ReadError, Reader};
use futures_util::stream;
use protocol::nfs4::compound::{CompoundResult, OpResult};
use protocol::nfs4::ops::read_plus::Extent;
use protocol::nfs4::types::{Outcome, Status};
use rpc::message::{encode_success, parse_reply, peek};
use world::{CONTENT, Wire, World, poll, user, world};
use xdr::{Encode, List, Writer};

const SECOND: Duration = Duration::from_secs(1);

/// Returns a reader with an established session.
fn ready(wire: &Wire<'_>) -> Reader {
    let engine = Arc::clone(&wire.engine);
    let reader = wire.run(Reader::open(engine, wire.connection, b"destination", [1; 8], user())).unwrap();
    assert_eq!(reader.max_read(), 1 << 20);
    reader
}

#[test]
fn sends_one_read_per_slot() {
    let world = world(|_| {});
    let wire = Wire::new(&world);
    let (reader, user) = (ready(&wire), user());
    let wanted: Vec<_> = (0..20).map(|tag| world.read(tag, 1)).collect();
    let mut reads: Vec<_> = wanted.iter().map(|read| Box::pin(reader.read(&user, read))).collect();
    assert!(reads.iter_mut().all(|read| poll(read).is_none()));
    let first = wire.requests();
    assert_eq!(first.len(), 16);
    // A READ that waits for a slot.
    drop(reads.remove(17));
    for request in first.into_iter().rev() {
        wire.deliver(world.reply(request));
    }
    let tags = (0..20).filter(|tag| *tag != 17);
    for (tag, mut read) in tags.zip(reads) {
        let data = Bytes::from_static(&CONTENT[tag..=tag]);
        let content = vec![Extent::Data(data)];
        let is_end = tag + 1 == CONTENT.len();
        let expected = Ok(ReadData { content, is_end, size: Some(CONTENT.len() as u64) });
        assert_eq!(wire.exchange(&mut read), Some(expected));
    }
}

#[test]
fn holes_are_not_transferred() {
    let world = world(|_| {});
    world.write((1 << 20) - 1);
    let wire = Wire::new(&world);
    let (reader, user, read) = (ready(&wire), user(), world.read(0, 1 << 20));
    let mut reading = Box::pin(reader.read(&user, &read));
    assert!(poll(&mut reading).is_none());
    let reply = world.reply(wire.requests().remove(0));
    assert!(reply.len() < 1 << 16, "{} bytes", reply.len());
    wire.deliver(reply);
    let Some(Ok(ReadData { content, is_end: true, .. })) = poll(&mut reading) else { panic!() };
    assert_eq!(content.iter().map(Extent::length).sum::<u64>(), 1 << 20);
    let holes = content.iter().filter(|extent| matches!(extent, Extent::Hole(_))).map(Extent::length);
    assert!(holes.sum::<u64>() > 1 << 19);
    let Some(Extent::Data(first)) = content.first() else { panic!("{content:?}") };
    assert!(first.starts_with(CONTENT));
}

/// Returns the server's reply with the result of READ_PLUS replaced by `status`.
fn without_read_plus(world: &World, call: Bytes, status: Status) -> Bytes {
    let (xid, _) = peek(&call).unwrap();
    let result: CompoundResult = parse_reply(world.reply(call)).unwrap();
    let mut results = result.results.into_vec();
    let place = results.iter().position(|result| matches!(result, OpResult::ReadPlus(_)));
    results.truncate(place.expect("READ_PLUS") + 1);
    *results.last_mut().unwrap() = OpResult::ReadPlus(Outcome::Error(status));
    let mut reply = Writer::new();
    encode_success(&mut reply, xid);
    CompoundResult { status, results: List::new(results).unwrap(), ..result }.encode(&mut reply);
    reply.into_bytes()
}

#[test]
fn falls_back_to_read_for_a_server_without_read_plus() {
    let world = world(|_| {});
    let wire = Wire::new(&world);
    let (reader, user, read) = (ready(&wire), user(), world.read(0, 4));
    let mut reads = [1, 2].map(|_| Box::pin(reader.read(&user, &read)));
    assert!(reads.iter_mut().all(|read| poll(read).is_none()));
    for call in wire.requests() {
        wire.deliver(without_read_plus(&world, call, Status::NOTSUPP));
    }
    assert!(reads.iter_mut().all(|read| poll(read).is_none()), "the fallback is not visible to callers");
    let mut third = Box::pin(reader.read(&user, &read));
    assert!(poll(&mut third).is_none());
    let requests = wire.requests();
    assert_eq!(requests.len(), 3);
    for call in requests {
        let reply = world.reply(call);
        let result: CompoundResult = parse_reply(reply.clone()).unwrap();
        assert!(matches!(result.results[2], OpResult::Read(_)), "{result:?}");
        wire.deliver(reply);
    }
    assert!(reads.iter_mut().chain([&mut third]).all(|read| matches!(poll(read), Some(Ok(_)))));
}

#[test]
fn returns_the_status_of_read_plus() {
    let world = world(|_| {});
    let wire = Wire::new(&world);
    let (reader, user, read) = (ready(&wire), user(), world.read(0, 4));
    let mut reading = Box::pin(reader.read(&user, &read));
    assert!(poll(&mut reading).is_none());
    wire.deliver(without_read_plus(&world, wire.requests().remove(0), Status::BAD_STATEID));
    assert_eq!(poll(&mut reading), Some(Err(ReadError::Refused(Status::BAD_STATEID))));
}

#[test]
fn silent_server_times_out_after_ten_seconds() {
    let world = world(|_| {});
    let wire = Wire::new(&world);
    let (reader, user, read) = (ready(&wire), user(), world.read(0, 4));
    wire.advance(3 * SECOND);
    let mut reading = Box::pin(reader.read(&user, &read));
    assert!(poll(&mut reading).is_none());
    assert_eq!(wire.requests().len(), 1);
    wire.advance(10 * SECOND - Duration::from_millis(1));
    assert!(poll(&mut reading).is_none());
    let mut later = Box::pin(reader.read(&user, &read));
    assert!(poll(&mut later).is_none());
    wire.advance(Duration::from_millis(1));
    assert_eq!(poll(&mut reading), Some(Err(ReadError::Unresponsive)));
    assert_eq!(poll(&mut later), Some(Err(ReadError::Unresponsive)), "it waits for the same server");
}

#[test]
fn slow_reply_times_out_after_a_minute() {
    let world = world(|_| {});
    let wire = Wire::new(&world);
    let (reader, user, read) = (ready(&wire), user(), world.read(0, 4));
    let mut reading = Box::pin(reader.read(&user, &read));
    assert!(poll(&mut reading).is_none());
    assert_eq!(wire.requests().len(), 1);
    for seconds in 1..60 {
        wire.advance(SECOND);
        wire.engine.handle_bytes(wire.connection);
        assert!(poll(&mut reading).is_none(), "{seconds} s");
    }
    wire.advance(SECOND);
    assert_eq!(poll(&mut reading), Some(Err(ReadError::Unresponsive)));
}

#[test]
fn one_read_without_a_reply_ends_the_session() {
    let world = world(|_| {});
    let wire = Wire::new(&world);
    let (reader, user, read) = (ready(&wire), user(), world.read(0, 4));
    let mut lost = Box::pin(reader.read(&user, &read));
    assert!(poll(&mut lost).is_none());
    assert_eq!(wire.requests().len(), 1);
    for seconds in 1..60 {
        wire.advance(SECOND);
        assert!(wire.run(reader.read(&user, &read)).is_ok(), "{seconds} s");
        assert!(poll(&mut lost).is_none());
    }
    let mut other = Box::pin(reader.read(&user, &read));
    assert!(poll(&mut other).is_none());
    assert_eq!(wire.requests().len(), 1);
    wire.advance(SECOND);
    assert_eq!(poll(&mut lost), Some(Err(ReadError::Unresponsive)));
    assert_eq!(poll(&mut other), Some(Err(ReadError::SessionLost)), "it can be repeated");
}

#[test]
fn closes_the_session_when_idle() {
    let world = world(|_| {});
    let wire = Wire::new(&world);
    let (reader, read) = (ready(&wire), world.read(0, 4));
    let (waiting, answers) = (RefCell::new(VecDeque::from([read, read])), RefCell::new(Vec::new()));
    let requests = stream::poll_fn(|_| match waiting.borrow_mut().pop_front() {
        Some(request) => Poll::Ready(Some(request)),
        None => Poll::Pending,
    });
    let answer = async |reader: &Reader, read| {
        let outcome = reader.read(&user(), &read).await;
        answers.borrow_mut().push(outcome.is_ok());
    };
    let mut serving = Box::pin(reader.serve(requests, answer));
    assert_eq!(wire.exchange(&mut serving), None);
    assert_eq!(*answers.borrow(), [true, true]);
    wire.advance(5 * SECOND - Duration::from_millis(1));
    assert_eq!(wire.exchange(&mut serving), None);
    assert_eq!(world.server.counts().sessions, 1);
    wire.advance(Duration::from_millis(1));
    assert_eq!(wire.exchange(&mut serving), Some(Ok(())));
    assert_eq!((world.server.counts().clients, world.server.counts().sessions), (0, 0));
}
