//! Delegations for reading: what is local under them, and how they end.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::attributes::SetAttributes;
use client::config::Version;
use client::delegations::{DelegationCounts, IDLE_MAX};
use client::errno::Errno;
use client::fs::inode::OpenFlags;
use client::fs::{File, FileSystem, OpenOptions};
use client::results::OpenMode;
use protocol::nfs4::types::OpNum;

use crate::world::{Fate, LEASE, Peer, World, root, user};

const VERSIONS: [Version; 2] = [Version::V41, Version::V42];
const WRITE: OpenOptions = OpenOptions { mode: OpenMode::WRITE, ..OpenOptions::READ };

/// Creates a file with another client, which leaves.
fn make(world: &Rc<World>, name: &[u8], text: &'static [u8]) {
    let (fs, _) = world.mounted(Version::V42);
    let file = world.run(fs.open(name, &OpenOptions::CREATE)).unwrap();
    world.run(file.write_at(0, Bytes::from_static(text))).unwrap();
    world.run(file.close()).unwrap();
    world.run(fs.client().close()).unwrap();
}

fn open(world: &World, fs: &FileSystem, name: &[u8]) -> File {
    world.run(fs.open(name, &OpenOptions::READ)).unwrap()
}

fn read(world: &World, file: &File) -> Vec<u8> {
    world.run(file.read_at(0, 1 << 20)).unwrap().concat()
}

fn close(world: &World, file: File) {
    world.run(file.close()).unwrap();
}

fn counts(fs: &FileSystem) -> DelegationCounts {
    fs.client().delegation_counts()
}

/// Lets the server try the back channel, before which it grants nothing.
fn settle(world: &World) {
    world.pass(Duration::from_secs(2));
}

#[test]
fn opens_reads_attributes_and_closes_are_local() {
    for version in VERSIONS {
        let world = World::new();
        make(&world, b"file", b"text");
        let (fs, peer) = world.mounted(version);
        settle(&world);
        let first = open(&world, &fs, b"file");
        assert_eq!((read(&world, &first), counts(&fs).granted), (b"text".to_vec(), 1));
        let before = peer.compounds.borrow().len();
        for _ in 0..1000 {
            let file = open(&world, &fs, b"file");
            assert_eq!(read(&world, &file), b"text");
            assert_eq!(world.run(file.stat()).unwrap().size, 4);
            close(&world, file);
        }
        close(&world, first);
        close(&world, open(&world, &fs, b"file"));
        assert_eq!(peer.compounds.borrow().len(), before, "{version}");
        assert_eq!(counts(&fs).local_opens, 1001);

        world.run(fs.client().close()).unwrap();
        assert_eq!((peer.count(OpNum::OPEN), peer.count(OpNum::CLOSE)), (1, 1));
        assert_eq!((peer.count(OpNum::DELEGRETURN), counts(&fs).returned), (1, 1));
        let left = world.server().counts();
        assert_eq!((left.opens, left.delegations, left.clients), (0, 0, 0));
    }
}

#[test]
fn attributes_and_data_stay_valid_without_requests() {
    let world = World::new();
    make(&world, b"file", b"text");
    let (fs, peer) = world.mounted(Version::V42);
    settle(&world);
    let file = open(&world, &fs, b"file");
    assert_eq!(read(&world, &file), b"text");
    let asked = |op| peer.count(op);
    let before = (asked(OpNum::GETATTR), asked(OpNum::READ));
    for _ in 0..30 {
        world.pass(Duration::from_secs(100));
        assert_eq!(world.run(file.stat()).unwrap().size, 4);
        assert_eq!(read(&world, &file), b"text");
    }
    assert_eq!((asked(OpNum::GETATTR), asked(OpNum::READ)), before, "in 50 minutes");
    close(&world, file);
}

