//! Delegated times (RFC 9754 §5).

use std::sync::Arc;

use protocol::nfs3;
use protocol::nfs4::attributes::values::SetTime as WireSetTime;
use protocol::nfs4::attributes::{Attributes, FileAttributes, SetAttributes, number as n};
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::open::{
    CreateHow, DelegationType, OpenArgs, OpenClaim, OpenDelegation, OpenHow, OpenResultFlags, ShareAccess,
};
use protocol::nfs4::ops::readdir::{ReadDirArgs, ReadDirOk};
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::verify::VerifyArgs;
use protocol::nfs4::types::{Bitmap, Handle, Outcome, Stateid, Status, Time};
use vfs::MemFs;
use vfs::fault::{Fault, Faulty, Gate, Method, Rule};
use xdr::{Decode, Reader};

use super::cb_getattr::answered;
use super::{
    BOTH, READ, Scene, delegated, hold, opened, recalled, return_delegation, scene, scene_in, status, write,
};
use crate::testing::{Lab, at, faulty, getattr, lab_of, mode, open, open_args, open_result, putfh};

const TIMES: ShareAccess = ShareAccess::WANT_DELEG_TIMESTAMPS;
const ASKED: [u32; 5] = [n::CHANGE, n::SIZE, n::TIME_ACCESS, n::TIME_METADATA, n::TIME_MODIFY];
/// The time at which files are created and delegated here, in seconds since 1970; the clock adds five nanoseconds.
const ORIGINAL: i64 = 1_000_001;

fn second(seconds: i64) -> Option<Time> {
    Some(Time { seconds, nanoseconds: 0 })
}

fn at_clock(seconds: i64) -> Option<Time> {
    Some(Time { seconds, nanoseconds: 5 })
}

/// As [`scene`], in version 4.2, with the file delegated, and twenty seconds later.
fn kept() -> (Scene, Stateid) {
    kept_in(scene())
}

/// As [`scene`], with a backend that can be delayed.
fn kept_slowly() -> (Scene, Stateid, Arc<Faulty<MemFs>>) {
    let (exported, backend) = faulty();
    let (scene, stateid) = kept_in(scene_in(lab_of(vec![exported])));
    (scene, stateid, backend)
}

fn kept_in(mut scene: Scene) -> (Scene, Stateid) {
    (scene.holder.minor, scene.other.minor) = (2, 2);
    let stateid = hold(&mut scene.holder, "file", BOTH | TIMES);
    pass(&mut scene, 20);
    (scene, stateid)
}

fn pass(scene: &mut Scene, seconds: u64) {
    scene.lab.pass(seconds);
    (scene.holder.seconds, scene.other.seconds) = (scene.lab.seconds, scene.lab.seconds);
}

/// Answers CB_GETATTR as the holder.
fn answer_getattr(client: &Lab, held: Attributes) {
    let call = client.calls().pop().expect("a question");
    let CbOp::GetAttr(asked) = call.operation() else { panic!("{:?}", call.operation()) };
    // RFC 9754 §5: "it MUST query the client via a CB_GETATTR for" both times.
    let both = [n::CHANGE, n::SIZE, n::TIME_DELEG_ACCESS, n::TIME_DELEG_MODIFY];
    assert_eq!(asked.attributes, Bitmap::of(&both));
    client.answer(call.results(CbOpResult::GetAttr(Outcome::Ok(held.to_file_attributes()))));
}

fn holder_reply(change: Option<u64>, accessed: i64, modified: i64) -> Attributes {
    let (time_deleg_access, time_deleg_modify) = (second(accessed), second(modified));
    Attributes { change, size: Some(777), time_deleg_access, time_deleg_modify, ..Attributes::default() }
}

/// Returns the attributes that the other client gets after the holder's answer.
fn reported(scene: &mut Scene, slot: u32, held: Attributes) -> Attributes {
    let mut flight = scene.other.start(slot, vec![putfh(scene.file), getattr(&ASKED)]);
    assert!(flight.poll().is_none(), "the holder is asked");
    answer_getattr(&scene.holder, held);
    answered(flight.poll())
}

fn times(accessed: Option<Time>, modified: Option<Time>) -> FileAttributes {
    let set =
        SetAttributes { time_deleg_access: accessed, time_deleg_modify: modified, ..Default::default() };
    set.to_file_attributes()
}

