//! Locks under delegations: no request, unless another client or an own writer needs to know them.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::config::Version;
use client::errno::Errno;
use client::fs::inode::OpenFlags;
use client::fs::{File, FileSystem, OpenOptions};
use client::locks::LockKind::{Exclusive, Shared};
use client::locks::{LockOwner, LockRange};
use client::results::OpenMode;
use protocol::nfs4::types::OpNum;

use crate::world::{Fate, LEASE, World, root};

const ONE: LockOwner = LockOwner::Process(1);
const TWO: LockOwner = LockOwner::Process(2);
const VERSIONS: [Version; 2] = [Version::V41, Version::V42];
const BOTH: OpenOptions = OpenOptions { mode: OpenMode::BOTH, ..OpenOptions::READ };

/// Creates a file of 4 KB with another client.
fn make(world: &Rc<World>, names: impl Iterator<Item = Vec<u8>>) {
    let (fs, _) = world.mounted(Version::V42);
    for name in names {
        let file = world.run(fs.open(&name, &OpenOptions::CREATE)).unwrap();
        world.run(file.write_at(0, Bytes::from(vec![7; 4096]))).unwrap();
        world.run(file.close()).unwrap();
    }
    world.run(fs.client().close()).unwrap();
}

/// Mounts, and lets the server try the back channel.
fn mounted(world: &Rc<World>, version: Version) -> (FileSystem, Rc<crate::world::Peer>) {
    let mounted = world.mounted(version);
    world.pass(Duration::from_secs(2));
    mounted
}

fn one_file() -> Rc<World> {
    let world = World::new();
    make(&world, std::iter::once(b"file".to_vec()));
    world
}

fn open(world: &World, fs: &FileSystem) -> File {
    world.run(fs.open(b"file", &OpenOptions::READ)).unwrap()
}

fn range(offset: u64, length: u64) -> LockRange {
    LockRange::new(offset, length).unwrap()
}

fn held(fs: &FileSystem) -> usize {
    fs.client().delegation_counts().held
}

/// 2015, Table 1: ten times open, lock, read, unlock and close of each of 1,000 files take one OPEN and one READ a file.
#[test]
fn ten_thousand_locked_reads_of_a_thousand_files_are_some_two_thousand_requests() {
    let world = World::new();
    let name = |number: usize| format!("file{number}").into_bytes();
    make(&world, (0..1000).map(name));
    let (fs, peer) = mounted(&world, Version::V42);
    for number in 0..1000 {
        for _ in 0..10 {
            let file = world.run(fs.open(&name(number), &OpenOptions::READ)).unwrap();
            world.run(file.lock(ONE, LockRange::WHOLE, Shared)).unwrap();
            let data = world.run(file.read_at(0, 4096)).unwrap().concat();
            assert_eq!(data, [7; 4096]);
            world.run(file.unlock(ONE, LockRange::WHOLE)).unwrap();
            world.run(file.close()).unwrap();
        }
    }
    assert_eq!((peer.count(OpNum::OPEN), peer.count(OpNum::READ)), (1000, 1000));
    world.run(fs.client().close()).unwrap();
    // The CLOSEs were deferred; each is in the compound that returns the delegation.
    let returned = peer.count(OpNum::DELEGRETURN);
    let requests = peer.compounds.borrow().len() - returned;
    println!("{requests} requests, and {returned} with DELEGRETURN");
    assert!(requests <= 2010, "{requests}");
    assert_eq!((peer.count(OpNum::CLOSE), returned), (1000, 1000));
    assert_eq!(world.server().counts().opens, 0);
}