#[test]
fn a_recall_establishes_local_opens_and_the_other_clients_change_is_seen() {
    for version in VERSIONS {
        let world = World::new();
        make(&world, b"file", b"first");
        let ((one, peer), (two, _)) = (world.mounted(version), world.mounted(version));
        settle(&world);
        // The first open is the server's, the second is local.
        let (first, second) = (open(&world, &one, b"file"), open(&world, &one, b"file"));
        assert_eq!(read(&world, &second), b"first");
        let before = world.now();
        let writer = world.run(two.open(b"file", &WRITE)).unwrap();
        assert!(world.now() < before + Duration::from_secs(1), "the recall does not time out");
        settle(&world);
        let ops = peer.compounds.borrow().clone();
        let returned = ops.iter().position(|ops| ops.contains(&OpNum::DELEGRETURN)).unwrap();
        let reopened = ops.iter().rposition(|ops| ops.contains(&OpNum::OPEN)).unwrap();
        assert!(peer.count(OpNum::OPEN) == 2 && reopened < returned, "{ops:?}");
        assert_eq!((counts(&one).recalled, counts(&one).held), (1, 0));
        assert_eq!(world.server().counts().opens, 3);

        world.run(writer.write_at(0, Bytes::from_static(b"other"))).unwrap();
        world.run(writer.close()).unwrap();
        // After the timeout of attributes, as without a delegation.
        world.pass(Duration::from_secs(100));
        assert_eq!((read(&world, &first), read(&world, &second)), (b"other".to_vec(), b"other".to_vec()));
        close(&world, first);
        close(&world, second);
        assert_eq!(world.server().counts().opens, 0);
        assert_eq!(read(&world, &open(&world, &one, b"file")), b"other");
    }
}

#[test]
fn a_recall_of_a_file_that_is_not_open_is_one_compound() {
    let world = World::new();
    make(&world, b"file", b"text");
    let ((one, peer), (two, _)) = (world.mounted(Version::V42), world.mounted(Version::V42));
    settle(&world);
    close(&world, open(&world, &one, b"file"));
    let before = peer.compounds.borrow().len();
    world.run(two.set_attributes(b"file", &SetAttributes::with_mode(0o600), true)).unwrap();
    let sent = peer.compounds.borrow()[before..].to_vec();
    assert_eq!(sent, [vec![OpNum::SEQUENCE, OpNum::PUTFH, OpNum::DELEGRETURN, OpNum::CLOSE]]);
    assert_eq!(world.server().counts().opens, 0);
}

#[test]
fn the_server_checks_callers_that_it_has_not_seen() {
    let world = World::new();
    make(&world, b"file", b"text");
    let (fs, peer) = world.mounted(Version::V42);
    settle(&world);
    let inode = world.run(fs.mounted().root().lookup(&root(), b"file")).unwrap().0;
    let open_as = |id| world.run(inode.open(&user(id), OpenFlags::READ));
    let all = SetAttributes::with_mode(0o644);
    world.run(inode.set_attributes(&root(), None, &all)).unwrap();
    for expected in [1, 1] {
        world.run(open_as(7).unwrap().release()).unwrap();
        assert_eq!(peer.count(OpNum::OPEN), expected);
    }
    world.run(open_as(8).unwrap().release()).unwrap();
    world.run(open_as(8).unwrap().release()).unwrap();
    assert_eq!((peer.count(OpNum::OPEN), counts(&fs).held), (2, 1));
    // An own change of the mode does not end the delegation.
    world.run(inode.set_attributes(&root(), None, &SetAttributes::with_mode(0o600))).unwrap();
    assert_eq!(open_as(7).unwrap_err().errno(), Errno::EACCES);
    assert_eq!(counts(&fs).held, 1);
}