fn hand_in(stateid: Stateid, attributes: FileAttributes) -> Op {
    Op::SetAttr(SetAttrArgs { stateid, attributes })
}

fn seen(client: &mut Lab, file: Handle) -> Attributes {
    crate::testing::attributes_in(&client.last(vec![putfh(file), getattr(&ASKED)]))
}

#[test]
fn grants_delegated_times_on_request() {
    let Scene { mut lab, mut holder, mut other, .. } = scene();
    (holder.minor, other.minor) = (2, 2);
    lab.file(&["export", "other"], b"");
    let (_, write) = opened(&mut holder, open("file", b"o", BOTH | TIMES));
    assert_eq!(delegated(&write).unwrap().0, DelegationType::WRITE_ATTRS_DELEG);
    // Read delegations never include the times.
    for client in [&mut holder, &mut other] {
        let (_, read) = opened(client, open("other", b"o", READ | TIMES));
        assert_eq!(delegated(&read).unwrap().0, DelegationType::READ);
    }
    // It replaces the open like any other delegation (§4).
    lab.file(&["export", "third"], b"");
    let one = TIMES | ShareAccess::WANT_OPEN_XOR_DELEGATION;
    let results = holder.ok(at(&["export"], vec![open("third", b"o", BOTH | one)]));
    let opened = open_result(results.last().unwrap());
    assert!(matches!(opened.delegation, OpenDelegation::WriteAttributes(_)), "{opened:?}");
    assert!(opened.flags.contains(OpenResultFlags::NO_OPEN_STATEID) && opened.stateid == Stateid::ANONYMOUS);
    // The RFC "extends NFSv4.2".
    holder.minor = 1;
    assert_eq!(holder.status_at(&["export"], open("third", b"p", BOTH | TIMES)), Status::INVAL);
}

#[test]
fn others_see_times_of_holder() {
    let (mut scene, _) = kept();
    let own = seen(&mut scene.holder, scene.file);
    assert!(scene.holder.calls().is_empty(), "the holder's own GETATTR sends no CB_GETATTR");
    // No new times.
    let first = reported(&mut scene, 1, holder_reply(own.change, 0, 0));
    assert_eq!(first, own);
    // The holder has read the file.
    let second_time = reported(&mut scene, 2, holder_reply(own.change, ORIGINAL + 3, ORIGINAL));
    assert_eq!(second_time, Attributes { time_access: second(ORIGINAL + 3), ..own.clone() });
    // The holder has written, and flushed the data or set the time.
    let third = reported(&mut scene, 3, holder_reply(own.change, ORIGINAL + 3, ORIGINAL + 5));
    assert_eq!((third.size, third.time_modify), (Some(5), second(ORIGINAL + 5)));
    assert!(third.change > own.change && third.time_metadata >= third.time_modify);
    // The holder has written and not flushed.
    let changed = own.change.map(|change| change + 1);
    let fourth = reported(&mut scene, 4, holder_reply(changed, ORIGINAL + 6, ORIGINAL + 6));
    assert_eq!((fourth.size, fourth.time_modify), (Some(777), second(ORIGINAL + 6)));
    assert!(fourth.change > third.change);
    // Reported times never go backwards, and no time is in the future.
    let fifth = reported(&mut scene, 5, holder_reply(changed, ORIGINAL + 2, ORIGINAL + 900));
    let now = at_clock(ORIGINAL + 20);
    assert_eq!((fifth.time_access, fifth.time_modify), (second(ORIGINAL + 6), now));
    assert!(fifth.time_metadata >= now);
}

#[test]
fn version_3_sees_times_of_holder() {
    let (mut scene, _) = kept();
    let object = nfs3::FileHandle::new(&scene.file).unwrap();
    let mut flight = scene.other.start_nfs3(nfs3::Proc::GETATTR.0, &nfs3::GetattrArgs { object });
    assert!(flight.poll_bytes().is_none());
    answer_getattr(&scene.holder, holder_reply(Some(u64::MAX), ORIGINAL + 3, ORIGINAL + 5));
    let mut reply = Reader::new(flight.poll_bytes().expect("an answer").slice(4..));
    let reported = nfs3::Fattr::decode(&mut reply).unwrap();
    let times = [reported.atime.seconds, reported.mtime.seconds].map(i64::from);
    assert_eq!((reported.size, times), (777, [ORIGINAL + 3, ORIGINAL + 5]));
}