/// The same without delegations: OPEN, LOCK, LOCKU and CLOSE each time, and one READ of each file, whose data stay valid under the next
/// lock because the change attribute says so. The paper's client sent 88,009 requests.
#[test]
fn ten_thousand_locked_reads_without_delegations_are_some_forty_one_thousand_requests() {
    let world = World::new();
    let name = |number: usize| format!("file{number}").into_bytes();
    make(&world, (0..1000).map(name));
    let (fs, peer) = world.mounted_undelegated(Version::V41);
    let before = peer.compounds.borrow().len();
    for number in 0..1000 {
        for _ in 0..10 {
            let file = world.run(fs.open(&name(number), &OpenOptions::READ)).unwrap();
            world.run(file.lock(ONE, LockRange::WHOLE, Shared)).unwrap();
            assert_eq!(world.run(file.read_at(0, 4096)).unwrap().concat(), [7; 4096]);
            world.run(file.unlock(ONE, LockRange::WHOLE)).unwrap();
            world.run(file.close()).unwrap();
        }
    }
    let counts = [OpNum::OPEN, OpNum::LOCK, OpNum::READ, OpNum::LOCKU, OpNum::CLOSE].map(|op| peer.count(op));
    assert_eq!(counts, [10_000, 10_000, 1000, 10_000, 10_000]);
    let requests = peer.compounds.borrow().len() - before;
    assert!(requests <= 41_000, "{requests}");
}

/// The same with exclusive locks and writes: one WRITE of each file at the return of its delegation.
#[test]
fn ten_thousand_locked_writes_of_a_thousand_files_are_some_three_thousand_requests() {
    let world = World::new();
    let name = |number: usize| format!("file{number}").into_bytes();
    make(&world, (0..1000).map(name));
    let (fs, peer) = mounted(&world, Version::V42);
    for number in 0..1000 {
        for round in 0..10 {
            let file = world.run(fs.open(&name(number), &BOTH)).unwrap();
            world.run(file.lock(ONE, LockRange::WHOLE, Exclusive)).unwrap();
            world.run(file.write_at(0, Bytes::from(vec![round; 4096]))).unwrap();
            world.run(file.unlock(ONE, LockRange::WHOLE)).unwrap();
            world.run(file.close()).unwrap();
        }
    }
    assert_eq!((peer.count(OpNum::OPEN), peer.count(OpNum::LOCK), peer.count(OpNum::LOCKU)), (1000, 0, 0));
    let requests = peer.compounds.borrow().len();
    assert!(requests <= 1010, "{requests}");
    world.run(fs.client().close()).unwrap();
    assert_eq!((peer.count(OpNum::WRITE), peer.count(OpNum::CLOSE)), (1000, 1000));
    let requests = peer.compounds.borrow().len();
    assert!(requests <= 3020, "{requests}");
    assert_eq!(world.server().counts().opens, 0);
    let (other, _) = world.mounted(Version::V42);
    for number in 0..1000 {
        let file = world.run(other.open(&name(number), &OpenOptions::READ)).unwrap();
        assert_eq!(world.run(file.read_at(0, 8192)).unwrap().concat(), [9; 4096]);
        world.run(file.close()).unwrap();
    }
}

#[test]
fn own_owners_exclude_each_other_without_the_server() {
    for version in VERSIONS {
        let world = one_file();
        let (fs, peer) = mounted(&world, version);
        let reader = open(&world, &fs);
        world.run(reader.lock(ONE, range(0, 10), Shared)).unwrap();
        world.run(reader.lock(TWO, range(5, 10), Shared)).unwrap();
        assert_eq!(world.run(reader.test_lock(TWO, range(0, 4), Shared)), Ok(None));
        let conflict = world.run(reader.test_lock(TWO, range(0, 4), Exclusive)).unwrap().unwrap();
        assert_eq!((conflict.owner, conflict.range), (Some(ONE), range(0, 10)));
        assert_eq!((peer.count(OpNum::LOCK), peer.count(OpNum::LOCKT), held(&fs)), (0, 0, 1));
        // An open for writing ends the delegation, and gets one for writing: the server knows the locks then.
        let writer = world.run(fs.open(b"file", &BOTH)).unwrap();
        let refused = world.run(writer.try_lock(TWO, range(0, 4), Exclusive)).unwrap_err();
        assert_eq!((refused.errno(), held(&fs)), (Errno::EAGAIN, 1));
        assert_eq!(world.server().counts().locks, 2);
        world.run(reader.unlock(ONE, LockRange::WHOLE)).unwrap();
        world.run(writer.try_lock(TWO, range(0, 4), Exclusive)).unwrap();
        for file in [reader, writer] {
            world.run(file.close()).unwrap();
        }
        assert_eq!(world.server().counts().locks, 0);
    }
}

