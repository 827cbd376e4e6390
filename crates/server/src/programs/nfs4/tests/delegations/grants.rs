//! Grants of delegations, and reasons for refusing them.

use protocol::nfs4::attributes::{Attributes, number as n};
use protocol::nfs4::callback::CbOp;
use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::delegation::{DelegationClaim, WantDelegationArgs};
use protocol::nfs4::ops::open::{
    DelegationType, DelegationWant, NoDelegation, OpenClaim, OpenDelegation, OpenHow, OpenResultFlags,
    ShareAccess, SpaceLimit, WhyNoDelegation,
};
use protocol::nfs4::types::{Bitmap, Stateid, Status};

use super::{BOTH, READ, Scene, WRITE, counts, delegated, opened, read, return_delegation, scene};
use crate::ExportTable;
use crate::testing::{Lab, at, create, getattr, lab, lab_of, lab_with, open, open_args, open_result, putfh};

#[test]
fn grants_read_delegation_without_writers() {
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
    assert_eq!(none, OpenDelegation::None, "another client writes");
    let busy = lab.handle(&["export", "busy"]);
    lab.ok(vec![putfh(busy), Op::Close(CloseArgs { seqid: 0, open_stateid: writer })]);
    let (_, read) = opened(&mut holder, open("busy", b"p", READ));
    assert!(delegated(&read).is_some(), "the writer has closed");
    assert!(holder.calls().is_empty() && other.calls().is_empty());
}

#[test]
fn grants_write_delegation_to_sole_opener() {
    let Scene { mut lab, mut holder, mut other, .. } = scene();
    for (text, access) in [("both", BOTH), ("write", WRITE)] {
        lab.file(&["export", text], b"12345");
        let (_, write) = opened(&mut holder, open(text, b"o", access));
        let OpenDelegation::Write(write) = write else { panic!("{write:?}") };
        assert!(!write.recall);
        // RFC 8881 §10.4.1: a size for which there is space.
        assert!(matches!(write.space_limit, SpaceLimit::Size(size) if size > 5), "{:?}", write.space_limit);
    }
    lab.file(&["export", "shared"], b"");
    opened(&mut lab, open("shared", b"o", READ));
    let (_, none) = opened(&mut other, open("shared", b"o", BOTH));
    assert_eq!(none, OpenDelegation::None, "another client reads");
    // Own opens do not conflict.
    let (_, write) = opened(&mut holder, create("new", b"o"));
    assert!(delegated(&write).is_some());
}

#[test]
fn answers_wants_with_grant_or_reason() {
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
    let first = wish(&mut holder, READ, Want::READ_DELEG);
    assert_eq!(kind(&first), Some(DelegationType::READ));
    assert_eq!(kind(&wish(&mut holder, READ, Want::ANY_DELEG)), Some(DelegationType::READ));
    assert_eq!(kind(&wish(&mut holder, BOTH, Want::ANY_DELEG)), Some(DelegationType::WRITE));
    assert_eq!(kind(&wish(&mut holder, BOTH, Want::READ_DELEG)), Some(DelegationType::READ));
    let why = |why: WhyNoDelegation| OpenDelegation::NoneExt(NoDelegation::Other(why.0));
    assert_eq!(wish(&mut holder, READ, Want::NO_DELEG), why(WhyNoDelegation::NOT_WANTED));
    assert_eq!(wish(&mut holder, READ, Want::CANCEL), why(WhyNoDelegation::CANCELLED));
    // RFC 8881 §18.16.3: a held delegation is not changed into another kind.
    let (_, again) = opened(&mut holder, open("a", b"o", BOTH.with_want(Want::WRITE_DELEG)));
    assert_eq!(again, why(WhyNoDelegation::NOT_SUPP_UPGRADE));
    let (_, none) = opened(&mut lab, open("b", b"o", READ.with_want(Want::READ_DELEG)));
    assert_eq!(none, OpenDelegation::NoneExt(NoDelegation::Resource(false)), "it cannot be called");
    let (file, stateid) = (holder.handle(&["export", "a"]), delegated(&first).unwrap().1);
    for (want, answer) in [
        (Want::NO_PREFERENCE, OpenDelegation::None),
        (Want::NO_DELEG, why(WhyNoDelegation::NOT_WANTED)),
        (Want::READ_DELEG, OpenDelegation::NoneExt(NoDelegation::Resource(false))),
    ] {
        let mut args = open_args("", b"local", READ.with_want(want), OpenHow::NoCreate);
        args.claim = OpenClaim::DelegateCurFh(stateid);
        let OpResult::Open(result) = holder.last(vec![putfh(file), Op::Open(args)]) else { panic!() };
        assert_eq!(result.into_result().unwrap().delegation, answer, "on its way back, {want:?}");
    }
}

