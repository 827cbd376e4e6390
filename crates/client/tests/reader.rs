//! READs from a server over one connection, in virtual time.

mod world;

use std::time::Duration;

use bytes::Bytes;
use client::{Identity, ReadData, ReadError, Reader};
use protocol::nfs4::compound::{CompoundResult, OpResult};
use protocol::nfs4::ops::read_plus::Extent;
use protocol::nfs4::types::{Outcome, Status};
use rpc::message::{encode_success, parse_reply, peek};
use world::{CONTENT, World, user, world};
use xdr::{Encode, List, Opaque, Writer};

const SECOND: Duration = Duration::from_secs(1);

fn reader() -> Reader<u32> {
    let owner = Opaque::from_static(b"destination");
    Reader::new(Identity { owner, verifier: [1; 8], credential: user() }, 77, Duration::ZERO)
}

/// Exchanges records until the reader has none to send.
fn exchange(world: &World, reader: &mut Reader<u32>, now: Duration) {
    while let Some(record) = reader.poll_record(now) {
        reader.handle_record(now, world.reply(record)).unwrap();
    }
}

fn records(reader: &mut Reader<u32>, now: Duration) -> Vec<Bytes> {
    std::iter::from_fn(|| reader.poll_record(now)).collect()
}

fn answers(reader: &mut Reader<u32>) -> Vec<(u32, Result<ReadData, ReadError>)> {
    std::iter::from_fn(|| reader.poll_answer()).collect()
}

/// Returns a reader with an established session.
fn ready(world: &World) -> Reader<u32> {
    let mut reader = reader();
    exchange(world, &mut reader, Duration::ZERO);
    assert_eq!(reader.max_read(), 1 << 20);
    reader
}

#[test]
fn sends_one_read_per_slot() {
    let world = world(|_| {});
    let mut reader = ready(&world);
    for tag in 0..20 {
        reader.read(world.read(u64::from(tag), 1), user(), tag);
    }
    let first = records(&mut reader, SECOND);
    assert_eq!(first.len(), 16);
    // A READ that waits for a slot.
    reader.drop_waiting(|tag| *tag == 17);
    for record in first.into_iter().rev() {
        reader.handle_record(SECOND, world.reply(record)).unwrap();
    }
    exchange(&world, &mut reader, SECOND);
    let mut results = answers(&mut reader);
    assert_eq!(results[0].0, 15, "in the order of the replies");
    results.sort_by_key(|(tag, _)| *tag);
    let tags: Vec<_> = results.iter().map(|(tag, _)| *tag).collect();
    assert_eq!(tags, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19]);
    for (tag, answer) in results {
        let data = Bytes::from_static(&CONTENT[tag as usize..=tag as usize]);
        let content = vec![Extent::Data(data)];
        let is_end = tag as usize + 1 == CONTENT.len();
        assert_eq!(answer, Ok(ReadData { content, is_end, size: Some(CONTENT.len() as u64) }));
    }
}

#[test]
fn holes_are_not_transferred() {
    let world = world(|_| {});
    world.write((1 << 20) - 1);
    let mut reader = ready(&world);
    reader.read(world.read(0, 1 << 20), user(), 1);
    let request = reader.poll_record(SECOND).unwrap();
    let reply = world.reply(request);
    assert!(reply.len() < 1 << 16, "{} bytes", reply.len());
    reader.handle_record(SECOND, reply).unwrap();
    let (_, Ok(ReadData { content, is_end: true, .. })) = reader.poll_answer().unwrap() else { panic!() };
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
    let mut reader = ready(&world);
    for tag in [1, 2] {
        reader.read(world.read(0, 4), user(), tag);
    }
    for call in records(&mut reader, SECOND) {
        let reply = without_read_plus(&world, call, Status::NOTSUPP);
        reader.handle_record(SECOND, reply).unwrap();
    }
    assert!(answers(&mut reader).is_empty(), "the fallback is not visible to callers");
    reader.read(world.read(0, 4), user(), 3);
    for call in records(&mut reader, SECOND) {
        let reply = world.reply(call);
        let result: CompoundResult = parse_reply(reply.clone()).unwrap();
        assert!(matches!(result.results[2], OpResult::Read(_)), "{result:?}");
        reader.handle_record(SECOND, reply).unwrap();
    }
    let results = answers(&mut reader);
    assert_eq!(results.len(), 3);
    assert!(results.iter().all(|(_, answer)| answer.is_ok()), "{results:?}");
}

