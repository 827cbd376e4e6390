//! Replies that are lost with their connection or their server.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::attributes::SetAttributes;
use client::config::{Config, Version};
use client::engine::CallError;
use client::error::OpError;
use client::results::{Creation, OpenMode, Stability};
use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::types::{OpNum, Status, Utf8};
use protocol::nfs4::{PROC_COMPOUND, PROGRAM};
use xdr::List;

use crate::link::{Answer, Call, Link, config, root};

pub(crate) fn config_41() -> Config {
    Config { version: Some(Version::V41), ..config() }
}

/// Returns whether a call is a compound with this operation.
pub(crate) fn has(call: &Call, wanted: OpNum) -> bool {
    call.is(PROGRAM, PROC_COMPOUND)
        && call.arguments::<CompoundArgs>().ops.iter().any(|op: &Op| op.opnum() == wanted)
}

/// Returns a reply with these results.
pub(crate) fn results(call: &Call, status: Status, results: Vec<OpResult>) -> Answer {
    let results = List::new(results).unwrap();
    call.reply(&CompoundResult { status, tag: Utf8::default(), results })
}

/// A server keeps no replies to requests that change nothing: it answers a repetition with RETRY_UNCACHED_REP.
#[test]
fn a_read_whose_reply_was_lost_is_executed_again() {
    let link = Link::new();
    let client = link.connect(config_41()).unwrap();
    let caller = root();
    let top = link.run(client.mount(&caller, &[b"export"])).unwrap().handle;
    let set = SetAttributes::with_mode(0o644);
    let open = client.open(&caller, top, b"file", OpenMode::BOTH, Creation::IfMissing, &set);
    let opened = link.run(open).unwrap();
    let (handle, state) = (opened.object.handle, opened.state);
    let data = Bytes::from_static(b"content");
    let write = client.write(&caller, handle, &state, 0, data.clone(), Stability::FileSync);
    assert_eq!(link.run(write).unwrap().count, 7);
    let is_lost = Cell::new(false);
    link.answer(move |call| match has(call, OpNum::READ) && !is_lost.replace(true) {
        true => Answer::ServeAndBreak,
        false => Answer::Serve,
    });
    assert_eq!(link.run(client.read(&caller, handle, &state, 0, 100)).unwrap().data, data);
}

#[test]
fn a_client_whose_first_session_is_lost_makes_another() {
    let link = Link::new();
    let is_lost = Cell::new(false);
    link.answer(move |call| match has(call, OpNum::RECLAIM_COMPLETE) && !is_lost.replace(true) {
        true => {
            let lost = OpResult::Sequence(Err(Status::BADSESSION).into());
            results(call, Status::BADSESSION, vec![lost])
        }
        false => Answer::Serve,
    });
    let client = link.connect(config_41()).unwrap();
    assert!(link.run(client.mount(&root(), &[b"export"])).is_ok());
}

#[test]
fn leaving_a_server_that_has_forgotten_the_client_is_not_an_error() {
    for status in [Status::BADSESSION, Status::DEADSESSION] {
        let link = Link::new();
        let client = link.connect(config_41()).unwrap();
        link.answer(move |call| match () {
            () if has(call, OpNum::DESTROY_SESSION) => {
                results(call, status, vec![OpResult::DestroySession(Err(status).into())])
            }
            () if has(call, OpNum::DESTROY_CLIENTID) => {
                let unknown = Status::STALE_CLIENTID;
                results(call, unknown, vec![OpResult::DestroyClientId(Err(unknown).into())])
            }
            () => Answer::Serve,
        });
        assert_eq!(link.run(client.close()), Ok(()));
    }
}

/// The server still has state of the client, or makes no new session after it has forgotten the client.
#[test]
fn leaving_ends_with_an_error_although_the_server_does_not_let_the_client_go() {
    for refused in [OpNum::DESTROY_CLIENTID, OpNum::EXCHANGE_ID] {
        let link = Link::new();
        let client = link.connect(config_41()).unwrap();
        let destroyed = Rc::new(Cell::new(0));
        let count = Rc::clone(&destroyed);
        link.answer(move |call| match () {
            () if has(call, OpNum::DESTROY_CLIENTID) => {
                count.set(count.get() + 1);
                let status = match refused {
                    OpNum::DESTROY_CLIENTID => Status::CLIENTID_BUSY,
                    _ => Status::STALE_CLIENTID,
                };
                results(call, status, vec![OpResult::DestroyClientId(Err(status).into())])
            }
            () if has(call, refused) => {
                let status = Status::SERVERFAULT;
                results(call, status, vec![OpResult::ExchangeId(Err(status).into())])
            }
            () => Answer::Serve,
        });
        let (before, left) = (link.now(), link.run(client.close()));
        match refused {
            OpNum::DESTROY_CLIENTID => assert_eq!(left, Err(OpError::Status(Status::CLIENTID_BUSY))),
            _ => assert_eq!(left, Err(OpError::Call(CallError::TimedOut))),
        }
        assert!(destroyed.get() <= 2 && link.now() - before < Duration::from_secs(60), "{refused:?}");
    }
}

/// The reply to DESTROY_CLIENTID is lost, so that the client registers again; then the network loses a request for longer than the server
/// may refuse a session.
#[test]
fn a_silent_server_is_waited_for_when_leaving() {
    let link = Link::new();
    let client = link.connect(config_41()).unwrap();
    let (is_destroyed, is_silent) = (Cell::new(false), Rc::new(Cell::new(false)));
    let silent = Rc::clone(&is_silent);
    link.answer(move |call| match () {
        () if has(call, OpNum::DESTROY_CLIENTID) && !is_destroyed.replace(true) => Answer::ServeAndBreak,
        () if has(call, OpNum::RECLAIM_COMPLETE) && !silent.replace(true) => Answer::Silence,
        () => Answer::Serve,
    });
    let before = link.now();
    assert_eq!(link.run(client.close()), Ok(()));
    assert!(is_silent.get() && link.now() - before > Duration::from_secs(20));
}

/// DESTROY_SESSION and DESTROY_CLIENTID are sent together, and a server may execute the second one first (RFC 8881 §18.50.3).
#[test]
fn a_client_that_still_has_its_session_is_destroyed_after_it() {
    let link = Link::new();
    let client = link.connect(config_41()).unwrap();
    let (sent, was_busy) = (Rc::new(RefCell::new(Vec::new())), Cell::new(false));
    let order = Rc::clone(&sent);
    link.answer(move |call| match () {
        () if has(call, OpNum::DESTROY_SESSION) => {
            order.borrow_mut().push(OpNum::DESTROY_SESSION);
            Answer::Serve
        }
        () if has(call, OpNum::DESTROY_CLIENTID) => {
            order.borrow_mut().push(OpNum::DESTROY_CLIENTID);
            let busy = Status::CLIENTID_BUSY;
            match was_busy.replace(true) {
                false => results(call, busy, vec![OpResult::DestroyClientId(Err(busy).into())]),
                true => Answer::Serve,
            }
        }
        () => Answer::Serve,
    });
    assert_eq!(link.run(client.close()), Ok(()));
    let twice = [OpNum::DESTROY_SESSION, OpNum::DESTROY_CLIENTID, OpNum::DESTROY_CLIENTID];
    assert_eq!(*sent.borrow(), twice);
}
