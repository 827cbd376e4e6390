//! Servers of version 4.0 that expect another seqid than the client (RFC 7530 §9.1.7), or forget an owner before it is confirmed.

use std::cell::Cell;
use std::rc::Rc;

use client::attributes::SetAttributes;
use client::config::{Config, Version};
use client::error::OpError;
use client::locks::{LockKind, LockOwner, LockRange};
use client::results::{Creation, OpenMode};
use protocol::nfs4::compound::OpResult;
use protocol::nfs4::ops::lock::LockOutcome;
use protocol::nfs4::types::{OpNum, Status};

use crate::link::{Answer, Link, config, root};
use crate::lost_replies::{has, results};

/// Locks two ranges of a file of which the requests `refused` (the first is 0) get BAD_SEQID. Returns the outcome of the second
/// LOCK, and the numbers of sent LOCKs and OPENs.
fn lock_twice(refused: std::ops::Range<u32>) -> (Result<(), OpError>, u32, u32) {
    let link = Link::new();
    let client = link.connect(Config { version: Some(Version::V40), ..config() }).unwrap();
    let caller = root();
    let top = link.run(client.mount(&caller, &[b"export"])).unwrap().handle;
    let (locks, opens) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let counters = (Rc::clone(&locks), Rc::clone(&opens));
    link.answer(move |call| {
        let (locks, opens) = &counters;
        opens.set(opens.get() + u32::from(has(call, OpNum::OPEN)));
        if !has(call, OpNum::LOCK) || !refused.contains(&locks.replace(locks.get() + 1)) {
            return Answer::Serve;
        }
        let put = OpResult::PutFh(Ok(()).into());
        results(call, Status::BAD_SEQID, vec![put, OpResult::Lock(LockOutcome::Error(Status::BAD_SEQID))])
    });
    let set = SetAttributes::with_mode(0o644);
    let open = client.open(&caller, top, b"file", OpenMode::BOTH, Creation::IfMissing, &set);
    let opened = link.run(open).unwrap();
    let (handle, state) = (opened.object.handle, opened.state);
    let lock = |offset| {
        let range = LockRange::new(offset, 10).unwrap();
        client.lock(&caller, handle, &state, LockOwner::Process(1), range, LockKind::Exclusive, false)
    };
    link.run(lock(0)).unwrap();
    let second = link.run(lock(20)).map(|_| ());
    (second, locks.get(), opens.get())
}

#[test]
fn a_lock_owner_without_locks_is_replaced_and_then_the_open_owner() {
    assert_eq!(lock_twice(0..0), (Ok(()), 2, 1));
    assert_eq!(lock_twice(0..1), (Ok(()), 3, 1), "another lock-owner");
    assert_eq!(lock_twice(0..2), (Ok(()), 4, 2), "another open-owner too");
}

#[test]
fn requests_to_a_server_that_refuses_every_seqid_end() {
    assert_eq!(lock_twice(1..100), (Err(OpError::Status(Status::BAD_SEQID)), 4, 2));
}

/// The lease has ended between OPEN and OPEN_CONFIRM. An exclusive creation is not repeated as one: its file exists.
#[test]
fn an_open_that_is_forgotten_before_its_confirmation_is_repeated() {
    for creation in [Creation::IfMissing, Creation::Exclusive([7; 8]), Creation::Guarded] {
        for forgotten in [1, 2, 3] {
            let link = Link::new();
            let client = link.connect(Config { version: Some(Version::V40), ..config() }).unwrap();
            let caller = root();
            let top = link.run(client.mount(&caller, &[b"export"])).unwrap().handle;
            let left = Cell::new(forgotten);
            link.answer(move |call| {
                if !has(call, OpNum::OPEN_CONFIRM) || left.get() == 0 {
                    return Answer::Serve;
                }
                left.set(left.get() - 1);
                let put = OpResult::PutFh(Ok(()).into());
                let refused = OpResult::OpenConfirm(Err(Status::BAD_STATEID).into());
                results(call, Status::BAD_STATEID, vec![put, refused])
            });
            let set = SetAttributes::with_mode(0o644);
            let opened = link.run(client.open(&caller, top, b"file", OpenMode::BOTH, creation, &set));
            match forgotten {
                3 => assert_eq!(opened.map(|_| ()), Err(OpError::Status(Status::BAD_STATEID))),
                _ => assert_eq!(opened.unwrap().object.attributes.mode, 0o644, "{creation:?}"),
            }
        }
    }
}
