//! Delegations in version 4.0: callbacks over connections that the server makes, and opens that need the file's name.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::attributes::SetAttributes;
use client::config::Version;
use client::delegations::DelegationCounts;
use client::errno::Errno;
use client::error::OpError;
use client::fs::inode::{Inode, OpenFlags};
use client::fs::{File, FileSystem, OpenOptions};
use client::locks::{LockKind, LockOwner, LockRange};
use client::many::NewFile;
use client::results::OpenMode;
use protocol::nfs4::types::{OpNum, Status};

use crate::world::{Fate, LEASE, Peer, World, root};

const ONE: LockOwner = LockOwner::Process(1);

const WRITE: OpenOptions = OpenOptions { mode: OpenMode::WRITE, ..OpenOptions::READ };

/// Creates a file with another client, which leaves.
fn make(world: &Rc<World>, name: &[u8], text: &'static [u8]) {
    let (fs, _) = world.mounted(Version::V42);
    let file = world.run(fs.open(name, &OpenOptions::CREATE)).unwrap();
    world.run(file.write_at(0, Bytes::from_static(text))).unwrap();
    world.run(file.close()).unwrap();
    world.run(fs.client().close()).unwrap();
}

/// Mounts, lets the server try the way for callbacks, and has an owner confirmed: the first OPEN of an owner gets no delegation.
fn mounted(world: &Rc<World>) -> (FileSystem, Rc<Peer>) {
    make(world, b"any", b"");
    let (fs, peer) = world.mounted(Version::V40);
    world.pass(Duration::from_secs(2));
    close(world, open(world, &fs, b"any"));
    peer.compounds.borrow_mut().clear();
    (fs, peer)
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

#[test]
fn opens_reads_attributes_and_closes_are_local() {
    let world = World::new();
    make(&world, b"file", b"text");
    let (fs, peer) = mounted(&world);
    let first = open(&world, &fs, b"file");
    assert_eq!((read(&world, &first), counts(&fs).granted), (b"text".to_vec(), 1));
    let before = peer.compounds.borrow().len();
    for _ in 0..1000 {
        let file = open(&world, &fs, b"file");
        assert_eq!(read(&world, &file), b"text");
        assert_eq!(world.run(file.stat()).unwrap().size, 4);
        close(&world, file);
    }
    assert_eq!(peer.compounds.borrow().len(), before);
    close(&world, first);
    close(&world, open(&world, &fs, b"file"));
    assert_eq!((counts(&fs).local_opens, peer.count(OpNum::OPEN), peer.count(OpNum::CLOSE)), (1001, 1, 1));

    world.run(fs.client().close()).unwrap();
    assert_eq!((peer.count(OpNum::DELEGRETURN), counts(&fs).returned), (1, 1));
    let left = world.server().counts();
    assert_eq!((left.opens, left.delegations), (0, 0));
}

#[test]
fn a_recall_establishes_local_opens_by_their_name_and_the_other_clients_change_is_seen() {
    let world = World::new();
    make(&world, b"file", b"first");
    let ((one, peer), (two, _)) = (mounted(&world), world.mounted(Version::V42));
    let (first, second) = (open(&world, &one, b"file"), open(&world, &one, b"file"));
    assert_eq!(read(&world, &second), b"first");
    // The local open has the file's new name.
    world.run(one.rename(b"file", b"renamed")).unwrap();
    let before = world.now();
    let writer = world.run(two.open(b"renamed", &WRITE)).unwrap();
    assert!(world.now() < before + Duration::from_secs(1), "the recall does not time out");
    world.pass(Duration::from_secs(2));
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
}

#[test]
fn a_recall_of_a_file_that_is_not_open_is_one_compound() {
    let world = World::new();
    make(&world, b"file", b"text");
    let ((one, peer), (two, _)) = (mounted(&world), world.mounted(Version::V42));
    close(&world, open(&world, &one, b"file"));
    let before = peer.compounds.borrow().len();
    world.run(two.set_attributes(b"file", &SetAttributes::with_mode(0o600), true)).unwrap();
    let sent = peer.compounds.borrow()[before..].to_vec();
    assert_eq!(sent, [vec![OpNum::PUTFH, OpNum::DELEGRETURN]]);
    assert_eq!(world.server().counts().opens, 0);
}

/// 2015, Table 1, with version 4.0: the CLOSEs cannot be deferred, so that each file takes one OPEN, READ and CLOSE.
#[test]
fn ten_thousand_locked_reads_of_a_thousand_files_are_some_three_thousand_requests() {
    let world = World::new();
    let name = |number: usize| format!("file{number}").into_bytes();
    let (maker, _) = world.mounted(Version::V42);
    for number in 0..1000 {
        let file = world.run(maker.open(&name(number), &OpenOptions::CREATE)).unwrap();
        world.run(file.write_at(0, Bytes::from(vec![7; 4096]))).unwrap();
        close(&world, file);
    }
    world.run(maker.client().close()).unwrap();
    let (fs, peer) = mounted(&world);
    for number in 0..1000 {
        for _ in 0..10 {
            let file = open(&world, &fs, &name(number));
            world.run(file.lock(ONE, LockRange::WHOLE, LockKind::Shared)).unwrap();
            assert_eq!(read(&world, &file), [7; 4096]);
            world.run(file.unlock(ONE, LockRange::WHOLE)).unwrap();
            close(&world, file);
        }
    }
    let counted =
        [OpNum::OPEN, OpNum::READ, OpNum::CLOSE, OpNum::LOCK, OpNum::LOCKU].map(|op| peer.count(op));
    assert_eq!(counted, [1000, 1000, 1000, 0, 0]);
    world.run(fs.client().close()).unwrap();
    let returned = peer.count(OpNum::DELEGRETURN);
    let requests = peer.compounds.borrow().len() - returned;
    println!("{requests} requests, and {returned} with DELEGRETURN");
    assert!(requests <= 3010 && returned == 1000, "{requests}, {returned}");
    assert_eq!((world.server().counts().opens, world.server().counts().delegations), (0, 0));
}

#[test]
fn under_a_delegation_for_writing_data_stay_here_after_a_close_and_others_see_their_size() {
    let world = World::new();
    make(&world, b"file", b"text");
    let ((one, peer), (two, _)) = (mounted(&world), world.mounted(Version::V42));
    let writer = world.run(one.open(b"file", &WRITE)).unwrap();
    assert_eq!((counts(&one).granted, counts(&one).held), (1, 1));
    let again = world.run(one.open(b"file", &WRITE)).unwrap();
    world.run(again.lock(ONE, LockRange::WHOLE, LockKind::Exclusive)).unwrap();
    world.run(again.write_at(4, Bytes::from_static(b" and more"))).unwrap();
    world.run(again.unlock(ONE, LockRange::WHOLE)).unwrap();
    assert_eq!([OpNum::OPEN, OpNum::LOCK, OpNum::WRITE].map(|op| peer.count(op)), [1, 0, 0]);
    // CB_GETATTR.
    assert_eq!(world.run(two.stat(b"file")).unwrap().size, 13);
    assert_eq!((peer.count(OpNum::WRITE), counts(&one).held), (0, 1));
    close(&world, again);
    close(&world, writer);
    let reader = open(&world, &two, b"file");
    assert_eq!(read(&world, &reader), b"text and more");
    close(&world, reader);
    world.pass(Duration::from_secs(2));
    assert_eq!((counts(&one).recalled, counts(&one).held, world.server().counts().opens), (1, 0, 0));
}

#[test]
fn a_recall_makes_local_locks_known() {
    let world = World::new();
    make(&world, b"file", b"text");
    let ((one, peer), (two, _)) = (mounted(&world), world.mounted(Version::V42));
    let first = open(&world, &one, b"file");
    let second = open(&world, &one, b"file");
    world.run(second.lock(ONE, LockRange::WHOLE, LockKind::Shared)).unwrap();
    assert_eq!(peer.count(OpNum::LOCK), 0);
    let both = OpenOptions { mode: OpenMode::BOTH, ..OpenOptions::READ };
    let other = world.run(two.open(b"file", &both)).unwrap();
    world.pass(Duration::from_secs(2));
    assert_eq!((peer.count(OpNum::LOCK), counts(&one).held), (1, 0));
    let locking = other.try_lock(ONE, LockRange::WHOLE, LockKind::Exclusive);
    assert_eq!(world.run(locking).unwrap_err().errno(), Errno::EAGAIN);
    world.run(second.unlock(ONE, LockRange::WHOLE)).unwrap();
    world.run(other.try_lock(ONE, LockRange::WHOLE, LockKind::Exclusive)).unwrap();
    for file in [first, second, other] {
        close(&world, file);
    }
    assert_eq!((world.server().counts().opens, world.server().counts().locks), (0, 0));
}

/// The LOCK that makes a local lock known is refused by the next server, which does not know the open's stateid. The lock is
/// reclaimed there.
#[test]
fn a_lock_that_becomes_known_survives_a_restart_of_the_server() {
    let world = World::new();
    make(&world, b"file", b"text");
    let ((one, peer), (two, _)) = (mounted(&world), world.mounted(Version::V42));
    let both = OpenOptions { mode: OpenMode::BOTH, ..OpenOptions::READ };
    let file = world.run(one.open(b"file", &both)).unwrap();
    world.run(file.lock(ONE, LockRange::WHOLE, LockKind::Exclusive)).unwrap();
    assert_eq!((peer.count(OpNum::LOCK), counts(&one).held), (0, 1));
    peer.judge(|ops| if ops.contains(&OpNum::LOCK) { Fate::Hold } else { Fate::Serve });
    let mut opening = pin!(two.open(b"file", &both));
    assert!(world.run_for(Duration::from_secs(2), opening.as_mut()).is_none());
    assert_eq!(peer.count(OpNum::LOCK), 1, "the recall has sent it");
    world.restart();
    peer.judge(|_| Fate::Serve);
    let other = world.run(opening).unwrap();
    let locking = other.try_lock(ONE, LockRange::WHOLE, LockKind::Exclusive);
    assert_eq!(world.run(locking).unwrap_err().errno(), Errno::EAGAIN);
    world.run(file.write_at(0, Bytes::from_static(b"more"))).unwrap();
    world.run(file.sync()).unwrap();
    world.run(file.unlock(ONE, LockRange::WHOLE)).unwrap();
    world.run(other.try_lock(ONE, LockRange::WHOLE, LockKind::Exclusive)).unwrap();
    for file in [file, other] {
        close(&world, file);
    }
}

/// A delegation is reclaimed with an open. The CLOSE of one is under way at the restart, so another one must do it.
#[test]
fn a_delegation_is_reclaimed_although_its_first_open_is_closed_meanwhile() {
    let world = World::new();
    make(&world, b"file", b"text");
    let ((fs, peer), _) = (mounted(&world), ());
    let first = open(&world, &fs, b"file");
    let second = open(&world, &fs, b"file");
    assert_eq!((counts(&fs).held, counts(&fs).local_opens), (1, 1));
    peer.judge(|ops| if ops.contains(&OpNum::CLOSE) { Fate::Hold } else { Fate::Serve });
    let mut closing = pin!(first.close());
    let ended = world.run_for(Duration::from_secs(1), closing.as_mut());
    assert_eq!((ended.is_none(), peer.count(OpNum::CLOSE)), (true, 1));
    world.restart();
    peer.judge(|_| Fate::Serve);
    world.run(closing).unwrap();
    world.pass(LEASE);
    assert_eq!((counts(&fs).held, counts(&fs).lost), (1, 0));
    assert_eq!(read(&world, &second), b"text");
    close(&world, second);
}

#[test]
fn delegations_of_open_files_survive_a_restart_of_the_server() {
    let world = World::new();
    make(&world, b"file", b"text");
    make(&world, b"closed", b"more");
    let ((fs, peer), (two, _)) = (mounted(&world), world.mounted(Version::V42));
    let first = open(&world, &fs, b"file");
    let second = open(&world, &fs, b"file");
    close(&world, open(&world, &fs, b"closed"));
    close(&world, open(&world, &fs, b"closed"));
    close(&world, first);
    assert_eq!((read(&world, &second), counts(&fs).held), (b"text".to_vec(), 2));
    world.restart();
    world.pass(LEASE * 2);
    // A file that is not open has no open to reclaim with.
    assert_eq!((counts(&fs).held, counts(&fs).lost), (1, 1));
    // Until then, another client may have given the name to another file.
    world.run(fs.read_dir(b"", false)).unwrap();
    let before = peer.compounds.borrow().len();
    let third = open(&world, &fs, b"file");
    assert_eq!((read(&world, &third), peer.compounds.borrow().len()), (b"text".to_vec(), before));

    // The server recalls by the new stateid at the address that was announced again.
    let writer = world.run(two.open(b"file", &WRITE)).unwrap();
    world.run(writer.write_at(0, Bytes::from_static(b"TEXT"))).unwrap();
    world.run(writer.close()).unwrap();
    world.pass(Duration::from_secs(100));
    assert_eq!((counts(&fs).held, counts(&fs).recalled), (0, 1));
    assert_eq!((read(&world, &second), read(&world, &third)), (b"TEXT".to_vec(), b"TEXT".to_vec()));
    close(&world, second);
    close(&world, third);
    assert_eq!((world.server().counts().opens, world.server().counts().delegations), (0, 0));
}

#[test]
fn a_broken_connection_for_callbacks_is_replaced() {
    let world = World::new();
    make(&world, b"file", b"first");
    let ((one, peer), (two, _)) = (mounted(&world), world.mounted(Version::V42));
    let file = open(&world, &one, b"file");
    assert_eq!((read(&world, &file), counts(&one).held), (b"first".to_vec(), 1));
    peer.refuse_callbacks(true);
    peer.hang_up(&world);
    world.pass(Duration::from_secs(10));
    peer.refuse_callbacks(false);
    // RENEW returns CB_PATH_DOWN until the server has connected again.
    world.pass(LEASE / 2);
    assert_eq!(counts(&one).held, 1);
    let before = world.now();
    let writer = world.run(two.open(b"file", &WRITE)).unwrap();
    assert!(world.now() < before + Duration::from_secs(1), "the recall arrives");
    assert_eq!((counts(&one).recalled, counts(&one).lost), (1, 0));
    close(&world, writer);
    close(&world, file);
}

#[test]
fn without_a_way_for_callbacks_delegations_are_returned() {
    let world = World::new();
    make(&world, b"file", b"first");
    let (one, peer) = mounted(&world);
    let file = open(&world, &one, b"file");
    assert_eq!((read(&world, &file), counts(&one).held), (b"first".to_vec(), 1));
    peer.refuse_callbacks(true);
    peer.hang_up(&world);
    world.pass(LEASE);
    assert_eq!((counts(&one).held, counts(&one).returned, counts(&one).lost), (0, 1, 0));
    assert!(peer.count(OpNum::SETCLIENTID) <= 3, "{}", peer.count(OpNum::SETCLIENTID));
    assert_eq!((read(&world, &file), world.server().counts().delegations), (b"first".to_vec(), 0));
    close(&world, file);
    for _ in 0..3 {
        close(&world, open(&world, &one, b"file"));
    }
    assert_eq!((counts(&one).granted, world.server().counts().opens), (1, 0));
}

#[test]
fn a_revoked_delegation_is_found_by_its_stateid_and_its_opens_are_opened_again() {
    let world = World::new();
    make(&world, b"file", b"first");
    let ((one, peer), (two, _)) = (mounted(&world), world.mounted(Version::V42));
    let (first, second) = (open(&world, &one, b"file"), open(&world, &one, b"file"));
    assert_eq!((read(&world, &first), counts(&one).held), (b"first".to_vec(), 1));
    // Recalls are lost on the way.
    peer.drop_callbacks(true);
    let mut writer = None;
    for _ in 0..20 {
        if let Ok(file) = world.run(two.open(b"file", &WRITE)) {
            writer = Some(file);
            break;
        }
    }
    let writer = writer.expect("the delegation is returned or revoked after a lease time");
    world.run(writer.write_at(0, Bytes::from_static(b"other"))).unwrap();
    world.run(writer.close()).unwrap();
    peer.drop_callbacks(false);
    world.pass(LEASE);
    assert_eq!(counts(&one).held, 0);
    assert_eq!((read(&world, &first), read(&world, &second)), (b"other".to_vec(), b"other".to_vec()));
    close(&world, first);
    close(&world, second);
    assert_eq!((world.server().counts().opens, world.server().counts().delegations), (0, 0));
    assert_eq!(peer.count(OpNum::TEST_STATEID) + peer.count(OpNum::FREE_STATEID), 0);
}

#[test]
fn nothing_is_trusted_after_the_lease() {
    let world = World::new();
    make(&world, b"file", b"first");
    let ((one, peer), (two, _)) = (mounted(&world), world.mounted(Version::V42));
    let file = open(&world, &one, b"file");
    let local = open(&world, &one, b"file");
    assert_eq!((read(&world, &local), counts(&one).held), (b"first".to_vec(), 1));
    peer.cut(&world, true);
    world.pass(LEASE * 2);
    let writer = world.run(two.open(b"file", &WRITE)).unwrap();
    world.run(writer.write_at(0, Bytes::from_static(b"other"))).unwrap();
    world.run(writer.close()).unwrap();
    let mut reading = Box::pin(local.read_at(0, 5));
    assert!(world.run_for(Duration::from_secs(5), reading.as_mut()).is_none(), "the server is asked");
    peer.cut(&world, false);
    assert_eq!(world.run(reading).unwrap().concat(), b"other");
    world.pass(LEASE);
    assert_eq!((counts(&one).held, counts(&one).lost), (0, 1));
    close(&world, file);
    close(&world, local);
}

#[test]
fn files_that_are_written_together_leave_no_delegations() {
    let world = World::new();
    let (fs, peer) = mounted(&world);
    let (client, caller) = (fs.client().clone(), root());
    world.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let names: Vec<_> = (0..40).map(|number| format!("{number}").into_bytes()).collect();
        let new = |name| NewFile {
            directory: top,
            name,
            mode: 0o600,
            data: Bytes::from_static(b"text"),
            set: SetAttributes::default(),
        };
        for _ in 0..2 {
            let files: Vec<_> = names.iter().map(|name| new(name)).collect();
            assert!(client.write_many(&caller, &files).await.iter().all(Result::is_ok));
        }
    });
    assert!(peer.count(OpNum::DELEGRETURN) > 0, "the server grants some unasked");
    assert_eq!((world.server().counts().opens, world.server().counts().delegations), (0, 0));
}

