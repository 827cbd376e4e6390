//! Locks of version 3 by NLM, against the lock manager of the server of this workspace: conflicts, waiting, restarts, lost calls.

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
use protocol::nlm::{self, Proc};
use protocol::{nfs3, nsm};

use crate::world::{Fate, LEASE, Peer, World};

pub(crate) const ONE: LockOwner = LockOwner::Process(1);
const TWO: LockOwner = LockOwner::Process(2);
const BOTH: OpenOptions = OpenOptions { mode: OpenMode::BOTH, create: true, ..OpenOptions::READ };
/// The version with NLM that is tested.
const OLD: Version = crate::VERSION;

pub(crate) fn range(offset: u64, length: u64) -> LockRange {
    LockRange::new(offset, length).unwrap()
}

pub(crate) fn open(world: &World, fs: &FileSystem) -> File {
    world.run(fs.open(b"file", &BOTH)).unwrap()
}

pub(crate) fn is_free(world: &World, file: &File, owner: LockOwner, range: LockRange) -> bool {
    world.run(file.test_lock(owner, range, Exclusive)).unwrap().is_none()
}

pub(crate) fn count(peer: &Peer, procedure: Proc) -> usize {
    peer.calls_of(nlm::PROGRAM, procedure.0)
}

fn errno<T: std::fmt::Debug>(result: Result<T, client::error::Error>) -> Errno {
    result.unwrap_err().errno()
}

#[test]
fn clients_of_versions_3_and_4_exclude_each_other() {
    for version in [OLD, Version::V41] {
        let world = World::new();
        let ((one, _), (two, _)) = (world.mounted(OLD), world.mounted(version));
        let (first, second) = (open(&world, &one), open(&world, &two));
        world.run(first.try_lock(ONE, range(10, 10), Exclusive)).unwrap();
        assert_eq!(errno(world.run(second.try_lock(ONE, range(15, 1), Shared))), Errno::EAGAIN);
        let conflict = world.run(second.test_lock(ONE, range(0, 0), Shared)).unwrap().unwrap();
        assert_eq!((conflict.range, conflict.kind, conflict.owner), (range(10, 10), Exclusive, None));

        // The middle is unlocked: both ends stay.
        world.run(first.unlock(ONE, range(13, 4))).unwrap();
        world.run(second.try_lock(ONE, range(13, 4), Exclusive)).unwrap();
        assert!(!is_free(&world, &second, ONE, range(12, 1)) && !is_free(&world, &second, ONE, range(17, 1)));
        assert_eq!(errno(world.run(first.try_lock(ONE, range(14, 1), Shared))), Errno::EAGAIN);
        let conflict = world.run(first.test_lock(ONE, range(0, 0), Shared)).unwrap().unwrap();
        assert_eq!((conflict.range, conflict.kind, conflict.owner), (range(13, 4), Exclusive, None));
        world.run(first.close()).unwrap();
        assert!(is_free(&world, &second, ONE, range(0, 0)), "closing unlocks");
        world.run(second.close()).unwrap();
        assert_eq!(world.server().counts().locks, 0);
    }
}

#[test]
fn owners_of_one_client_conflict_and_are_told_apart() {
    let world = World::new();
    let (fs, peer) = world.mounted(OLD);
    let (first, second) = (open(&world, &fs), open(&world, &fs));
    world.run(first.lock(ONE, range(10, 10), Exclusive)).unwrap();
    let conflict = world.run(first.test_lock(TWO, range(0, 0), Shared)).unwrap().unwrap();
    assert_eq!((conflict.range, conflict.kind, conflict.owner), (range(10, 10), Exclusive, Some(ONE)));
    assert!(is_free(&world, &second, ONE, range(0, 0)), "an owner has no conflict with itself");
    world.run(first.unlock(ONE, LockRange::WHOLE)).unwrap();
    // Each open file is an owner of flock.
    world.run(first.flock(Exclusive)).unwrap();
    assert_eq!(errno(world.run(second.try_flock(Shared))), Errno::EAGAIN);
    world.run(first.flock(Shared)).unwrap();
    world.run(second.try_flock(Shared)).unwrap();
    world.run(first.funlock()).unwrap();
    world.run(second.flock(Exclusive)).unwrap();
    let unlocks = count(&peer, Proc::UNLOCK);
    world.run(first.funlock()).unwrap();
    assert_eq!(count(&peer, Proc::UNLOCK), unlocks, "nothing is locked");
    drop(second);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.server().counts().locks, 0, "a file that is dropped is unlocked");
}

