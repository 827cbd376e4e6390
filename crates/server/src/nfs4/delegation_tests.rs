//! Delegations between clients of a whole server: granted, recalled, waited for, returned, lost.

use protocol::nfs3;
use protocol::nfs4::attributes::{Attributes, number as n};
use protocol::nfs4::callback::recall::CbRecallArgs;
use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::compound::{CompoundResult, Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::delegation::{DelegReturnArgs, DelegationClaim, WantDelegationArgs};
use protocol::nfs4::ops::link::LinkArgs;
use protocol::nfs4::ops::open::{
    ClaimDelegateCur, CreateHow, DelegationType, DelegationWant, NoDelegation, OpenArgs, OpenClaim,
    OpenDelegation, OpenHow, OpenResultFlags, ShareAccess, ShareDeny, SpaceLimit, WhyNoDelegation,
};
use protocol::nfs4::ops::read::ReadArgs;
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::rename::RenameArgs;
use protocol::nfs4::ops::session::SequenceStatus;
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::stateid::{FreeStateidArgs, TestStateidArgs};
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{Bitmap, Handle, Outcome, StableHow, Stateid, Status};
use xdr::{Decode, List, Opaque, Reader};

use crate::nfs4::state::{FileRecall, State};
use crate::testing::{
    Flight, Lab, at, attributes_in, create, getattr, lab, lab_of, lab_with, lookup, mode, name, open,
    open_args, open_result, putfh, size,
};
use crate::{ExportTable, RecallError, Server, Settings};

mod changes;

const READ: ShareAccess = ShareAccess::READ;
const WRITE: ShareAccess = ShareAccess::WRITE;
const BOTH: ShareAccess = ShareAccess::BOTH;
/// Bound of a wait with the default lease time of 90 s.
const WAIT_SECONDS: u64 = 10;
const LEASE_SECONDS: u64 = 90;

/// A file, and two clients that can be called; the lab's own client cannot.
struct Scene {
    lab: Lab,
    holder: Lab,
    other: Lab,
    file: Handle,
}

fn scene() -> Scene {
    scene_in(lab())
}

fn scene_in(mut lab: Lab) -> Scene {
    let file = lab.file(&["export", "file"], b"hello");
    let (holder, other) = (lab.reachable(b"holder", 11), lab.reachable(b"other", 12));
    Scene { lab, holder, other, file }
}

/// OPEN, and what was delegated.
#[track_caller]
fn opened(client: &mut Lab, op: Op) -> (Stateid, OpenDelegation) {
    let results = client.ok(at(&["export"], vec![op]));
    let opened = open_result(results.last().unwrap());
    (opened.stateid, opened.delegation.clone())
}

fn delegated(delegation: &OpenDelegation) -> Option<(DelegationType, Stateid)> {
    match delegation {
        OpenDelegation::Read(read) => Some((DelegationType::READ, read.stateid)),
        OpenDelegation::Write(write) => Some((DelegationType::WRITE, write.stateid)),
        _ => None,
    }
}

/// Opens and closes a file, and keeps the delegation.
#[track_caller]
fn hold(client: &mut Lab, text: &'static str, access: ShareAccess) -> Stateid {
    let op = open(text, b"holder", access);
    let close = Op::Close(CloseArgs { seqid: 0, open_stateid: Stateid::CURRENT });
    let results = client.ok(at(&["export"], vec![op, close]));
    let delegation = &open_result(&results[results.len() - 2]).delegation;
    delegated(delegation).unwrap_or_else(|| panic!("{delegation:?}")).1
}

/// The delegations that are recalled from a client; it says that it has heard.
fn recalled(client: &Lab) -> Vec<CbRecallArgs> {
    let calls = client.calls();
    let recalls = calls.iter().map(|call| {
        let CbOp::Recall(args) = call.operation() else { panic!("{:?}", call.operation()) };
        client.answer(call.results(CbOpResult::Recall(Outcome::Ok(()))));
        *args
    });
    recalls.collect()
}

fn give_back(client: &mut Lab, file: Handle, stateid: Stateid) -> Status {
    client.status(vec![putfh(file), Op::DelegReturn(DelegReturnArgs { stateid })])
}

fn read(stateid: Stateid) -> Op {
    Op::Read(ReadArgs { stateid, offset: 0, count: 100 })
}

fn write(stateid: Stateid) -> Op {
    let data = Opaque::from_static(b"HELLO");
    Op::Write(WriteArgs { stateid, offset: 0, stable: StableHow::FileSync, data })
}

fn set(attributes: protocol::nfs4::attributes::FileAttributes) -> Op {
    Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes })
}

fn status(result: Option<CompoundResult>) -> Option<Status> {
    result.map(|result| result.status)
}

fn counts(lab: &Lab) -> (u64, u64, u64) {
    let counts = lab.server.counts();
    (counts.opens, counts.delegations, counts.revoked)
}

#[test]
fn reading_is_delegated_when_the_client_can_be_called_and_nobody_else_writes() {
    let Scene { mut lab, mut holder, mut other, .. } = scene();
    // RFC 8881 §10.4, and the three conditions of the paper of 2015, §5.1.
    let (_, none) = opened(&mut lab, open("file", b"o", READ));
    assert_eq!(none, OpenDelegation::None, "no back channel");
    let (_, read) = opened(&mut holder, open("file", b"o", READ));
    assert_eq!(delegated(&read).unwrap().0, DelegationType::READ);
    let (_, read) = opened(&mut other, open("file", b"o", READ));
    assert_eq!(delegated(&read).unwrap().0, DelegationType::READ, "readers do not disturb each other");
    lab.file(&["export", "busy"], b"");
    let (writer, _) = opened(&mut lab, open("busy", b"o", BOTH));
    let (_, none) = opened(&mut holder, open("busy", b"o", READ));
    assert_eq!(none, OpenDelegation::None, "somebody writes");
    let busy = lab.handle(&["export", "busy"]);
    lab.ok(vec![putfh(busy), Op::Close(CloseArgs { seqid: 0, open_stateid: writer })]);
    let (_, read) = opened(&mut holder, open("busy", b"p", READ));
    assert!(delegated(&read).is_some(), "nobody does any more");
    assert!(holder.calls().is_empty() && other.calls().is_empty());
}