#[test]
fn a_recall_makes_locks_known_to_the_server() {
    for version in VERSIONS {
        let world = one_file();
        let ((one, peer), (two, _)) = (mounted(&world, version), mounted(&world, version));
        // One is locked through the server's open, the other through a local one.
        let (first, second) = (open(&world, &one), open(&world, &one));
        world.run(first.lock(ONE, range(0, 10), Shared)).unwrap();
        world.run(second.lock(TWO, range(20, 10), Shared)).unwrap();
        world.run(second.lock(TWO, range(40, 10), Shared)).unwrap();
        assert_eq!((peer.count(OpNum::LOCK), held(&one)), (0, 1));
        let other = world.run(two.open(b"file", &BOTH)).unwrap();
        for at in [0, 20, 40] {
            let refused = world.run(other.try_lock(ONE, range(at, 1), Exclusive)).unwrap_err();
            assert_eq!(refused.errno(), Errno::EAGAIN, "{at}");
        }
        world.run(other.try_lock(ONE, range(30, 10), Exclusive)).unwrap();
        assert_eq!((peer.count(OpNum::LOCK), held(&one)), (3, 0));
        // Unlocked and closed at the server now.
        {
            let mut waiting = pin!(other.lock(ONE, LockRange::WHOLE, Exclusive));
            assert!(world.run_for(Duration::from_secs(1), waiting.as_mut()).is_none());
            world.run(second.unlock(TWO, LockRange::WHOLE)).unwrap();
            world.run(first.close()).unwrap();
            world.run(waiting).unwrap();
        }
        world.run(second.close()).unwrap();
        world.run(other.close()).unwrap();
        assert_eq!((world.server().counts().locks, world.server().counts().opens), (0, 0));
    }
}

#[test]
fn local_locks_stay_local_over_a_restart_of_the_server() {
    let world = one_file();
    let ((one, peer), (two, _)) = (mounted(&world, Version::V42), mounted(&world, Version::V42));
    let file = open(&world, &one);
    world.run(file.lock(ONE, range(0, 10), Shared)).unwrap();
    world.restart();
    world.pass(LEASE);
    assert_eq!((held(&one), peer.count(OpNum::LOCK)), (1, 0));
    let other = world.run(two.open(b"file", &BOTH)).unwrap();
    assert_eq!(world.run(other.try_lock(ONE, range(5, 1), Exclusive)).unwrap_err().errno(), Errno::EAGAIN);
    world.run(file.unlock(ONE, range(0, 10))).unwrap();
    world.run(other.try_lock(ONE, range(5, 1), Exclusive)).unwrap();
    assert_eq!(world.server().counts().locks, 1);
}

#[test]
fn locks_under_a_revoked_delegation_are_lost() {
    let world = one_file();
    let ((one, peer), (two, _)) = (mounted(&world, Version::V42), mounted(&world, Version::V42));
    let file = open(&world, &one);
    world.run(file.lock(ONE, range(0, 10), Shared)).unwrap();
    peer.drop_callbacks(true);
    while world.run(two.open(b"file", &BOTH)).is_err() {}
    peer.drop_callbacks(false);
    world.pass(LEASE);
    let lost = world.run(file.read_at(0, 1)).unwrap_err();
    assert_eq!(lost.errno(), Errno::EIO, "what the lock protected may have changed");
    world.run(file.unlock(ONE, range(0, 10))).unwrap();
    assert_eq!(world.run(file.read_at(0, 1)).unwrap().concat(), [7]);
}