/// Attributes reported while the holder sets its times during a GETATTR.
#[derive(Debug)]
struct Looks {
    before: Attributes,
    meanwhile: Attributes,
    behind: Attributes,
}

impl Looks {
    /// Checks that the time never goes backwards from one reply to the next, and one change attribute always has the same time.
    #[track_caller]
    fn judge(&self) {
        let Self { before, meanwhile, behind } = self;
        let of = |reported: &Attributes| [reported.time_access, reported.time_modify, reported.time_metadata];
        for (earlier, later) in [(before, meanwhile), (meanwhile, behind)] {
            assert!(earlier.change <= later.change, "{self:?}");
            assert!(of(earlier).iter().zip(of(later)).all(|(earlier, later)| *earlier <= later), "{self:?}");
        }
        assert!(meanwhile.change < behind.change || meanwhile == behind, "{self:?}");
    }
}

/// The holder's answer to CB_GETATTR, and its later SETATTR.
const REPORTED_FIRST: i64 = ORIGINAL + 5;
const REPORTED_LATER: i64 = ORIGINAL + 8;

#[test]
fn times_set_during_getattr_appear_atomically() {
    for (is_seen_before, is_returned) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut scene, stateid, backend) = kept_slowly();
        let (file, change) = (scene.file, seen(&mut scene.holder, scene.file).change);
        let [first, then] = [REPORTED_FIRST, REPORTED_LATER].map(|time| holder_reply(change, time, time));
        let before = reported(&mut scene, 1, first.clone());
        let mut flight = scene.other.start(2, vec![putfh(file), getattr(&ASKED)]);
        assert!(flight.poll().is_none(), "the holder is asked");
        let gate = Gate::new();
        let slow = if is_seen_before { Fault::HoldAfter(gate.clone()) } else { Fault::Hold(gate.clone()) };
        backend.add(Rule::on(Method::Getattr, slow).times(1));
        answer_getattr(&scene.holder, first);
        assert!(flight.poll().is_none(), "the file is looked at");
        let handed = hand_in(stateid, times(second(REPORTED_LATER), second(REPORTED_LATER)));
        assert_eq!(scene.holder.status(vec![putfh(file), handed]), Status::OK);
        if is_returned {
            assert_eq!(return_delegation(&mut scene.holder, file, stateid), Status::OK);
        }
        gate.open();
        let meanwhile = answered(flight.poll());
        let behind = if is_returned { seen(&mut scene.other, file) } else { reported(&mut scene, 3, then) };
        Looks { before, meanwhile, behind }.judge();
    }
}

#[test]
fn unfinished_time_update_appears_atomically() {
    let (mut scene, stateid, backend) = kept_slowly();
    let (file, change) = (scene.file, seen(&mut scene.holder, scene.file).change);
    let [first, then] = [REPORTED_FIRST, REPORTED_LATER].map(|time| holder_reply(change, time, time));
    let before = reported(&mut scene, 1, first.clone());
    // The file has the times, and the SETATTR has no reply yet.
    let gate = Gate::new();
    backend.add(Rule::on(Method::Setattr, Fault::HoldAfter(gate.clone())).times(1));
    let handed = hand_in(stateid, times(second(REPORTED_LATER), second(REPORTED_LATER)));
    let mut flight = scene.holder.start(1, vec![putfh(file), handed]);
    assert!(flight.poll().is_none());
    let meanwhile = reported(&mut scene, 2, first);
    gate.open();
    assert_eq!(status(flight.poll()), Some(Status::OK));
    let behind = reported(&mut scene, 3, then);
    Looks { before, meanwhile, behind }.judge();
}

#[test]
fn set_times_survive_late_cb_getattr_reply() {
    let (mut scene, stateid) = kept();
    let (file, change) = (scene.file, seen(&mut scene.holder, scene.file).change);
    let mut flight = scene.other.start(1, vec![putfh(file), getattr(&ASKED)]);
    assert!(flight.poll().is_none(), "the holder is asked");
    let handed = hand_in(stateid, times(second(REPORTED_LATER), second(REPORTED_LATER)));
    assert_eq!(scene.holder.status(vec![putfh(file), handed]), Status::OK);
    let own = seen(&mut scene.holder, file);
    // The holder reports that it has changed the file.
    answer_getattr(
        &scene.holder,
        holder_reply(change.map(|change| change + 1), REPORTED_LATER, REPORTED_LATER),
    );
    let reported = answered(flight.poll());
    assert_eq!(reported.time_modify, second(REPORTED_LATER));
    assert_eq!(return_delegation(&mut scene.holder, file, stateid), Status::OK);
    let after = seen(&mut scene.other, file);
    assert_eq!((after.change, after.time_modify), (own.change, second(REPORTED_LATER)));
    // The file changed after the holder was asked: its size then is not that of the answer.
    assert!(reported.change < after.change && reported.size != after.size);
}