/// RFC 8881 §18.16.3: CLAIM_FH opens a file by its handle, as Linux's client does.
#[test]
fn open_by_handle_gets_delegation() {
    let Scene { lab, mut holder, mut other, file } = scene();
    let by_handle = |client: &mut Lab, access: ShareAccess| {
        let mut args = open_args("", b"o", access, OpenHow::NoCreate);
        args.claim = OpenClaim::Fh;
        let OpResult::Open(result) = client.last(vec![putfh(file), Op::Open(args)]) else { panic!() };
        result.into_result().unwrap().delegation
    };
    let read = by_handle(&mut holder, READ);
    assert_eq!(delegated(&read).unwrap().0, DelegationType::READ);
    let wanted = by_handle(&mut other, READ.with_want(DelegationWant::READ_DELEG));
    let (kind, stateid) = delegated(&wanted).unwrap();
    assert_eq!((kind, counts(&lab)), (DelegationType::READ, (2, 2, 0)));
    by_handle(&mut holder, READ);
    assert_eq!(counts(&lab).1, 2, "a client has one delegation of a file");
    let unwanted = by_handle(&mut other, READ.with_want(DelegationWant::NO_DELEG));
    let why = WhyNoDelegation::NOT_WANTED.0;
    assert_eq!(unwanted, OpenDelegation::NoneExt(NoDelegation::Other(why)));
    assert_eq!(return_delegation(&mut other, file, stateid), Status::OK);
}

#[test]
fn grants_delegation_by_want_delegation() {
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
    assert_eq!(*result.as_result().unwrap(), contention, "a want recalls nothing");
    assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
    let write = given(&mut other, file, want(DelegationWant::WRITE_DELEG));
    assert_eq!(delegated(&write).unwrap().0, DelegationType::WRITE);
    let why = |why: WhyNoDelegation| OpenDelegation::NoneExt(NoDelegation::Other(why.0));
    let root = lab.handle(&["export"]);
    assert_eq!(given(&mut holder, root, want(DelegationWant::READ_DELEG)), why(WhyNoDelegation::IS_DIR));
    assert_eq!(given(&mut holder, file, want(DelegationWant::CANCEL)), why(WhyNoDelegation::CANCELLED));
    assert_eq!(holder.status(vec![putfh(file), want(DelegationWant::NO_DELEG)]), Status::INVAL);
    // §18.49.3: without a requested kind nothing is granted, for any claim.
    for nothing in [DelegationWant::NO_PREFERENCE, DelegationWant::NO_DELEG] {
        let want = ShareAccess::empty().with_want(nothing);
        let claim = DelegationClaim::Previous(DelegationType::READ);
        let op = Op::WantDelegation(WantDelegationArgs { want, claim });
        assert_eq!(holder.status(vec![putfh(file), op]), Status::INVAL, "{nothing:?}");
    }
    let previous = WantDelegationArgs { want: ShareAccess::empty(), claim: DelegationClaim::DelegatePrevFh };
    assert_eq!(holder.status(vec![putfh(file), Op::WantDelegation(previous)]), Status::NOTSUPP);
    holder.uid = 1000;
    let args = || vec![putfh(file), want(DelegationWant::WRITE_DELEG)];
    assert_eq!(holder.status(args()), Status::ACCESS, "as OPEN would say");
}

