//! Callbacks of version 4.0 over connections that the server opens.

use core::net::SocketAddr;
use std::sync::Arc;

use protocol::nfs4::attributes::{Attributes, number as n};
use protocol::nfs4::callback::{CbCompoundResult, CbOp, CbOpResult};
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::open::{OpenDelegation, OpenHow, OpenOk, ShareAccess};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::setclientid::{RenewArgs, SetClientIdResult};
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{Handle, HasStatus, Outcome, StableHow, Stateid, Status};
use xdr::{List, Opaque};

use crate::testing::minor0::{V40Lab, compound0, v40_lab};
use crate::testing::{
    Call, Lab, PendingCall, at, attributes_in, drain, getattr, mode, name, open, open_args, putfh,
};
use crate::{Connect, Connection, ConnectionId, Transport, Work};

/// A callback connection that the transport made.
struct Called(Arc<Connection>);

impl Called {
    /// Makes the connection that the server requests.
    fn take(lab: &V40Lab, id: u64) -> Self {
        Self::make(lab, id, wanted(lab).expect("a connection is requested"))
    }

    /// Establishes the requested connection.
    fn make(lab: &V40Lab, id: u64, connect: Connect) -> Self {
        let local = SocketAddr::from(([127, 0, 0, 1], 2049));
        let made = Connection::new(ConnectionId(id), connect.address(), local, Transport::Tcp, false);
        lab.lab.server.handle_connected(connect, &made);
        Self(Arc::new(made))
    }

    fn calls(&self) -> Vec<Call> {
        drain(&self.0.outbox)
    }

    fn answer(&self, lab: &V40Lab, reply: bytes::Bytes) {
        use futures_util::FutureExt;
        let mut none = xdr::Writer::new();
        let _ = lab.lab.server.handle(&self.0, lab.lab.now(), reply, &mut none).now_or_never().unwrap();
    }
}

fn wanted(lab: &V40Lab) -> Option<Connect> {
    match lab.lab.work() {
        Some(Work::Connect(connect)) => Some(connect),
        None => None,
        other => panic!("{other:?}"),
    }
}

/// Sets the callback address, and confirms it.
fn call_me_at(lab: &mut V40Lab, address: &str) {
    let SetClientIdResult::Ok(ok) = lab.set_callback(b"client", 1, address) else { panic!() };
    assert_eq!(lab.confirm(&ok), Status::OK);
}

/// The callback address of a [`V40Lab`].
const HOME: &str = "127.0.0.1.0.9";

/// Returns a client with a probed path and a confirmed open-owner, and another client.
fn scene() -> (V40Lab, Called, Lab) {
    let mut lab = v40_lab();
    call_me_at(&mut lab, HOME);
    let called = Called::take(&lab, 900);
    let trial = called.calls().pop().expect("the path is tried");
    assert!(trial.compound.is_none() && trial.header.program == 0x4000_0000);
    called.answer(&lab, trial.reply(&()));
    lab.open("file", b"owner");
    let mut other = Lab::without_session(Arc::clone(&lab.lab.server), 50);
    other.connect(b"other");
    (lab, called, other)
}

/// Returns an OPEN for reading by a confirmed owner.
fn read_open(lab: &mut V40Lab) -> (Handle, OpenDelegation) {
    let mut args = open_args("file", b"owner", ShareAccess::READ, OpenHow::NoCreate);
    (args.seqid, args.owner) = (lab.next(b"owner"), lab.owner(b"owner"));
    let (file, ok) = lab.opened(Op::Open(args));
    (file, ok.delegation)
}

fn hold(lab: &mut V40Lab) -> (Handle, Stateid) {
    match read_open(lab) {
        (file, OpenDelegation::Read(read)) => (file, read.stateid),
        other => panic!("{other:?}"),
    }
}

/// Opens a file for writing too, with a delegation.
fn hold_to_write(lab: &mut V40Lab) -> (Handle, Stateid) {
    let op = lab.open_op("file", b"owner");
    match lab.opened(op) {
        (file, OpenOk { delegation: OpenDelegation::Write(write), .. }) => (file, write.stateid),
        other => panic!("{other:?}"),
    }
}

/// Returns the reply to CB_RECALL.
fn ok(call: &Call) -> bytes::Bytes {
    reply(call, CbOpResult::Recall(Outcome::Ok(())))
}

fn reply(call: &Call, result: CbOpResult) -> bytes::Bytes {
    let (status, results) = (result.status(), List::new(vec![result]).unwrap());
    call.reply(&CbCompoundResult { status, tag: Opaque::default(), results })
}

/// Starts another client's OPEN for writing, which must wait.
fn write_open(other: &mut Lab) -> PendingCall {
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", ShareAccess::BOTH)]));
    assert!(flight.poll().is_none(), "the delegation conflicts");
    flight
}

