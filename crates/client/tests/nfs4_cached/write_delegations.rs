//! Delegations for writing: what is local under them, and how they end.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::attributes::SetAttributes;
use client::config::Version;
use client::delegations::DelegationCounts;
use client::errno::Errno;
use client::fs::{File, FileSystem, OpenOptions};
use client::locks::LockKind::Exclusive;
use client::locks::{LockOwner, LockRange};
use client::results::OpenMode;
use protocol::nfs4::types::{OpNum, Stateid};
use vfs::fault::{Fault, Faulty, Method, Rule};
use vfs::{MemFs, MemOptions};

use crate::world::{Fate, LEASE, Peer, World, root};

const VERSIONS: [Version; 2] = [Version::V41, Version::V42];
const WRITE: OpenOptions = OpenOptions { mode: OpenMode::WRITE, ..OpenOptions::READ };
const BOTH: OpenOptions = OpenOptions { mode: OpenMode::BOTH, ..OpenOptions::READ };
const ONE: LockOwner = LockOwner::Process(1);
/// Data written behind are sent after this time.
const AGED: Duration = Duration::from_secs(3);

/// Returns a server with a file of four bytes, and a client whose back channel the server has tried.
fn mounted(version: Version) -> (Rc<World>, FileSystem, Rc<Peer>) {
    mounted_in(World::new(), version)
}

fn mounted_in(world: Rc<World>, version: Version) -> (Rc<World>, FileSystem, Rc<Peer>) {
    let (fs, _) = world.mounted_undelegated(Version::V42);
    let file = world.run(fs.open(b"file", &OpenOptions::CREATE)).unwrap();
    world.run(file.write_at(0, Bytes::from_static(b"text"))).unwrap();
    world.run(file.close()).unwrap();
    world.run(fs.client().close()).unwrap();
    let (fs, peer) = mounted_again(&world, version);
    (world, fs, peer)
}

fn mounted_again(world: &Rc<World>, version: Version) -> (FileSystem, Rc<Peer>) {
    let mounted = world.mounted(version);
    world.pass(Duration::from_secs(2));
    mounted
}

fn open(world: &World, fs: &FileSystem, options: &OpenOptions) -> File {
    world.run(fs.open(b"file", options)).unwrap()
}

fn write(world: &World, file: &File, text: &'static [u8]) {
    world.run(file.write_at(0, Bytes::from_static(text))).unwrap();
}

fn read(world: &World, file: &File) -> Vec<u8> {
    world.run(file.read_at(0, 1 << 20)).unwrap().concat()
}

fn close(world: &World, file: File) {
    world.run(file.close()).unwrap();
}

/// Reads the file with another client, which has no caches of it.
fn read_elsewhere(world: &Rc<World>) -> Vec<u8> {
    let (fs, _) = world.mounted_undelegated(Version::V42);
    let file = open(world, &fs, &OpenOptions::READ);
    let text = read(world, &file);
    close(world, file);
    world.run(fs.client().close()).unwrap();
    text
}

fn counts(fs: &FileSystem) -> DelegationCounts {
    fs.client().delegation_counts()
}

#[test]
fn opens_writes_reads_locks_and_closes_are_local() {
    for version in VERSIONS {
        let (world, fs, peer) = mounted(version);
        let first = open(&world, &fs, &BOTH);
        assert_eq!((read(&world, &first), counts(&fs).granted), (b"text".to_vec(), 1));
        close(&world, first);
        let before = peer.compounds.borrow().len();
        for _ in 0..100 {
            let file = open(&world, &fs, &BOTH);
            world.run(file.lock(ONE, LockRange::WHOLE, Exclusive)).unwrap();
            write(&world, &file, b"other text");
            assert_eq!(read(&world, &file), b"other text");
            world.run(file.unlock(ONE, LockRange::WHOLE)).unwrap();
            close(&world, file);
        }
        assert_eq!(peer.compounds.borrow().len(), before, "{version}");
        assert_eq!(counts(&fs).local_opens, 100);
        assert_eq!(read_elsewhere(&world), b"other text");
        let ops = peer.compounds.borrow()[before..].to_vec();
        let times = [OpNum::GETATTR, OpNum::SETATTR, OpNum::GETATTR];
        let times = if version == Version::V42 { &times[..] } else { &[] };
        let returned =
            [&[OpNum::SEQUENCE, OpNum::PUTFH], times, &[OpNum::DELEGRETURN, OpNum::CLOSE]].concat();
        assert!(ops.len() == 2 && ops[0].contains(&OpNum::WRITE) && ops[1] == returned, "{ops:?}");
        let left = world.server().counts();
        assert_eq!((left.opens, left.delegations, counts(&fs).recalled), (0, 0, 1));
    }
}