#[test]
fn old_answer_without_new_times_does_not_hide_write() {
    let (mut scene, stateid, backend) = kept_slowly();
    let (file, change) = (scene.file, seen(&mut scene.holder, scene.file).change);
    let held = holder_reply(change.map(|change| change + 1), REPORTED_FIRST, REPORTED_FIRST);
    let first = reported(&mut scene, 1, held.clone());
    assert_eq!(first.size, Some(777));
    let mut flight = scene.other.start(2, vec![putfh(file), getattr(&ASKED)]);
    assert!(flight.poll().is_none(), "the holder is asked");
    let gate = Gate::new();
    backend.add(Rule::on(Method::Getattr, Fault::Hold(gate.clone())).times(1));
    answer_getattr(&scene.holder, held);
    assert!(flight.poll().is_none(), "the file is looked at");
    assert_eq!(scene.holder.status(vec![putfh(file), write(stateid)]), Status::OK);
    gate.open();
    let second = answered(flight.poll());
    assert_eq!((second.size, second.change), (first.size, first.change), "nothing new is known");
    assert_eq!(return_delegation(&mut scene.holder, file, stateid), Status::OK);
    let last = seen(&mut scene.other, file);
    assert!(last.size == Some(5) && last.change > second.change);
}

#[test]
fn unchanged_set_times_override_cb_getattr_reply() {
    let (mut scene, stateid, backend) = kept_slowly();
    let (file, written) = (scene.file, at_clock(ORIGINAL + 20));
    assert_eq!(scene.holder.status(vec![putfh(file), write(stateid)]), Status::OK);
    let change = seen(&mut scene.holder, file).change;
    pass(&mut scene, 10);
    let mut asks = scene.other.start(1, vec![putfh(file), getattr(&ASKED)]);
    assert!(asks.poll().is_none(), "the holder is asked");
    let gate = Gate::new();
    backend.add(Rule::on(Method::Getattr, Fault::HoldAfter(gate.clone())).times(1));
    let mut hands_in = scene.holder.start(1, vec![putfh(file), hand_in(stateid, times(None, written))]);
    assert!(hands_in.poll().is_none(), "the file is looked at");
    answer_getattr(
        &scene.holder,
        Attributes { time_deleg_modify: written, ..holder_reply(change, ORIGINAL, 0) },
    );
    assert_eq!(answered(asks.poll()).time_modify, written);
    gate.open();
    assert_eq!(status(hands_in.poll()), Some(Status::OK));
    assert_eq!(seen(&mut scene.holder, file).time_modify, written);
}

#[test]
fn version_3_rereads_attributes_after_return() {
    let (mut scene, stateid, backend) = kept_slowly();
    let (file, change) = (scene.file, seen(&mut scene.holder, scene.file).change);
    let object = nfs3::FileHandle::new(&file).unwrap();
    let mut flight = scene.other.start_nfs3(nfs3::Proc::GETATTR.0, &nfs3::GetattrArgs { object });
    assert!(flight.poll_bytes().is_none());
    let gate = Gate::new();
    backend.add(Rule::on(Method::Getattr, Fault::HoldAfter(gate.clone())).times(1));
    answer_getattr(&scene.holder, holder_reply(change, REPORTED_FIRST, REPORTED_FIRST));
    assert!(flight.poll_bytes().is_none(), "the file is looked at");
    let handed = hand_in(stateid, times(second(REPORTED_LATER), second(REPORTED_LATER)));
    assert_eq!(scene.holder.status(vec![putfh(file), handed]), Status::OK);
    assert_eq!(return_delegation(&mut scene.holder, file, stateid), Status::OK);
    gate.open();
    let mut reply = Reader::new(flight.poll_bytes().expect("an answer").slice(4..));
    let reported = nfs3::Fattr::decode(&mut reply).unwrap();
    assert_eq!([reported.atime.seconds, reported.mtime.seconds].map(i64::from), [REPORTED_LATER; 2]);
}

