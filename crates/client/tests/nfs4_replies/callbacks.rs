//! Callbacks that give advice, and those of parts of the protocol that this client does not use.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use client::Client;
use client::results::OpenState;
use futures_util::future::join_all;
use futures_util::task::noop_waker_ref;
use protocol::nfs4::callback::notify::CbNotifyDeviceIdArgs;
use protocol::nfs4::callback::recall::{CbRecallSlotArgs, CbRecallableObjAvailArgs, CbWantsCancelledArgs};
use protocol::nfs4::callback::sequence::CbSequenceArgs;
use protocol::nfs4::callback::{self, CbCompoundArgs, CbCompoundResult, CbOp};
use protocol::nfs4::compound::{CompoundArgs, Op};
use protocol::nfs4::types::{Bitmap, HasStatus, OpNum, SessionId, Status};
use rpc::message::{CallHeader, encode_call, parse_reply};
use xdr::{List, Opaque, Writer};

use crate::link::{Answer, Link, root};
use crate::lost_replies::{config_41, has};

/// Sends a callback in a slot of the session that is used once; returns the result's statuses.
fn call_back(link: &Link, client: &Client, session_id: SessionId, slot_id: u32, op: CbOp) -> Vec<Status> {
    let sequence = CbSequenceArgs {
        session_id,
        sequence_id: 1,
        slot_id,
        highest_slot_id: slot_id,
        cache_this: true,
        referring_calls: List::default(),
    };
    let ops = List::new(vec![CbOp::Sequence(sequence), op]).unwrap();
    let arguments = CbCompoundArgs { tag: Opaque::default(), minor_version: 1, callback_ident: 0, ops };
    let header = CallHeader::new(9000 + slot_id, 0x4000_0000, callback::VERSION, callback::PROC_COMPOUND);
    let mut writer = Writer::new();
    encode_call(&mut writer, &header, &arguments);
    let connection = link.connection_ids()[0];
    assert!(link.engine.handle_record(connection, writer.into_bytes()));
    let mut context = Context::from_waker(noop_waker_ref());
    let mut running = Box::pin(client.run());
    assert!(running.as_mut().poll(&mut context).is_pending());
    let Poll::Ready(Some(reply)) = link.engine.poll_record(connection, &mut context) else {
        panic!("the callback has a reply")
    };
    let reply = parse_reply::<CbCompoundResult>(Bytes::from(reply.concat())).unwrap();
    reply.results.iter().map(HasStatus::status).collect()
}

/// Connects a client; returns its session's ID too.
fn connected() -> (Rc<Link>, Client, SessionId) {
    let link = Link::new();
    let id = Rc::new(Cell::new(SessionId::default()));
    let seen = Rc::clone(&id);
    link.answer(move |call| {
        if has(call, OpNum::SEQUENCE)
            && let Some(Op::Sequence(args)) = call.arguments::<CompoundArgs>().ops.first()
        {
            seen.set(args.session_id);
        }
        Answer::Serve
    });
    let client = link.run(Client::connect(Arc::clone(&link.engine), config_41())).unwrap();
    link.run(client.mount(&root(), &[b"export"])).unwrap();
    let id = id.get();
    (link, client, id)
}

/// RFC 8881 §20.8.3: the client "MUST then progress toward reducing the session's highest slot ID to the target value". The server's next
/// reply may allow more again.
#[test]
fn a_client_uses_no_more_slots_than_the_server_asks_for() {
    for target in [0, 4] {
        let (link, client, session) = connected();
        let recall = CbOp::RecallSlot(CbRecallSlotArgs { target_highest_slot_id: target });
        assert_eq!(call_back(&link, &client, session, 0, recall), [Status::OK; 2]);
        let caller = root();
        let top = link.run(client.mount(&caller, &[b"export"])).unwrap().handle;
        let recall = CbOp::RecallSlot(CbRecallSlotArgs { target_highest_slot_id: target });
        assert_eq!(call_back(&link, &client, session, 1, recall), [Status::OK; 2]);
        link.longest_queue.set(0);
        // A directory has no data. What matters is how many requests leave before the first reply.
        let state = OpenState::default();
        let reads = (0..10).map(|_| client.read(&caller, top, &state, 0, 1));
        let mut all = Box::pin(join_all(reads));
        let mut context = Context::from_waker(noop_waker_ref());
        assert!(all.as_mut().poll(&mut context).is_pending());
        let mut sent = 0;
        while let Poll::Ready(Some(_)) = link.engine.poll_record(link.connection_ids()[0], &mut context) {
            sent += 1;
        }
        assert_eq!(sent, target + 1);
    }
}

#[test]
fn callbacks_about_layouts_and_wants_are_answered_as_by_a_client_without_them() {
    let (link, client, session) = connected();
    let devices = CbNotifyDeviceIdArgs { changes: List::default() };
    let cases = [
        (
            CbOp::RecallableObjAvail(CbRecallableObjAvailArgs {
                objects_to_keep: 0,
                type_mask: Bitmap::default(),
            }),
            Status::NOTSUPP,
        ),
        (CbOp::WantsCancelled(CbWantsCancelledArgs { contended: true, resourced: true }), Status::NOTSUPP),
        (CbOp::NotifyDeviceId(devices), Status::NOTSUPP),
        (CbOp::Illegal, Status::OP_ILLEGAL),
    ];
    for (slot, (op, expected)) in (0..).zip(cases) {
        let name = format!("{op:?}");
        assert_eq!(call_back(&link, &client, session, slot, op), [Status::OK, expected], "{name}");
    }
    link.run(client.mount(&root(), &[b"export"])).unwrap();
}
