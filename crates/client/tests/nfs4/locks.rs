//! Byte-range locks: conflicts, waiting, restarts of the server, lost leases.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use client::config::Version;
use client::errno::Errno;
use client::fs::{File, FileSystem, OpenOptions};
use client::locks::LockKind::{Exclusive, Shared};
use client::locks::{LockOwner, LockRange};
use client::results::OpenMode;
use protocol::nfs4::types::OpNum;

use crate::world::{Fate, LEASE, World};

const ONE: LockOwner = LockOwner::Process(1);
const TWO: LockOwner = LockOwner::Process(2);
const BOTH: OpenOptions = OpenOptions { mode: OpenMode::BOTH, create: true, ..OpenOptions::READ };

/// Versions whose locks behave alike.
const VERSIONS: [Version; 3] = [Version::V40, Version::V41, Version::V42];

fn range(offset: u64, length: u64) -> LockRange {
    LockRange::new(offset, length).unwrap()
}

fn open(world: &World, fs: &FileSystem) -> File {
    world.run(fs.open(b"file", &BOTH)).unwrap()
}

fn is_free(world: &World, file: &File, owner: LockOwner, range: LockRange) -> bool {
    world.run(file.test_lock(owner, range, Exclusive)).unwrap().is_none()
}

#[test]
fn two_clients_exclude_each_other_and_see_whose_lock_it_is() {
    for version in VERSIONS {
        let world = World::new();
        let ((one, _), (two, _)) = (world.mounted(version), world.mounted(version));
        let (first, second) = (open(&world, &one), open(&world, &two));
        world.run(first.try_lock(ONE, range(10, 10), Exclusive)).unwrap();
        let denied = world.run(second.try_lock(ONE, range(15, 1), Shared)).unwrap_err();
        assert_eq!(denied.errno(), Errno::EAGAIN);
        let conflict = world.run(second.test_lock(ONE, range(0, 0), Shared)).unwrap().unwrap();
        assert_eq!((conflict.range, conflict.kind, conflict.owner), (range(10, 10), Exclusive, None));
        let conflict = world.run(first.test_lock(TWO, range(19, 5), Shared)).unwrap().unwrap();
        assert_eq!(conflict.owner, Some(ONE), "it is this client's");
        assert!(is_free(&world, &first, ONE, range(0, 0)), "an owner has no conflict with itself");

        // The middle is unlocked: both ends stay.
        world.run(first.unlock(ONE, range(13, 4))).unwrap();
        world.run(second.try_lock(ONE, range(13, 4), Exclusive)).unwrap();
        assert!(!is_free(&world, &second, ONE, range(12, 1)) && !is_free(&world, &second, ONE, range(17, 1)));
        world.run(first.close()).unwrap();
        assert!(is_free(&world, &second, ONE, range(0, 0)), "closing unlocks");
        world.run(second.close()).unwrap();
        assert_eq!(world.server().counts().locks, 0);
    }
}

#[test]
fn a_lock_and_its_attributes_are_one_compound_and_so_are_the_last_unlock_and_its_stateid() {
    let world = World::new();
    let (fs, peer) = world.mounted_undelegated(Version::V41);
    let file = open(&world, &fs);
    peer.compounds.borrow_mut().clear();
    for start in [0, 20] {
        world.run(file.lock(ONE, range(start, 10), Exclusive)).unwrap();
    }
    world.run(file.unlock(ONE, range(0, 10))).unwrap();
    world.run(file.unlock(ONE, range(40, 10))).unwrap();
    world.run(file.unlock(ONE, range(0, 0))).unwrap();
    world.run(file.unlock(ONE, range(0, 0))).unwrap();
    let lock = [OpNum::SEQUENCE, OpNum::PUTFH, OpNum::LOCK, OpNum::GETATTR].to_vec();
    let unlock = [OpNum::SEQUENCE, OpNum::PUTFH, OpNum::LOCKU].to_vec();
    let last = [&unlock[..], &[OpNum::FREE_STATEID]].concat();
    assert_eq!(*peer.compounds.borrow(), [lock.clone(), lock, unlock, last], "nothing else is asked");
}

