//! CB_GETATTR to holders of write delegations.

use protocol::nfs3;
use protocol::nfs4::attributes::{Attributes, number as n};
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{CompoundResult, Op};
use protocol::nfs4::ops::open::OpenDelegation;
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::verify::VerifyArgs;
use protocol::nfs4::types::{Bitmap, Outcome, Status};
use vfs::fault::{Fault, Gate, Method, Rule};
use xdr::{Decode, Reader};

use super::{
    BOTH, READ, Scene, counts, delegated, hold, opened, recalled, return_delegation, scene, scene_in, status,
    write,
};
use crate::testing::{Lab, at, attributes_in, faulty, getattr, lab_of, lookup, open, putfh, size};

const ASKED: [u32; 3] = [n::CHANGE, n::SIZE, n::TIME_MODIFY];

/// Answers CB_GETATTR with this change attribute and size.
fn answer_getattr(client: &Lab, change: u64, size: u64) {
    let call = client.calls().pop().expect("a question");
    let CbOp::GetAttr(asked) = call.operation() else { panic!("{:?}", call.operation()) };
    assert_eq!(asked.attributes, Bitmap::of(&[n::CHANGE, n::SIZE]));
    let held = Attributes { change: Some(change), size: Some(size), ..Attributes::default() };
    client.answer(call.results(CbOpResult::GetAttr(Outcome::Ok(held.to_file_attributes()))));
}

pub(super) fn answered(result: Option<CompoundResult>) -> Attributes {
    attributes_in(result.expect("an answer").results.last().unwrap())
}

#[test]
fn asks_write_holder_for_attributes() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    let before = lab.attributes(&["export", "file"], &ASKED);
    hold(&mut holder, "file", BOTH);
    assert_eq!(
        holder.attributes(&["export", "file"], &ASKED),
        before,
        "the holder's own GETATTR sends no CB_GETATTR"
    );
    lab.pass(1);
    (holder.seconds, other.seconds) = (lab.seconds, lab.seconds);
    let ask = || vec![putfh(file), getattr(&ASKED)];
    let mut flight = other.start(1, ask());
    assert!(flight.poll().is_none());
    let mut second = lab.start(1, ask());
    assert!(second.poll().is_none());
    // RFC 8881 §10.4.3: the change attribute of the grant means that the holder has changed nothing.
    answer_getattr(&holder, before.change.unwrap(), 5);
    assert!(holder.calls().is_empty(), "concurrent requests share one callback");
    assert_eq!(answered(flight.poll()), before);
    assert_eq!(answered(second.poll()), before);
    // Another value means that it has changed the file: its size counts, and times and change attribute advance each time.
    let mut seen = vec![before.change];
    for slot in 2..5 {
        let mut flight = other.start(slot, ask());
        assert!(flight.poll().is_none());
        answer_getattr(&holder, before.change.unwrap() + 1, 777);
        let after = answered(flight.poll());
        assert_eq!(after.size, Some(777));
        assert!(!seen.contains(&after.change) && after.time_modify > before.time_modify);
        seen.push(after.change);
    }
    // Other attributes, and files without a write delegation, need no CB_GETATTR.
    assert_eq!(other.status(vec![putfh(file), getattr(&[n::MODE, n::TYPE])]), Status::OK);
    assert_eq!(other.status_at(&["export"], getattr(&ASKED)), Status::OK);
    assert!(holder.calls().is_empty());
    assert_eq!(counts(&lab), (0, 1, 0), "nothing was recalled");
}

#[test]
fn time_update_after_cb_getattr_blocks_delegation() {
    let (exported, backend) = faulty();
    let Scene { lab, mut holder, mut other, file } = scene_in(lab_of(vec![exported]));
    let stateid = hold(&mut holder, "file", BOTH);
    let mut flight = other.start(1, vec![putfh(file), getattr(&ASKED)]);
    assert!(flight.poll().is_none());
    let gate = Gate::new();
    backend.add(Rule::on(Method::Setattr, Fault::Hold(gate.clone())).times(1));
    answer_getattr(&holder, 777, 5);
    assert!(flight.poll().is_none());
    assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
    let mut third = lab.reachable(b"third", 13);
    let (_, none) = opened(&mut third, open("file", b"o", READ));
    assert_eq!(none, OpenDelegation::None, "it is about to change");
    gate.open();
    answered(flight.poll());
    let (_, read) = opened(&mut third, open("file", b"p", READ));
    assert!(delegated(&read).is_some(), "it has changed");
}

