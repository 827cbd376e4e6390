//! Permission checks come before recalls.

use protocol::nfs3;
use protocol::nfs4::attributes::SetAttributes;
use protocol::nfs4::attributes::values::SetTime;
use protocol::nfs4::compound::Op;
use protocol::nfs4::ops::link::LinkArgs;
use protocol::nfs4::ops::open::{CreateHow, OpenHow};
use protocol::nfs4::ops::xattr::{RemoveXattrArgs, SetXattrOption};
use protocol::nfs4::types::{Handle, Stateid, Status, Time, Utf8};
use xdr::Opaque;

use super::directories::{NONE, changes, granted, make, remove, rename, with_directory};
use super::recalls::conflicts;
use super::{BOTH, READ, Scene, WRITE, first_word, hold, recalled, scene, scene_in, set, write};
use crate::programs::nfs4::xattr_tests;
use crate::testing::{Lab, PendingCall, at, lab_42, mode, name, open, open_args, putfh, size};

/// Asserts that an operation fails for lack of permission, without a recall.
#[track_caller]
fn refused(holder: &Lab, what: &str, mut flight: PendingCall) {
    let answer = flight.poll_bytes().unwrap_or_else(|| panic!("{what} waits"));
    let status = Status(first_word(&answer));
    // Version 3 has the same numbers for these.
    assert!([Status::ACCESS, Status::PERM].contains(&status), "{what}: {status:?}");
    assert_eq!(recalled(holder), [], "{what}");
}

#[test]
fn unpermitted_file_access_recalls_nothing() {
    for access in [READ, BOTH] {
        let count = conflicts(&mut scene()).len();
        for index in 0..count {
            let mut scene = scene();
            scene.lab.file(&["export", "source"], b"");
            assert_eq!(scene.lab.status(vec![putfh(scene.file), set(mode(0o600))]), Status::OK);
            hold(&mut scene.holder, "file", access);
            scene.other.uid = 1000;
            let (what, conflicts, flight) = conflicts(&mut scene).swap_remove(index);
            if conflicts || access == BOTH {
                refused(&scene.holder, what, flight);
            }
        }
    }
}

#[test]
fn unpermitted_directory_change_recalls_nothing() {
    let (mut first, directory) = with_directory(scene());
    let count = changes(&mut first, directory).len();
    for index in 0..count {
        let (mut scene, directory) = with_directory(scene());
        granted(&mut scene.holder, &["export", "d"], NONE);
        scene.other.uid = 1000;
        let (what, conflicts, flight) = changes(&mut scene, directory).swap_remove(index);
        if conflicts {
            refused(&scene.holder, what, flight);
        }
    }
}

#[test]
fn sticky_directory_recalls_for_owner_only() {
    let (Scene { mut lab, mut holder, mut other, .. }, directory) = with_directory(scene());
    lab.ok(vec![putfh(directory), set(mode(0o1777))]);
    granted(&mut holder, &["export", "d"], NONE);
    other.uid = 1000;
    for op in [remove("a"), rename("a", "c"), rename("inner", "c")] {
        let text = format!("{op:?}");
        assert_eq!(other.status(vec![putfh(directory), Op::SaveFh, op]), Status::PERM, "{text}");
    }
    assert_eq!(recalled(&holder), []);
    // It may make entries there.
    let mut flight = other.start(1, vec![putfh(directory), make("own")]);
    assert!(flight.poll().is_none());
    assert_eq!(recalled(&holder).len(), 1);
}

#[test]
fn missing_name_recalls_no_directory() {
    let (Scene { mut holder, mut other, .. }, directory) = with_directory(scene());
    granted(&mut holder, &["export", "d"], NONE);
    for op in [remove("absent"), rename("absent", "c")] {
        assert_eq!(other.status(vec![putfh(directory), Op::SaveFh, op]), Status::NOENT);
    }
    assert_eq!(recalled(&holder), []);
}

#[test]
fn checks_rights_for_each_attribute() {
    let to = |time| SetAttributes { time_modify_set: Some(time), ..SetAttributes::default() };
    let past = SetTime::ClientTime(Time { seconds: 1, nanoseconds: 0 });
    // The caller may write to the file but does not own it.
    for (attributes, expected) in [
        (to(SetTime::ServerTime).to_file_attributes(), None),
        (size(1), None),
        (to(past).to_file_attributes(), Some(Status::PERM)),
        (mode(0o600), Some(Status::PERM)),
    ] {
        let Scene { mut lab, mut holder, mut other, file } = scene();
        lab.ok(vec![putfh(file), set(mode(0o666))]);
        hold(&mut holder, "file", READ);
        other.uid = 1000;
        let answer = other.start(1, vec![putfh(file), set(attributes)]).poll();
        assert_eq!(answer.map(|answer| answer.status), expected);
        assert_eq!(recalled(&holder).len(), usize::from(expected.is_none()));
    }
}