#[test]
fn a_waiter_is_woken_by_the_callback_and_does_not_poll() {
    let world = World::new();
    let ((one, _), (two, peer)) = (world.mounted(Version::V41), world.mounted(Version::V41));
    let (first, second) = (open(&world, &one), open(&world, &two));
    world.run(first.lock(ONE, LockRange::WHOLE, Exclusive)).unwrap();
    let mut waiting = pin!(second.lock(ONE, range(0, 1), Shared));
    // 25.5 s after the first LOCK the pauses are 10 s long: 0.1, 0.2, …, 6.4, 10 s.
    assert!(world.run_for(Duration::from_secs(24), waiting.as_mut()).is_none());
    let asked = peer.count(OpNum::LOCK);
    let unlocked_at = world.now();
    world.run(first.unlock(ONE, LockRange::WHOLE)).unwrap();
    world.run(waiting).unwrap();
    assert_eq!((peer.count(OpNum::LOCK), world.now()), (asked + 1, unlocked_at), "no time passes");
}

#[test]
fn owners_of_one_client_wait_for_each_other() {
    for version in VERSIONS {
        let world = World::new();
        let (fs, _) = world.mounted(version);
        let file = open(&world, &fs);
        world.run(file.lock(ONE, range(0, 10), Shared)).unwrap();
        world.run(file.lock(TWO, range(0, 10), Shared)).unwrap();
        let mut upgrade = pin!(file.lock(ONE, range(0, 10), Exclusive));
        assert!(world.run_for(Duration::from_secs(1), upgrade.as_mut()).is_none());
        world.run(file.unlock(TWO, range(0, 10))).unwrap();
        world.run(upgrade).unwrap();
        assert!(!is_free(&world, &file, TWO, range(0, 1)));
    }
}

#[test]
fn flock_locks_of_one_client_conflict_by_open_file() {
    for version in VERSIONS {
        let world = World::new();
        let (fs, _) = world.mounted(version);
        let (first, second) = (open(&world, &fs), open(&world, &fs));
        world.run(first.flock(Exclusive)).unwrap();
        assert_eq!(world.run(second.try_flock(Shared)).unwrap_err().errno(), Errno::EAGAIN);
        world.run(first.flock(Shared)).unwrap();
        world.run(second.try_flock(Shared)).unwrap();
        world.run(first.funlock()).unwrap();
        world.run(second.flock(Exclusive)).unwrap();
        world.run(second.close()).unwrap();
        world.run(first.try_flock(Exclusive)).unwrap();
    }
}

#[test]
fn a_process_has_its_locks_through_all_its_open_files_until_it_closes_one() {
    for version in VERSIONS {
        let world = World::new();
        let ((fs, _), (other, _)) = (world.mounted(version), world.mounted(version));
        let (first, second, third) = (open(&world, &fs), open(&world, &fs), open(&world, &other));
        world.run(first.lock(ONE, range(0, 20), Exclusive)).unwrap();
        world.run(second.lock(ONE, range(10, 20), Exclusive)).unwrap();
        world.run(second.unlock(ONE, range(5, 10))).unwrap();
        let free: Vec<bool> =
            [0, 5, 14, 15, 29].iter().map(|at| is_free(&world, &third, ONE, range(*at, 1))).collect();
        assert_eq!(free, [false, true, true, false, false]);
        // fcntl(2): closing any of them ends the process's locks on the file.
        world.run(first.close()).unwrap();
        assert!(is_free(&world, &third, ONE, LockRange::WHOLE));
        world.run(second.close()).unwrap();
        assert_eq!((world.server().counts().locks, world.server().counts().opens), (0, 1));
    }
}

#[test]
fn a_file_that_is_not_open_for_writing_has_no_exclusive_locks() {
    for version in VERSIONS {
        let world = World::new();
        let (fs, _) = world.mounted(version);
        world.run(open(&world, &fs).close()).unwrap();
        let file = world.run(fs.open(b"file", &OpenOptions::READ)).unwrap();
        assert_eq!(world.run(file.lock(ONE, range(0, 1), Exclusive)).unwrap_err().errno(), Errno::EBADF);
        world.run(file.lock(ONE, range(0, 1), Shared)).unwrap();
        world.run(file.close()).unwrap();
    }
}