#[test]
fn a_file_that_is_not_open_for_writing_has_no_exclusive_locks_of_processes() {
    let world = World::new();
    let (fs, _) = world.mounted(OLD);
    world.run(open(&world, &fs).close()).unwrap();
    let file = world.run(fs.open(b"file", &OpenOptions::READ)).unwrap();
    assert_eq!(errno(world.run(file.lock(ONE, range(0, 1), Exclusive))), Errno::EBADF);
    world.run(file.lock(ONE, range(0, 1), Shared)).unwrap();
    // flock(2) needs no particular mode.
    world.run(file.unlock(ONE, range(0, 1))).unwrap();
    world.run(file.flock(Exclusive)).unwrap();
}

#[test]
fn a_waiter_is_woken_by_granted_and_does_not_poll() {
    for holder in [OLD, Version::V41] {
        let world = World::new();
        let ((one, _), (two, peer)) = (world.mounted(holder), world.mounted(OLD));
        let (first, second) = (open(&world, &one), open(&world, &two));
        world.run(first.lock(ONE, LockRange::WHOLE, Exclusive)).unwrap();
        let mut waiting = pin!(second.lock(ONE, range(0, 1), Shared));
        // 25.5 s after the first LOCK the pauses are 10 s long: 0.1, 0.2, …, 6.4, 10 s.
        assert!(world.run_for(Duration::from_secs(24), waiting.as_mut()).is_none());
        let (asked, unlocked_at) = (count(&peer, Proc::LOCK), world.now());
        world.run(first.unlock(ONE, LockRange::WHOLE)).unwrap();
        world.run(waiting).unwrap();
        assert_eq!((count(&peer, Proc::LOCK), world.now()), (asked + 1, unlocked_at), "no time passes");
        assert_eq!(peer.host_calls_of(nlm::PROGRAM, Proc::GRANTED.0), 1);
        assert!(!is_free(&world, &first, ONE, range(0, 1)));
    }
}

#[test]
fn a_waiter_whose_server_cannot_call_asks_again() {
    let world = World::new();
    let ((one, _), (two, peer)) = (world.mounted(OLD), world.mounted(OLD));
    let (first, second) = (open(&world, &one), open(&world, &two));
    peer.drop_callbacks(true);
    world.run(first.lock(ONE, LockRange::WHOLE, Exclusive)).unwrap();
    let mut waiting = pin!(second.lock(ONE, range(0, 1), Exclusive));
    assert!(world.run_for(Duration::from_secs(24), waiting.as_mut()).is_none());
    world.run(first.unlock(ONE, LockRange::WHOLE)).unwrap();
    assert!(world.run_for(Duration::from_secs(11), waiting.as_mut()).is_some_and(|locked| locked.is_ok()));
    assert_eq!(peer.host_calls_of(nlm::PROGRAM, Proc::GRANTED.0), 0);
    assert!(!is_free(&world, &first, ONE, range(0, 1)));
}

#[test]
fn waiters_get_a_lock_in_their_order() {
    let world = World::new();
    let clients = [0; 3].map(|_| world.mounted(OLD));
    let files: Vec<File> = clients.iter().map(|(fs, _)| open(&world, fs)).collect();
    world.run(files[0].lock(ONE, range(0, 1), Exclusive)).unwrap();
    let mut second = pin!(files[1].lock(ONE, range(0, 1), Exclusive));
    assert!(world.run_for(Duration::from_secs(5), second.as_mut()).is_none());
    let mut third = pin!(files[2].lock(ONE, range(0, 1), Exclusive));
    assert!(world.run_for(Duration::from_secs(5), third.as_mut()).is_none());
    let granted = || clients.each_ref().map(|(_, peer)| peer.host_calls_of(nlm::PROGRAM, Proc::GRANTED.0));
    assert_eq!(granted(), [0, 0, 0]);
    world.run(files[0].unlock(ONE, range(0, 1))).unwrap();
    world.run(second).unwrap();
    assert_eq!(granted(), [0, 1, 0]);
    assert!(world.run_for(Duration::from_secs(1), third.as_mut()).is_none());
    world.run(files[1].unlock(ONE, LockRange::WHOLE)).unwrap();
    world.run(third).unwrap();
    assert_eq!(granted(), [0, 1, 1]);
}

