//! Servers of versions 4.0 and 4.1 with wrong replies. The caller gets an error that reports this, and nothing panics.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use client::Client;
use client::attributes::{Attributes, FileKind, SetAttributes};
use client::config::{Config, Version};
use client::engine::{CALLBACKS_MAX, CallError, RetryPolicy};
use client::error::{Fault, OpError};
use client::fs::{FileSystem, OpenOptions};
use client::results::{Creation, FileHandle, OpenMode, OpenState, Stability};
use futures_util::future::{Either, select};
use futures_util::task::noop_waker_ref;
use protocol::nfs3::{self, LookupOk, Outcome as Outcome3, PostOpAttr};
use protocol::nfs4::attributes::{Attributes as WireAttributes, FileAttributes};
use protocol::nfs4::callback::recall::CbRecallArgs;
use protocol::nfs4::callback::sequence::CbSequenceArgs;
use protocol::nfs4::callback::{self, CbCompoundArgs, CbCompoundResult, CbOp};
use protocol::nfs4::compound::{CompoundArgs, Op, OpResult};
use protocol::nfs4::ops::read::ReadOk;
use protocol::nfs4::ops::readdir::{DirEntry, ReadDirOk};
use protocol::nfs4::ops::session::{SequenceArgs, SequenceOk, SequenceStatus};
use protocol::nfs4::ops::write::WriteOk;
use protocol::nfs4::types::{Component, FileType, OpNum, StableHow, Stateid, Status, Time};
use rpc::message::{CallHeader, encode_call, parse_reply};
use xdr::{Chain, List, Opaque, Writer};

use crate::link::{Answer, Call, Link, root};
use crate::lost_replies::{config_41, has, results};

pub(crate) fn handle() -> FileHandle {
    FileHandle::new(b"handle").unwrap()
}

/// Bytes of an accepted reply before its results.
const RPC_HEADER: usize = 24;

/// Returns the result of a compound's SEQUENCE, after `change`.
pub(crate) fn sequence(call: &Call, change: impl Fn(&mut SequenceOk)) -> OpResult {
    let compound = call.arguments::<CompoundArgs>();
    let Some(Op::Sequence(SequenceArgs { session_id, sequence_id, slot_id, .. })) = compound.ops.first()
    else {
        panic!("no SEQUENCE in {compound:?}")
    };
    let mut ok = SequenceOk {
        session_id: *session_id,
        sequence_id: *sequence_id,
        slot_id: *slot_id,
        highest_slot_id: 15,
        target_highest_slot_id: 15,
        status_flags: SequenceStatus::empty(),
    };
    change(&mut ok);
    OpResult::Sequence(Ok(ok).into())
}

/// Both minor versions with replies of their own: without and with SEQUENCE.
const VERSIONS: [Version; 2] = [Version::V40, Version::V41];

fn connected(version: Version) -> (Rc<Link>, Client) {
    let link = Link::new();
    let client = link.connect(Config { version: Some(version), ..config_41() }).unwrap();
    (link, client)
}

/// Returns the result of SEQUENCE, if the call has one.
fn before(call: &Call) -> Option<OpResult> {
    has(call, OpNum::SEQUENCE).then(|| sequence(call, |_| {}))
}

/// Returns a client of this version whose compounds with `op` get these results after that of SEQUENCE.
fn lying_as(version: Version, op: OpNum, lies: impl Fn() -> Vec<OpResult> + 'static) -> (Rc<Link>, Client) {
    let (link, client) = connected(version);
    link.answer(move |call| {
        assert!(has(call, op), "{:?}", call.header);
        results(call, Status::OK, before(call).into_iter().chain(lies()).collect())
    });
    (link, client)
}

pub(crate) fn put() -> OpResult {
    OpResult::PutFh(Ok(()).into())
}

fn is_bad<T: std::fmt::Debug>(outcome: Result<T, OpError>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, OpError::BadReply(_)), "{error:?}");
    assert_eq!(error.fault(), Fault::Server);
}

#[test]
fn reads_of_the_wrong_length_are_refused() {
    for version in VERSIONS {
        let read = |length: usize, eof: bool| {
            let lies = move || {
                let data = Opaque::new(vec![1; length]).unwrap();
                vec![put(), OpResult::Read(Ok(ReadOk { eof, data }).into())]
            };
            let (link, client) = lying_as(version, OpNum::READ, lies);
            link.run(client.read(&root(), handle(), &OpenState::default(), 0, 10))
        };
        assert_eq!(read(3, false).unwrap().data.len(), 3, "a short READ is allowed");
        is_bad(read(11, true));
        is_bad(read(0, false));
    }
}