#[test]
fn reclaims_locks_after_a_restart() {
    for version in VERSIONS {
        let world = World::new();
        let ((one, peer), (two, _)) = (world.mounted(version), world.mounted(version));
        let (first, second) = (open(&world, &one), open(&world, &two));
        let also = open(&world, &one);
        world.run(first.lock(ONE, range(0, 100), Exclusive)).unwrap();
        world.run(first.unlock(ONE, range(40, 20))).unwrap();
        world.run(also.lock(TWO, range(50, 5), Shared)).unwrap();
        peer.compounds.borrow_mut().clear();
        world.restart();
        // The next call finds the new server; it has its lock before other clients may request it.
        world.run(first.write_at(0, Bytes::from_static(b"under the lock"))).unwrap();
        world.run(first.sync()).unwrap();
        assert_eq!(peer.count(OpNum::LOCK), 3, "two ranges of the first owner, one of the second");
        let at = |op| peer.compounds.borrow().iter().position(|ops| ops.contains(&op)).unwrap();
        assert!(at(OpNum::OPEN) < at(OpNum::LOCK));
        if version != Version::V40 {
            assert!(at(OpNum::LOCK) < at(OpNum::RECLAIM_COMPLETE));
        }
        let held: Vec<bool> = [0, 39, 40, 50, 55, 60, 99]
            .iter()
            .map(|at| !is_free(&world, &second, ONE, range(*at, 1)))
            .collect();
        assert_eq!(held, [true, true, false, true, false, true, true]);
        for file in [first, also, second] {
            world.run(file.close()).unwrap();
        }
        assert_eq!((world.server().counts().locks, world.server().counts().opens), (0, 0));
    }
}

#[test]
fn an_unlock_whose_server_restarts_is_unlocked_at_the_next_one() {
    for version in VERSIONS {
        let world = World::new();
        let ((one, peer), (two, _)) = (world.mounted(version), world.mounted(version));
        let (first, second) = (open(&world, &one), open(&world, &two));
        world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
        peer.judge(|ops| if ops.contains(&OpNum::LOCKU) { Fate::Hold } else { Fate::Serve });
        let mut unlock = pin!(first.unlock(ONE, range(0, 10)));
        assert!(world.run_for(Duration::from_secs(1), unlock.as_mut()).is_none());
        world.restart();
        peer.release(&world);
        world.run(unlock).unwrap();
        world.run(second.lock(ONE, range(0, 10), Exclusive)).unwrap();
        assert_eq!(world.server().counts().locks, 1);
    }
}

#[test]
fn a_lock_whose_reply_is_lost_is_held_once() {
    for version in VERSIONS {
        let world = World::new();
        let (fs, peer) = world.mounted_undelegated(version);
        let file = open(&world, &fs);
        let mut has_lost = false;
        peer.judge(move |ops| match ops.contains(&OpNum::LOCK) && !std::mem::replace(&mut has_lost, true) {
            true => Fate::LoseReply,
            false => Fate::Serve,
        });
        world.run(file.lock(ONE, range(0, 10), Exclusive)).unwrap();
        assert_eq!((peer.count(OpNum::LOCK), world.server().counts().locks), (2, 1));
        world.run(file.unlock(ONE, range(0, 10))).unwrap();
        assert_eq!(world.server().counts().locks, 0);
    }
}

#[test]
fn a_lock_that_another_client_took_after_the_lease_is_lost() {
    for version in VERSIONS {
        let world = World::new();
        let ((one, peer), (two, _)) = (world.mounted(version), world.mounted(version));
        let (first, second) = (open(&world, &one), open(&world, &two));
        world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
        world.run(first.lock(TWO, range(20, 10), Exclusive)).unwrap();
        peer.cut(&world, true);
        world.pass(LEASE + Duration::from_secs(5));
        world.run(second.lock(ONE, range(0, 10), Exclusive)).unwrap();
        peer.cut(&world, false);
        world.pass(Duration::from_secs(60));
        let error = world.run(first.write_at(0, Bytes::from_static(b"late"))).unwrap_err();
        assert_eq!(error.errno(), Errno::EIO);
        assert_eq!(error.cause, client::error::OpError::LockLost);
        assert_eq!(world.run(first.try_lock(ONE, range(0, 1), Shared)).unwrap_err().errno(), Errno::EAGAIN);
        world.run(first.unlock(ONE, LockRange::WHOLE)).unwrap();
        world.run(first.unlock(TWO, LockRange::WHOLE)).unwrap();
        world.run(first.write_at(100, Bytes::from_static(b"elsewhere"))).unwrap();
        world.run(second.close()).unwrap();
        world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
    }
}