#[test]
fn writing_is_delegated_to_the_only_one_who_has_the_file_open() {
    let Scene { mut lab, mut holder, mut other, .. } = scene();
    for (text, access) in [("both", BOTH), ("write", WRITE)] {
        lab.file(&["export", text], b"12345");
        let (_, write) = opened(&mut holder, open(text, b"o", access));
        let OpenDelegation::Write(write) = write else { panic!("{write:?}") };
        assert!(!write.recall);
        // RFC 8881 §10.4.1: a size that there is room for.
        assert!(matches!(write.space_limit, SpaceLimit::Size(size) if size > 5), "{:?}", write.space_limit);
    }
    lab.file(&["export", "shared"], b"");
    opened(&mut lab, open("shared", b"o", READ));
    let (_, none) = opened(&mut other, open("shared", b"o", BOTH));
    assert_eq!(none, OpenDelegation::None, "somebody reads");
    // One's own opens are no obstacle.
    let (_, write) = opened(&mut holder, create("new", b"o"));
    assert!(delegated(&write).is_some());
}

#[test]
fn wishes_are_answered_with_what_was_wanted_or_why_not() {
    let Scene { mut lab, mut holder, .. } = scene();
    let mut next = 0;
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let mut wish = |client: &mut Lab, access: ShareAccess, want| {
        next += 1;
        lab.file(&["export", names[next - 1]], b"");
        opened(client, open(names[next - 1], b"o", access.with_want(want))).1
    };
    use DelegationWant as Want;
    let kind = |delegation: &OpenDelegation| delegated(delegation).map(|(kind, _)| kind);
    assert_eq!(kind(&wish(&mut holder, READ, Want::READ_DELEG)), Some(DelegationType::READ));
    assert_eq!(kind(&wish(&mut holder, READ, Want::ANY_DELEG)), Some(DelegationType::READ));
    assert_eq!(kind(&wish(&mut holder, BOTH, Want::ANY_DELEG)), Some(DelegationType::WRITE));
    assert_eq!(kind(&wish(&mut holder, BOTH, Want::READ_DELEG)), Some(DelegationType::READ));
    let why = |why: WhyNoDelegation| OpenDelegation::NoneExt(NoDelegation::Other(why.0));
    assert_eq!(wish(&mut holder, READ, Want::NO_DELEG), why(WhyNoDelegation::NOT_WANTED));
    assert_eq!(wish(&mut holder, READ, Want::CANCEL), why(WhyNoDelegation::CANCELLED));
    // RFC 8881 §18.16.3: a delegation that is held is not turned into another one.
    let (_, again) = opened(&mut holder, open("a", b"o", BOTH.with_want(Want::WRITE_DELEG)));
    assert_eq!(again, why(WhyNoDelegation::NOT_SUPP_UPGRADE));
    let (_, none) = opened(&mut lab, open("b", b"o", READ.with_want(Want::READ_DELEG)));
    assert_eq!(none, OpenDelegation::NoneExt(NoDelegation::Resource(false)), "it cannot be called");
}

#[test]
fn a_conflicting_open_waits_until_the_delegation_is_back() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    let stateid = hold(&mut holder, "file", READ);
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", BOTH)]));
    assert_eq!(status(flight.poll()), None);
    assert_eq!(recalled(&holder), [CbRecallArgs { stateid, truncate: false, handle: file }]);
    assert_eq!(status(flight.poll()), None, "that it has heard is not enough");
    // Nobody else is held up, and the same recall serves all.
    assert_eq!(other.status_at(&["export", "file"], getattr(&[n::SIZE])), Status::OK);
    let mut second = lab.start(1, at(&["export"], vec![open("file", b"o", WRITE)]));
    assert_eq!(status(second.poll()), None);
    assert!(holder.calls().is_empty());
    assert_eq!(give_back(&mut holder, file, stateid), Status::OK);
    assert_eq!(status(flight.poll()), Some(Status::OK));
    assert_eq!(status(second.poll()), Some(Status::OK));
    assert_eq!(give_back(&mut holder, file, stateid), Status::BAD_STATEID, "it is gone");
    assert_eq!(counts(&lab), (2, 0, 0));
}

#[test]
fn the_wait_is_bounded_and_what_does_not_come_back_is_revoked_after_the_lease() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    lab.file(&["export", "second"], b"");
    let (stateid, kept) = (hold(&mut holder, "file", READ), hold(&mut holder, "second", READ));
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", WRITE)]));
    assert_eq!(status(flight.poll()), None);
    assert_eq!(recalled(&holder).len(), 1);
    lab.pass(WAIT_SECONDS - 1);
    assert_eq!(status(flight.poll()), None);
    lab.pass(1);
    assert_eq!(status(flight.poll()), Some(Status::DELAY));
    for second in WAIT_SECONDS..LEASE_SECONDS {
        (holder.seconds, other.seconds) = (lab.seconds, lab.seconds);
        for client in [&mut lab, &mut holder, &mut other] {
            assert_eq!(client.status(vec![]), Status::OK, "they live");
        }
        assert_eq!(holder.status(vec![putfh(file), read(stateid)]), Status::OK, "{second} s");
        lab.pass(1);
    }
    // §10.4.5: revoked, and that one alone.
    holder.seconds = lab.seconds;
    assert_eq!(holder.status(vec![putfh(file), read(stateid)]), Status::DELEG_REVOKED);
    let second = lab.handle(&["export", "second"]);
    assert_eq!(holder.status(vec![putfh(second), read(kept)]), Status::OK);
    other.seconds = lab.seconds;
    assert_eq!(other.status(at(&["export"], vec![open("file", b"o", WRITE)])), Status::OK);
    let flags = |holder: &mut Lab| match &holder.run(vec![]).results[0] {
        OpResult::Sequence(sequence) => sequence.as_result().unwrap().status_flags,
        other => panic!("{other:?}"),
    };
    assert_eq!(flags(&mut holder), SequenceStatus::RECALLABLE_STATE_REVOKED);
    let test = Op::TestStateid(TestStateidArgs { stateids: List::new(vec![stateid, kept]).unwrap() });
    let OpResult::TestStateid(tested) = holder.last(vec![test]) else { panic!() };
    assert_eq!(tested.into_result().unwrap().into_vec(), [Status::DELEG_REVOKED, Status::OK]);
    assert_eq!(give_back(&mut holder, file, stateid), Status::DELEG_REVOKED);
    let free = |stateid| Op::FreeStateid(FreeStateidArgs { stateid });
    assert_eq!(holder.status(vec![free(kept)]), Status::LOCKS_HELD);
    assert_eq!(holder.status(vec![free(stateid)]), Status::OK);
    assert_eq!(flags(&mut holder), SequenceStatus::empty());
    // The file's new writer, alone with it, has it delegated now; and there is the second file's.
    assert_eq!(counts(&lab), (1, 2, 0));
}