#[test]
fn writes_of_the_wrong_length_or_stability_are_refused() {
    for version in VERSIONS {
        let write = |count: u32, committed: StableHow| {
            let lies = move || {
                let ok = WriteOk { count, committed, verifier: [1; 8] };
                let change = OpResult::GetAttr(Ok(FileAttributes::default()).into());
                vec![put(), change, OpResult::Write(Ok(ok).into())]
            };
            let (link, client) = lying_as(version, OpNum::WRITE, lies);
            let data = Bytes::from_static(b"0123456789");
            link.run(client.write(&root(), handle(), &OpenState::default(), 0, data, Stability::DataSync))
        };
        assert_eq!(write(3, StableHow::FileSync).unwrap().count, 3, "a short WRITE is allowed");
        for (count, committed) in
            [(11, StableHow::FileSync), (0, StableHow::FileSync), (10, StableHow::Unstable)]
        {
            is_bad(write(count, committed));
        }
    }
}

#[test]
fn results_that_are_missing_or_of_other_operations_are_refused() {
    for version in VERSIONS {
        let lookup = |lies: fn() -> Vec<OpResult>| {
            let (link, client) = lying_as(version, OpNum::LOOKUP, lies);
            link.run(client.lookup(&root(), handle(), b"name"))
        };
        is_bad(lookup(Vec::new));
        is_bad(lookup(|| vec![put()]));
        is_bad(lookup(|| vec![put(), put(), put(), put()]));
        // An empty handle is invalid.
        is_bad(lookup(|| {
            let empty = OpResult::GetFh(Ok(FileHandle::default()).into());
            vec![put(), OpResult::Lookup(Ok(()).into()), empty]
        }));
    }
}

/// Returns the attributes that a GETATTR gets whose reply has these.
fn attributes(version: Version, wire: &WireAttributes) -> Result<Attributes, OpError> {
    let wire = wire.to_file_attributes();
    let lies = move || vec![put(), OpResult::GetAttr(Ok(wire.clone()).into())];
    let (link, client) = lying_as(version, OpNum::GETATTR, lies);
    link.run(client.get_attributes(&root(), handle()))
}

#[test]
fn impossible_attributes_are_refused() {
    let file = || WireAttributes { file_type: Some(FileType::REGULAR), ..WireAttributes::default() };
    for version in VERSIONS {
        assert_eq!(attributes(version, &file()).unwrap().kind, FileKind::Regular);
        is_bad(attributes(version, &WireAttributes::default()));
        is_bad(attributes(version, &WireAttributes { file_type: Some(FileType(99)), ..file() }));
        let time = Time { seconds: 1, nanoseconds: 1_000_000_000 };
        is_bad(attributes(version, &WireAttributes { time_modify: Some(time), ..file() }));
    }
}

#[test]
fn names_that_leave_the_directory_are_refused() {
    for version in VERSIONS {
        for name in [&b"a/b"[..], b"/", b"../x", b"a\0b", b""] {
            let (link, client) = lying_as(version, OpNum::READDIR, move || page(name, 9, true));
            is_bad(link.run(client.read_directory(&root(), handle(), (0, [0; 8]), 4096, false)));
        }
        for name in [&b"."[..], b".."] {
            let (link, client) = lying_as(version, OpNum::READDIR, move || page(name, 9, true));
            let listed =
                link.run(client.read_directory(&root(), handle(), (0, [0; 8]), 4096, false)).unwrap();
            assert!(listed.entries.is_empty(), "{version:?}: it names no entry of this directory");
        }
    }
}

/// Returns the results of a listing with one entry.
fn page(name: &'static [u8], cookie: u64, eof: bool) -> Vec<OpResult> {
    let entry =
        DirEntry { cookie, name: Component::from_static(name), attributes: FileAttributes::default() };
    let entries = Chain::new(vec![entry]).unwrap();
    let listed = ReadDirOk { cookie_verifier: [0; 8], entries, eof };
    let kind = WireAttributes { file_type: Some(FileType::DIRECTORY), ..WireAttributes::default() };
    let attributes = OpResult::GetAttr(Ok(kind.to_file_attributes()).into());
    vec![put(), attributes, OpResult::ReadDir(Ok(listed).into())]
}