#[test]
fn a_lock_that_the_server_grants_to_another_owner_of_the_client_is_lost() {
    for version in [Version::V41, Version::V42] {
        let world = World::new();
        let ((one, peer), (two, _)) =
            (world.mounted_undelegated(version), world.mounted_undelegated(version));
        let (first, again, other) = (open(&world, &one), open(&world, &one), open(&world, &two));
        world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
        world.run(first.lock(TWO, range(20, 10), Exclusive)).unwrap();
        peer.cut(&world, true);
        world.pass(LEASE + Duration::from_secs(5));
        for held in [range(0, 10), range(20, 10)] {
            world.run(other.lock(ONE, held, Exclusive)).unwrap();
            world.run(other.unlock(ONE, held)).unwrap();
        }
        // The client cannot ask yet which locks were revoked.
        peer.judge(|ops| if ops.contains(&OpNum::TEST_STATEID) { Fate::Hold } else { Fate::Serve });
        peer.cut(&world, false);
        world.run(again.lock(TWO, range(5, 10), Exclusive)).unwrap();
        let error = world.run(first.read_at(0, 1)).unwrap_err();
        assert_eq!(error.cause, client::error::OpError::LockLost);
        world.run(first.unlock(ONE, LockRange::WHOLE)).unwrap();
        peer.release(&world);
        world.pass(Duration::from_secs(60));
        assert_eq!(world.run(first.read_at(0, 1)).unwrap_err().cause, client::error::OpError::LockLost);
        world.run(first.unlock(TWO, range(20, 10))).unwrap();
        assert!(world.run(first.read_at(0, 1)).unwrap().is_empty());
    }
}

#[test]
fn a_lock_that_cannot_be_reclaimed_is_lost() {
    for version in VERSIONS {
        let world = World::new();
        let ((one, peer), (two, _)) = (world.mounted(version), world.mounted(version));
        let (first, second) = (open(&world, &one), open(&world, &two));
        world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
        peer.cut(&world, true);
        world.restart();
        // The grace period ends without the first client.
        world.pass(LEASE * 3);
        world.run(second.lock(ONE, range(0, 10), Exclusive)).unwrap();
        peer.cut(&world, false);
        let error = world.run(first.read_at(0, 1)).unwrap_err();
        assert_eq!(error.cause, client::error::OpError::LockLost);
        world.run(first.close()).unwrap();
        let again = open(&world, &one);
        assert!(world.run(again.read_at(0, 1)).unwrap().is_empty());
    }
}

#[test]
fn a_lock_whose_caller_has_gone_is_unlocked() {
    for version in VERSIONS {
        let world = World::new();
        let (fs, peer) = world.mounted_undelegated(version);
        let file = open(&world, &fs);
        peer.judge(|ops| if ops.contains(&OpNum::LOCK) { Fate::Hold } else { Fate::Serve });
        {
            let mut lock = pin!(file.lock(ONE, range(0, 10), Exclusive));
            assert!(world.run_for(Duration::from_secs(1), lock.as_mut()).is_none());
        }
        peer.release(&world);
        world.pass(Duration::from_secs(1));
        assert_eq!((peer.count(OpNum::LOCKU), world.server().counts().locks), (1, 0));
        // A task that stops waiting leaves no state either.
        world.run(file.lock(ONE, range(0, 10), Exclusive)).unwrap();
        {
            let mut lock = pin!(file.lock(TWO, range(0, 10), Exclusive));
            assert!(world.run_for(Duration::from_secs(1), lock.as_mut()).is_none());
        }
        world.run(file.unlock(ONE, range(0, 10))).unwrap();
        world.pass(Duration::from_secs(20));
        assert_eq!(world.server().counts().locks, 0);
    }
}