fn recalled(call: &Call) -> Stateid {
    let compound = call.compound.as_ref().unwrap();
    assert_eq!((compound.minor_version, compound.callback_ident), (0, 7));
    match &compound.ops[..] {
        [CbOp::Recall(recall)] => recall.stateid,
        other => panic!("{other:?}"),
    }
}

#[test]
fn closing_old_path_keeps_new_path() {
    let (mut lab, old, _) = scene();
    // Linux's client sends SETCLIENTID twice in a row.
    call_me_at(&mut lab, HOME);
    assert!(old.0.outbox.is_hung_up());
    let called = Called::take(&lab, 901);
    let trial = called.calls().pop().expect("the path is tried");
    called.answer(&lab, trial.reply(&()));
    lab.lab.server.connection_closed(old.0.id);
    assert!(!called.0.outbox.is_hung_up());
    hold(&mut lab);
}

#[test]
fn grants_and_recalls_v40_read_delegation() {
    let (mut lab, called, mut other) = scene();
    let (file, held) = hold(&mut lab);
    let read = Op::Read(ReadArgs { stateid: held, offset: 0, count: 1 });
    assert_eq!(lab.status(vec![putfh(file), read]), Status::OK);
    let mut flight = write_open(&mut other);
    let recall = called.calls().pop().expect("CB_RECALL");
    assert_eq!(recalled(&recall), held);
    called.answer(&lab, ok(&recall));
    let delegreturn = Op::DelegReturn(DelegReturnArgs { stateid: held });
    assert_eq!(lab.status(vec![putfh(file), delegreturn]), Status::OK);
    assert_eq!(flight.poll().map(|result| result.status), Some(Status::OK));
}

#[test]
fn grants_v40_write_delegation_and_asks_holder() {
    let (mut lab, called, mut other) = scene();
    let (file, held) = hold_to_write(&mut lab);
    let asked = [n::CHANGE, n::SIZE, n::TIME_MODIFY];
    let before = attributes_in(&lab.last(vec![putfh(file), getattr(&asked)]));
    assert!(called.calls().is_empty(), "the holder's own query is answered by the server");
    let mut flight = other.start(2, vec![putfh(file), getattr(&asked)]);
    assert!(flight.poll().is_none());
    let question = called.calls().pop().expect("CB_GETATTR");
    let ops = &question.compound.as_ref().unwrap().ops[..];
    assert!(matches!(ops, [CbOp::GetAttr(asked)] if asked.handle == file), "{ops:?}");
    let attributes =
        Attributes { change: before.change.map(|it| it + 1), size: Some(777), ..Attributes::default() };
    let answer = CbOpResult::GetAttr(Outcome::Ok(attributes.to_file_attributes()));
    called.answer(&lab, reply(&question, answer));
    let after = attributes_in(flight.poll().expect("an answer").results.last().unwrap());
    assert!(after.size == Some(777) && after.change > before.change, "{after:?}");
    // An OPEN waits until the holder has written its data.
    let mut flight = write_open(&mut other);
    let recall = called.calls().pop().expect("CB_RECALL");
    assert_eq!(recalled(&recall), held);
    called.answer(&lab, ok(&recall));
    let data = Opaque::from_static(b"hello");
    let write = Op::Write(WriteArgs { stateid: held, offset: 0, stable: StableHow::FileSync, data });
    assert_eq!(lab.status(vec![putfh(file), write]), Status::OK);
    assert!(flight.poll().is_none());
    let delegreturn = Op::DelegReturn(DelegReturnArgs { stateid: held });
    assert_eq!(lab.status(vec![putfh(file), delegreturn]), Status::OK);
    assert_eq!(flight.poll().map(|result| result.status), Some(Status::OK));
}

#[test]
fn only_holder_or_client_principal_returns_delegation() {
    for (uid, returned) in [(1000, Status::OK), (0, Status::OK), (1001, Status::BAD_STATEID)] {
        let (mut lab, _called, _other) = scene();
        let set = Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: mode(0o666) });
        lab.last(at(&["export", "file"], vec![set]));
        lab.lab.uid = 1000;
        let (file, stateid) = hold_to_write(&mut lab);
        lab.lab.uid = uid;
        let delegreturn = Op::DelegReturn(DelegReturnArgs { stateid });
        assert_eq!(lab.status(vec![putfh(file), delegreturn]), returned, "{uid}");
        assert_eq!(lab.lab.server.counts().delegations, u64::from(returned != Status::OK));
    }
}