#[test]
fn xattr_changes_need_write_permission() {
    let Scene { mut holder, mut other, file, .. } = scene_in(lab_42());
    hold(&mut holder, "file", READ);
    (other.uid, other.minor) = (1000, 2);
    for op in [
        xattr_tests::set(SetXattrOption::EITHER, "name", &b"value"[..]),
        Op::RemoveXattr(RemoveXattrArgs { name: xattr_tests::key("name") }),
    ] {
        assert_eq!(other.status(vec![putfh(file), op]), Status::ACCESS);
    }
    assert_eq!(recalled(&holder), []);
}

#[test]
fn owner_bypasses_mode_as_in_backend() {
    let Scene { mut lab, mut holder, mut other, file } = scene();
    let given = SetAttributes { owner: Some(Utf8::from_static(b"1000")), ..SetAttributes::default() };
    lab.ok(vec![putfh(file), set(given.to_file_attributes())]);
    lab.ok(vec![putfh(file), set(mode(0))]);
    hold(&mut holder, "file", READ);
    other.uid = 1000;
    // RFC 1813 §4.4: the owner's I/O without an open ignores the mode; OPEN does not.
    assert_eq!(other.status(at(&["export"], vec![open("file", b"o", WRITE)])), Status::ACCESS);
    assert_eq!(recalled(&holder), []);
    let mut flight = other.start(1, vec![putfh(file), write(Stateid::ANONYMOUS)]);
    assert!(flight.poll().is_none());
    assert_eq!(recalled(&holder).len(), 1);
}

#[test]
fn empty_setattr_recalls_nothing() {
    for access in [READ, BOTH] {
        let Scene { mut holder, mut other, file, .. } = scene();
        hold(&mut holder, "file", access);
        other.uid = 1000;
        let nothing = vec![putfh(file), set(SetAttributes::default().to_file_attributes())];
        assert_eq!(other.start(1, nothing).poll().map(|answer| answer.status), Some(Status::OK));
        let object = nfs3::FileHandle::new(&file).unwrap();
        let nothing = nfs3::SetattrArgs { object, new_attributes: nfs3::Sattr::default(), guard: None };
        let answer = other.start_nfs3(nfs3::Proc::SETATTR.0, &nothing).poll_bytes();
        assert_eq!(answer.map(|answer| first_word(&answer)), Some(0));
        assert_eq!(recalled(&holder), []);
    }
}

#[test]
fn returns_notdir_without_recall() {
    for uid in [0, 1000] {
        let (Scene { mut lab, mut holder, mut other, file }, _) = with_directory(scene());
        let a = lab.handle(&["export", "d", "a"]);
        granted(&mut other, &["export", "d"], NONE);
        hold(&mut holder, "file", READ);
        other.uid = uid;
        let open =
            Op::Open(open_args("new", b"o", WRITE, OpenHow::Create(CreateHow::Unchecked(mode(0o644)))));
        let link = Op::Link(LinkArgs { new_name: name("link") });
        for (slot, (saved, op)) in [
            (file, make("new")),
            (file, open),
            (file, remove("a")),
            (file, rename("a", "b")),
            (a, link.clone()),
            (file, link),
        ]
        .into_iter()
        .enumerate()
        {
            let text = format!("{op:?} by {uid}");
            let ops = vec![putfh(saved), Op::SaveFh, putfh(file), op];
            let answer = other.start(slot as u32 + 1, ops).poll();
            // RFC 8881 §15.1.2.6.
            assert_eq!(answer.map(|answer| answer.status), Some(Status::NOTDIR), "{text}");
            assert_eq!(recalled(&holder), [], "{text}");
        }
        let place =
            nfs3::DirOpArgs { dir: nfs3::FileHandle::new(&file).unwrap(), name: Opaque::from_static(b"new") };
        let mkdir = nfs3::MkdirArgs { where_: place, attributes: nfs3::Sattr::default() };
        let answer = other.start_nfs3(nfs3::Proc::MKDIR.0, &mkdir).poll_bytes();
        assert_eq!(answer.map(|answer| first_word(&answer)), Some(Status::NOTDIR.0), "MKDIR by {uid}");
        assert_eq!(recalled(&holder), []);
    }
}

#[test]
fn partly_permitted_rename_recalls_nothing() {
    // The caller may change the entries of `export` but not those of `d`.
    let moves = |root: Handle, d: Handle| {
        [(root, d, rename("file", "c")), (root, d, rename("file", "a")), (d, root, rename("a", "file"))]
    };
    for index in 0..3 {
        for delegates_directory in [false, true] {
            let (Scene { mut lab, mut holder, mut other, .. }, d) = with_directory(scene());
            let root = lab.handle(&["export"]);
            lab.ok(vec![putfh(root), set(mode(0o777))]);
            if delegates_directory {
                granted(&mut holder, &["export"], NONE);
            } else {
                hold(&mut holder, "file", READ);
            }
            other.uid = 1000;
            let (from, to, op) = moves(root, d)[index].clone();
            let flight = other.start(1, vec![putfh(from), Op::SaveFh, putfh(to), op]);
            refused(&holder, "RENAME", flight);
        }
    }
}