/// Who asks for what, and whether a delegation for reading stands against it.
fn conflicts(scene: &mut Scene) -> Vec<(&'static str, bool, Flight)> {
    let Scene { lab, other, file, .. } = scene;
    let key = |handle: &Handle| nfs3::FileHandle::new(handle).unwrap();
    let root = lab.handle(&["export"]);
    let (wire, export) = (key(file), key(&root));
    let place =
        |text: &'static str| nfs3::DirOpArgs { dir: export, name: Opaque::from_static(text.as_bytes()) };
    let at_root = |ops: Vec<Op>| at(&["export"], ops);
    let to_file = |op: Op| vec![putfh(*file), op];
    let both = |op: Op| vec![putfh(*file), Op::SaveFh, putfh(root), op];
    let in_root = |op: Op| vec![putfh(root), Op::SaveFh, op];
    let rename = |from, to| Op::Rename(RenameArgs { old_name: name(from), new_name: name(to) });
    let deny =
        OpenArgs { share_deny: ShareDeny::READ, ..open_args("file", b"deny", READ, OpenHow::NoCreate) };
    let truncating = OpenHow::Create(CreateHow::Unchecked(size(0)));
    let v4: Vec<(&'static str, bool, Vec<Op>)> = vec![
        ("OPEN to read", false, at_root(vec![open("file", b"r", READ)])),
        ("OPEN to write", true, at_root(vec![open("file", b"w", WRITE)])),
        ("OPEN with a deny", true, at_root(vec![Op::Open(deny)])),
        ("OPEN that truncates", true, at_root(vec![Op::Open(open_args("file", b"t", READ, truncating))])),
        ("READ", false, to_file(read(Stateid::ANONYMOUS))),
        ("WRITE", true, to_file(write(Stateid::ANONYMOUS))),
        ("SETATTR", true, to_file(set(mode(0o640)))),
        ("SETATTR of the size", true, to_file(set(size(2)))),
        ("LINK", true, both(Op::Link(LinkArgs { new_name: name("link") }))),
        ("RENAME from", true, in_root(rename("file", "moved"))),
        ("RENAME onto", true, in_root(rename("source", "file"))),
        ("REMOVE", true, at_root(vec![Op::Remove(RemoveArgs { target: name("file") })])),
    ];
    let mut flights = Vec::new();
    for (slot, (what, conflicts, ops)) in v4.into_iter().enumerate() {
        flights.push((what, conflicts, other.start(slot as u32 + 1, ops)));
    }
    let read = nfs3::ReadArgs { file: wire, offset: 0, count: 10 };
    flights.push(("NFSv3 READ", false, other.start_nfs3(nfs3::Proc::READ.0, &read)));
    let write = nfs3::WriteArgs {
        file: wire,
        offset: 0,
        count: 1,
        stable: nfs3::StableHow::FileSync,
        data: Opaque::from_static(b"x"),
    };
    flights.push(("NFSv3 WRITE", true, other.start_nfs3(nfs3::Proc::WRITE.0, &write)));
    let sattr = nfs3::Sattr { mode: Some(0o600), ..nfs3::Sattr::default() };
    let setattr = nfs3::SetattrArgs { object: wire, new_attributes: sattr, guard: None };
    flights.push(("NFSv3 SETATTR", true, other.start_nfs3(nfs3::Proc::SETATTR.0, &setattr)));
    let link = nfs3::LinkArgs { file: wire, link: place("link3") };
    flights.push(("NFSv3 LINK", true, other.start_nfs3(nfs3::Proc::LINK.0, &link)));
    let empty = nfs3::Sattr { size: Some(0), ..nfs3::Sattr::default() };
    let create = nfs3::CreateArgs { where_: place("file"), how: nfs3::CreateHow::Unchecked(empty) };
    flights.push(("NFSv3 CREATE", true, other.start_nfs3(nfs3::Proc::CREATE.0, &create)));
    let rename = nfs3::RenameArgs { from: place("file"), to: place("moved") };
    flights.push(("NFSv3 RENAME", true, other.start_nfs3(nfs3::Proc::RENAME.0, &rename)));
    let remove = nfs3::RemoveArgs { object: place("file") };
    flights.push(("NFSv3 REMOVE", true, other.start_nfs3(nfs3::Proc::REMOVE.0, &remove)));
    flights
}

/// The status that a reply begins with, of either version.
fn first_word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