#[test]
fn owners_of_one_client_wait_for_each_other() {
    let world = World::new();
    let (fs, _) = world.mounted(OLD);
    let file = open(&world, &fs);
    world.run(file.lock(ONE, range(0, 10), Shared)).unwrap();
    world.run(file.lock(TWO, range(0, 10), Shared)).unwrap();
    let mut upgrade = pin!(file.lock(ONE, range(0, 10), Exclusive));
    assert!(world.run_for(Duration::from_secs(1), upgrade.as_mut()).is_none());
    world.run(file.unlock(TWO, range(0, 10))).unwrap();
    world.run(upgrade).unwrap();
    assert!(!is_free(&world, &file, TWO, range(0, 1)));
}

#[test]
fn a_wait_that_is_given_up_is_cancelled_and_keeps_earlier_locks() {
    let world = World::new();
    let ((one, _), (two, peer)) = (world.mounted(OLD), world.mounted(OLD));
    let (first, second) = (open(&world, &one), open(&world, &two));
    world.run(first.lock(ONE, range(0, 10), Shared)).unwrap();
    world.run(second.lock(ONE, range(5, 10), Shared)).unwrap();
    {
        let mut upgrade = pin!(second.lock(ONE, range(0, 20), Exclusive));
        assert!(world.run_for(Duration::from_secs(1), upgrade.as_mut()).is_none());
    }
    world.pass(Duration::from_secs(1));
    assert_eq!(count(&peer, Proc::CANCEL), 1);
    world.run(first.unlock(ONE, LockRange::WHOLE)).unwrap();
    world.pass(Duration::from_secs(20));
    let conflict = |at| world.run(first.test_lock(ONE, range(at, 1), Exclusive)).unwrap();
    let kinds = [4, 5, 14, 15].map(|at| conflict(at).map(|conflict| conflict.kind));
    assert_eq!(kinds, [None, Some(Shared), Some(Shared), None]);
    world.run(second.close()).unwrap();
    assert_eq!(world.server().counts().locks, 0);
}

#[test]
fn a_lock_whose_caller_has_gone_is_unlocked() {
    let world = World::new();
    let (fs, peer) = world.mounted(OLD);
    let file = open(&world, &fs);
    world.run(file.lock(ONE, range(5, 10), Shared)).unwrap();
    peer.judge_calls(|call| if call == (nlm::PROGRAM, Proc::LOCK.0) { Fate::Hold } else { Fate::Serve });
    {
        let mut lock = pin!(file.lock(ONE, range(0, 10), Exclusive));
        assert!(world.run_for(Duration::from_secs(1), lock.as_mut()).is_none());
    }
    peer.release(&world);
    world.pass(Duration::from_secs(1));
    let conflict = |at| world.run(file.test_lock(TWO, range(at, 1), Exclusive)).unwrap();
    let kinds = [4, 5, 14, 15].map(|at| conflict(at).map(|conflict| conflict.kind));
    assert_eq!(kinds, [None, Some(Shared), Some(Shared), None]);
}

#[test]
fn a_lock_whose_reply_is_lost_is_held_once() {
    let world = World::new();
    let (fs, peer) = world.mounted(OLD);
    let file = open(&world, &fs);
    let mut lost = 0;
    peer.judge_calls(move |call| {
        let is_lost = call == (nlm::PROGRAM, Proc::LOCK.0) && lost == 0;
        lost += u32::from(is_lost);
        if is_lost { Fate::LoseReply } else { Fate::Serve }
    });
    world.run(file.lock(ONE, range(0, 10), Exclusive)).unwrap();
    assert_eq!(world.server().counts().locks, 1);
    world.run(file.unlock(ONE, range(0, 10))).unwrap();
    assert_eq!(world.server().counts().locks, 0);
}

