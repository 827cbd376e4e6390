//! Byte-range locks of version 4.0: the seqids of lock-owners, and waiting without callbacks (RFC 7530 §9).

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use client::config::Version;
use client::errno::Errno;
use client::error::OpError;
use client::fs::{File, FileSystem, OpenOptions};
use client::locks::LockKind::{Exclusive, Shared};
use client::locks::{LockOwner, LockRange};
use client::results::OpenMode;
use protocol::nfs4::types::OpNum;

use crate::world::{Fate, LEASE, World};

const ONE: LockOwner = LockOwner::Process(1);
const TWO: LockOwner = LockOwner::Process(2);
const BOTH: OpenOptions = OpenOptions { mode: OpenMode::BOTH, create: true, ..OpenOptions::READ };

fn range(offset: u64, length: u64) -> LockRange {
    LockRange::new(offset, length).unwrap()
}

fn open(world: &World, fs: &FileSystem) -> File {
    world.run(fs.open(b"file", &BOTH)).unwrap()
}

fn locks(world: &World) -> u64 {
    world.server().counts().locks
}

#[test]
fn the_last_unlock_releases_the_owner() {
    let world = World::new();
    let (fs, peer) = world.mounted(Version::V40);
    let file = open(&world, &fs);
    peer.compounds.borrow_mut().clear();
    for _ in 0..2 {
        for start in [0, 20] {
            world.run(file.lock(ONE, range(start, 10), Exclusive)).unwrap();
        }
        world.run(file.unlock(ONE, range(0, 10))).unwrap();
        world.run(file.unlock(ONE, range(0, 0))).unwrap();
    }
    let lock = [OpNum::PUTFH, OpNum::LOCK, OpNum::GETATTR].to_vec();
    let unlock = [OpNum::PUTFH, OpNum::LOCKU].to_vec();
    let release = [OpNum::RELEASE_LOCKOWNER].to_vec();
    let once = [lock.clone(), lock, unlock.clone(), unlock, release];
    assert_eq!(*peer.compounds.borrow(), [once.clone(), once].concat());
    world.run(file.close()).unwrap();
}

#[test]
fn an_owner_with_locks_through_two_opens_is_released_once() {
    let world = World::new();
    let (fs, peer) = world.mounted(Version::V40);
    let (first, second) = (open(&world, &fs), open(&world, &fs));
    // The second open takes over the locks through the first.
    world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
    world.run(second.lock(ONE, range(0, 10), Exclusive)).unwrap();
    world.run(second.unlock(ONE, range(0, 10))).unwrap();
    assert_eq!((peer.count(OpNum::RELEASE_LOCKOWNER), locks(&world)), (1, 0));
    // The lock stateid of the first open ended with the owner.
    world.run(first.lock(ONE, range(0, 10), Shared)).unwrap();
    assert_eq!((peer.count(OpNum::LOCK), locks(&world)), (3, 1));
    for file in [first, second] {
        world.run(file.close()).unwrap();
    }
    assert_eq!((locks(&world), world.server().counts().opens), (0, 0));
}

#[test]
fn replies_that_are_lost_are_repeated_with_the_same_seqids() {
    for (lost, nth) in [(OpNum::LOCK, 0), (OpNum::LOCK, 1), (OpNum::LOCKU, 0), (OpNum::LOCKU, 1)] {
        let world = World::new();
        let (fs, peer) = world.mounted(Version::V40);
        let file = open(&world, &fs);
        let times = Cell::new(0);
        peer.judge(move |ops| {
            let is_meant = ops.contains(&lost) && times.replace(times.get() + 1) == nth;
            if is_meant { Fate::LoseReply } else { Fate::Serve }
        });
        for _ in 0..2 {
            world.run(file.lock(ONE, range(0, 10), Exclusive)).unwrap();
            world.run(file.lock(ONE, range(20, 10), Shared)).unwrap();
            assert_eq!(locks(&world), 2, "{lost:?}");
            world.run(file.unlock(ONE, range(0, 10))).unwrap();
            world.run(file.unlock(ONE, LockRange::WHOLE)).unwrap();
            assert_eq!(locks(&world), 0, "{lost:?}");
        }
        assert_eq!(peer.count(lost), 5, "{lost:?}: one is repeated");
        world.run(file.close()).unwrap();
    }
}

#[test]
fn a_restart_during_an_operation_has_no_visible_effect() {
    for (at, nth) in
        [(OpNum::LOCK, 0), (OpNum::LOCK, 1), (OpNum::LOCKT, 0), (OpNum::LOCKU, 0), (OpNum::LOCKU, 1)]
    {
        let world = World::new();
        let ((fs, peer), (other, _)) = (world.mounted(Version::V40), world.mounted(Version::V40));
        let (file, others) = (open(&world, &fs), open(&world, &other));
        world.run(file.lock(TWO, range(100, 10), Exclusive)).unwrap();
        let times = Cell::new(0);
        peer.judge(move |ops| {
            let is_meant = ops.contains(&at) && times.replace(times.get() + 1) == nth;
            if is_meant { Fate::Hold } else { Fate::Serve }
        });
        let mut life = pin!(async {
            file.lock(ONE, range(0, 10), Exclusive).await.unwrap();
            file.lock(ONE, range(20, 10), Exclusive).await.unwrap();
            assert_eq!(
                file.test_lock(ONE, LockRange::WHOLE, Shared).await.unwrap().unwrap().owner,
                Some(TWO)
            );
            file.unlock(ONE, range(0, 10)).await.unwrap();
            file.unlock(ONE, range(20, 10)).await.unwrap();
        });
        assert!(world.run_for(Duration::from_secs(1), life.as_mut()).is_none(), "{at:?}");
        world.restart();
        peer.release(&world);
        world.run(life.as_mut());
        // Locks held all the time were reclaimed.
        let denied = world.run(others.try_lock(ONE, range(100, 1), Shared)).unwrap_err();
        assert_eq!(denied.errno(), Errno::EAGAIN, "{at:?}");
        world.run(others.lock(ONE, range(0, 50), Exclusive)).unwrap();
        world.run(others.close()).unwrap();
        assert_eq!(locks(&world), 1, "{at:?}");
    }
}