#[test]
fn each_operation_recalls_what_stands_against_it_and_is_done_when_that_is_back() {
    for access in [READ, BOTH] {
        let count = conflicts(&mut scene()).len();
        for index in 0..count {
            let mut scene = scene();
            scene.lab.file(&["export", "source"], b"");
            let stateid = hold(&mut scene.holder, "file", access);
            let (what, conflicts, mut flight) = conflicts(&mut scene).swap_remove(index);
            let waits = conflicts || access == BOTH;
            let answer = flight.poll_bytes();
            assert_eq!(answer.is_none(), waits, "{what} against {access:?}");
            let calls = recalled(&scene.holder);
            assert_eq!(calls.len(), usize::from(waits), "{what} against {access:?}");
            let answer = answer.or_else(|| {
                assert_eq!(give_back(&mut scene.holder, scene.file, stateid), Status::OK);
                flight.poll_bytes()
            });
            assert_eq!(answer.map(|bytes| first_word(&bytes)), Some(0), "{what} against {access:?}");
        }
    }
}

#[test]
fn the_holder_is_not_in_its_own_way() {
    let Scene { mut lab, mut holder, file, .. } = scene();
    let stateid = hold(&mut holder, "file", BOTH);
    for ops in [
        vec![putfh(file), write(Stateid::ANONYMOUS)],
        vec![putfh(file), set(mode(0o640))],
        vec![putfh(file), Op::SetAttr(SetAttrArgs { stateid, attributes: size(3) })],
        at(&["export"], vec![open("file", b"again", BOTH)]),
        at(
            &["export"],
            vec![Op::SaveFh, Op::Rename(RenameArgs { old_name: name("file"), new_name: name("x") })],
        ),
        at(&["export"], vec![Op::Remove(RemoveArgs { target: name("x") })]),
    ] {
        assert_eq!(holder.status(ops), Status::OK);
    }
    assert!(holder.calls().is_empty());
    assert_eq!(give_back(&mut holder, file, stateid), Status::OK, "though the file is gone");
    drop(lab.run(vec![]));
}

#[test]
fn io_goes_by_a_delegation_as_far_as_it_covers() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    let reading = hold(&mut holder, "file", READ);
    assert_eq!(holder.status(vec![putfh(file), read(reading)]), Status::OK);
    assert_eq!(holder.status(vec![putfh(file), write(reading)]), Status::OPENMODE);
    assert_eq!(other.status(vec![putfh(file), read(reading)]), Status::BAD_STATEID, "another client's");
    lab.file(&["export", "second"], b"data");
    let second = lab.handle(&["export", "second"]);
    let writing = hold(&mut holder, "second", BOTH);
    assert_eq!(holder.status(vec![putfh(second), write(writing), read(writing)]), Status::OK);
    assert_eq!(holder.status(vec![putfh(file), read(writing)]), Status::BAD_STATEID, "another file's");
    for op in [
        Op::Close(CloseArgs { seqid: 0, open_stateid: writing }),
        Op::DelegReturn(DelegReturnArgs { stateid: Stateid { seqid: 7, ..writing } }),
    ] {
        assert_eq!(holder.status(vec![putfh(second), op]), Status::BAD_STATEID);
    }
}

#[test]
fn a_file_opened_for_writing_alone_is_read_by_whoever_may_read_it() {
    let Scene { mut lab, mut holder, .. } = scene();
    lab.file(&["export", "drop"], b"secret");
    let handle = lab.handle(&["export", "drop"]);
    lab.ok(vec![putfh(handle), set(mode(0o622))]);
    holder.uid = 1000;
    let stateid = hold(&mut holder, "drop", WRITE);
    assert_eq!(holder.status(vec![putfh(handle), write(stateid)]), Status::OK);
    assert_eq!(holder.status(vec![putfh(handle), read(stateid)]), Status::ACCESS);
}

#[test]
fn opens_made_under_a_delegation_come_before_it_goes_back() {
    let Scene { lab, mut holder, mut other, file } = scene();
    let stateid = hold(&mut holder, "file", READ);
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", WRITE)]));
    assert_eq!(status(flight.poll()), None);
    assert_eq!(recalled(&holder).len(), 1);
    let claim = |claim, access| OpenArgs { claim, ..open_args("", b"local", access, OpenHow::NoCreate) };
    let by_name = OpenClaim::DelegateCur(ClaimDelegateCur { delegate_stateid: stateid, file: name("file") });
    let (_, none) = opened(&mut holder, Op::Open(claim(by_name, READ)));
    assert_eq!(none, OpenDelegation::None);
    let by_handle = |stateid, access| Op::Open(claim(OpenClaim::DelegateCurFh(stateid), access));
    assert_eq!(holder.status(vec![putfh(file), by_handle(stateid, READ)]), Status::OK);
    assert_eq!(holder.status(vec![putfh(file), by_handle(stateid, WRITE)]), Status::INVAL, "not covered");
    let unknown = Stateid { seqid: 1, other: [7; 12] };
    assert_eq!(holder.status(vec![putfh(file), by_handle(unknown, READ)]), Status::BAD_STATEID);
    assert_eq!(status(flight.poll()), None);
    assert_eq!(give_back(&mut holder, file, stateid), Status::OK);
    assert_eq!(status(flight.poll()), Some(Status::OK), "readers do not disturb a writer");
    assert_eq!(counts(&lab), (2, 0, 0), "one owner's opens are one");
    let previous = Op::Open(claim(OpenClaim::DelegatePrevFh, READ));
    assert_eq!(holder.status(vec![putfh(file), previous]), Status::NOTSUPP);
}

