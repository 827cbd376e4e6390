//! OPEN in version 4.0.

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::create::{CreateArgs, CreateType};
use protocol::nfs4::ops::open::{DelegationWant, ShareAccess};

use super::*;
use crate::testing::minor0::{V40Lab, v40_lab};
use crate::testing::{at, mode, name, open_args, putfh};

#[test]
fn a_retransmission_gets_the_first_reply_and_its_file() {
    let mut lab = v40_lab();
    lab.open("file", b"owner");
    let mut args = open_args("new", b"owner", ShareAccess::BOTH, OpenHow::NoCreate);
    args.how = OpenHow::Create(CreateHow::Guarded(mode(0o600)));
    (args.seqid, args.owner) = (lab.next(b"owner"), lab.owner(b"owner"));
    let ops = || at(&["export"], vec![Op::Open(args.clone()), Op::GetFh]);
    let first = lab.send(ops());
    assert_eq!((first.status, lab.send(ops())), (Status::OK, first.clone()), "not EXIST");
    let mut other = args.clone();
    other.claim = OpenClaim::Null(name("other"));
    assert_eq!(lab.status(at(&["export"], vec![Op::Open(other)])), Status::BAD_SEQID);
    let mut late = args.clone();
    late.seqid += 2;
    assert_eq!(lab.status(at(&["export"], vec![Op::Open(late)])), Status::BAD_SEQID);
    assert_eq!(lab.lab.server.counts().opens, 2);
}

/// libnfs opens through a symbolic link to a directory this way: a new owner repeats its first OPEN with the same seqid in the
/// directory that the link names.
#[test]
fn an_open_in_another_directory_is_not_a_retransmission() {
    let mut lab = v40_lab();
    let make = CreateArgs { object_type: CreateType::DIRECTORY, name: name("sub"), attributes: mode(0o777) };
    lab.last(at(&["export"], vec![Op::Create(make)]));
    let mut args = open_args("only there", b"owner", ShareAccess::BOTH, OpenHow::NoCreate);
    args.how = OpenHow::Create(CreateHow::Guarded(mode(0o600)));
    (args.seqid, args.owner) = (7, lab.owner(b"maker"));
    lab.last(at(&["export", "sub"], vec![Op::Open(args)]));
    let mut args = open_args("only there", b"owner", ShareAccess::BOTH, OpenHow::NoCreate);
    (args.seqid, args.owner) = (lab.next(b"owner"), lab.owner(b"owner"));
    let open = || Op::Open(args.clone());
    assert_eq!(lab.status(at(&["export"], vec![open()])), Status::NOENT);
    assert_eq!(lab.status(at(&["export"], vec![open()])), Status::NOENT, "a retransmission");
    let opened = lab.send(at(&["export", "sub"], vec![open(), Op::GetFh]));
    assert_eq!(opened.status, Status::OK);
    assert_eq!(lab.send(at(&["export", "sub"], vec![open(), Op::GetFh])), opened, "a retransmission");
}

#[test]
fn an_operation_on_another_object_is_not_a_retransmission() {
    let mut lab = v40_lab();
    let (file, open) = lab.open("file", b"owner");
    let close = lab.close_op(open, b"owner");
    assert_eq!(lab.status(vec![putfh(file), close.clone()]), Status::OK);
    assert_eq!(lab.status(at(&["export"], vec![close.clone()])), Status::BAD_SEQID);
    assert_eq!(lab.status(vec![putfh(file), close]), Status::OK, "a retransmission");
}

#[test]
fn errors_advance_the_seqid_except_those_of_the_rfc() {
    let mut lab = v40_lab();
    let absent = lab.open_op("absent", b"owner");
    assert_eq!(lab.status(at(&["export"], vec![absent.clone()])), Status::NOENT);
    assert_eq!(lab.status(at(&["export"], vec![absent])), Status::NOENT, "a retransmission");
    let Op::Open(mut stale) = lab.open_op("file", b"owner") else { panic!() };
    stale.owner.client_id = 5;
    assert_eq!(lab.status(at(&["export"], vec![Op::Open(stale.clone())])), Status::STALE_CLIENTID);
    stale.owner.client_id = lab.client_id;
    assert_eq!(lab.status(at(&["export"], vec![Op::Open(stale)])), Status::OK, "the same seqid");
}

#[test]
fn refuses_claims_and_wants_of_later_versions() {
    let mut lab = v40_lab();
    let with = |lab: &mut V40Lab, change: &dyn Fn(&mut OpenArgs)| {
        let Op::Open(mut args) = lab.open_op("file", b"owner") else { panic!() };
        change(&mut args);
        lab.status(at(&["export"], vec![Op::Open(args)]))
    };
    let wish = ShareAccess::READ.with_want(DelegationWant::READ_DELEG);
    assert_eq!(with(&mut lab, &|args| args.share_access = wish), Status::INVAL);
    assert_eq!(with(&mut lab, &|args| args.claim = OpenClaim::Fh), Status::BADXDR);
    let fifo = CreateArgs { object_type: CreateType::FIFO, name: name("fifo"), attributes: mode(0o777) };
    lab.last(at(&["export"], vec![Op::Create(fifo)]));
    // BADXDR did not advance the seqid.
    let mut args = open_args("fifo", b"owner", ShareAccess::READ, OpenHow::NoCreate);
    (args.seqid, args.owner) = (2, lab.owner(b"owner"));
    assert_eq!(lab.status(at(&["export"], vec![Op::Open(args)])), Status::SYMLINK);
}