#[test]
fn identifies_v40_holder_by_connection() {
    let (mut lab, called, _other) = scene();
    let (file, _) = hold_to_write(&mut lab);
    // None of these operations names the client.
    let set = Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: mode(0o600) });
    assert_eq!(lab.status(vec![putfh(file), set]), Status::OK);
    let remove = Op::Remove(RemoveArgs { target: name("file") });
    assert_eq!(lab.status(at(&["export"], vec![remove])), Status::OK);
    assert!(called.calls().is_empty());
}

#[test]
fn grants_no_write_delegation_on_shared_connection() {
    let (mut lab, called, _other) = scene();
    let SetClientIdResult::Ok(ok) = lab.set_client_id(b"second", 1, 0) else { panic!() };
    assert_eq!(lab.confirm(&ok), Status::OK);
    let op = lab.open_op("file", b"owner");
    let (file, opened) = lab.opened(op);
    assert_eq!(opened.delegation, OpenDelegation::None);
    let close = lab.close_op(opened.stateid, b"owner");
    assert_eq!(lab.status(vec![putfh(file), close]), Status::OK);
    let (file, _) = hold(&mut lab);
    // The caller cannot be identified as the holder, so the delegation is recalled.
    let set = Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: mode(0o600) });
    let mut flight = lab.lab.start_compound(&compound0(vec![putfh(file), set]));
    assert!(flight.poll().is_none());
    assert_eq!(called.calls().len(), 1);
}

#[test]
fn unconfirmed_second_client_makes_connection_shared() {
    let (mut lab, called, _other) = scene();
    let (file, _) = hold_to_write(&mut lab);
    let SetClientIdResult::Ok(second) = lab.set_client_id(b"second", 1, 0) else { panic!() };
    // The request may be the second client's, although it has no record yet.
    let set = Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: mode(0o600) });
    let mut flight = lab.lab.start_compound(&compound0(vec![putfh(file), set]));
    assert!(flight.poll().is_none());
    assert_eq!(called.calls().len(), 1);
    assert_eq!(lab.confirm(&second), Status::OK);
}

#[test]
fn restarted_client_keeps_its_connection() {
    let (mut lab, ..) = scene();
    lab.reboot(b"client", 2);
    let v40_owner = lab.lab.connection.v40_owner.get().map(|client| client.id());
    assert_eq!(v40_owner, Some(lab.client_id));
}

#[test]
fn connection_of_departed_client_becomes_shared_at_once() {
    for several in [false, true] {
        let (mut lab, ..) = scene();
        let id = format!("{:#018x}", lab.client_id);
        lab.lab.server.evict(lab.lab.now(), &id).unwrap();
        let SetClientIdResult::Ok(second) = lab.set_client_id(b"second", 1, 0) else { panic!() };
        if several {
            let SetClientIdResult::Ok(_) = lab.set_client_id(b"third", 1, 0) else { panic!() };
        }
        assert_eq!(lab.confirm(&second), Status::OK);
        let v40_owner = lab.lab.connection.v40_owner.get().map(|client| client.id());
        assert_eq!(v40_owner, (!several).then_some(second.client_id));
    }
}

#[test]
fn v40_delegation_needs_callback_path_and_confirmed_owner() {
    let mut lab = v40_lab();
    lab.open("file", b"owner");
    assert_eq!(read_open(&mut lab).1, OpenDelegation::None, "no path");
    let (mut lab, ..) = scene();
    let mut args = open_args("file", b"new", ShareAccess::READ, OpenHow::NoCreate);
    (args.seqid, args.owner) = (lab.next(b"new"), lab.owner(b"new"));
    assert_eq!(lab.opened(Op::Open(args)).1.delegation, OpenDelegation::None);
}

#[test]
fn connects_only_to_sender_of_setclientid() {
    let mut lab = v40_lab();
    for address in ["192.0.2.1.0.9", "127.0.0.1.0.0", "nonsense"] {
        call_me_at(&mut lab, address);
        assert!(wanted(&lab).is_none(), "{address}");
    }
    call_me_at(&mut lab, HOME);
    assert_eq!(wanted(&lab).unwrap().address(), SocketAddr::from(([127, 0, 0, 1], 9)));
}

#[test]
fn connects_only_when_delegations_are_enabled() {
    let maker = crate::testing::lab_with(vec![crate::testing::export(1, "/export")], |settings| {
        settings.max_delegations = 0;
    });
    let mut lab = V40Lab::of(&maker.server, 2, b"client");
    call_me_at(&mut lab, HOME);
    assert!(wanted(&lab).is_none());
}