#[test]
fn what_was_recalled_is_left_alone_for_a_while_and_for_longer_each_time() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    let contend = |holder: &mut Lab, other: &mut Lab| {
        let stateid = hold(holder, "file", READ);
        let mut flight = other.start_nfs3(
            nfs3::Proc::SETATTR.0,
            &nfs3::SetattrArgs {
                object: nfs3::FileHandle::new(&file).unwrap(),
                new_attributes: nfs3::Sattr { mode: Some(0o644), ..nfs3::Sattr::default() },
                guard: None,
            },
        );
        assert!(flight.poll_bytes().is_none());
        assert_eq!(recalled(holder).len(), 1);
        assert_eq!(give_back(holder, file, stateid), Status::OK);
        assert!(flight.poll_bytes().is_some());
    };
    let mut pauses = Vec::new();
    for _ in 0..3 {
        contend(&mut holder, &mut other);
        let began = lab.seconds;
        loop {
            (holder.seconds, other.seconds) = (lab.seconds, lab.seconds);
            let want = READ.with_want(DelegationWant::READ_DELEG);
            let (stateid, given) = opened(&mut holder, open("file", b"poll", want));
            holder.ok(vec![putfh(file), Op::Close(CloseArgs { seqid: 0, open_stateid: stateid })]);
            if let Some((_, stateid)) = delegated(&given) {
                assert_eq!(give_back(&mut holder, file, stateid), Status::OK);
                break;
            }
            assert_eq!(given, OpenDelegation::NoneExt(NoDelegation::Contention(false)));
            lab.pass(1);
        }
        pauses.push(lab.seconds - began);
    }
    assert_eq!(pauses, [15, 30, 60]);
}

#[test]
fn delegations_are_bounded_and_a_client_near_its_bound_is_asked_for_some() {
    // A quarter for one client, but 1024 at least.
    let mut lab = lab_with(vec![crate::testing::export(1, "/export")], |settings| {
        settings.max_delegations = 1024;
    });
    let mut holder = lab.reachable(b"holder", 11);
    let names: Vec<&'static str> = (0..1030).map(|i| &*format!("f{i}").leak()).collect();
    let mut granted = 0;
    for text in &names {
        let (_, given) = opened(&mut holder, create(text, b"o"));
        granted += usize::from(delegated(&given).is_some());
    }
    assert_eq!((granted, lab.server.counts().delegations), (1024, 1024));
    let asked = holder.calls();
    let CbOp::RecallAny(args) = asked[0].operation() else { panic!("{:?}", asked[0].operation()) };
    // RFC 8881 §20.6: it keeps three quarters of the 896 that it has, of both kinds of file delegations.
    assert_eq!((args.objects_to_keep, args.type_mask), (672, Bitmap::of(&[0, 1])));
    assert_eq!(asked.len(), 1, "not for every OPEN");
    drop(lab.run(vec![]));
}

#[test]
fn a_client_that_goes_lets_others_go_on_at_once() {
    let Scene { mut lab, mut holder, mut other, .. } = scene();
    hold(&mut holder, "file", READ);
    // Its lease is over: nobody waits for it (§8.4.3).
    lab.pass(LEASE_SECONDS / 2);
    other.seconds = lab.seconds;
    assert_eq!(other.status(vec![]), Status::OK, "or it would be gone too");
    lab.pass(LEASE_SECONDS / 2);
    other.seconds = lab.seconds;
    assert_eq!(other.status(at(&["export"], vec![open("file", b"o", WRITE)])), Status::OK);
    assert!(holder.calls().is_empty());
    holder.seconds = lab.seconds;
    let OpResult::Sequence(sequence) = &holder.run(vec![]).results[0] else { panic!() };
    let flags = sequence.as_result().unwrap().status_flags;
    assert_eq!(flags, SequenceStatus::EXPIRED_SOME_STATE_REVOKED);
}

#[test]
fn what_was_recalled_and_then_expired_counts_as_not_returned() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    let stateid = hold(&mut holder, "file", READ);
    lab.pass(1);
    other.seconds = lab.seconds;
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", WRITE)]));
    assert_eq!(status(flight.poll()), None);
    // One second before the delegation's own time is over, the holder's lease is.
    lab.pass(LEASE_SECONDS - 1);
    other.seconds = lab.seconds;
    assert_eq!(status(flight.poll()), Some(Status::DELAY));
    assert_eq!(other.status(at(&["export"], vec![open("file", b"o", WRITE)])), Status::OK);
    holder.seconds = lab.seconds;
    assert_eq!(holder.status(vec![putfh(file), read(stateid)]), Status::DELEG_REVOKED);
}

#[test]
fn an_operation_that_is_cut_off_leaves_nothing_behind() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    let stateid = hold(&mut holder, "file", READ);
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", WRITE)]));
    assert_eq!(status(flight.poll()), None);
    drop(flight);
    assert_eq!(recalled(&holder).len(), 1);
    assert_eq!(give_back(&mut holder, file, stateid), Status::OK);
    assert_eq!(counts(&lab), (0, 0, 0));
    assert!(lab.server.nfs4.is_quiet());
    drop(lab.run(vec![]));
}

#[test]
fn so_many_operations_of_a_connection_wait_that_the_others_are_read() {
    let Scene { lab, mut holder, mut other, file } = scene();
    hold(&mut holder, "file", READ);
    let mut flights: Vec<_> =
        (1..60).map(|slot| other.start(slot, vec![putfh(file), write(Stateid::ANONYMOUS)])).collect();
    let answers: Vec<_> = flights.iter_mut().map(|flight| status(flight.poll())).collect();
    assert!(answers[..48].iter().all(Option::is_none));
    // RFC 8881 §15.1.1.3: they come again.
    assert!(answers[48..].iter().all(|answer| *answer == Some(Status::DELAY)), "{answers:?}");
    drop(flights);
    assert!(lab.server.nfs4.is_quiet());
}