#[test]
fn a_local_lock_that_the_server_grants_after_it_has_revoked_the_delegation_is_lost() {
    let world = one_file();
    let ((one, peer), (two, _)) = (mounted(&world, Version::V42), world.mounted_undelegated(Version::V42));
    let file = world.run(one.open(b"file", &BOTH)).unwrap();
    world.run(file.lock(ONE, range(0, 10), Exclusive)).unwrap();
    assert_eq!((held(&one), peer.count(OpNum::LOCK)), (1, 0));
    peer.cut(&world, true);
    world.pass(LEASE + Duration::from_secs(5));
    let other = world.run(two.open(b"file", &BOTH)).unwrap();
    world.run(other.write_at(0, Bytes::from_static(b"other"))).unwrap();
    world.run(other.close()).unwrap();
    // The client learns nothing of it before the delegation is returned for the lock of another owner.
    let mut has_locked = false;
    peer.judge(move |ops| {
        has_locked |= ops.contains(&OpNum::LOCK);
        if !has_locked && ops.contains(&OpNum::TEST_STATEID) { Fate::Hold } else { Fate::Serve }
    });
    peer.cut(&world, false);
    world.run(file.lock(TWO, range(50, 1), Exclusive)).unwrap();
    let lost = world.run(file.read_at(0, 1)).unwrap_err();
    assert_eq!(lost.errno(), Errno::EIO, "another client has changed what the lock protected");
    world.run(file.unlock(ONE, range(0, 10))).unwrap();
    assert_eq!(world.run(file.read_at(0, 5)).unwrap().concat(), b"other");
    assert_eq!(world.server().counts().locks, 1);
}

/// Other programs of this client find cached data before the server has stored them, but not data that bypassed the cache.
#[test]
fn data_that_bypassed_the_cache_are_committed_before_a_local_unlock() {
    for version in VERSIONS {
        let world = one_file();
        let (fs, peer) = mounted(&world, version);
        let flags = OpenFlags { direct: true, ..OpenFlags::BOTH };
        let (file, _) = world.run(fs.mounted().root().lookup(&root(), b"file")).unwrap();
        let file = world.run(file.open(&root(), flags)).unwrap();
        world.run(file.lock(ONE, LockRange::WHOLE, Exclusive)).unwrap();
        world.run(file.write(0, Bytes::from_static(b"text"))).unwrap();
        assert_eq!((peer.count(OpNum::WRITE), peer.count(OpNum::COMMIT)), (1, 0), "{version}");
        world.run(file.unlock(ONE, LockRange::WHOLE)).unwrap();
        assert_eq!((peer.count(OpNum::LOCK), held(&fs)), (0, 1), "{version}");
        assert_eq!(peer.count(OpNum::COMMIT), 1, "{version}");
        world.run(file.release()).unwrap();
    }
}

