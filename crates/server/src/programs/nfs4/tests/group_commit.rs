//! The changes of a compound become durable together, before its reply.

use std::sync::Arc;

use protocol::nfs4::compound::{Op, OpResult};
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::open::ShareAccess;
use protocol::nfs4::ops::remove::RemoveArgs;
use protocol::nfs4::ops::setattr::SetAttrArgs;
use protocol::nfs4::ops::write::WriteArgs;
use protocol::nfs4::types::{StableHow, Stateid, Status};
use vfs::fault::{Faulty, Method};
use vfs::{Error, MemFs};
use xdr::Opaque;

use crate::testing::minor0::v40_lab_of;
use crate::testing::{Lab, at, create, faulty, lab_of, lookup, mode, name, open, putfh};

/// A client of an export that counts its group commits, with files `a`, `b` and `c`.
fn committing_lab() -> (Lab, Arc<Faulty<MemFs>>) {
    let (export, backend) = faulty();
    let mut lab = lab_of(vec![export]);
    for file in ["a", "b", "c"] {
        lab.file(&["export", file], b"");
    }
    (lab, backend)
}

fn remove(text: &'static str) -> Op {
    Op::Remove(RemoveArgs { target: name(text) })
}

fn chmod() -> Op {
    Op::SetAttr(SetAttrArgs { stateid: Stateid::ANONYMOUS, attributes: mode(0o700) })
}

fn write(stateid: Stateid, stable: StableHow) -> Op {
    Op::Write(WriteArgs { stateid, offset: 0, stable, data: Opaque::from_static(b"data") })
}

fn close(open_stateid: Stateid) -> Op {
    Op::Close(CloseArgs { seqid: 0, open_stateid })
}

/// Creates a file, writes and closes it; in the directory that was saved.
fn upload(file: &'static str) -> Vec<Op> {
    let write = write(Stateid::CURRENT, StableHow::FileSync);
    vec![Op::RestoreFh, create(file, b"owner"), write, close(Stateid::CURRENT)]
}

#[test]
fn all_changes_of_a_compound_share_one_commit() {
    let (mut lab, backend) = committing_lab();
    let before = backend.commits().count();
    lab.ok(at(&["export"], vec![remove("a"), chmod(), remove("b"), remove("c")]));
    assert_eq!(backend.commits().count(), before + 1);
    assert_eq!((backend.calls(Method::Remove), backend.calls(Method::Setattr)), (3, 1));
    let uploads = [vec![Op::SaveFh], upload("d"), upload("e"), upload("f")].concat();
    lab.ok(at(&["export"], uploads));
    assert_eq!((backend.commits().count(), lab.server.counts().opens), (before + 2, 0));
}

#[test]
fn a_compound_without_changes_commits_nothing() {
    let (mut lab, backend) = committing_lab();
    let before = backend.commits().count();
    lab.ok(at(&["export"], vec![open("a", b"owner", ShareAccess::READ), Op::GetFh]));
    assert_eq!(lab.status_at(&["export"], remove("missing")), Status::NOENT);
    assert_eq!(backend.commits().count(), before);
}

#[test]
fn changes_before_an_operation_that_fails_are_committed() {
    let (mut lab, backend) = committing_lab();
    let before = backend.commits().count();
    let result = lab.run(at(&["export"], vec![remove("a"), remove("missing"), remove("b")]));
    assert_eq!(result.status, Status::NOENT);
    assert_eq!((backend.commits().count(), backend.calls(Method::Remove)), (before + 1, 2));
}

#[test]
fn the_reply_ends_at_the_first_change_that_is_not_durable() {
    let (mut lab, backend) = committing_lab();
    backend.commits().fail_next(Method::Setattr, Error::NoSpace);
    let result = lab.run(at(&["export"], vec![remove("a"), chmod(), remove("b"), Op::GetFh]));
    assert_eq!(result.status, Status::NOSPC);
    let [.., OpResult::Remove(removed), OpResult::SetAttr(set)] = &result.results[..] else {
        panic!("{result:?}")
    };
    assert!(removed.as_result().is_ok());
    assert_eq!((set.status, set.attributes_set.iter().count()), (Status::NOSPC, 0));
    // The slot keeps this reply, and the next request runs.
    assert_eq!(lab.status_at(&["export"], lookup("b")), Status::NOENT);
}

#[test]
fn an_open_behind_the_end_of_the_reply_is_withdrawn() {
    let (mut lab, backend) = committing_lab();
    let (_, stateid) = lab.open(&["export", "a"], b"owner");
    assert_eq!(lab.server.counts().opens, 1);
    for failing in [Method::Create, Method::Remove] {
        backend.commits().fail_next(failing, Error::Io);
        // The second OPEN is of a file that this owner has open.
        let ops = vec![
            Op::SaveFh,
            remove("b"),
            create("new", b"owner"),
            Op::RestoreFh,
            open("a", b"owner", ShareAccess::BOTH),
        ];
        let result = lab.run(at(&["export"], ops));
        assert_eq!(result.status, Status::IO, "{failing:?}");
        assert_eq!(lab.server.counts().opens, 1, "{failing:?}");
        lab.file(&["export", "b"], b"");
        lab.ok(at(&["export"], vec![remove("new")]));
    }
    // The stateid is still the current one.
    assert_eq!(lab.status_at(&["export", "a"], close(stateid)), Status::OK);
}

#[test]
fn an_operation_on_state_waits_for_the_changes_before_it() {
    let (mut lab, backend) = committing_lab();
    let (file, stateid) = lab.open(&["export", "c"], b"owner");
    backend.commits().fail_next(Method::Remove, Error::Io);
    let result = lab.run(at(&["export"], vec![remove("a"), putfh(file), close(stateid)]));
    assert_eq!((result.status, lab.server.counts().opens), (Status::IO, 1));
    let before = backend.commits().count();
    lab.ok(at(&["export"], vec![remove("b"), putfh(file), close(stateid)]));
    assert_eq!((backend.commits().count(), lab.server.counts().opens), (before + 1, 0));
}

#[test]
fn version_4_0_commits_once_but_for_opens() {
    let (export, backend) = faulty();
    let mut lab = v40_lab_of(vec![export]);
    let opening = lab.open_op("file", b"owner");
    lab.opened(opening);
    let before = backend.commits().count();
    assert_eq!(lab.status(at(&["export"], vec![chmod(), chmod(), chmod()])), Status::OK);
    assert_eq!(backend.commits().count(), before + 1);
    backend.commits().fail_next(Method::Setattr, Error::Io);
    let opening = lab.open_op("file", b"owner");
    let result = lab.send(at(&["export"], vec![chmod(), opening.clone()]));
    assert_eq!(result.status, Status::IO);
    // The OPEN did not run: its seqid is the next one.
    lab.opened(opening);
}

#[test]
fn an_export_that_promises_nothing_defers_nothing() {
    let (mut lab, backend) = committing_lab();
    backend.be_unstable();
    let before = backend.commits().count();
    lab.ok(at(&["export"], vec![remove("a"), remove("b")]));
    assert_eq!(backend.commits().count(), before);
}