#[test]
fn recalls_when_holder_omits_times() {
    for is_time in [false, true] {
        let (mut scene, stateid) = kept();
        let mut flight = scene.other.start(1, vec![putfh(scene.file), getattr(&ASKED)]);
        assert!(flight.poll().is_none());
        let wrong = Some(Time { seconds: ORIGINAL, nanoseconds: 1_000_000_000 }).filter(|_| is_time);
        answer_getattr(
            &scene.holder,
            Attributes { time_deleg_modify: wrong, ..holder_reply(Some(1), ORIGINAL, ORIGINAL) },
        );
        assert!(flight.poll().is_none());
        assert_eq!(recalled(&scene.holder).len(), 1);
        assert_eq!(return_delegation(&mut scene.holder, scene.file, stateid), Status::OK);
        assert_eq!(answered(flight.poll()).time_modify, at_clock(ORIGINAL));
    }
}

#[test]
fn holder_sets_delegated_times() {
    let (mut scene, stateid) = kept();
    let (file, original) = (scene.file, seen(&mut scene.holder, scene.file));
    // "A change in the access time MUST NOT advance the change time".
    let read = hand_in(stateid, times(second(ORIGINAL + 3), None));
    assert_eq!(scene.holder.status(vec![putfh(file), read]), Status::OK);
    let after = seen(&mut scene.holder, file);
    assert_eq!(after, Attributes { time_access: second(ORIGINAL + 3), ..original });
    // "If the modify time is greater than the change time and before the current time, then the change time is adjusted to
    // the modify time and not the current time".
    let both = times(second(ORIGINAL + 4), second(ORIGINAL + 5));
    let OpResult::SetAttr(set) = scene.holder.last(vec![putfh(file), hand_in(stateid, both)]) else {
        panic!()
    };
    assert_eq!(set.attributes_set, Bitmap::of(&[n::TIME_DELEG_ACCESS, n::TIME_DELEG_MODIFY]));
    let after = seen(&mut scene.holder, file);
    let expected = [second(ORIGINAL + 4), second(ORIGINAL + 5), second(ORIGINAL + 5)];
    assert_eq!([after.time_access, after.time_modify, after.time_metadata], expected);
    // "When the time presented is before the original time, then the update is ignored."
    let before = hand_in(stateid, times(second(ORIGINAL + 3), second(ORIGINAL + 4)));
    assert_eq!(scene.holder.status(vec![putfh(file), before]), Status::OK);
    assert_eq!(seen(&mut scene.holder, file), after);
    // "If the modify time is in the future, it will be clamped to the current time."
    let future = hand_in(stateid, times(second(ORIGINAL + 800), second(ORIGINAL + 900)));
    assert_eq!(scene.holder.status(vec![putfh(file), future]), Status::OK);
    assert_eq!(return_delegation(&mut scene.holder, file, stateid), Status::OK);
    let (after, now) = (seen(&mut scene.other, file), at_clock(ORIGINAL + 20));
    assert_eq!([after.time_access, after.time_modify, after.time_metadata], [now; 3]);
}

#[test]
fn holder_times_override_times_of_its_writes() {
    let (mut scene, stateid) = kept();
    let file = scene.file;
    let change = seen(&mut scene.holder, file).change;
    // A program wrote three seconds after the grant; the data arrive seventeen seconds later.
    assert_eq!(scene.holder.status(vec![putfh(file), write(stateid)]), Status::OK);
    let after = reported(&mut scene, 1, holder_reply(change, ORIGINAL + 3, ORIGINAL + 3));
    assert_eq!((after.time_access, after.time_modify), (second(ORIGINAL + 3), second(ORIGINAL + 3)));
    let both = times(second(ORIGINAL + 4), second(ORIGINAL + 4));
    assert_eq!(scene.holder.status(vec![putfh(file), hand_in(stateid, both)]), Status::OK);
    assert_eq!(return_delegation(&mut scene.holder, file, stateid), Status::OK);
    let returned = seen(&mut scene.other, file);
    assert_eq!((returned.time_access, returned.time_modify), (second(ORIGINAL + 4), second(ORIGINAL + 4)));
    assert!(returned.change > after.change && returned.time_metadata >= after.time_metadata);
}

