//! Recalls by conflicting operations.

use bytes::Bytes;
use protocol::nfs4::attributes::number as n;
use protocol::nfs4::callback::CbOpResult;
use protocol::nfs4::callback::recall::CbRecallArgs;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::link::LinkArgs;
use protocol::nfs4::ops::open::{
    CreateHow, DelegationWant, NoDelegation, OpenArgs, OpenDelegation, OpenHow, ShareDeny,
};
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::rename::RenameArgs;
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::types::{Handle, Outcome, Stateid, Status};
use protocol::{nfs2, nfs3};
use xdr::Opaque;

use super::{
    BOTH, LEASE_SECONDS, READ, Scene, WRITE, counts, delegated, first_word, hold, opened, read, recalled,
    return_delegation, scene, set, status, write,
};
use crate::RecallError;
use crate::state::FileRecall;
use crate::testing::{KEY, Lab, PendingCall, at, getattr, mode, name, open, open_args, putfh, size};

#[test]
fn conflicting_open_waits_for_delegreturn() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    let stateid = hold(&mut holder, "file", READ);
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", BOTH)]));
    assert_eq!(status(flight.poll()), None);
    assert_eq!(recalled(&holder), [CbRecallArgs { stateid, truncate: false, handle: file }]);
    assert_eq!(status(flight.poll()), None, "the reply to the recall is not enough");
    // Operations without a conflict do not wait, and one recall serves all waiters.
    assert_eq!(other.status_at(&["export", "file"], getattr(&[n::SIZE])), Status::OK);
    let mut second = lab.start(1, at(&["export"], vec![open("file", b"o", WRITE)]));
    assert_eq!(status(second.poll()), None);
    assert!(holder.calls().is_empty());
    assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
    assert_eq!(status(flight.poll()), Some(Status::OK));
    assert_eq!(status(second.poll()), Some(Status::OK));
    assert_eq!(return_delegation(&mut holder, file, stateid), Status::BAD_STATEID, "it is gone");
    assert_eq!(counts(&lab), (2, 0, 0));
}

/// Starts operations of other clients, and states whether each conflicts with a read delegation.
pub(super) fn conflicts(scene: &mut Scene) -> Vec<(&'static str, bool, PendingCall)> {
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
    let sattr = nfs3::Sattr { size: Some(2), ..nfs3::Sattr::default() };
    let setattr = nfs3::SetattrArgs { object: wire, new_attributes: sattr, guard: None };
    let what = "NFSv3 SETATTR of the size";
    flights.push((what, true, other.start_nfs3(nfs3::Proc::SETATTR.0, &setattr)));
    let link = nfs3::LinkArgs { file: wire, link: place("link3") };
    flights.push(("NFSv3 LINK", true, other.start_nfs3(nfs3::Proc::LINK.0, &link)));
    let empty = nfs3::Sattr { size: Some(0), ..nfs3::Sattr::default() };
    let create = nfs3::CreateArgs { where_: place("file"), how: nfs3::CreateHow::Unchecked(empty) };
    flights.push(("NFSv3 CREATE", true, other.start_nfs3(nfs3::Proc::CREATE.0, &create)));
    let rename = nfs3::RenameArgs { from: place("file"), to: place("moved") };
    flights.push(("NFSv3 RENAME", true, other.start_nfs3(nfs3::Proc::RENAME.0, &rename)));
    let remove = nfs3::RemoveArgs { object: place("file") };
    flights.push(("NFSv3 REMOVE", true, other.start_nfs3(nfs3::Proc::REMOVE.0, &remove)));
    flights.extend(conflicts_of_version_2(other, (&wire, &export)));
    flights
}