#[test]
fn data_of_a_closed_file_are_written_back_after_a_while_and_the_delegation_stays() {
    let (world, fs, peer) = mounted(Version::V42);
    let file = open(&world, &fs, &WRITE);
    write(&world, &file, b"TEXT");
    close(&world, file);
    assert_eq!(peer.count(OpNum::WRITE), 0);
    world.pass(AGED);
    assert_eq!((peer.count(OpNum::WRITE), peer.count(OpNum::COMMIT), counts(&fs).held), (1, 1, 1));
    // The lingering open was the server's, and is used again.
    close(&world, open(&world, &fs, &WRITE));
    assert_eq!((peer.count(OpNum::OPEN), peer.count(OpNum::CLOSE)), (1, 0));
    assert_eq!(read_elsewhere(&world), b"TEXT");
    assert_eq!(world.server().counts().opens, 0);
}

#[test]
fn others_see_the_size_of_data_that_the_server_does_not_have() {
    for version in VERSIONS {
        let (world, fs, peer) = mounted(version);
        let (other, _) = world.mounted_undelegated(version);
        let stat = || world.run(other.stat(b"file")).unwrap();
        let file = open(&world, &fs, &WRITE);
        let before = stat();
        world.pass(Duration::from_secs(100));
        assert_eq!(
            (stat().change, stat().size),
            (before.change, 4),
            "CB_GETATTR says that nothing has changed"
        );
        write(&world, &file, b"longer text");
        close(&world, file);
        world.pass(Duration::from_millis(10));
        world.run(other.client().close()).unwrap();
        let (third, _) = world.mounted_undelegated(version);
        let after = world.run(third.stat(b"file")).unwrap();
        assert!(after.size == 11 && after.change > before.change, "{after:?}");
        // Version 4.1 has no delegated times: the data of a closed file are sent.
        let sent = usize::from(version == Version::V41);
        assert_eq!((peer.count(OpNum::WRITE), counts(&fs).held), (sent, 1), "nothing was recalled");
    }
}

#[test]
fn a_recall_writes_back_and_makes_opens_and_locks_known() {
    for version in VERSIONS {
        let (world, one, peer) = mounted(version);
        let (two, _) = mounted_again(&world, version);
        let (first, second) = (open(&world, &one, &BOTH), open(&world, &one, &BOTH));
        world.run(second.lock(ONE, LockRange::new(0, 2).unwrap(), Exclusive)).unwrap();
        write(&world, &second, b"under the lock");
        let other = open(&world, &two, &BOTH);
        assert_eq!(read(&world, &other), b"under the lock");
        assert_eq!(
            world.run(other.try_lock(ONE, LockRange::WHOLE, Exclusive)).unwrap_err().errno(),
            Errno::EAGAIN
        );
        assert_eq!((counts(&one).held, peer.count(OpNum::LOCK), world.server().counts().opens), (0, 1, 3));
        {
            let mut waiting = pin!(other.lock(ONE, LockRange::WHOLE, Exclusive));
            assert!(world.run_for(Duration::from_secs(1), waiting.as_mut()).is_none());
            write(&world, &second, b"UNDER");
            world.run(second.unlock(ONE, LockRange::WHOLE)).unwrap();
            world.run(waiting).unwrap();
        }
        assert_eq!(read(&world, &other), b"UNDER the lock");
        for file in [first, second, other] {
            close(&world, file);
        }
        assert_eq!((world.server().counts().opens, world.server().counts().locks), (0, 0));
    }
}