#[test]
fn grants_delegation_instead_of_open() {
    let mut lab = lab();
    let file = lab.file(&["export", "file"], b"hello");
    let mut holder = lab.reachable(b"holder", 11);
    holder.minor = 2;
    let OpResult::GetAttr(got) = holder.last(vec![putfh(file), getattr(&[n::OPEN_ARGUMENTS])]) else {
        panic!()
    };
    let known = Attributes::from_file_attributes(got.as_result().unwrap()).unwrap().open_arguments.unwrap();
    // RFC 9754 §3.1: OPEN_ARGS_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION is 21, and DELEG_TIMESTAMPS is 20.
    assert!(known.share_access_want.has(21) && known.share_access_want.has(20));
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
    assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
    // A client that already has an open gets both.
    let op = Op::Open(open_args("file", b"o", READ | one, OpenHow::NoCreate));
    let results = holder.ok(at(&["export"], vec![op]));
    let opened = open_result(results.last().unwrap());
    assert!(
        !opened.flags.contains(OpenResultFlags::NO_OPEN_STATEID) && delegated(&opened.delegation).is_some()
    );
    assert_eq!(return_delegation(&mut holder, file, delegated(&opened.delegation).unwrap().1), Status::OK);
    // A read delegation does not replace an open for writing.
    lab.file(&["export", "second"], b"");
    let access = (BOTH | one).with_want(DelegationWant::READ_DELEG);
    let results = holder.ok(at(&["export"], vec![open("second", b"o", access)]));
    let opened = open_result(results.last().unwrap());
    assert!(!opened.flags.contains(OpenResultFlags::NO_OPEN_STATEID) && !opened.stateid.is_special());
    assert_eq!(delegated(&opened.delegation).unwrap().0, DelegationType::READ);
    // Minor version 1 has no such flag.
    let mut other = lab.reachable(b"other", 12);
    let op = Op::Open(open_args("file", b"o", READ | one, OpenHow::NoCreate));
    assert_eq!(other.status_at(&["export"], op), Status::INVAL);
}

#[test]
fn read_only_export_grants_no_write_delegation() {
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

#[test]
fn limits_delegations_and_asks_for_some_back() {
    // One client may hold a quarter, but at least 1024.
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
    // RFC 8881 §20.6.3: it keeps three quarters of the 896 that it has, of all kinds (RDATA_DLG, WDATA_DLG, DIR_DLG).
    assert_eq!((args.objects_to_keep, args.type_mask), (672, Bitmap::of(&[0, 1, 2])));
    assert_eq!(asked.len(), 1, "not for every OPEN");
    drop(lab.run(vec![]));
}

/// One client may hold 1024 even if the limit is lower: here it has all.
#[test]
fn one_address_cannot_take_all_delegations() {
    let mut lab = lab_with(vec![crate::testing::export(1, "/export")], |settings| {
        settings.max_delegations = 8;
    });
    let names: Vec<&'static str> = (0..20).map(|i| &*format!("f{i}").leak()).collect();
    let granted = |holder: &mut Lab, names: &[&'static str]| {
        let given = names.iter().map(|text| opened(holder, create(text, b"o")).1);
        given.filter(|given| delegated(given).is_some()).count()
    };
    let mut greedy = lab.reachable(b"greedy", 11);
    assert_eq!(granted(&mut greedy, &names[..10]), 8);
    let mut same = lab.reachable(b"another name", 12);
    assert_eq!(granted(&mut same, &names[10..12]), 0);
    let mut other = lab.reachable_at([192, 0, 2, 2], b"other", 13);
    assert_eq!(granted(&mut other, &names[12..]), 1);
    assert_eq!(lab.server.counts().delegations, 9);
    drop(lab.run(vec![]));
}