#[test]
fn version_3_asks_write_holder_for_attributes() {
    let Scene { lab, mut holder, mut other, file } = scene();
    hold(&mut holder, "file", BOTH);
    let object = nfs3::FileHandle::new(&file).unwrap();
    let mut flight = other.start_nfs3(nfs3::Proc::GETATTR.0, &nfs3::GetattrArgs { object });
    assert!(flight.poll_bytes().is_none());
    answer_getattr(&holder, u64::MAX, 777);
    let mut reply = Reader::new(flight.poll_bytes().expect("an answer").slice(4..));
    assert_eq!(nfs3::Fattr::decode(&mut reply).unwrap().size, 777);
    assert!(lab.server.shared.state.is_quiet());
}

#[test]
fn recalls_after_failed_cb_getattr() {
    let mistakes: [fn(&Lab); 3] = [
        |lab| assert_eq!(lab.calls().len(), 1),
        |holder| {
            let call = holder.calls().pop().unwrap();
            holder.answer(call.results(CbOpResult::GetAttr(Outcome::Error(Status::BADHANDLE))));
        },
        |holder| {
            let call = holder.calls().pop().unwrap();
            let nothing = Attributes::default().to_file_attributes();
            holder.answer(call.results(CbOpResult::GetAttr(Outcome::Ok(nothing))));
        },
    ];
    for mistake in mistakes {
        let Scene { mut lab, mut holder, mut other, file } = scene();
        let stateid = hold(&mut holder, "file", BOTH);
        let mut flight = other.start(1, vec![putfh(file), getattr(&ASKED)]);
        assert!(flight.poll().is_none());
        mistake(&holder);
        lab.pass(2);
        assert!(flight.poll().is_none());
        assert_eq!(recalled(&holder).len(), 1);
        assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
        assert_eq!(answered(flight.poll()).size, Some(5));
        assert!(lab.server.shared.state.is_quiet());
    }
}

#[test]
fn delegreturn_ends_cb_getattr() {
    let Scene { mut holder, mut other, file, .. } = scene();
    let stateid = hold(&mut holder, "file", BOTH);
    let mut flight = other.start(1, vec![putfh(file), getattr(&ASKED)]);
    assert!(flight.poll().is_none());
    assert_eq!(holder.status(vec![putfh(file), write(stateid)]), Status::OK);
    assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
    assert_eq!(answered(flight.poll()).size, Some(5));
}

#[test]
fn getattr_shows_attributes_after_recall() {
    let Scene { mut holder, mut other, file, .. } = scene();
    let stateid = hold(&mut holder, "file", BOTH);
    // LOOKUP sees five bytes, and GETATTR then waits.
    let mut flight = other.start(1, at(&["export"], vec![lookup("file"), getattr(&ASKED)]));
    assert!(flight.poll().is_none());
    let longer = Op::SetAttr(SetAttrArgs { stateid, attributes: size(9) });
    assert_eq!(holder.status(vec![putfh(file), longer]), Status::OK);
    assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
    assert_eq!(answered(flight.poll()).size, Some(9));
}

#[test]
fn holder_attributes_end_with_delegation() {
    for (method, is_version_3) in
        [(Method::Setattr, false), (Method::Getattr, false), (Method::Setattr, true), (Method::Getattr, true)]
    {
        let (exported, backend) = faulty();
        let Scene { mut holder, mut other, file, .. } = scene_in(lab_of(vec![exported]));
        let stateid = hold(&mut holder, "file", BOTH);
        let object = nfs3::FileHandle::new(&file).unwrap();
        let mut flight = match is_version_3 {
            true => other.start_nfs3(nfs3::Proc::GETATTR.0, &nfs3::GetattrArgs { object }),
            false => other.start(1, vec![putfh(file), getattr(&ASKED)]),
        };
        assert!(flight.poll_bytes().is_none());
        answer_getattr(&holder, u64::MAX, 777);
        // The holder answers and returns everything before the attributes of the file are read.
        let gate = Gate::new();
        backend.add(Rule::on(method, Fault::Hold(gate.clone())).times(1));
        assert!(flight.poll_bytes().is_none());
        let longer = Op::SetAttr(SetAttrArgs { stateid, attributes: size(900) });
        assert_eq!(holder.status(vec![putfh(file), longer]), Status::OK);
        assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
        gate.open();
        let seen = match is_version_3 {
            true => {
                let mut reply = Reader::new(flight.poll_bytes().expect("an answer").slice(4..));
                nfs3::Fattr::decode(&mut reply).unwrap().size
            }
            false => answered(flight.poll()).size.unwrap(),
        };
        assert_eq!(seen, 900, "{method:?}");
    }
}

