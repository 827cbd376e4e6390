//! DELAY at the start and in the middle of compounds, and compounds that are too large for the server.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use client::config::{Config, Version};
use client::results::FileHandle;
use client::{Client, attributes::SetAttributes};
use protocol::nfs4::compound::{CompoundArgs, CompoundResult, Op, OpResult};
use protocol::nfs4::types::{HasStatus, OpNum, Status};
use protocol::nfs4::{PROC_COMPOUND, PROGRAM};
use rpc::message::parse_reply;

use crate::link::{Answer, Call, Link, root};
use crate::lost_replies::{config_41, has, results};

const VERSIONS: [Version; 2] = [Version::V40, Version::V41];

fn connected(version: Version) -> (Rc<Link>, Client, FileHandle) {
    let link = Link::new();
    let client = link.connect(Config { version: Some(version), ..config_41() }).unwrap();
    let top = link.run(client.mount(&root(), &[b"export"])).unwrap().handle;
    (link, client, top)
}

/// Executes a compound, and returns its results up to the last GETATTR, to which the server answers DELAY.
fn delay_getattr(link: &Link, call: &Call) -> Answer {
    let reply = link.executed(call.record.clone()).unwrap();
    let mut list = parse_reply::<CompoundResult>(reply).unwrap().results.into_vec();
    assert!(matches!(list.pop(), Some(OpResult::GetAttr(_))), "GETATTR is the last one");
    list.push(OpResult::GetAttr(Err(Status::DELAY).into()));
    results(call, Status::DELAY, list)
}

/// RFC 8881 §15.1.1.3: the "spurious reissues of non-idempotent operations" must be avoided.
#[test]
fn a_delay_after_a_change_does_not_repeat_the_change() {
    for version in VERSIONS {
        let (link, client, top) = connected(version);
        let (changes, delays) = (Rc::new(Cell::new(0)), Cell::new(0));
        let counted = Rc::clone(&changes);
        let of_link = Rc::downgrade(&link);
        link.answer(move |call| {
            if !call.is(PROGRAM, PROC_COMPOUND) {
                return Answer::Serve;
            }
            counted.set(counted.get() + usize::from(has(call, OpNum::SETATTR)));
            let asks = has(call, OpNum::GETATTR) && !has(call, OpNum::RENEW);
            match asks && delays.replace(delays.get() + 1) < 4 {
                true => delay_getattr(&of_link.upgrade().unwrap(), call),
                false => Answer::Serve,
            }
        });
        let set = SetAttributes { mode: Some(0o711), ..SetAttributes::default() };
        let started = link.now();
        let outcome = link.run(client.set_attributes(&root(), top, &Default::default(), &set)).unwrap();
        assert_eq!((outcome.mode, changes.get()), (0o711, 1), "{version:?}");
        let paused = link.now() - started;
        assert_eq!(paused, Duration::from_millis(1 + 2 + 4 + 8), "{version:?}");
    }
}

#[test]
fn pauses_double_from_a_millisecond_to_five_seconds() {
    for version in VERSIONS {
        let (link, client, top) = connected(version);
        let times = Rc::new(RefCell::new(Vec::new()));
        let (seen, of_link) = (Rc::clone(&times), Rc::downgrade(&link));
        link.answer(move |call| {
            if !has(call, OpNum::GETATTR) {
                return Answer::Serve;
            }
            let link = of_link.upgrade().unwrap();
            seen.borrow_mut().push(link.now());
            if seen.borrow().len() <= 15 { delay_getattr(&link, call) } else { Answer::Serve }
        });
        link.run(client.get_attributes(&root(), top)).unwrap();
        let times = times.borrow();
        let pauses: Vec<u128> = times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
        let expected: Vec<u128> = (0..15).map(|number| (1 << number).min(5000)).collect();
        assert_eq!(pauses, expected, "{version:?}");
    }
}

/// RFC 8881 §15.1.1.3: after DELAY on SEQUENCE "the request is retried in full with the SEQUENCE operation containing the same slot and
/// sequence values".
#[test]
fn a_delayed_sequence_keeps_its_slot_and_sequence_id() {
    let (link, client, top) = connected(Version::V41);
    let sent = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&sent);
    link.answer(move |call| {
        let compound = call.arguments::<CompoundArgs>();
        let Some(Op::Sequence(args)) = compound.ops.first() else { return Answer::Serve };
        seen.borrow_mut().push((args.slot_id, args.sequence_id));
        match seen.borrow().len() {
            1..=3 => {
                let delayed = OpResult::Sequence(Err(Status::DELAY).into());
                results(call, Status::DELAY, vec![delayed])
            }
            _ => Answer::Serve,
        }
    });
    link.run(client.get_attributes(&root(), top)).unwrap();
    let sent = sent.borrow();
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|one| *one == sent[0]), "{sent:?}");
}

/// A server that can do less than it said: the compounds of many files become smaller until it executes them.
#[test]
fn compounds_shrink_until_the_server_executes_them() {
    const FILES: usize = 100;
    const OPERATIONS_MAX: usize = 20;
    for version in VERSIONS {
        for status in [Status::RESOURCE, Status::TOO_MANY_OPS, Status::REP_TOO_BIG] {
            let (link, client, top) = connected(version);
            let (refused, largest) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let (count, executed) = (Rc::clone(&refused), Rc::clone(&largest));
            let of_link = Rc::downgrade(&link);
            link.answer(move |call| {
                if !has(call, OpNum::LOOKUP) {
                    return Answer::Serve;
                }
                let operations = call.arguments::<CompoundArgs>().ops.len();
                if operations <= OPERATIONS_MAX {
                    executed.set(operations.max(executed.get()));
                    return Answer::Serve;
                }
                count.set(count.get() + 1);
                // The first operations are executed, and then one is too many.
                let reply = of_link.upgrade().unwrap().executed(call.record.clone()).unwrap();
                let mut list = parse_reply::<CompoundResult>(reply).unwrap().results.into_vec();
                list.truncate(OPERATIONS_MAX);
                while !matches!(list.last(), Some(OpResult::PutFh(_))) {
                    list.pop();
                }
                list.pop();
                list.push(OpResult::PutFh(Err(status).into()));
                assert!(list.iter().rev().skip(1).all(|result| result.status() == Status::OK));
                results(call, status, list)
            });
            let names: Vec<Vec<u8>> = (0..FILES).map(|number| format!("{number}").into_bytes()).collect();
            let caller = root();
            for name in &names {
                link.run(client.create_directories(
                    &caller,
                    &[client::many::NewDirectory { parent: top, name, mode: 0o755 }],
                ))
                .remove(0)
                .unwrap();
            }
            let all: Vec<(FileHandle, &[u8])> = names.iter().map(|name| (top, &name[..])).collect();
            let outcomes = link.run(client.stat_many(&caller, &all));
            assert!(outcomes.iter().all(Result::is_ok), "{version:?}, {status:?}");
            assert!(refused.get() > 0, "{version:?}, {status:?}: one was too large");
            assert!((5..=OPERATIONS_MAX).contains(&largest.get()), "{} operations", largest.get());
        }
    }
}