/// As [`conflicts`], by calls of version 2.
fn conflicts_of_version_2(
    other: &mut Lab,
    (file, root): (&nfs3::FileHandle, &nfs3::FileHandle),
) -> Vec<(&'static str, bool, PendingCall)> {
    let short = |wire: &[u8]| {
        let (export, handle) = KEY.open(wire).unwrap();
        KEY.seal_short(export, &handle).unwrap()
    };
    let (file, dir) = (short(file), short(root));
    let place = |text: &'static str| nfs2::DirOpArgs { dir, name: Opaque::from_static(text.as_bytes()) };
    let mut flights = Vec::new();
    let mut start = |what, conflicts, procedure: nfs2::Proc, arguments: Bytes| {
        flights.push((what, conflicts, other.start_nfs2(procedure.0, &arguments)));
    };
    let read = nfs2::ReadArgs { file, offset: 0, count: 10, totalcount: 0 };
    start("NFSv2 READ", false, nfs2::Proc::READ, xdr::to_bytes(&read));
    let data = Opaque::from_static(b"x");
    let write = nfs2::WriteArgs { file, beginoffset: 0, offset: 0, totalcount: 0, data };
    start("NFSv2 WRITE", true, nfs2::Proc::WRITE, xdr::to_bytes(&write));
    for (what, attributes) in [
        ("NFSv2 SETATTR", nfs2::Sattr { mode: 0o600, ..nfs2::Sattr::NONE }),
        ("NFSv2 SETATTR of the size", nfs2::Sattr { size: 2, ..nfs2::Sattr::NONE }),
    ] {
        start(what, true, nfs2::Proc::SETATTR, xdr::to_bytes(&nfs2::SattrArgs { file, attributes }));
    }
    let link = nfs2::LinkArgs { from: file, to: place("link2") };
    start("NFSv2 LINK", true, nfs2::Proc::LINK, xdr::to_bytes(&link));
    let attributes = nfs2::Sattr { size: 0, ..nfs2::Sattr::NONE };
    let create = nfs2::CreateArgs { where_: place("file"), attributes };
    start("NFSv2 CREATE", true, nfs2::Proc::CREATE, xdr::to_bytes(&create));
    let rename = nfs2::RenameArgs { from: place("file"), to: place("moved") };
    start("NFSv2 RENAME", true, nfs2::Proc::RENAME, xdr::to_bytes(&rename));
    start("NFSv2 REMOVE", true, nfs2::Proc::REMOVE, xdr::to_bytes(&place("file")));
    flights
}

#[test]
fn conflicting_operations_recall_and_wait() {
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
                assert_eq!(return_delegation(&mut scene.holder, scene.file, stateid), Status::OK);
                flight.poll_bytes()
            });
            assert_eq!(answer.map(|bytes| first_word(&bytes)), Some(0), "{what} against {access:?}");
        }
    }
}

#[test]
fn holder_does_not_conflict_with_itself() {
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
    assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK, "although the file was removed");
    drop(lab.run(vec![]));
}

#[test]
fn backs_off_after_recall() {
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
        assert_eq!(return_delegation(holder, file, stateid), Status::OK);
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
                assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
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
fn recall_refers_to_granting_call_and_is_repeated() {
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

/// RFC 8881 §2.10.6.2: a repeated callback is the same request, even though the client has shown meanwhile that it has the reply.
#[test]
fn repeated_recall_refers_to_same_call() {
    let Scene { mut lab, mut holder, mut other, .. } = scene();
    holder.ok(at(&["export"], vec![open("file", b"o", READ)]));
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"o", WRITE)]));
    assert_eq!(status(flight.poll()), None);
    let call = holder.calls().pop().unwrap();
    holder.answer(call.refusal(Status::DELAY));
    assert_eq!(holder.status(vec![]), Status::OK);
    lab.pass(1);
    let again = holder.calls().pop().unwrap();
    assert_eq!(again.sequence().referring_calls, call.sequence().referring_calls);
    assert_eq!(again.sequence().referring_calls.len(), 1);
}

#[test]
fn administrator_recalls_file_by_path() {
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
    assert_eq!(recall(&lab, "/export//file/"), Ok(asked), "there is no second recall");
    assert!(holder.calls().is_empty() && other.calls().is_empty());
    lab.seconds += 2;
    holder.seconds += 2;
    assert_eq!(return_delegation(&mut holder, file, mine), Status::OK);
    assert_eq!(recall(&lab, "/export/file"), Ok(FileRecall { recalled: 1, revoked: 0 }));
    let totals = lab.server.snapshot(lab.now(), 10).delegations;
    assert_eq!((totals.granted_read, totals.recalls, totals.returned), (3, 2, 1));
    let two = std::time::Duration::from_secs(2);
    assert_eq!((totals.return_time, totals.slowest), (two, two));
    // A holder with an expired lease is revoked without a recall.
    lab.seconds += LEASE_SECONDS;
    assert_eq!(recall(&lab, "/export/second"), Ok(FileRecall { recalled: 0, revoked: 1 }));
    assert_eq!(recall(&lab, "/export/second"), Ok(FileRecall::default()));
    for path in ["file", "/exports/file", "/", ""] {
        assert_eq!(recall(&lab, path), Err(RecallError::NoExport), "{path}");
    }
    let missing = RecallError::Lookup("missing".into(), vfs::Error::NotFound);
    assert_eq!(recall(&lab, "/export/missing/file"), Err(missing));
}