#[test]
fn a_listing_whose_cookies_form_a_loop_ends_with_an_error() {
    for version in VERSIONS {
        let (link, client) = connected(version);
        let (fs, _) = link.run(FileSystem::mount(client, root(), b"/export")).unwrap();
        let count = Cell::new(0);
        link.answer(move |call| {
            if !has(call, OpNum::READDIR) {
                return Answer::Serve;
            }
            count.set(count.get() + 1);
            // 1, 2, 3, 1, …
            let page = page(b"a", 1 + (count.get() - 1) % 3, false);
            results(call, Status::OK, before(call).into_iter().chain(page).collect())
        });
        for outcome in [link.run(fs.read_dir(b"", false)), link.run(fs.read_dir(b"", true))] {
            let error = outcome.unwrap_err();
            assert!(matches!(error.cause, OpError::BadReply(_)), "{version:?}: {error}");
        }
    }
}

/// A reply that cannot be decoded is an error, or in 4.1 the end of the session, after which the client tries again.
#[test]
fn garbage_and_every_cut_of_a_reply_are_errors() {
    for version in VERSIONS {
        for cut in 0..120 {
            let (link, client) = connected(version);
            link.answer(move |call| {
                if !has(call, OpNum::READLINK) {
                    return Answer::Serve;
                }
                let all = before(call).into_iter().chain([put()]);
                let Answer::Reply(reply) = results(call, Status::OK, all.collect()) else { unreachable!() };
                Answer::Reply(match cut {
                    0 => [&reply[..], &[0; 4]].concat().into(),
                    1 => [&reply[..RPC_HEADER], &[0xff; 400]].concat().into(),
                    // The connection ends at a reply without a whole RPC header: a hard mount tries again.
                    _ => reply.slice(..reply.len().saturating_sub(cut - 1).max(RPC_HEADER)),
                })
            });
            let (caller, kept) = (root(), client.clone());
            let read = Box::pin(client.read_link(&caller, handle()));
            let Either::Left((outcome, _)) = link.run(select(read, Box::pin(kept.run()))) else {
                panic!("the client runs until it is closed")
            };
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, OpError::Call(CallError::Rpc(_)) | OpError::BadReply(_)),
                "{version:?} {cut}: {error:?}"
            );
        }
    }
}

/// Each such reply loses the session. The client stops if a server loses every session.
#[test]
fn replies_for_another_session_slot_or_request_end_with_an_error() {
    type Lie = fn(&mut SequenceOk);
    let lies: [Lie; 3] = [
        |ok| ok.session_id = [9; 16],
        |ok| ok.slot_id += 1,
        |ok| ok.sequence_id = ok.sequence_id.wrapping_add(1),
    ];
    for lie in lies {
        let link = Link::new();
        let client = link.connect(config_41()).unwrap();
        link.answer(move |call| match has(call, OpNum::READ) {
            true => results(call, Status::OK, vec![sequence(call, lie)]),
            false => Answer::Serve,
        });
        let caller = root();
        let (state, kept) = (OpenState::default(), client.clone());
        let read = Box::pin(client.read(&caller, handle(), &state, 0, 10));
        let Either::Left((outcome, _)) = link.run(select(read, Box::pin(kept.run()))) else {
            panic!("the client runs until it is closed")
        };
        is_bad(outcome);
    }
}

#[test]
fn a_server_that_delays_for_ever_fails_a_soft_mount() {
    for version in [Version::V3, Version::V40, Version::V41] {
        let link = Link::new();
        let retry = RetryPolicy { retries: Some(2), ..RetryPolicy::default() };
        let client = link.connect(Config { version: Some(version), retry, ..config_41() }).unwrap();
        let (caller, set) = (root(), SetAttributes::default());
        let top = link.run(client.mount(&caller, &[b"export"])).unwrap().handle;
        link.answer(move |call| {
            if call.is(nfs3::PROGRAM, nfs3::Proc::LOOKUP.0) && call.header.version == nfs3::VERSION {
                let delayed = Outcome3::<LookupOk, PostOpAttr>::Fail(nfs3::NfsStat::JUKEBOX, None);
                return call.reply(&delayed);
            }
            let lie = match () {
                () if has(call, OpNum::LOOKUP) => OpResult::Lookup(Err(Status::DELAY).into()),
                () if has(call, OpNum::OPEN) => OpResult::Open(Err(Status::DELAY).into()),
                () => return Answer::Serve,
            };
            results(call, Status::DELAY, before(call).into_iter().chain([put(), lie]).collect())
        });
        let began = link.now();
        let kept = client.clone();
        let calls = Box::pin(async {
            let looked_up = client.lookup(&caller, top, b"name").await.map(|_| ());
            let opened =
                client.open(&caller, top, b"name", OpenMode::READ, Creation::No, &set).await.map(|_| ());
            [looked_up, opened]
        });
        let Either::Left((outcomes, _)) = link.run(select(calls, Box::pin(kept.run()))) else {
            panic!("the client runs until it is closed")
        };
        let limit = retry.timeout * 3;
        assert_eq!(outcomes, [Err(OpError::Status(Status::DELAY)), Err(OpError::Status(Status::DELAY))]);
        let took = link.now() - began;
        assert!(took >= 2 * limit && took < 3 * limit, "{version:?}: {took:?} of virtual time");
    }
}