#[test]
fn a_truncation_is_ordered_with_data_that_linger() {
    let (world, fs, _) = mounted(Version::V42);
    let file = open(&world, &fs, &BOTH);
    write(&world, &file, b"a long text");
    close(&world, file);
    let truncate = OpenOptions { truncate: true, ..WRITE };
    let file = open(&world, &fs, &truncate);
    write(&world, &file, b"new");
    close(&world, file);
    assert_eq!(read(&world, &open(&world, &fs, &OpenOptions::READ)), b"new");
    assert_eq!(read_elsewhere(&world), b"new");
}

#[test]
fn a_truncation_by_path_has_the_stateid_of_the_delegation() {
    for version in VERSIONS {
        let (world, fs, peer) = mounted(version);
        let file = open(&world, &fs, &BOTH);
        write(&world, &file, b"a long text");
        close(&world, file);
        let cut = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
        assert_eq!(world.run(fs.set_attributes(b"file", &cut(2), true)).unwrap().size, 2);
        let stateids = peer.setattr_stateids.borrow().clone();
        assert!(stateids.len() == 1 && stateids[0] != Stateid::ANONYMOUS, "RFC 8881 §18.30.3: {stateids:?}");
    }
}

#[test]
fn a_file_with_lingering_data_is_removed_and_renamed() {
    let (world, fs, peer) = mounted(Version::V42);
    for step in 0..2 {
        let file = open(&world, &fs, &WRITE);
        write(&world, &file, b"TEXT");
        close(&world, file);
        match step {
            0 => {
                world.run(fs.rename(b"file", b"renamed")).unwrap();
                world.run(fs.rename(b"renamed", b"file")).unwrap();
            }
            _ => world.run(fs.unlink(b"file")).unwrap(),
        }
    }
    assert_eq!((counts(&fs).held, world.server().counts().opens), (0, 0));
    world.run(fs.client().close()).unwrap();
    assert_eq!(peer.count(OpNum::OPEN), peer.count(OpNum::CLOSE));
}

#[test]
fn lingering_data_and_the_delegation_survive_a_restart_of_the_server() {
    for version in VERSIONS {
        let (world, fs, peer) = mounted(version);
        let file = open(&world, &fs, &BOTH);
        write(&world, &file, b"TEXT");
        close(&world, file);
        world.restart();
        world.pass(LEASE);
        assert_eq!((counts(&fs).held, counts(&fs).lost), (1, 0), "{version}");
        assert!(peer.count(OpNum::WRITE) > 0);
        assert_eq!(read_elsewhere(&world), b"TEXT");
        assert_eq!(world.server().counts().opens, 0);
    }
}

#[test]
fn data_under_a_revoked_delegation_are_written_if_nobody_has_changed_the_file() {
    for is_changed in [false, true] {
        let (world, one, peer) = mounted(Version::V42);
        let (two, _) = mounted_again(&world, Version::V42);
        // The server does not know the second open.
        let (first, known) = (open(&world, &one, &BOTH), open(&world, &one, &BOTH));
        assert_eq!((read(&world, &known), counts(&one).held), (b"text".to_vec(), 1));
        peer.drop_callbacks(true);
        peer.judge(|ops| if ops.contains(&OpNum::WRITE) { Fate::Hold } else { Fate::Serve });
        write(&world, &known, b"mine");
        let other = loop {
            if let Ok(file) = world.run(two.open(b"file", &WRITE)) {
                break file;
            }
        };
        if is_changed {
            write(&world, &other, b"hers");
            world.run(other.sync()).unwrap();
        }
        peer.drop_callbacks(false);
        peer.release(&world);
        world.pass(LEASE);
        assert_eq!((counts(&one).held, counts(&one).lost), (0, 1));
        let closed = world.run(known.close());
        assert_eq!(world.run(first.close()).is_err(), is_changed, "each description gets the error");
        close(&world, other);
        if is_changed {
            assert_eq!(closed.unwrap_err().errno(), Errno::EIO, "RFC 8881 §10.5: the user gets the error");
            assert_eq!(read_elsewhere(&world), b"hers", "RFC 8881 §10.5: modified data are not written");
        } else {
            closed.unwrap();
            assert_eq!(read_elsewhere(&world), b"mine");
        }
        assert_eq!((world.server().counts().opens, world.server().counts().delegations), (0, 0));
    }
}