#[test]
fn a_recall_that_crosses_the_reply_that_grants_says_so_and_is_repeated() {
    let Scene { mut lab, mut holder, mut other, .. } = scene();
    let want = at(&["export"], vec![open("file", b"o", READ)]);
    holder.ok(want);
    let (slot, sequence) = (0, holder.sequence);
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", WRITE)]));
    assert_eq!(status(flight.poll()), None);
    let call = holder.calls().pop().unwrap();
    // RFC 8881 §2.10.6.3: the call whose reply the client must have seen.
    let referring = &call.sequence().referring_calls;
    assert_eq!(referring[0].session_id, holder.session);
    assert_eq!((referring[0].calls[0].slot_id, referring[0].calls[0].sequence_id), (slot, sequence));
    holder.answer(call.results(CbOpResult::Recall(Outcome::Error(Status::BAD_STATEID))));
    assert!(holder.calls().is_empty());
    lab.pass(1);
    let again = holder.calls();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].operation(), call.operation());
    // The next request on the slot shows that the client has the reply.
    holder.answer(again[0].results(CbOpResult::Recall(Outcome::Error(Status::BAD_STATEID))));
    assert_eq!(holder.status(vec![]), Status::OK);
    lab.pass(1);
    assert!(holder.calls()[0].sequence().referring_calls.is_empty());
}

#[test]
fn a_delegation_may_be_wanted_without_an_open() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    let want = |want| {
        let want = ShareAccess::empty().with_want(want);
        Op::WantDelegation(WantDelegationArgs { want, claim: DelegationClaim::Fh })
    };
    let given = |client: &mut Lab, handle, op| match client.last(vec![putfh(handle), op]) {
        OpResult::WantDelegation(result) => result.into_result().unwrap(),
        other => panic!("{other:?}"),
    };
    let read = given(&mut holder, file, want(DelegationWant::READ_DELEG));
    let (kind, stateid) = delegated(&read).unwrap();
    assert_eq!((kind, counts(&lab)), (DelegationType::READ, (0, 1, 0)));
    let mut flight = other.start(1, vec![putfh(file), want(DelegationWant::WRITE_DELEG)]);
    let Some(result) = flight.poll() else { panic!("it does not wait") };
    let OpResult::WantDelegation(result) = &result.results[2] else { panic!() };
    let contention = OpenDelegation::NoneExt(NoDelegation::Contention(false));
    assert_eq!(*result.as_result().unwrap(), contention, "a wish recalls nothing");
    assert_eq!(give_back(&mut holder, file, stateid), Status::OK);
    let write = given(&mut other, file, want(DelegationWant::WRITE_DELEG));
    assert_eq!(delegated(&write).unwrap().0, DelegationType::WRITE);
    let why = |why: WhyNoDelegation| OpenDelegation::NoneExt(NoDelegation::Other(why.0));
    let root = lab.handle(&["export"]);
    assert_eq!(given(&mut holder, root, want(DelegationWant::READ_DELEG)), why(WhyNoDelegation::IS_DIR));
    assert_eq!(given(&mut holder, file, want(DelegationWant::CANCEL)), why(WhyNoDelegation::CANCELLED));
    assert_eq!(holder.status(vec![putfh(file), want(DelegationWant::NO_DELEG)]), Status::INVAL);
    let previous = WantDelegationArgs { want: ShareAccess::empty(), claim: DelegationClaim::DelegatePrevFh };
    assert_eq!(holder.status(vec![putfh(file), Op::WantDelegation(previous)]), Status::NOTSUPP);
    holder.uid = 1000;
    let args = || vec![putfh(file), want(DelegationWant::WRITE_DELEG)];
    assert_eq!(holder.status(args()), Status::ACCESS, "as OPEN would say");
}

#[test]
fn nothing_is_delegated_for_writing_on_a_read_only_export() {
    let mut exported = crate::testing::export(1, "/export");
    let mut lab = lab_of(vec![exported.clone()]);
    let file = lab.file(&["export", "file"], b"hello");
    exported.options.read_only = true;
    lab.server.replace_exports(ExportTable::new(vec![exported]).unwrap());
    let mut holder = lab.reachable(b"holder", 11);
    let mut given = |want| {
        let want = ShareAccess::empty().with_want(want);
        let op = Op::WantDelegation(WantDelegationArgs { want, claim: DelegationClaim::Fh });
        match holder.last(vec![putfh(file), op]) {
            OpResult::WantDelegation(result) => result.into_result().unwrap(),
            other => panic!("{other:?}"),
        }
    };
    let resource = OpenDelegation::NoneExt(NoDelegation::Resource(false));
    assert_eq!(given(DelegationWant::WRITE_DELEG), resource);
    assert_eq!(delegated(&given(DelegationWant::READ_DELEG)).unwrap().0, DelegationType::READ);
}

/// The holder's answer to CB_GETATTR: its change attribute and its size.
fn tell(client: &Lab, change: u64, size: u64) {
    let call = client.calls().pop().expect("a question");
    let CbOp::GetAttr(asked) = call.operation() else { panic!("{:?}", call.operation()) };
    assert_eq!(asked.attributes, Bitmap::of(&[n::CHANGE, n::SIZE]));
    let said = Attributes { change: Some(change), size: Some(size), ..Attributes::default() };
    client.answer(call.results(CbOpResult::GetAttr(Outcome::Ok(said.to_file_attributes()))));
}

const ASKED: [u32; 3] = [n::CHANGE, n::SIZE, n::TIME_MODIFY];

fn answered(result: Option<CompoundResult>) -> Attributes {
    attributes_in(result.expect("an answer").results.last().unwrap())
}