#[test]
fn verify_asks_the_holder() {
    let Scene { mut holder, mut other, file, .. } = scene();
    hold(&mut holder, "file", BOTH);
    let of = |size| Attributes { size: Some(size), ..Attributes::default() }.to_file_attributes();
    let verify = |size| Op::Verify(VerifyArgs { attributes: of(size) });
    let nverify = |size| Op::NVerify(VerifyArgs { attributes: of(size) });
    for (slot, op, expected) in [
        (1, verify(777), Status::OK),
        (2, verify(5), Status::NOT_SAME),
        (3, nverify(777), Status::SAME),
        (4, nverify(5), Status::OK),
    ] {
        let mut flight = other.start(slot, vec![putfh(file), op]);
        assert!(flight.poll().is_none(), "the holder is asked");
        answer_getattr(&holder, u64::MAX, 777);
        assert_eq!(status(flight.poll()), Some(expected), "{slot}");
    }
    let mode = other.attributes(&["export", "file"], &[n::MODE]).to_file_attributes();
    let verify = Op::Verify(VerifyArgs { attributes: mode });
    assert_eq!(other.status(vec![putfh(file), verify]), Status::OK);
    assert!(holder.calls().is_empty(), "other attributes are known here");
}

#[test]
fn old_answer_does_not_hide_later_write_of_holder() {
    for method in [Method::Setattr, Method::Getattr] {
        let (exported, backend) = faulty();
        let Scene { lab, mut holder, mut other, file } = scene_in(lab_of(vec![exported]));
        let mut third = lab.reachable(b"third", 13);
        let stateid = hold(&mut holder, "file", BOTH);
        let ask = || vec![putfh(file), getattr(&ASKED)];
        let mut flights = [other.start(1, ask()), third.start(1, ask())];
        assert!(flights.iter_mut().all(|flight| flight.poll().is_none()));
        // The first request is slow after the answer, and the holder sends what it has written since.
        let gate = Gate::new();
        backend.add(Rule::on(method, Fault::Hold(gate.clone())).times(1));
        answer_getattr(&holder, 777, 1);
        assert!(flights[0].poll().is_none());
        assert_eq!(holder.status(vec![putfh(file), write(stateid)]), Status::OK);
        let shared = answered(flights[1].poll());
        gate.open();
        let first = answered(flights[0].poll());
        assert_eq!((first.size, shared.size), (Some(1), Some(1)));
        assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
        let last = other.attributes(&["export", "file"], &ASKED);
        assert_eq!(last.size, Some(5));
        // A client that has seen the old size detects the change.
        assert!(first.change < last.change && shared.change < last.change, "{first:?} {shared:?} {last:?}");
    }
}

#[test]
fn newest_answer_counts_for_slow_requests() {
    let (exported, backend) = faulty();
    let Scene { lab, mut holder, mut other, file } = scene_in(lab_of(vec![exported]));
    let mut third = lab.reachable(b"third", 13);
    hold(&mut holder, "file", BOTH);
    let ask = || vec![putfh(file), getattr(&ASKED)];
    let mut slow = other.start(1, ask());
    assert!(slow.poll().is_none());
    let gate = Gate::new();
    backend.add(Rule::on(Method::Setattr, Fault::Hold(gate.clone())).times(1));
    answer_getattr(&holder, 777, 6);
    assert!(slow.poll().is_none());
    let mut later = third.start(1, ask());
    assert!(later.poll().is_none());
    answer_getattr(&holder, 777, 7);
    let later = answered(later.poll());
    gate.open();
    let slow = answered(slow.poll());
    // Its change attribute is the newer one, so that its size must not be the older one.
    assert!(slow.change > later.change);
    assert_eq!((later.size, slow.size), (Some(7), Some(7)));
}