#[test]
fn lingering_data_after_a_missed_grace_period_are_written_if_nobody_has_changed_the_file() {
    for is_changed in [false, true] {
        let (world, one, peer) = mounted(Version::V42);
        let (two, _) = mounted_again(&world, Version::V42);
        let file = open(&world, &one, &BOTH);
        assert_eq!(read(&world, &file), b"text");
        write(&world, &file, b"mine");
        close(&world, file);
        peer.cut(&world, true);
        world.restart();
        world.pass(LEASE * 2);
        let other = open(&world, &two, &WRITE);
        if is_changed {
            write(&world, &other, b"hers");
        }
        close(&world, other);
        world.run(two.client().close()).unwrap();
        peer.cut(&world, false);
        world.pass(LEASE);
        assert_eq!(read_elsewhere(&world), if is_changed { b"hers" } else { b"mine" });
        let file = open(&world, &one, &BOTH);
        assert_eq!(world.run(file.sync()).is_err(), is_changed, "the next program gets the error");
    }
}

#[test]
fn an_error_of_data_that_linger_reaches_the_next_program_once() {
    let backend = Arc::new(Faulty::new(MemFs::new(&MemOptions::default())));
    let (world, fs, _) = mounted_in(World::with(backend.clone()), Version::V42);
    let file = open(&world, &fs, &BOTH);
    write(&world, &file, b"TEXT");
    close(&world, file);
    backend.add(Rule::on(Method::Write, Fault::Fail(vfs::Error::NoSpace)).times(1));
    world.pass(AGED);
    let file = open(&world, &fs, &BOTH);
    assert_eq!(world.run(file.sync()).unwrap_err().errno(), Errno::ENOSPC);
    write(&world, &file, b"more");
    close(&world, file);
    assert_eq!(read_elsewhere(&world), b"more");
}

#[test]
fn a_second_mount_of_the_client_sees_lingering_data() {
    let (world, fs, _) = mounted(Version::V42);
    let file = open(&world, &fs, &WRITE);
    write(&world, &file, b"TEXT");
    close(&world, file);
    let (second, _) = world.run(FileSystem::mount(fs.client().clone(), root(), b"/export")).unwrap();
    world.pass(Duration::from_millis(100));
    assert_eq!(
        (read(&world, &open(&world, &second, &OpenOptions::READ)), counts(&fs).held),
        (b"TEXT".to_vec(), 0)
    );
}

/// Other clients must not find data that are older than those of a WRITE under way, which a truncation has dropped from the cache.
#[test]
fn a_delegation_is_kept_until_writes_before_a_truncation_have_ended() {
    for version in VERSIONS {
        let (world, fs, peer) = mounted(version);
        let (other, _) = mounted_again(&world, Version::V42);
        let file = open(&world, &fs, &BOTH);
        peer.judge(|ops| if ops.contains(&OpNum::WRITE) { Fate::Hold } else { Fate::Serve });
        write(&world, &file, b"a longer text");
        let mut syncing = Box::pin(file.sync());
        assert!(world.run_for(Duration::from_secs(1), syncing.as_mut()).is_none());
        let set = SetAttributes { size: Some(2), ..SetAttributes::default() };
        let mut cutting = Box::pin(file.set_attributes(&set));
        assert!(world.run_for(Duration::from_secs(1), cutting.as_mut()).is_none());
        let mut opening = pin!(other.open(b"file", &OpenOptions::READ));
        assert!(world.run_for(Duration::from_secs(5), opening.as_mut()).is_none());
        assert_eq!((peer.count(OpNum::WRITE), peer.count(OpNum::DELEGRETURN)), (1, 0), "{version}");
        peer.release(&world);
        let opened = world.run(opening).unwrap();
        world.run(cutting).unwrap();
        world.run(syncing).unwrap();
        assert_eq!(peer.count(OpNum::DELEGRETURN), 1, "{version}");
        close(&world, opened);
        close(&world, file);
        assert_eq!(read_elsewhere(&world), b"a ", "{version}");
    }
}