#[test]
fn reclaims_locks_when_the_server_says_that_it_restarted() {
    reclaims_after_a_restart(|_, _| {}, Duration::from_secs(1));
}

#[test]
fn reclaims_locks_after_a_restart_that_only_the_connection_shows() {
    reclaims_after_a_restart(|_, peer| peer.drop_callbacks(true), Duration::from_secs(12));
}

fn reclaims_after_a_restart(before: impl FnOnce(&World, &Peer), within: Duration) {
    let world = World::new();
    let ((one, peer), (two, other)) = (world.mounted(OLD), world.mounted(OLD));
    let (first, second) = (open(&world, &one), open(&world, &two));
    world.run(first.lock(ONE, range(0, 100), Exclusive)).unwrap();
    world.run(first.unlock(ONE, range(40, 20))).unwrap();
    world.run(first.lock(TWO, range(50, 5), Shared)).unwrap();
    before(&world, &peer);
    // What was not reclaimed is free after the grace period.
    other.cut(&world, true);
    world.restart();
    let asked = count(&peer, Proc::LOCK);
    world.pass(within);
    assert_eq!(count(&peer, Proc::LOCK) - asked, 3, "two ranges of the first owner, one of the second");
    other.cut(&world, false);
    assert!(!is_free(&world, &second, ONE, range(0, 1)), "it waits for the end of the grace period");
    let held = [0, 39, 40, 50, 55, 60, 99].map(|at| !is_free(&world, &second, ONE, range(at, 1)));
    assert_eq!(held, [true, true, false, true, false, true, true]);
    assert!(world.run(first.read_at(0, 1)).unwrap().is_empty());
    for file in [first, second] {
        world.run(file.close()).unwrap();
    }
    assert_eq!(world.server().counts().locks, 0);
}

#[test]
fn an_unlock_whose_server_restarts_is_unlocked_at_the_next_one() {
    let world = World::new();
    let ((one, peer), (two, _)) = (world.mounted(OLD), world.mounted(OLD));
    let (first, second) = (open(&world, &one), open(&world, &two));
    world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
    peer.judge_calls(|call| if call == (nlm::PROGRAM, Proc::UNLOCK.0) { Fate::Hold } else { Fate::Serve });
    let mut unlock = pin!(first.unlock(ONE, range(0, 10)));
    assert!(world.run_for(Duration::from_secs(1), unlock.as_mut()).is_none());
    world.restart();
    peer.release(&world);
    world.run(unlock).unwrap();
    world.run(second.lock(ONE, range(0, 10), Exclusive)).unwrap();
    assert_eq!(world.server().counts().locks, 1);
}

#[test]
fn a_lock_that_cannot_be_reclaimed_is_lost_until_it_is_unlocked() {
    let world = World::new();
    let ((one, peer), (two, _)) = (world.mounted(OLD), world.mounted(OLD));
    let (first, second) = (open(&world, &one), open(&world, &two));
    let unlocked = open(&world, &one);
    world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
    peer.cut(&world, true);
    world.restart();
    // The grace period ends without the first client. Another has the lock, and releases it: the lock is free, but data may differ.
    world.pass(LEASE * 3);
    world.run(second.lock(ONE, range(0, 10), Exclusive)).unwrap();
    world.run(second.unlock(ONE, range(0, 10))).unwrap();
    peer.cut(&world, false);
    world.pass(Duration::from_secs(60));
    let error = world.run(first.write_at(0, Bytes::from_static(b"late"))).unwrap_err();
    assert_eq!((error.errno(), error.cause), (Errno::EIO, OpError::LockLost));
    assert!(world.run(unlocked.read_at(0, 1)).unwrap().is_empty(), "nothing was locked through it");
    assert!(is_free(&world, &second, ONE, range(0, 10)));
    world.run(first.unlock(ONE, range(0, 10))).unwrap();
    world.run(first.write_at(0, Bytes::from_static(b"later"))).unwrap();
    world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
}