#[test]
fn resends_unanswered_callback_over_next_connection() {
    let (mut lab, called, mut other) = scene();
    let (file, held) = hold(&mut lab);
    let renew = vec![Op::Renew(RenewArgs { client_id: lab.client_id })];
    assert_eq!(lab.status(renew.clone()), Status::OK);
    let mut flight = write_open(&mut other);
    assert_eq!(called.calls().len(), 1);
    lab.lab.server.connection_closed(called.0.id);
    // "the server has determined that the callback path is down" (RFC 7530 §16.28.5).
    assert_eq!(lab.status(renew), Status::CB_PATH_DOWN);
    assert!(wanted(&lab).is_none(), "not at once");
    lab.lab.pass(6);
    let next = Called::take(&lab, 901);
    let calls = next.calls();
    let recall = calls.iter().find(|call| call.compound.is_some()).expect("CB_RECALL");
    assert_eq!(recalled(recall), held);
    next.answer(&lab, ok(recall));
    let delegreturn = Op::DelegReturn(DelegReturnArgs { stateid: held });
    assert_eq!(lab.status(vec![putfh(file), delegreturn]), Status::OK);
    assert_eq!(flight.poll().map(|result| result.status), Some(Status::OK));
}

#[test]
fn revokes_only_unreturned_delegation() {
    let (mut lab, called, mut other) = scene();
    let (file, held) = hold(&mut lab);
    let flight = write_open(&mut other);
    let recall = called.calls().pop().expect("CB_RECALL");
    called.answer(&lab, ok(&recall));
    for _ in 0..3 {
        lab.lab.pass(40);
        assert_eq!(lab.status(vec![Op::Renew(RenewArgs { client_id: lab.client_id })]), Status::OK);
    }
    drop(flight);
    let delegreturn = || vec![putfh(file), Op::DelegReturn(DelegReturnArgs { stateid: held })];
    assert_eq!(lab.status(delegreturn()), Status::ADMIN_REVOKED);
    assert_eq!(lab.status(delegreturn()), Status::BAD_STATEID, "the loss is acknowledged");
    assert_eq!(lab.lab.server.counts().revoked, 0);
}

#[test]
fn closes_callback_connection_of_departed_client() {
    let (mut lab, called, _) = scene();
    lab.reboot(b"client", 2);
    assert!(called.0.outbox.is_hung_up());
}

#[test]
fn requests_one_callback_connection_at_a_time() {
    let mut lab = v40_lab();
    call_me_at(&mut lab, HOME);
    // Before the transport takes the request, and while it connects.
    call_me_at(&mut lab, "127.0.0.1.0.10");
    let first = wanted(&lab).expect("a connection is requested");
    for port in 11..20 {
        call_me_at(&mut lab, &format!("127.0.0.1.0.{port}"));
    }
    assert!(wanted(&lab).is_none(), "the outcome of the first is not known");
    // The old connection is no longer needed, even if it was made.
    assert!(Called::make(&lab, 900, first).0.outbox.is_hung_up());
    let second = wanted(&lab).expect("the one that is needed now");
    assert_eq!(second.address().port(), 19);
    call_me_at(&mut lab, HOME);
    lab.lab.server.handle_connect_failed(second);
    let third = Called::take(&lab, 901);
    assert!(wanted(&lab).is_none() && !third.0.outbox.is_hung_up());
    // Removed clients leave no connection requests.
    for verifier in 2..10 {
        let SetClientIdResult::Ok(ok) = lab.set_callback(b"client", verifier, HOME) else { panic!() };
        assert_eq!(lab.confirm(&ok), Status::OK);
    }
    let last = wanted(&lab).expect("that of the last client");
    assert!(third.0.outbox.is_hung_up() && wanted(&lab).is_none());
    let SetClientIdResult::Ok(ok) = lab.set_callback(b"client", 10, HOME) else { panic!() };
    assert_eq!(lab.confirm(&ok), Status::OK);
    assert!(Called::make(&lab, 902, last).0.outbox.is_hung_up(), "its client was removed");
    assert!(!Called::take(&lab, 903).0.outbox.is_hung_up());
}

#[test]
fn write_identifies_holder_on_new_connection_for_later_operations() {
    let (mut lab, called, _other) = scene();
    let (file, held) = hold_to_write(&mut lab);
    lab.lab.connection = Arc::clone(&Lab::without_session(Arc::clone(&lab.lab.server), 70).connection);
    let data = Opaque::from_static(b"hello");
    let write = Op::Write(WriteArgs { stateid: held, offset: 0, stable: StableHow::FileSync, data });
    let args = compound0(vec![putfh(file), write, getattr(&[n::CHANGE, n::SIZE])]);
    let mut flight = lab.lab.start_compound(&args);
    let result = flight.poll();
    assert!(called.calls().is_empty(), "the GETATTR is the holder's");
    assert_eq!(attributes_in(result.expect("an answer").results.last().unwrap()).size, Some(5));
}