#[test]
fn returns_the_status_of_read_plus() {
    let world = world(|_| {});
    let mut reader = ready(&world);
    reader.read(world.read(0, 4), user(), 1);
    let call = reader.poll_record(SECOND).unwrap();
    reader.handle_record(SECOND, without_read_plus(&world, call, Status::BAD_STATEID)).unwrap();
    assert_eq!(answers(&mut reader), [(1, Err(ReadError::Refused(Status::BAD_STATEID)))]);
}

#[test]
fn silent_server_times_out_after_ten_seconds() {
    let world = world(|_| {});
    let mut reader = ready(&world);
    reader.read(world.read(0, 4), user(), 1);
    assert_eq!(records(&mut reader, 3 * SECOND).len(), 1);
    assert_eq!(reader.deadline(), 13 * SECOND);
    assert_eq!(reader.handle_timeout(13 * SECOND - Duration::from_nanos(1)), Ok(()));
    assert_eq!(reader.handle_timeout(13 * SECOND), Err(ReadError::Unresponsive));
    reader.fail_all(ReadError::Unresponsive);
    assert_eq!(answers(&mut reader), [(1, Err(ReadError::Unresponsive))]);
}

#[test]
fn slow_reply_times_out_after_a_minute() {
    let world = world(|_| {});
    let mut reader = ready(&world);
    reader.read(world.read(0, 4), user(), 1);
    assert_eq!(records(&mut reader, SECOND).len(), 1);
    for seconds in 2..61 {
        reader.handle_bytes(seconds * SECOND);
        assert_eq!(reader.handle_timeout(seconds * SECOND), Ok(()), "{seconds} s");
    }
    assert_eq!(reader.handle_timeout(61 * SECOND), Err(ReadError::Unresponsive));
}

#[test]
fn one_read_without_a_reply_ends_the_session() {
    let world = world(|_| {});
    let mut reader = ready(&world);
    reader.read(world.read(0, 4), user(), 0);
    assert_eq!(records(&mut reader, SECOND).len(), 1);
    for seconds in 2..61 {
        reader.read(world.read(0, 4), user(), seconds);
        exchange(&world, &mut reader, seconds * SECOND);
        assert_eq!(answers(&mut reader).len(), 1);
        assert_eq!(reader.handle_timeout(seconds * SECOND), Ok(()), "{seconds} s");
    }
    reader.read(world.read(0, 4), user(), 61);
    assert_eq!(records(&mut reader, 60 * SECOND).len(), 1);
    assert_eq!(reader.handle_timeout(61 * SECOND), Err(ReadError::SessionLost));
    reader.fail_all(ReadError::SessionLost);
    let results = answers(&mut reader);
    assert_eq!(
        results,
        [(0, Err(ReadError::Unresponsive)), (61, Err(ReadError::SessionLost))],
        "the other READ can be repeated"
    );
}

#[test]
fn closes_the_session_when_idle() {
    let world = world(|_| {});
    let mut reader = ready(&world);
    assert_eq!(world.server.counts().sessions, 1);
    assert_eq!(reader.deadline(), 5 * SECOND);
    assert_eq!(reader.handle_timeout(5 * SECOND), Ok(()));
    exchange(&world, &mut reader, 5 * SECOND);
    assert!(reader.is_closed());
    assert_eq!((world.server.counts().clients, world.server.counts().sessions), (0, 0));
}