#[test]
fn locks_of_a_server_that_did_not_restart_outlast_its_connections() {
    let world = World::new();
    let ((one, peer), (two, _)) = (world.mounted(OLD), world.mounted(OLD));
    let (first, second) = (open(&world, &one), open(&world, &two));
    world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
    for _ in 0..3 {
        peer.cut(&world, true);
        world.pass(Duration::from_secs(100));
        peer.cut(&world, false);
        world.pass(Duration::from_secs(60));
        assert!(!is_free(&world, &second, ONE, range(0, 1)));
        assert!(world.run(first.read_at(0, 1)).unwrap().is_empty(), "it is not lost");
    }
    // A lock of the same client, taken after it, is not doubtful.
    world.run(first.lock(ONE, range(20, 10), Exclusive)).unwrap();
    let asked = count(&peer, Proc::LOCK);
    world.pass(Duration::from_secs(60));
    assert_eq!(count(&peer, Proc::LOCK), asked);
}

#[test]
fn what_another_client_wrote_under_the_lock_before_is_read_under_the_next_one() {
    let world = World::new();
    let ((one, _), (two, _)) = (world.mounted(OLD), world.mounted(OLD));
    let (first, second) = (open(&world, &one), open(&world, &two));
    // Time stands still, so that no time of the file shows the changes.
    for round in 0..10_u8 {
        let (file, data) = if round % 2 == 0 { (&first, [round]) } else { (&second, [round]) };
        world.run(file.lock(ONE, range(0, 1), Exclusive)).unwrap();
        let before = world.run(file.read_at(0, 1)).unwrap();
        let expected = if round == 0 { vec![] } else { vec![round - 1] };
        assert_eq!(before.concat(), expected);
        world.run(file.write_at(0, Bytes::copy_from_slice(&data))).unwrap();
        world.run(file.unlock(ONE, range(0, 1))).unwrap();
    }
}

#[test]
fn locked_reads_take_at_most_six_requests_each() {
    // 2015, Table 1: 60,008 requests of a client of version 3 for 1,000 files that it opens, locks, reads and unlocks ten times.
    const FILES: usize = 20;
    let world = World::new();
    let (fs, peer) = world.mounted(OLD);
    let names: Vec<String> = (0..FILES).map(|number| format!("file {number}")).collect();
    for name in &names {
        let file = world.run(fs.open(name.as_bytes(), &BOTH)).unwrap();
        world.run(file.write_at(0, Bytes::from(vec![7; 4096]))).unwrap();
        world.run(file.close()).unwrap();
    }
    peer.calls.borrow_mut().clear();
    for name in &names {
        for _ in 0..10 {
            let file = world.run(fs.open(name.as_bytes(), &OpenOptions::READ)).unwrap();
            world.run(file.lock(ONE, LockRange::WHOLE, Shared)).unwrap();
            assert_eq!(world.run(file.read_at(0, 4096)).unwrap().concat(), [7; 4096]);
            world.run(file.unlock(ONE, LockRange::WHOLE)).unwrap();
            world.run(file.close()).unwrap();
        }
    }
    let requests = peer.calls.borrow().len();
    let mut by_procedure = std::collections::BTreeMap::new();
    peer.calls.borrow().iter().for_each(|call| *by_procedure.entry(*call).or_insert(0) += 1);
    assert!(requests <= 10 * FILES * 6 + 8, "{requests}: {by_procedure:?}");
    assert_eq!((count(&peer, Proc::LOCK), count(&peer, Proc::UNLOCK)), (10 * FILES, 10 * FILES));
    assert_eq!(peer.calls_of(nfs3::PROGRAM, nfs3::Proc::READ.0), 10 * FILES);
    assert!(peer.calls_of(nsm::PROGRAM, nsm::Proc::STAT.0) <= 1);
}

#[test]
fn leaving_releases_all_locks() {
    let world = World::new();
    let (client, _) = world.client(OLD);
    let (fs, _) = world.run(FileSystem::mount(client.clone(), crate::world::root(), b"/export")).unwrap();
    let file = open(&world, &fs);
    world.run(file.lock(ONE, range(0, 1), Exclusive)).unwrap();
    world.run(file.lock(TWO, range(1, 1), Exclusive)).unwrap();
    assert_eq!(world.server().counts().locks, 2);
    world.run(client.close()).unwrap();
    assert_eq!(world.server().counts().locks, 0);
}
