//! Waiting operations prevent delegations of objects that they will change.

use protocol::nfs3;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::copy::CopyArgs;
use protocol::nfs4::ops::open::OpenDelegation;
use protocol::nfs4::ops::rename::RenameArgs;
use protocol::nfs4::ops::space::CloneArgs;
use protocol::nfs4::types::{Stateid, Status};
use vfs::Error;
use vfs::fault::{Fault, Method, Rule};
use xdr::{List, Opaque};

use super::directories::{remove, rename};
use super::{
    BOTH, READ, Scene, delegated, first_word, hold, opened, recalled, return_delegation, scene, scene_in,
    status,
};
use crate::testing::{at, faulty, lab_of, name, open, putfh};

#[test]
fn waiting_rename_blocks_delegation() {
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
        assert_eq!(none, OpenDelegation::None, "it will be moved");
        assert_eq!(recalled(&holder).len(), 1);
        assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
        assert_eq!(flight.poll_bytes().map(|bytes| first_word(&bytes)), Some(0));
        let (_, read) = opened(&mut other, open("file", b"p", READ));
        // The renamed file itself was never contended.
        assert!(delegated(&read).is_some(), "the operation has ended");
    }
}

#[test]
fn waiting_copy_blocks_delegation_of_destination() {
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
        assert_eq!(return_delegation(&mut holder, file, stateid), Status::OK);
        assert_eq!(status(flight.poll()), Some(Status::OK));
        let (_, read) = opened(&mut other, open("destination", b"p", READ));
        assert!(delegated(&read).is_some(), "the operation has ended");
    }
}

#[test]
fn failed_lookup_does_not_bypass_recall() {
    for (error, reported) in [(Error::Later, Status::DELAY), (Error::Io, Status::IO)] {
        for (looks, op) in [(0, remove("file")), (0, rename("file", "moved")), (1, rename("source", "file"))]
        {
            let text = format!("{op:?}");
            let (exported, backend) = faulty();
            let Scene { mut lab, mut holder, mut other, .. } = scene_in(lab_of(vec![exported]));
            lab.file(&["export", "source"], b"");
            let root = lab.handle(&["export"]);
            hold(&mut holder, "file", READ);
            backend.add(Rule::on(Method::Lookup, Fault::Fail(error)).after(looks).times(1));
            let ops = vec![putfh(root), Op::SaveFh, op];
            assert_eq!(status(other.start(1, ops.clone()).poll()), Some(reported), "{text}");
            assert_eq!(recalled(&holder), [], "{text}");
            let mut flight = other.start(2, ops);
            assert_eq!(status(flight.poll()), None, "{text}");
            assert_eq!(recalled(&holder).len(), 1, "{text}");
        }
    }
}
