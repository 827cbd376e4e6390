//! I/O with delegation stateids, and claims of local opens.

use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::close::CloseArgs;
use protocol::nfs4::ops::delegation::DelegReturnArgs;
use protocol::nfs4::ops::open::{ClaimDelegateCur, OpenArgs, OpenClaim, OpenDelegation, OpenHow, ShareDeny};
use protocol::nfs4::types::{Stateid, Status};

use super::recalls::conflicts;
use super::{
    BOTH, READ, Scene, WRITE, counts, first_word, hold, opened, read, recalled, return_delegation, scene,
    set, status, write,
};
use crate::testing::{at, mode, name, open, open_args, putfh};

#[test]
fn delegation_stateid_permits_covered_io() {
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
fn reads_through_write_only_open_need_read_permission() {
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
fn client_claims_local_opens_before_return() {
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
    assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
    assert_eq!(status(flight.poll()), Some(Status::OK), "readers do not disturb a writer");
    assert_eq!(counts(&lab), (2, 0, 0), "one owner's opens are one");
    let previous = Op::Open(claim(OpenClaim::DelegatePrevFh, READ));
    assert_eq!(holder.status(vec![putfh(file), previous]), Status::NOTSUPP);
}

/// RFC 8881 §8.2.3: an open's deny mode applies to I/O without an open, even if that I/O was already waiting.
#[test]
fn open_claimed_before_return_denies_waiting_io() {
    const LOCKED: u32 = Status::LOCKED.0;
    const JUKEBOX: u32 = protocol::nfs3::NfsStat::JUKEBOX.0;
    let denied = [
        ("READ", LOCKED),
        ("WRITE", LOCKED),
        ("SETATTR of the size", LOCKED),
        ("NFSv3 READ", JUKEBOX),
        ("NFSv3 WRITE", JUKEBOX),
        ("NFSv3 SETATTR of the size", JUKEBOX),
        ("NFSv3 CREATE", JUKEBOX),
    ];
    for (what, answer) in denied {
        let mut scene = scene();
        let stateid = hold(&mut scene.holder, "file", BOTH);
        let started = conflicts(&mut scene).into_iter().find(|(name, ..)| *name == what);
        let (_, _, mut flight) = started.unwrap_or_else(|| panic!("{what} is not a conflict"));
        assert!(flight.poll_bytes().is_none(), "{what}");
        assert_eq!(recalled(&scene.holder).len(), 1, "{what}");
        let claim = OpenClaim::DelegateCurFh(stateid);
        let opening = OpenArgs {
            claim,
            share_deny: ShareDeny::BOTH,
            ..open_args("", b"local", BOTH, OpenHow::NoCreate)
        };
        scene.holder.ok(vec![putfh(scene.file), Op::Open(opening)]);
        assert_eq!(return_delegation(&mut scene.holder, scene.file, stateid), Status::OK);
        assert_eq!(flight.poll_bytes().map(|bytes| first_word(&bytes)), Some(answer), "{what}");
    }
}
