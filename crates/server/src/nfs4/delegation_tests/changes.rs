//! What is not delegated, because an operation that waits is about to change it.

use std::sync::atomic::Ordering::Relaxed;

use protocol::nfs3;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::copy::CopyArgs;
use protocol::nfs4::ops::open::OpenDelegation;
use protocol::nfs4::ops::rename::RenameArgs;
use protocol::nfs4::ops::space::CloneArgs;
use protocol::nfs4::types::{Stateid, Status};
use xdr::{List, Opaque};

use super::{BOTH, READ, Scene, delegated, first_word, give_back, hold, opened, recalled, scene, status};
use crate::testing::{Lab, at, name, open, putfh};

#[test]
fn nothing_is_delegated_of_what_an_operation_that_waits_is_about_to_move() {
    for is_version_3 in [false, true] {
        let Scene { mut lab, mut holder, mut other, file } = scene();
        lab.file(&["export", "source"], b"");
        let stateid = hold(&mut holder, "file", READ);
        let op = Op::Rename(RenameArgs { old_name: name("source"), new_name: name("file") });
        let root = nfs3::FileHandle::new(&lab.handle(&["export"])).unwrap();
        let place =
            |text: &'static str| nfs3::DirOpArgs { dir: root, name: Opaque::from_static(text.as_bytes()) };
        let rename = nfs3::RenameArgs { from: place("source"), to: place("file") };
        let mut flight = match is_version_3 {
            false => lab.start(1, at(&["export"], vec![Op::SaveFh, op])),
            true => lab.start_nfs3(nfs3::Proc::RENAME.0, &rename),
        };
        assert!(flight.poll_bytes().is_none(), "the target is delegated");
        let (_, none) = opened(&mut other, open("source", b"o", READ));
        assert_eq!(none, OpenDelegation::None, "it is about to be moved");
        assert_eq!(recalled(&holder).len(), 1);
        assert_eq!(give_back(&mut holder, file, stateid), Status::OK);
        assert_eq!(flight.poll_bytes().map(|bytes| first_word(&bytes)), Some(0));
        let (_, read) = opened(&mut other, open("file", b"p", READ));
        // The file that was moved was never contended itself.
        assert!(delegated(&read).is_some(), "the operation is over");
    }
}

#[test]
fn nothing_is_delegated_of_where_an_operation_that_waits_is_about_to_copy_to() {
    let any = Stateid::ANONYMOUS;
    let clone = CloneArgs {
        source_stateid: any,
        destination_stateid: any,
        source_offset: 0,
        destination_offset: 0,
        count: 0,
    };
    let copy = CopyArgs {
        source_stateid: any,
        destination_stateid: any,
        source_offset: 0,
        destination_offset: 0,
        count: 0,
        consecutive: true,
        synchronous: true,
        source_servers: List::default(),
    };
    for op in [Op::Clone(clone), Op::Copy(copy)] {
        let Scene { mut lab, mut holder, mut other, file } = scene();
        lab.minor = 2;
        let destination = lab.file(&["export", "destination"], b"");
        let stateid = hold(&mut holder, "file", BOTH);
        let mut flight = lab.start(1, vec![putfh(file), Op::SaveFh, putfh(destination), op]);
        assert_eq!(status(flight.poll()), None, "the source is delegated for writing");
        let (_, none) = opened(&mut other, open("destination", b"o", READ));
        assert_eq!(none, OpenDelegation::None, "it is about to be written");
        assert_eq!(recalled(&holder).len(), 1);
        assert_eq!(give_back(&mut holder, file, stateid), Status::OK);
        assert_eq!(status(flight.poll()), Some(Status::OK));
        let (_, read) = opened(&mut other, open("destination", b"p", READ));
        assert!(delegated(&read).is_some(), "the operation is over");
    }
}

#[test]
fn who_waits_for_many_looks_again_a_few_times_and_goes_on_when_only_its_own_is_left() {
    let Scene { lab, mut other, file, .. } = scene();
    let names: [&'static [u8]; 9] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i"];
    let mut holders: Vec<Lab> = (20..).zip(names).map(|(id, name)| lab.reachable(name, id)).collect();
    let held: Vec<Stateid> = holders.iter_mut().map(|holder| hold(holder, "file", READ)).collect();
    let own = hold(&mut other, "file", READ);
    let mut flight = other.start(1, at(&["export"], vec![open("file", b"w", BOTH)]));
    for (holder, stateid) in holders.iter_mut().zip(held) {
        assert_eq!(status(flight.poll()), None);
        assert_eq!(recalled(holder).len(), 1);
        assert_eq!(give_back(holder, file, stateid), Status::OK);
    }
    assert_eq!(status(flight.poll()), Some(Status::OK), "only its own is left");
    // Once at first, and when 8, 4 and 2 were left.
    assert_eq!(lab.server.delegation_counts().waits.load(Relaxed), 4);
    assert_eq!(give_back(&mut other, file, own), Status::OK);
}