#[test]
fn times_set_by_holder_become_its_times() {
    let (mut scene, stateid) = kept();
    let (file, change) = (scene.file, seen(&mut scene.holder, scene.file).change);
    // As `touch -d` does, before the grant.
    let past = ORIGINAL - 500;
    let client_time = |seconds| second(seconds).map(WireSetTime::ClientTime);
    let set = SetAttributes { time_modify_set: client_time(past), ..SetAttributes::default() };
    scene.holder.ok(vec![putfh(file), hand_in(Stateid::ANONYMOUS, set.to_file_attributes())]);
    let after = reported(&mut scene, 1, holder_reply(change, ORIGINAL, past));
    assert_eq!(after.time_modify, second(past));
    let later = hand_in(stateid, times(None, second(past + 1)));
    assert_eq!(scene.holder.status(vec![putfh(file), later]), Status::OK);
    assert_eq!(seen(&mut scene.holder, file).time_modify, second(past + 1));
}

#[test]
fn older_cb_getattr_reply_keeps_set_time() {
    for is_answered_first in [true, false] {
        let (mut scene, stateid) = kept();
        let (file, change) = (scene.file, seen(&mut scene.holder, scene.file).change);
        let past = ORIGINAL - 500;
        let client_time = second(past).map(WireSetTime::ClientTime);
        let set = SetAttributes { time_modify_set: client_time, ..SetAttributes::default() };
        let set = vec![putfh(file), hand_in(Stateid::ANONYMOUS, set.to_file_attributes())];
        let mut flight = scene.other.start(1, vec![putfh(file), getattr(&ASKED)]);
        assert!(flight.poll().is_none());
        // The holder answers, and then sets the time; the answer may arrive later.
        let before = holder_reply(change, ORIGINAL + 3, ORIGINAL + 19);
        if is_answered_first {
            answer_getattr(&scene.holder, before.clone());
        }
        scene.holder.ok(set);
        if !is_answered_first {
            answer_getattr(&scene.holder, before);
        }
        let after = answered(flight.poll());
        assert_eq!((after.time_access, after.time_modify), (second(ORIGINAL + 3), second(past)));
        // Later reports of the holder count.
        let later = reported(&mut scene, 2, holder_reply(change, ORIGINAL + 3, past + 1));
        assert_eq!(later.time_modify, second(past + 1));
        let later = hand_in(stateid, times(None, second(past + 2)));
        assert_eq!(scene.holder.status(vec![putfh(file), later]), Status::OK);
        assert_eq!(seen(&mut scene.holder, file).time_modify, second(past + 2));
    }
}

#[test]
fn all_requests_that_share_a_cb_getattr_see_the_change() {
    let (mut scene, _, backend) = kept_slowly();
    let own = seen(&mut scene.holder, scene.file);
    let ask = || vec![putfh(scene.file), getattr(&ASKED)];
    let (mut first, mut second_one) = (scene.other.start(1, ask()), scene.other.start(2, ask()));
    assert!(first.poll().is_none() && second_one.poll().is_none());
    let news = holder_reply(own.change, ORIGINAL + 3, ORIGINAL + 5);
    answer_getattr(&scene.holder, news.clone());
    // The second request reads the attributes while the first one is about to advance the change attribute.
    let gate = Gate::new();
    backend.add(Rule::on(Method::Setattr, Fault::Hold(gate.clone())).times(1));
    assert!(first.poll().is_none());
    let seen = answered(second_one.poll());
    assert_eq!(seen.time_modify, second(ORIGINAL + 5));
    assert!(seen.change > own.change);
    gate.open();
    let seen = answered(first.poll());
    assert!(seen.change > own.change);
    // The change is already known.
    assert_eq!(reported(&mut scene, 3, news), seen);
}

#[test]
fn verify_uses_times_of_holder() {
    let (mut scene, _) = kept();
    let (file, change) = (scene.file, seen(&mut scene.holder, scene.file).change);
    let news = holder_reply(change, ORIGINAL + 3, ORIGINAL + 5);
    let reported = reported(&mut scene, 1, news.clone());
    let attributes = reported.to_file_attributes();
    let ops =
        [Op::Verify(VerifyArgs { attributes: attributes.clone() }), Op::NVerify(VerifyArgs { attributes })];
    for (slot, op, expected) in [(2, &ops[0], Status::OK), (3, &ops[1], Status::SAME)] {
        let mut flight = scene.other.start(slot, vec![putfh(file), op.clone()]);
        assert!(flight.poll().is_none(), "the holder is asked");
        answer_getattr(&scene.holder, news.clone());
        assert_eq!(status(flight.poll()), Some(expected));
    }
}

