//! Servers of version 4.1 with wrong replies. The caller gets an error that reports this, and nothing panics.

use std::rc::Rc;

use bytes::Bytes;
use client::Client;
use client::error::{Fault, OpError};
use client::results::{FileHandle, OpenState, Stability};
use futures_util::future::{Either, select};
use protocol::nfs4::attributes::FileAttributes;
use protocol::nfs4::compound::{CompoundArgs, Op, OpResult};
use protocol::nfs4::ops::read::ReadOk;
use protocol::nfs4::ops::readdir::{DirEntry, ReadDirOk};
use protocol::nfs4::ops::session::{SequenceArgs, SequenceOk, SequenceStatus};
use protocol::nfs4::ops::write::WriteOk;
use protocol::nfs4::types::{Component, OpNum, StableHow, Status};
use xdr::{Chain, Opaque};

use crate::link::{Call, Link, root};
use crate::lost_replies::{config_41, has, results};

fn handle() -> FileHandle {
    FileHandle::new(b"handle").unwrap()
}

/// Returns the result of a compound's SEQUENCE, after `change`.
fn sequence(call: &Call, change: impl Fn(&mut SequenceOk)) -> OpResult {
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

/// Returns a client whose compounds with `op` get these results after that of SEQUENCE.
fn lying(op: OpNum, lies: impl Fn() -> Vec<OpResult> + 'static) -> (Rc<Link>, Client) {
    let link = Link::new();
    let client = link.connect(config_41()).unwrap();
    link.answer(move |call| {
        assert!(has(call, op), "{:?}", call.header);
        let all = std::iter::once(sequence(call, |_| {})).chain(lies()).collect();
        results(call, Status::OK, all)
    });
    (link, client)
}

fn put() -> OpResult {
    OpResult::PutFh(Ok(()).into())
}

fn is_bad<T: std::fmt::Debug>(outcome: Result<T, OpError>) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, OpError::BadReply(_)), "{error:?}");
    assert_eq!(error.fault(), Fault::Server);
}

#[test]
fn reads_of_the_wrong_length_are_refused() {
    let read = |length: usize, eof: bool| {
        let lies = move || {
            let data = Opaque::new(vec![1; length]).unwrap();
            vec![put(), OpResult::Read(Ok(ReadOk { eof, data }).into())]
        };
        let (link, client) = lying(OpNum::READ, lies);
        link.run(client.read(&root(), handle(), &OpenState::default(), 0, 10))
    };
    assert_eq!(read(3, false).unwrap().data.len(), 3, "a short READ is allowed");
    is_bad(read(11, true));
    is_bad(read(0, false));
}

#[test]
fn writes_of_the_wrong_length_or_stability_are_refused() {
    let write = |count: u32, committed: StableHow| {
        let lies = move || {
            let ok = WriteOk { count, committed, verifier: [1; 8] };
            let change = OpResult::GetAttr(Ok(FileAttributes::default()).into());
            vec![put(), change, OpResult::Write(Ok(ok).into())]
        };
        let (link, client) = lying(OpNum::WRITE, lies);
        let data = Bytes::from_static(b"0123456789");
        link.run(client.write(&root(), handle(), &OpenState::default(), 0, data, Stability::DataSync))
    };
    assert_eq!(write(3, StableHow::FileSync).unwrap().count, 3, "a short WRITE is allowed");
    for (count, committed) in [(11, StableHow::FileSync), (0, StableHow::FileSync), (10, StableHow::Unstable)]
    {
        is_bad(write(count, committed));
    }
}

#[test]
fn results_that_are_missing_or_of_other_operations_are_refused() {
    let lookup = |lies: fn() -> Vec<OpResult>| {
        let (link, client) = lying(OpNum::LOOKUP, lies);
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

#[test]
fn names_that_leave_the_directory_are_refused() {
    for name in [&b"a/b"[..], b"/", b"../x", b"a\0b"] {
        let lies = move || {
            let entry = DirEntry {
                cookie: 9,
                name: Component::from_static(name),
                attributes: FileAttributes::default(),
            };
            let entries = Chain::new(vec![entry]).unwrap();
            let listed = ReadDirOk { cookie_verifier: [0; 8], entries, eof: true };
            let attributes = OpResult::GetAttr(Ok(FileAttributes::default()).into());
            vec![put(), attributes, OpResult::ReadDir(Ok(listed).into())]
        };
        let (link, client) = lying(OpNum::READDIR, lies);
        is_bad(link.run(client.read_directory(&root(), handle(), (0, [0; 8]), 4096, false)));
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
            false => crate::link::Answer::Serve,
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