/// RFC 8881 §15.1.1.3: SEQUENCE is repeated in its slot, which then still works.
#[test]
fn a_server_that_delays_sequence_for_ever_fails_a_soft_mount() {
    let link = Link::new();
    let retry = RetryPolicy { retries: Some(2), ..RetryPolicy::default() };
    let client = link.connect(Config { retry, ..config_41() }).unwrap();
    let caller = root();
    let top = link.run(client.mount(&caller, &[b"export"])).unwrap().handle;
    link.answer(|call| match has(call, OpNum::SEQUENCE) {
        true => results(call, Status::DELAY, vec![OpResult::Sequence(Err(Status::DELAY).into())]),
        false => Answer::Serve,
    });
    let began = link.now();
    let outcome = link.run(client.lookup(&caller, top, b"name"));
    assert_eq!(outcome, Err(OpError::Status(Status::DELAY)));
    let (took, limit) = (link.now() - began, retry.timeout * 3);
    assert!(took >= limit && took < 2 * limit, "{took:?} of virtual time");
    link.answer(|_| Answer::Serve);
    assert_eq!(link.run(client.lookup(&caller, top, b"name")), Err(OpError::Status(Status::NOENT)));
    assert_eq!(link.run(client.close()), Ok(()));
}

#[test]
fn a_soft_mount_gives_up_if_all_replies_are_wrong() {
    for version in VERSIONS {
        let link = Link::new();
        let retry = RetryPolicy { retries: Some(2), ..RetryPolicy::default() };
        let client = link.connect(Config { version: Some(version), retry, ..config_41() }).unwrap();
        let caller = root();
        let top = link.run(client.mount(&caller, &[b"export"])).unwrap().handle;
        link.answer(|call| {
            let Answer::Reply(reply) = results(call, Status::OK, vec![]) else { unreachable!() };
            Answer::Reply(reply.slice(..RPC_HEADER))
        });
        let kept = client.clone();
        let lookup = Box::pin(client.lookup(&caller, top, b"name"));
        let Either::Left((outcome, _)) = link.run(select(lookup, Box::pin(kept.run()))) else {
            panic!("the client runs until it is closed")
        };
        let error = outcome.unwrap_err();
        let is_wrong_reply = matches!(error, OpError::Call(CallError::Rpc(_)) | OpError::BadReply(_));
        assert!(is_wrong_reply, "{version:?}: {error:?}");
        // The next session is good.
        link.answer(|_| Answer::Serve);
        let lookup = Box::pin(client.lookup(&caller, top, b"name"));
        let Either::Left((outcome, _)) = link.run(select(lookup, Box::pin(kept.run()))) else {
            panic!("the client runs until it is closed")
        };
        assert_eq!(outcome, Err(OpError::Status(Status::NOENT)), "{version:?}");
    }
}

/// Returns a CB_COMPOUND with CB_SEQUENCE of this session, and a recall.
fn recall(xid: u32, session_id: [u8; 16]) -> Bytes {
    let sequence = CbSequenceArgs {
        session_id,
        sequence_id: 1,
        slot_id: 0,
        highest_slot_id: 0,
        cache_this: true,
        referring_calls: List::default(),
    };
    let recall = CbRecallArgs { stateid: Stateid::default(), truncate: false, handle: handle() };
    let ops = List::new(vec![CbOp::Sequence(sequence), CbOp::Recall(recall)]).unwrap();
    let arguments = CbCompoundArgs { tag: Opaque::default(), minor_version: 1, callback_ident: 0, ops };
    let header = CallHeader::new(xid, CALLBACK_PROGRAM, callback::VERSION, callback::PROC_COMPOUND);
    let mut writer = Writer::new();
    encode_call(&mut writer, &header, &arguments);
    writer.into_bytes()
}