#[test]
fn delegated_times_need_valid_delegation_at_write() {
    let (mut scene, stateid, backend) = kept_slowly();
    let (file, original) = (scene.file, seen(&mut scene.holder, scene.file));
    let set = SetAttributes {
        mode: Some(protocol::nfs4::types::Mode::from_bits_retain(0o600)),
        time_deleg_modify: second(ORIGINAL + 5),
        ..SetAttributes::default()
    };
    let gate = Gate::new();
    backend.add(Rule::on(Method::Setattr, Fault::Hold(gate.clone())).times(1));
    let ops = vec![putfh(file), hand_in(stateid, set.to_file_attributes())];
    let mut flight = scene.holder.start(1, ops);
    assert!(flight.poll().is_none(), "the mode comes first");
    assert_eq!(return_delegation(&mut scene.holder, file, stateid), Status::OK);
    gate.open();
    assert_eq!(status(flight.poll()), Some(Status::BAD_STATEID));
    assert_eq!(seen(&mut scene.holder, file).time_modify, original.time_modify);
}

#[test]
fn only_holder_may_set_delegated_times() {
    let (mut scene, stateid) = kept();
    let (file, original) = (scene.file, seen(&mut scene.holder, scene.file));
    let both = || times(second(ORIGINAL + 3), second(ORIGINAL + 5));
    scene.lab.file(&["export", "plain"], b"");
    let (open, plain) = opened(&mut scene.holder, crate::testing::open("plain", b"o", BOTH));
    let plain_file = scene.lab.handle(&["export", "plain"]);
    let cases = [
        (file, Stateid::ANONYMOUS),
        (plain_file, open),
        // The delegation does not include the times.
        (plain_file, delegated(&plain).unwrap().1),
        (plain_file, stateid),
    ];
    for (file, stateid) in cases {
        let set = vec![putfh(file), hand_in(stateid, both())];
        assert_eq!(scene.holder.status(set), Status::BAD_STATEID, "{stateid:?}");
    }
    let set = vec![putfh(file), hand_in(stateid, both())];
    assert_eq!(scene.other.status(set), Status::BAD_STATEID, "the delegation is another client's");
    let wrong = Some(Time { seconds: ORIGINAL, nanoseconds: 1_000_000_000 });
    let wrong = hand_in(stateid, times(None, wrong));
    assert_eq!(scene.holder.status(vec![putfh(file), wrong]), Status::INVAL);
    // "invalid to be used with GETATTR, VERIFY, and NVERIFY".
    let ask = getattr(&[n::TIME_DELEG_MODIFY]);
    let verify = || VerifyArgs { attributes: both() };
    for op in [ask, Op::Verify(verify()), Op::NVerify(verify())] {
        assert_eq!(scene.holder.status(vec![putfh(file), op]), Status::INVAL);
    }
    let how = OpenHow::Create(CreateHow::Unchecked(both()));
    let create = Op::Open(open_args("new", b"o", BOTH, how));
    assert_eq!(scene.holder.status_at(&["export"], create), Status::INVAL);
    scene.holder.minor = 1;
    let set = vec![putfh(file), hand_in(stateid, both())];
    assert_eq!(scene.holder.status(set), Status::ATTRNOTSUPP);
    assert_eq!(seen(&mut scene.holder, file), original);
}

/// A user with a delegated open may set its times without owning the file; other users need write permission.
#[test]
fn user_of_delegated_open_may_set_times() {
    let mut scene = scene();
    (scene.holder.minor, scene.other.minor) = (2, 2);
    let file = scene.file;
    let allow = |bits| Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: mode(bits) });
    scene.lab.ok(vec![putfh(file), allow(0o666)]);
    scene.holder.uid = 1000;
    let stateid = hold(&mut scene.holder, "file", BOTH | TIMES);
    scene.holder.uid = 0;
    scene.holder.ok(vec![putfh(file), allow(0o600)]);
    pass(&mut scene, 20);
    let op = |modified| vec![putfh(file), hand_in(stateid, times(None, second(modified)))];
    scene.holder.uid = 2000;
    assert_eq!(scene.holder.status(op(ORIGINAL + 4)), Status::ACCESS);
    scene.holder.uid = 1000;
    assert_eq!(scene.holder.status(op(ORIGINAL + 5)), Status::OK);
    scene.holder.uid = 0;
    assert_eq!(seen(&mut scene.holder, file).time_modify, second(ORIGINAL + 5));
}