/// The server revokes a delegation a lease after the recall, even if it has the client's renewals: a flag shows only that the client
/// cannot be called.
#[test]
fn nothing_is_locked_locally_while_the_server_cannot_recall() {
    let world = one_file();
    let ((one, peer), (two, _)) = (mounted(&world, Version::V42), world.mounted_undelegated(Version::V42));
    let file = world.run(one.open(b"file", &BOTH)).unwrap();
    world.run(file.lock(ONE, range(10, 10), Exclusive)).unwrap();
    peer.drop_callbacks(true);
    peer.judge(|ops| if ops.contains(&OpNum::BIND_CONN_TO_SESSION) { Fate::Hold } else { Fate::Serve });
    let mut opening = pin!(two.open(b"file", &BOTH));
    // The server gives the connection up, and a renewal shows it.
    for _ in 0..4 {
        if peer.count(OpNum::BIND_CONN_TO_SESSION) == 0 {
            assert!(
                world.run_for(LEASE / 5, opening.as_mut()).is_none(),
                "the delegation is not revoked yet"
            );
        }
    }
    assert_eq!((peer.count(OpNum::BIND_CONN_TO_SESSION), peer.count(OpNum::LOCK)), (1, 0));
    // Nor is the server asked about a lock that it does not know.
    let conflict = world.run(file.test_lock(TWO, range(15, 1), Exclusive)).unwrap();
    assert_eq!(conflict.map(|conflict| conflict.range), Some(range(10, 10)));
    world.run(file.lock(ONE, range(0, 10), Exclusive)).unwrap();
    assert_eq!(peer.count(OpNum::LOCK), 2, "the server knows both");
    let other = world.run(opening).unwrap();
    let denied = world.run(other.try_lock(TWO, range(0, 10), Exclusive)).unwrap_err();
    assert_eq!(denied.errno(), Errno::EAGAIN);
}

/// Under a delegation, data stay in the cache although a lock that the server knows is unlocked. If the server had revoked both, they are
/// not sent with the lock that another owner has got since. The refusal of the WRITE or of the LOCKU shows it first.
#[test]
fn data_of_a_revoked_lock_are_not_written_under_the_next_one() {
    for late in [OpNum::LOCKU, OpNum::WRITE] {
        let world = one_file();
        let ((one, peer), (two, _)) =
            (mounted(&world, Version::V42), world.mounted_undelegated(Version::V42));
        let other = world.run(two.open(b"file", &BOTH)).unwrap();
        let first = world.run(one.open(b"file", &BOTH)).unwrap();
        world.run(first.lock(ONE, LockRange::WHOLE, Exclusive)).unwrap();
        world.run(other.close()).unwrap();
        let second = world.run(one.open(b"file", &BOTH)).unwrap();
        assert_eq!((held(&one), peer.count(OpNum::LOCK)), (1, 1), "the delegation is newer than the lock");
        peer.cut(&world, true);
        let mut locking = pin!(second.lock(TWO, LockRange::WHOLE, Exclusive));
        assert!(world.run_for(Duration::ZERO, locking.as_mut()).is_none());
        world.run(first.write_at(0, Bytes::from_static(b"stale"))).unwrap();
        // The WRITE begins under the lock.
        assert!(world.run_for(Duration::from_secs(2), locking.as_mut()).is_none());
        let mut unlocking = pin!(first.unlock(ONE, LockRange::WHOLE));
        assert!(world.run_for(LEASE + Duration::from_secs(5), unlocking.as_mut()).is_none());
        let other = world.run(two.open(b"file", &BOTH)).unwrap();
        world.run(other.lock(ONE, LockRange::WHOLE, Exclusive)).unwrap();
        world.run(other.write_at(0, Bytes::from_static(b"other"))).unwrap();
        world.run(other.unlock(ONE, LockRange::WHOLE)).unwrap();
        world.run(other.close()).unwrap();
        peer.judge(move |ops| {
            let is_held = ops.contains(&OpNum::TEST_STATEID) || ops.contains(&late);
            if is_held { Fate::Hold } else { Fate::Serve }
        });
        peer.cut(&world, false);
        world.run(locking.as_mut()).unwrap();
        let unlocked = world.run_for(Duration::from_secs(1), unlocking.as_mut());
        assert_eq!(unlocked.is_none(), late == OpNum::LOCKU);
        peer.release(&world);
        if unlocked.is_none() {
            world.run(unlocking.as_mut()).unwrap();
        }
        world.pass(LEASE);
        let other = world.run(two.open(b"file", &OpenOptions::READ)).unwrap();
        assert_eq!(world.run(other.read_at(0, 5)).unwrap().concat(), b"other", "{late:?} is late");
    }
}