#[test]
fn a_name_by_which_a_file_can_no_longer_be_opened_is_looked_up_again() {
    let world = World::new();
    make(&world, b"removed", b"");
    make(&world, b"renamed", b"text");
    let (fs, _) = world.mounted_undelegated(Version::V40);
    let (other, _) = world.mounted(Version::V42);
    let top = fs.mounted().root();
    let lookup = |name: &'static [u8]| world.run(top.lookup(&root(), name)).map(|(inode, _)| inode);
    let (removed, renamed) = (lookup(b"removed").unwrap(), lookup(b"renamed").unwrap());
    world.run(other.unlink(b"removed")).unwrap();
    world.run(other.rename(b"renamed", b"new")).unwrap();
    let opened = |inode: &Inode| world.run(inode.open(&root(), OpenFlags::READ));
    for inode in [&removed, &renamed] {
        // The kernel looks the name up again then (ESTALE).
        assert_eq!(opened(inode).unwrap_err(), OpError::Status(Status::STALE));
    }
    for name in [b"removed", b"renamed"] {
        assert_eq!(lookup(name).unwrap_err(), OpError::Status(Status::NOENT));
    }
    // The file is the same under its new name.
    assert_eq!(lookup(b"new").unwrap(), renamed);
    assert!(opened(&renamed).is_ok());
}