#[test]
fn reclaims_delegated_times_after_restart() {
    let (mut lab, file) = super::reclaims::after_restart(|_| {});
    lab.minor = 2;
    for (held, access, kind) in [
        (DelegationType::READ_ATTRS_DELEG, READ, DelegationType::READ),
        (DelegationType::WRITE_ATTRS_DELEG, BOTH | TIMES, DelegationType::WRITE_ATTRS_DELEG),
    ] {
        let plain = open_args("", b"o", access, OpenHow::NoCreate);
        let args = OpenArgs { claim: OpenClaim::Previous(held), ..plain };
        let results = lab.ok(vec![putfh(file), Op::Open(args)]);
        let (given, stateid) = delegated(&open_result(results.last().unwrap()).delegation).unwrap();
        assert_eq!(given, kind);
        assert_eq!(return_delegation(&mut lab, file, stateid), Status::OK);
    }
}

/// Lists the export. A new `maxcount` bypasses the listing cache.
fn list(client: &mut Lab, maxcount: u32) -> ReadDirOk {
    let attributes = Bitmap::of(&ASKED);
    let arguments = ReadDirArgs { cookie: 0, cookie_verifier: [0; 8], dircount: 0, maxcount, attributes };
    match client.last(at(&["export"], vec![Op::ReadDir(arguments)])) {
        OpResult::ReadDir(result) => result.into_result().expect("listed"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn cached_listing_matches_new_listing_after_cb_getattr() {
    const LENGTH: u32 = 32_768;
    let (mut scene, stateid, backend) = kept_slowly();
    let file = scene.file;
    let looks = || backend.calls(Method::Readdir);
    let mut lengths = LENGTH + 1..;
    // Returns whether the listing was cached, and the file's attributes. A new listing at the same time is equal, also for the holder.
    let mut listed = |scene: &mut Scene| {
        let before = looks();
        let reported = list(&mut scene.other, LENGTH);
        let is_cached = looks() == before;
        assert_eq!(reported, list(&mut scene.other, lengths.next().expect("one more")));
        for client in [&mut scene.holder, &mut scene.lab] {
            let reported = list(client, LENGTH);
            assert_eq!(reported, list(client, lengths.next().expect("one more")));
        }
        let entry = reported.entries.iter().find(|entry| &entry.name[..] == b"file").expect("it is there");
        (is_cached, Attributes::from_file_attributes(&entry.attributes).expect("attributes"))
    };
    let mut settled = |scene: &mut Scene| {
        (0..200)
            .find_map(|_| Some(listed(scene)).filter(|(is_cached, _)| *is_cached))
            .expect("from the cache")
            .1
    };
    let first = settled(&mut scene);
    // The holder only read the file: GETATTR shows that, and listings do not change.
    let asked = reported(&mut scene, 1, holder_reply(first.change, ORIGINAL + 3, ORIGINAL));
    assert_eq!(asked.time_access, second(ORIGINAL + 3));
    assert_eq!(settled(&mut scene), first);
    // The holder changed the file too: listings show that afterwards.
    reported(&mut scene, 2, holder_reply(first.change, ORIGINAL + 3, ORIGINAL + 5));
    let changed = settled(&mut scene);
    assert!(changed.change > first.change, "{changed:?}");
    // SETATTR sets both times, or only the one that nothing else reports.
    for (slot, (accessed, modified)) in [(7, 9), (11, 9)].into_iter().enumerate() {
        let handed = hand_in(stateid, times(second(ORIGINAL + accessed), second(ORIGINAL + modified)));
        assert_eq!(scene.holder.status(vec![putfh(file), handed]), Status::OK, "{slot}");
        let shown = settled(&mut scene);
        let times = (shown.time_access, shown.time_modify);
        assert_eq!(times, (second(ORIGINAL + accessed), second(ORIGINAL + modified)));
    }
    // The holder flushes its data.
    let before = settled(&mut scene);
    assert_eq!(scene.holder.status(vec![putfh(file), write(stateid)]), Status::OK);
    assert!(settled(&mut scene).change > before.change);
    assert_eq!(return_delegation(&mut scene.holder, file, stateid), Status::OK);
    settled(&mut scene);
}