#[test]
fn a_second_restart_while_locks_are_reclaimed_loses_none() {
    let world = World::new();
    let ((fs, peer), (other, _)) = (world.mounted(Version::V40), world.mounted(Version::V40));
    let (file, others) = (open(&world, &fs), open(&world, &other));
    world.run(file.lock(ONE, range(0, 10), Exclusive)).unwrap();
    world.restart();
    let is_held = Cell::new(false);
    peer.judge(move |ops| {
        let is_meant = ops.contains(&OpNum::LOCK) && !is_held.replace(true);
        if is_meant { Fate::Hold } else { Fate::Serve }
    });
    {
        let mut test = pin!(file.test_lock(TWO, LockRange::WHOLE, Shared));
        assert!(
            world.run_for(Duration::from_secs(1), test.as_mut()).is_none(),
            "the lock is reclaimed first"
        );
        world.restart();
        peer.release(&world);
        world.run(test.as_mut()).unwrap();
    }
    assert_eq!(peer.count(OpNum::LOCK), 4, "the lock, its first reclaim twice, its second");
    let denied = world.run(others.try_lock(ONE, range(0, 1), Shared)).unwrap_err();
    assert_eq!(denied.errno(), Errno::EAGAIN);
    world.run(file.write_at(0, Bytes::from_static(b"text"))).unwrap();
    world.run(file.close()).unwrap();
}

#[test]
fn a_lock_outlasts_many_restarts_of_the_server() {
    let world = World::new();
    let (fs, _) = world.mounted(Version::V40);
    let file = open(&world, &fs);
    world.run(file.lock(TWO, range(100, 10), Exclusive)).unwrap();
    // The grace period lasts a whole lease, because this client does not return.
    let (other, path) = world.mounted(Version::V42);
    let _lost = world.run(other.open(b"other", &BOTH)).unwrap();
    path.cut(&world, true);
    world.restart();
    {
        let mut locking = pin!(file.lock(ONE, range(0, 10), Exclusive));
        for _ in 0..40 {
            assert!(world.run_for(Duration::from_secs(2), locking.as_mut()).is_none());
            world.restart();
        }
        world.run(locking).unwrap();
    }
    // The lock that was held all the time has been reclaimed.
    assert_eq!(locks(&world), 2);
    world.run(file.close()).unwrap();
}

#[test]
fn a_waiter_polls_with_growing_pauses_and_a_local_unlock_wakes_it() {
    let world = World::new();
    let ((one, _), (two, peer)) = (world.mounted(Version::V40), world.mounted(Version::V40));
    let (first, second) = (open(&world, &one), open(&world, &two));
    world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
    world.run(second.lock(ONE, range(10, 10), Exclusive)).unwrap();
    let mut waiting = pin!(second.lock(TWO, range(0, 20), Shared));
    peer.compounds.borrow_mut().clear();
    // Polls after 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7, 22.7, 32.7, … seconds.
    assert!(world.run_for(Duration::from_secs(30), waiting.as_mut()).is_none());
    assert_eq!(peer.count(OpNum::LOCK), 9);
    world.run(first.unlock(ONE, range(0, 10))).unwrap();
    let unlocked_at = world.now();
    world.run(second.unlock(ONE, range(10, 10))).unwrap();
    world.run(waiting).unwrap();
    assert_eq!((peer.count(OpNum::LOCK), world.now()), (10, unlocked_at), "no time passes");
}

#[test]
fn a_lock_whose_outcome_a_soft_mount_does_not_know_is_lost() {
    let world = World::new();
    let (fs, peer) = world.mounted_soft(Version::V40, 2);
    let file = open(&world, &fs);
    world.run(file.lock(ONE, range(0, 10), Exclusive)).unwrap();
    peer.cut(&world, true);
    let error = world.run(file.lock(ONE, range(20, 10), Exclusive)).unwrap_err();
    assert!(matches!(error.cause, OpError::Call(_)), "{error}");
    peer.cut(&world, false);
    // The server takes no request of the owner any longer: the next seqid is not known.
    world.pass(LEASE / 2);
    world.run(file.lock(TWO, range(40, 10), Exclusive)).unwrap();
    world.run(file.close()).unwrap();
    let again = open(&world, &fs);
    world.run(again.lock(ONE, range(0, 100), Exclusive)).unwrap();
    world.run(again.write_at(0, Bytes::from_static(b"text"))).unwrap();
    world.run(again.close()).unwrap();
    assert_eq!((locks(&world), world.server().counts().opens), (0, 0));
}