/// The number that this client gives to CREATE_SESSION for callbacks.
const CALLBACK_PROGRAM: u32 = 0x4000_0000;

#[test]
fn callbacks_for_unknown_sessions_are_refused_and_change_nothing() {
    let link = Link::new();
    let client = link.run(Client::connect(Arc::clone(&link.engine), config_41())).unwrap();
    let (caller, kept) = (root(), client.clone());
    let top = link.run(client.mount(&caller, &[b"export"])).unwrap().handle;
    let connection = link.connection_ids()[0];
    let mut keeper = Box::pin(kept.run());
    let mut context = Context::from_waker(noop_waker_ref());
    for number in 0..2000u16 {
        let mut session = [0xee; 16];
        session[..2].copy_from_slice(&number.to_be_bytes());
        assert!(link.engine.handle_record(connection, recall(number.into(), session)));
        assert!(keeper.as_mut().poll(&mut context).is_pending());
        let Poll::Ready(Some(reply)) = link.engine.poll_record(connection, &mut context) else {
            panic!("each callback has a reply")
        };
        let reply = parse_reply::<CbCompoundResult>(Bytes::from(reply.concat())).unwrap();
        assert_eq!(reply.status, Status::BADSESSION);
        assert_eq!(reply.results.len(), 1, "the recall was not executed");
    }
    assert!(link.engine.poll_record(connection, &mut context).is_pending());
    // A server that sends more than the client answers loses its connection.
    let flood = (0..).take_while(|xid| link.engine.handle_record(connection, recall(*xid, [0xee; 16])));
    assert_eq!(flood.count(), CALLBACKS_MAX);
    assert!(keeper.as_mut().poll(&mut context).is_pending());
    while let Poll::Ready(Some(_)) = link.engine.poll_record(connection, &mut context) {}
    assert_eq!(link.run(client.lookup(&caller, top, b"name")), Err(OpError::Status(Status::NOENT)));
}

/// A file whose handle suddenly names another file is another file: nothing of the first one is used for it.
#[test]
fn one_handle_for_two_names_uses_no_data_of_the_other_file() {
    for version in VERSIONS {
        let (link, client) = connected(version);
        let (fs, _) = link.run(FileSystem::mount(client, root(), b"/export")).unwrap();
        let file = link.run(fs.open(b"one", &OpenOptions::CREATE)).unwrap();
        link.run(file.write_at(0, Bytes::from_static(b"content of one"))).unwrap();
        let one = file.object();
        link.run(file.close()).unwrap();
        let read = || {
            link.run(async {
                let file = fs.open(b"one", &OpenOptions::READ).await?;
                let content = file.read_at(0, 100).await.map(|parts| parts.concat());
                file.close().await?;
                content
            })
        };
        assert_eq!(read().unwrap(), b"content of one");
        let lies = [
            (&b"two"[..], FileType::REGULAR, 14),
            (b"three", FileType::DIRECTORY, 14),
            (b"four", FileType::REGULAR, u64::MAX),
        ];
        for (name, kind, size) in lies {
            let wire = WireAttributes {
                file_type: Some(kind),
                fileid: Some(one.attributes.fileid + 1),
                size: Some(size),
                change: one.attributes.change,
                ..WireAttributes::default()
            };
            let wire = wire.to_file_attributes();
            link.answer(move |call| {
                if !has(call, OpNum::LOOKUP) {
                    return Answer::Serve;
                }
                let found = [
                    put(),
                    OpResult::Lookup(Ok(()).into()),
                    OpResult::GetFh(Ok(one.handle).into()),
                    OpResult::GetAttr(Ok(wire.clone()).into()),
                ];
                results(call, Status::OK, before(call).into_iter().chain(found).collect())
            });
            let two = link.run(fs.stat(name)).unwrap();
            assert_eq!((two.fileid, two.size), (one.attributes.fileid + 1, size));
            // The server tells the truth again.
            let reads = Rc::new(Cell::new(0));
            let count = Rc::clone(&reads);
            link.answer(move |call| {
                count.set(count.get() + usize::from(has(call, OpNum::READ)));
                Answer::Serve
            });
            assert_eq!(read().unwrap(), b"content of one", "{version:?}");
            assert_eq!(reads.get(), 1, "{version:?}: the data are read again");
            assert_eq!(link.run(fs.stat(b"one")).unwrap().fileid, one.attributes.fileid, "{version:?}");
        }
    }
}