#[test]
fn own_writes_and_own_removals_work_under_a_delegation() {
    for version in VERSIONS {
        let world = World::new();
        make(&world, b"file", b"text");
        let (fs, peer) = world.mounted(version);
        settle(&world);
        let reader = open(&world, &fs, b"file");
        assert_eq!((read(&world, &reader), counts(&fs).held), (b"text".to_vec(), 1));
        // The delegation would not be recalled because of changes by its holder. It is returned for one for writing.
        let writer = world.run(fs.open(b"file", &WRITE)).unwrap();
        assert_eq!((peer.count(OpNum::DELEGRETURN), counts(&fs).granted, counts(&fs).held), (1, 2, 1));
        close(&world, open(&world, &fs, b"file"));
        settle(&world);
        world.run(writer.write_at(0, Bytes::from_static(b"TEXT"))).unwrap();
        assert_eq!(read(&world, &reader), b"TEXT");
        world.run(writer.close()).unwrap();
        assert_eq!((read(&world, &reader), world.run(fs.stat(b"file")).unwrap().size), (b"TEXT".to_vec(), 4));
        close(&world, reader);
        let local = open(&world, &fs, b"file");
        assert_eq!(counts(&fs).held, 1);
        world.run(fs.unlink(b"file")).unwrap();
        assert_eq!(read(&world, &local), b"TEXT", "it is open still");
        close(&world, local);
        assert_eq!((peer.count(OpNum::DELEGRETURN), counts(&fs).held), (2, 0));
        assert_eq!(world.server().counts().opens, 0);
    }
}

#[test]
fn two_mounts_of_one_client_see_each_others_changes() {
    let world = World::new();
    make(&world, b"file", b"first");
    let (one, peer) = world.mounted(Version::V42);
    settle(&world);
    close(&world, open(&world, &one, b"file"));
    let (two, _) = world.run(FileSystem::mount(one.client().clone(), root(), b"/export")).unwrap();
    assert_eq!(read(&world, &open(&world, &one, b"file")), b"first");
    let writer = world.run(two.open(b"file", &WRITE)).unwrap();
    world.run(writer.write_at(0, Bytes::from_static(b"other"))).unwrap();
    world.run(writer.close()).unwrap();
    assert_eq!(read(&world, &open(&world, &one, b"file")), b"other");
    assert_eq!(counts(&one).local_opens, 0);
    assert_eq!(peer.count(OpNum::OPEN), 4);
}

#[test]
fn delegations_survive_a_restart_of_the_server() {
    for version in VERSIONS {
        let world = World::new();
        make(&world, b"file", b"text");
        make(&world, b"closed", b"more");
        let ((fs, peer), (two, _)) = (world.mounted(version), world.mounted(version));
        settle(&world);
        let (first, second) = (open(&world, &fs, b"file"), open(&world, &fs, b"file"));
        let closed = open(&world, &fs, b"closed");
        read(&world, &closed);
        close(&world, closed);
        // The server's open is closed, so that the local one is reclaimed with the delegation.
        assert_eq!(read(&world, &second), b"text");
        world.restart();
        world.pass(LEASE);
        assert_eq!((counts(&fs).held, counts(&fs).lost), (2, 0));
        assert_eq!(peer.count(OpNum::OPEN), 4, "one of each file before and after the restart");
        // Until then, another client may have given the name to another file.
        world.run(fs.read_dir(b"", false)).unwrap();
        close(&world, open(&world, &fs, b"closed"));
        assert_eq!((read(&world, &second), peer.count(OpNum::OPEN)), (b"text".to_vec(), 4));

        // The server recalls by the new stateid, and knows the local open then.
        let writer = world.run(two.open(b"file", &WRITE)).unwrap();
        world.run(writer.write_at(0, Bytes::from_static(b"TEXT"))).unwrap();
        world.run(writer.close()).unwrap();
        settle(&world);
        assert_eq!((counts(&fs).held, counts(&fs).recalled), (1, 1));
        world.pass(Duration::from_secs(100));
        assert_eq!(read(&world, &second), b"TEXT");
        close(&world, first);
        close(&world, second);
        assert_eq!(world.server().counts().opens, 1, "the parked one of the other file");
    }
}

