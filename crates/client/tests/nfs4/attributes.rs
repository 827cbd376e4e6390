//! Extended attributes and access control lists.

use bytes::Bytes;
use client::acl::{Acl, Nfs4Ace};
use client::config::Version;
use client::errno::Errno;
use client::fs::FileSystem;
use client::xattr::XattrMode::{Create, Either, Replace};
use protocol::nfs4::types::OpNum;

use crate::world::{Fate, World};

fn value(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

fn with_directory(world: &World, fs: &FileSystem) {
    world.run(fs.mkdir(b"dir", 0o750)).unwrap();
}

#[test]
fn extended_attributes_are_created_replaced_listed_and_removed() {
    let world = World::new();
    let (fs, _) = world.mounted(Version::V42);
    with_directory(&world, &fs);
    let set =
        |name: &'static [u8], text, mode| world.run(fs.set_xattr(b"dir", name, value(text), mode, true));
    let get = |name: &'static [u8]| world.run(fs.get_xattr(b"dir", name, true));
    set(b"user.one", "1", Either).unwrap();
    set(b"user.two", "2", Create).unwrap();
    set(b"user.one", "3", Replace).unwrap();
    assert_eq!((get(b"user.one"), get(b"user.two")), (Ok(value("3")), Ok(value("2"))));
    let mut names = world.run(fs.list_xattrs(b"dir", true)).unwrap();
    names.sort();
    assert_eq!(names, ["user.one", "user.two"]);

    assert_eq!(set(b"user.one", "4", Create).unwrap_err().errno(), Errno::EEXIST);
    assert_eq!(set(b"user.none", "4", Replace).unwrap_err().errno(), Errno::ENODATA);
    assert_eq!(set(b"trusted.x", "4", Either).unwrap_err().errno(), Errno::EOPNOTSUPP);
    assert_eq!(set(b"user.", "4", Either).unwrap_err().errno(), Errno::EINVAL);
    let long = Bytes::from(vec![0; 65_537]);
    let error = world.run(fs.set_xattr(b"dir", b"user.long", long, Either, true)).unwrap_err();
    assert_eq!(error.errno(), Errno::E2BIG);
    world.run(fs.remove_xattr(b"dir", b"user.one", true)).unwrap();
    let error = world.run(fs.remove_xattr(b"dir", b"user.one", true)).unwrap_err();
    assert_eq!((error.errno(), get(b"user.one").unwrap_err().errno()), (Errno::ENODATA, Errno::ENODATA));
}

#[test]
fn a_long_list_is_read_in_parts_without_gaps() {
    let world = World::new();
    let (fs, peer) = world.mounted(Version::V42);
    with_directory(&world, &fs);
    let mut expected: Vec<Bytes> =
        (0..200).map(|number| format!("user.{number:0>240}").into_bytes().into()).collect();
    for name in &expected {
        world.run(fs.set_xattr(b"dir", name, value(""), Create, true)).unwrap();
    }
    // 200 × (4 + 240) bytes fit one part of 64 KiB; 300 do not.
    for number in 200..300 {
        let name: Bytes = format!("user.{number:0>240}").into_bytes().into();
        world.run(fs.set_xattr(b"dir", &name, value(""), Create, true)).unwrap();
        expected.push(name);
    }
    peer.compounds.borrow_mut().clear();
    let mut names = world.run(fs.list_xattrs(b"dir", true)).unwrap();
    names.sort();
    assert_eq!((names, peer.count(OpNum::LISTXATTRS)), (expected, 2));
}

#[test]
fn a_change_whose_reply_is_lost_has_happened_once() {
    let world = World::new();
    let (fs, peer) = world.mounted(Version::V42);
    with_directory(&world, &fs);
    let mut has_lost = false;
    peer.judge(move |ops| match ops.contains(&OpNum::SETXATTR) && !std::mem::replace(&mut has_lost, true) {
        true => Fate::LoseReply,
        false => Fate::Serve,
    });
    world.run(fs.set_xattr(b"dir", b"user.one", value("1"), Create, true)).unwrap();
    assert_eq!(peer.count(OpNum::SETXATTR), 2, "it is sent again, and answered from the slot");
}

#[test]
fn version_4_1_has_no_extended_attributes_and_no_holes() {
    let world = World::new();
    let (fs, peer) = world.mounted(Version::V41);
    with_directory(&world, &fs);
    peer.compounds.borrow_mut().clear();
    let error = world.run(fs.get_xattr(b"", b"user.one", true)).unwrap_err();
    assert_eq!((error.errno(), peer.count(OpNum::GETXATTR)), (Errno::EOPNOTSUPP, 0));
}

#[test]
fn a_list_of_version_4_is_read_set_and_seen_in_the_mode() {
    for version in [Version::V41, Version::V42] {
        let world = World::new();
        let (fs, _) = world.mounted(version);
        with_directory(&world, &fs);
        let object = world.run(fs.resolve(b"dir", true)).unwrap();
        let support = world.run(fs.client().acl_support(fs.caller(), object.handle)).unwrap();
        assert_ne!(support & 1, 0, "it allows");
        let Acl::Nfs4(mut entries) = world.run(fs.get_acl(b"dir")).unwrap() else { panic!("version 4") };
        assert!(entries.iter().any(|entry| &entry.who[..] == b"OWNER@"));
        // ACE4_GENERIC_READ for a user by number.
        let named = Nfs4Ace { kind: 0, flags: 0, mask: 0x0012_0081, who: value("1234") };
        entries.insert(0, named);
        let attributes = world.run(fs.set_acl(b"dir", &Acl::Nfs4(entries))).unwrap().unwrap();
        assert_eq!(attributes.mode & 0o700, 0o700);
        let Acl::Nfs4(entries) = world.run(fs.get_acl(b"dir")).unwrap() else { panic!("version 4") };
        let of_user = |entry: &&Nfs4Ace| entry.who.starts_with(b"1234") && entry.kind == 0;
        assert!(entries.iter().find(of_user).is_some_and(|entry| entry.mask & 1 != 0), "{entries:?}");
        let posix = Acl::Posix(client::acl::PosixAcl::default());
        assert_eq!(world.run(fs.set_acl(b"dir", &posix)).unwrap_err().errno(), Errno::EOPNOTSUPP);
    }
}