#[test]
fn the_holder_of_a_write_delegation_is_asked_for_attributes() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    let before = lab.attributes(&["export", "file"], &ASKED);
    hold(&mut holder, "file", BOTH);
    assert_eq!(holder.attributes(&["export", "file"], &ASKED), before, "it asks nobody itself");
    lab.pass(1);
    (holder.seconds, other.seconds) = (lab.seconds, lab.seconds);
    let ask = || vec![putfh(file), getattr(&ASKED)];
    let mut flight = other.start(1, ask());
    assert!(flight.poll().is_none());
    let mut second = lab.start(1, ask());
    assert!(second.poll().is_none());
    // RFC 8881 §10.4.3: the value that it got with the delegation says that it has changed nothing.
    tell(&holder, before.change.unwrap(), 5);
    assert!(holder.calls().is_empty(), "those who ask at once ask once");
    assert_eq!(answered(flight.poll()), before);
    assert_eq!(answered(second.poll()), before);
    // Another value: it has, and its size counts; times and change attribute move on each time.
    let mut seen = vec![before.change];
    for slot in 2..5 {
        let mut flight = other.start(slot, ask());
        assert!(flight.poll().is_none());
        tell(&holder, before.change.unwrap() + 1, 777);
        let after = answered(flight.poll());
        assert_eq!(after.size, Some(777));
        assert!(!seen.contains(&after.change) && after.time_modify > before.time_modify);
        seen.push(after.change);
    }
    // Other attributes are known here, and a file that is not delegated for writing is nobody's to ask.
    assert_eq!(other.status(vec![putfh(file), getattr(&[n::MODE, n::TYPE])]), Status::OK);
    assert_eq!(other.status_at(&["export"], getattr(&ASKED)), Status::OK);
    assert!(holder.calls().is_empty());
    assert_eq!(counts(&lab), (0, 1, 0), "nothing was recalled");
}

#[test]
fn version_3_asks_the_holder_too() {
    let Scene { lab, mut holder, mut other, file } = scene();
    hold(&mut holder, "file", BOTH);
    let object = nfs3::FileHandle::new(&file).unwrap();
    let mut flight = other.start_nfs3(nfs3::Proc::GETATTR.0, &nfs3::GetattrArgs { object });
    assert!(flight.poll_bytes().is_none());
    tell(&holder, u64::MAX, 777);
    let mut reply = Reader::new(flight.poll_bytes().expect("an answer").slice(4..));
    assert_eq!(nfs3::Fattr::decode(&mut reply).unwrap().size, 777);
    assert!(lab.server.nfs4.is_quiet());
}

#[test]
fn a_holder_that_does_not_answer_for_its_file_gives_it_back() {
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
        assert_eq!(give_back(&mut holder, file, stateid), Status::OK);
        assert_eq!(answered(flight.poll()).size, Some(5));
        assert!(lab.server.nfs4.is_quiet());
    }
}

#[test]
fn a_delegation_that_comes_back_meanwhile_answers_the_question() {
    let Scene { mut holder, mut other, file, .. } = scene();
    let stateid = hold(&mut holder, "file", BOTH);
    let mut flight = other.start(1, vec![putfh(file), getattr(&ASKED)]);
    assert!(flight.poll().is_none());
    assert_eq!(holder.status(vec![putfh(file), write(stateid)]), Status::OK);
    assert_eq!(give_back(&mut holder, file, stateid), Status::OK);
    assert_eq!(answered(flight.poll()).size, Some(5));
}

#[test]
fn attributes_are_those_after_the_holder_was_waited_for() {
    let Scene { mut holder, mut other, file, .. } = scene();
    let stateid = hold(&mut holder, "file", BOTH);
    // LOOKUP sees five bytes, and GETATTR then waits.
    let mut flight = other.start(1, at(&["export"], vec![lookup("file"), getattr(&ASKED)]));
    assert!(flight.poll().is_none());
    let longer = Op::SetAttr(SetAttrArgs { stateid, attributes: size(9) });
    assert_eq!(holder.status(vec![putfh(file), longer]), Status::OK);
    assert_eq!(give_back(&mut holder, file, stateid), Status::OK);
    assert_eq!(answered(flight.poll()).size, Some(9));
}

#[test]
fn a_client_that_wants_only_one_of_them_gets_a_delegation_instead_of_an_open() {
    let mut lab = lab();
    let file = lab.file(&["export", "file"], b"hello");
    let mut holder = lab.reachable(b"holder", 11);
    holder.minor = 2;
    let OpResult::GetAttr(got) = holder.last(vec![putfh(file), getattr(&[n::OPEN_ARGUMENTS])]) else {
        panic!()
    };
    let known = Attributes::from_file_attributes(got.as_result().unwrap()).unwrap().open_arguments.unwrap();
    // RFC 9754 §3.1: OPEN_ARGS_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION is 21, and DELEG_TIMESTAMPS is 20.
    assert!(known.share_access_want.has(21) && !known.share_access_want.has(20));
    let one = ShareAccess::WANT_OPEN_XOR_DELEGATION;
    let results = holder.ok(at(&["export"], vec![open("file", b"o", READ | one), read(Stateid::CURRENT)]));
    let OpResult::Open(opened) = &results[results.len() - 2] else { panic!() };
    let opened = opened.as_result().unwrap();
    assert!(opened.flags.contains(OpenResultFlags::NO_OPEN_STATEID));
    // RFC 9754 §4: the stateid "MUST be set to the special all zero stateid".
    assert_eq!(opened.stateid, Stateid::ANONYMOUS);
    let (kind, stateid) = delegated(&opened.delegation).unwrap();
    assert_eq!((kind, counts(&lab)), (DelegationType::READ, (0, 1, 0)));
    assert_eq!(holder.status(vec![putfh(file), read(stateid)]), Status::OK);
    // No delegation: an open.
    let op = Op::Open(open_args("file", b"o", BOTH | one, OpenHow::NoCreate));
    let results = holder.ok(at(&["export"], vec![op]));
    let opened = open_result(results.last().unwrap());
    assert!(!opened.flags.contains(OpenResultFlags::NO_OPEN_STATEID) && !opened.stateid.is_special());
    assert_eq!(give_back(&mut holder, file, stateid), Status::OK);
    // Who has an open already gets both.
    let op = Op::Open(open_args("file", b"o", READ | one, OpenHow::NoCreate));
    let results = holder.ok(at(&["export"], vec![op]));
    let opened = open_result(results.last().unwrap());
    assert!(
        !opened.flags.contains(OpenResultFlags::NO_OPEN_STATEID) && delegated(&opened.delegation).is_some()
    );
    // Minor version 1 has no such wish.
    let mut other = lab.reachable(b"other", 12);
    let op = Op::Open(open_args("file", b"o", READ | one, OpenHow::NoCreate));
    assert_eq!(other.status_at(&["export"], op), Status::INVAL);
}