#[test]
fn a_delegation_that_is_not_returned_in_time_is_revoked_and_its_opens_are_opened_again() {
    let world = World::new();
    make(&world, b"file", b"first");
    let ((one, peer), (two, _)) = (world.mounted(Version::V42), world.mounted(Version::V42));
    settle(&world);
    let (first, second) = (open(&world, &one, b"file"), open(&world, &one, b"file"));
    assert_eq!((read(&world, &first), counts(&one).held), (b"first".to_vec(), 1));
    peer.drop_callbacks(true);
    let mut writer = None;
    for _ in 0..20 {
        if let Ok(file) = world.run(two.open(b"file", &WRITE)) {
            writer = Some(file);
            break;
        }
    }
    let writer = writer.expect("the delegation is revoked after a lease time");
    peer.drop_callbacks(false);
    world.run(writer.write_at(0, Bytes::from_static(b"other"))).unwrap();
    world.run(writer.close()).unwrap();
    world.pass(LEASE);
    assert_eq!((counts(&one).held, counts(&one).lost), (0, 1));
    assert!(peer.count(OpNum::TEST_STATEID) > 0 && peer.count(OpNum::FREE_STATEID) > 0);
    assert_eq!((read(&world, &first), read(&world, &second)), (b"other".to_vec(), b"other".to_vec()));
    close(&world, first);
    close(&world, second);
    assert_eq!((world.server().counts().opens, world.server().counts().delegations), (0, 0));
}

#[test]
fn idle_delegations_are_returned() {
    let world = World::new();
    make(&world, b"file", b"text");
    let (fs, peer) = world.mounted(Version::V42);
    settle(&world);
    close(&world, open(&world, &fs, b"file"));
    world.pass(IDLE_MAX / 2);
    close(&world, open(&world, &fs, b"file"));
    world.pass(IDLE_MAX - Duration::from_secs(30));
    assert_eq!((counts(&fs).held, peer.count(OpNum::DELEGRETURN)), (1, 0));
    world.pass(Duration::from_secs(120));
    assert_eq!((counts(&fs).held, peer.count(OpNum::DELEGRETURN)), (0, 1));
    assert_eq!(world.server().counts().opens, 0);
}

/// Cuts off a client that holds a delegation and has the file open, until another client has changed the file.
fn change_unnoticed(world: &Rc<World>) -> (FileSystem, Rc<Peer>, File) {
    make(world, b"file", b"first");
    let ((one, peer), (two, _)) = (world.mounted(Version::V42), world.mounted(Version::V42));
    settle(world);
    let file = open(world, &one, b"file");
    assert_eq!((read(world, &file), counts(&one).held), (b"first".to_vec(), 1));
    peer.cut(world, true);
    world.pass(LEASE * 2);
    let writer = world.run(two.open(b"file", &WRITE)).unwrap();
    world.run(writer.write_at(0, Bytes::from_static(b"other"))).unwrap();
    world.run(writer.close()).unwrap();
    (one, peer, file)
}

#[test]
fn nothing_is_trusted_after_the_lease() {
    let world = World::new();
    let (_one, peer, file) = change_unnoticed(&world);
    let mut reading = Box::pin(file.read_at(0, 5));
    assert!(world.run_for(Duration::from_secs(5), reading.as_mut()).is_none(), "the server is asked");
    peer.cut(&world, false);
    assert_eq!(world.run(reading).unwrap().concat(), b"other");
}

#[test]
fn nothing_is_trusted_after_a_lapse_before_revoked_state_is_found() {
    let world = World::new();
    let (one, peer, file) = change_unnoticed(&world);
    // The client renews its lease, and cannot ask yet which state was revoked.
    peer.judge(|ops| if ops.contains(&OpNum::TEST_STATEID) { Fate::Hold } else { Fate::Serve });
    peer.cut(&world, false);
    world.pass(Duration::from_secs(5));
    assert!(peer.count(OpNum::TEST_STATEID) > 0 && counts(&one).lost == 0);
    assert_eq!(read(&world, &file), b"other");
    peer.release(&world);
    world.pass(Duration::from_secs(5));
    assert_eq!((counts(&one).held, counts(&one).lost), (0, 1));
    close(&world, file);
}