#[test]
fn the_administrator_recalls_a_file_by_its_path() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    lab.file(&["export", "second"], b"");
    let recall = |lab: &Lab, path: &str| {
        let recall = std::pin::pin!(lab.server.recall(lab.now(), path));
        futures_util::FutureExt::now_or_never(recall).expect("memory answers at once")
    };
    let (mine, others) = (hold(&mut holder, "file", READ), hold(&mut other, "file", READ));
    hold(&mut holder, "second", READ);
    let asked = FileRecall { recalled: 2, revoked: 0 };
    assert_eq!(recall(&lab, "/export/file"), Ok(asked));
    let call = |stateid| [CbRecallArgs { stateid, truncate: false, handle: file }];
    assert_eq!((recalled(&holder), recalled(&other)), (call(mine).to_vec(), call(others).to_vec()));
    assert_eq!(recall(&lab, "/export//file/"), Ok(asked), "they are not asked twice");
    assert!(holder.calls().is_empty() && other.calls().is_empty());
    lab.seconds += 2;
    holder.seconds += 2;
    assert_eq!(give_back(&mut holder, file, mine), Status::OK);
    assert_eq!(recall(&lab, "/export/file"), Ok(FileRecall { recalled: 1, revoked: 0 }));
    let totals = lab.server.look(lab.now(), 10).delegations;
    assert_eq!((totals.granted_read, totals.recalls, totals.returned), (3, 2, 1));
    let two = std::time::Duration::from_secs(2);
    assert_eq!((totals.return_time, totals.slowest), (two, two));
    // Whose lease has expired is not asked.
    lab.seconds += LEASE_SECONDS;
    assert_eq!(recall(&lab, "/export/second"), Ok(FileRecall { recalled: 0, revoked: 1 }));
    assert_eq!(recall(&lab, "/export/second"), Ok(FileRecall::default()));
    for path in ["file", "/exports/file", "/", ""] {
        assert_eq!(recall(&lab, path), Err(RecallError::NoExport), "{path}");
    }
    let missing = RecallError::Lookup("missing".into(), vfs::Error::NotFound);
    assert_eq!(recall(&lab, "/export/missing/file"), Err(missing));
}

/// A file of mode 0644, and a client that comes back to it after a restart of the server.
fn after_restart(change: impl FnOnce(&mut Settings)) -> (Lab, Handle) {
    let exports = vec![crate::testing::export(1, "/export")];
    let file = lab_of(exports.clone()).file(&["export", "file"], b"hello");
    let mut settings = Settings::new(crate::testing::KEY, 1, [3; 16], b"test".to_vec());
    change(&mut settings);
    let known = vec![bytes::Bytes::from_static(b"holder")];
    let state = State::new(&settings, known, std::time::Duration::ZERO);
    let mut server = Server::new(settings, ExportTable::new(exports).unwrap());
    server.nfs4 = state;
    let mut lab = Lab::without_session(std::sync::Arc::new(server), 11);
    let id = lab.exchange(b"holder");
    let session = lab.create_session(&id, crate::testing::channel());
    (lab.session, lab.sequence, lab.client_id) = (session.session_id, 0, id.client_id);
    (lab, file)
}

fn reclaimed(client: &mut Lab, file: Handle, access: ShareAccess, held: DelegationType) -> OpenDelegation {
    let claim = OpenClaim::Previous(held);
    let args = OpenArgs { claim, ..open_args("", b"o", access, OpenHow::NoCreate) };
    let results = client.ok(vec![putfh(file), Op::Open(args)]);
    open_result(results.last().unwrap()).delegation.clone()
}

#[test]
fn a_reclaimed_delegation_covers_what_its_open_was_judged_for() {
    let (mut lab, file) = after_restart(|_| {});
    // Who may only read claims to have held the file for writing.
    lab.uid = 1000;
    let given = reclaimed(&mut lab, file, READ, DelegationType::WRITE);
    let (kind, stateid) = delegated(&given).unwrap_or_else(|| panic!("{given:?}"));
    assert_eq!(kind, DelegationType::READ);
    assert_eq!(lab.status(vec![putfh(file), write(stateid)]), Status::OPENMODE);
    let (mut lab, file) = after_restart(|_| {});
    let given = reclaimed(&mut lab, file, BOTH, DelegationType::WRITE);
    assert_eq!(delegated(&given).unwrap().0, DelegationType::WRITE);
}

#[test]
fn where_delegations_are_switched_off_none_is_reclaimed_nor_asked_for() {
    let (mut lab, file) = after_restart(|settings| settings.max_delegations = 0);
    let given = reclaimed(&mut lab, file, READ, DelegationType::READ);
    assert_eq!(given, OpenDelegation::NoneExt(NoDelegation::Resource(false)));
    let exports = vec![crate::testing::export(1, "/export")];
    let mut lab = lab_with(exports, |settings| settings.max_delegations = 0);
    lab.file(&["export", "file"], b"");
    let mut client = lab.reachable(b"holder", 11);
    let (_, none) = opened(&mut client, open("file", b"o", READ));
    assert_eq!(none, OpenDelegation::None);
    assert!(client.calls().is_empty(), "it has nothing that it could return");
}

#[test]
fn nobody_waits_for_an_evicted_holder() {
    let Scene { lab, mut holder, mut other, .. } = scene();
    hold(&mut holder, "file", READ);
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", BOTH)]));
    assert_eq!(status(flight.poll()), None);
    let (shown, lost) = lab.server.evict(lab.now(), "holder").unwrap();
    assert_eq!((shown.delegations, lost.delegations), (1, 1));
    assert_eq!(status(flight.poll()), Some(Status::OK));
    assert_eq!(counts(&lab), (1, 0, 0));
}
