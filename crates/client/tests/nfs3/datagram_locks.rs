//! Locks of version 3 over UDP: calls of NLM are repeated, and the status monitor shows a restart of the server.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::config::Config;
use client::engine::RetryPolicy;
use client::errno::Errno;
use client::fs::FileSystem;
use client::locks::LockKind::{Exclusive, Shared};
use client::locks::LockRange;
use client::url::Transport;
use protocol::nlm::{self, Proc};
use protocol::nsm::{self, StateChange};
use rpc::message::{CallHeader, encode_call};
use xdr::{Opaque, Writer};

use crate::locks::{ONE, count, is_free, open, range};
use crate::world::{Fate, Peer, World};

/// The timeout of a first call.
const TIMEOUT: Duration = Duration::from_millis(1100);
/// Longer than the interval at which the monitor is asked.
const PULSE: Duration = Duration::from_secs(12);

fn udp(config: &mut Config) {
    config.transport = Transport::Udp;
    config.retry = RetryPolicy { timeout: TIMEOUT, retries: None, fails_fast: true };
}

fn mounted(world: &Rc<World>) -> (FileSystem, Rc<Peer>) {
    world.mounted_with(crate::VERSION, udp)
}

/// The next call of each of these procedures of NLM gets this fate once, then it is served.
fn once(peer: &Peer, procedures: &'static [Proc], fate: Fate) -> Rc<Cell<usize>> {
    let (lost, left) = (Rc::new(Cell::new(0)), Cell::new(procedures));
    let counted = Rc::clone(&lost);
    peer.judge_calls(move |call| match left.get().split_first() {
        Some((next, rest)) if call == (nlm::PROGRAM, next.0) => {
            left.set(rest);
            counted.set(counted.get() + 1);
            fate
        }
        _ => Fate::Serve,
    });
    lost
}

fn stats(peer: &Peer) -> usize {
    peer.calls_of(nsm::PROGRAM, nsm::Proc::STAT.0)
}

#[test]
fn calls_and_replies_that_are_lost_are_repeated_and_executed_once() {
    for fate in [Fate::LoseReply, Fate::Hold] {
        let world = World::new();
        let (fs, peer) = mounted(&world);
        let file = open(&world, &fs);
        let lost = once(&peer, &[Proc::NULL, Proc::LOCK, Proc::TEST, Proc::UNLOCK], fate);
        world.run(file.lock(ONE, range(0, 10), Exclusive)).unwrap();
        assert_eq!(world.server().counts().locks, 1);
        assert!(is_free(&world, &file, ONE, range(0, 1)), "its own");
        world.run(file.unlock(ONE, range(3, 2))).unwrap();
        assert_eq!(lost.get(), 4, "{fate:?}");
        // Each once more than it was called. NULL is called by the search for the lock manager, and to reach it.
        for (procedure, expected) in [(Proc::NULL, 3), (Proc::LOCK, 2), (Proc::TEST, 2), (Proc::UNLOCK, 2)] {
            assert_eq!(count(&peer, procedure), expected, "{procedure:?}, {fate:?}");
        }
        assert_eq!(world.server().counts().locks, 2, "the middle is unlocked");
        world.run(file.close()).unwrap();
        assert_eq!(world.server().counts().locks, 0);
    }
}

#[test]
fn a_loss_makes_no_lock_doubtful_while_the_monitor_has_the_same_number() {
    let world = World::new();
    let (fs, peer) = mounted(&world);
    let file = open(&world, &fs);
    world.run(file.lock(ONE, range(0, 10), Exclusive)).unwrap();
    let (locked, asked) = (count(&peer, Proc::LOCK), stats(&peer));
    assert_eq!((locked, asked), (1, 1));
    once(&peer, &[Proc::UNLOCK], Fate::LoseReply);
    world.run(file.unlock(ONE, range(0, 1))).unwrap();
    world.pass(PULSE * 3);
    assert_eq!(count(&peer, Proc::LOCK), locked);
    assert!(stats(&peer) > asked, "it is asked at intervals");
}

/// A client whose questions to the monitor are lost.
fn mounted_without_monitor(world: &Rc<World>) -> (FileSystem, Rc<Peer>) {
    let (fs, peer) = mounted(world);
    peer.judge_calls(|call| if call.0 == nsm::PROGRAM { Fate::Hold } else { Fate::Serve });
    (fs, peer)
}

#[test]
fn a_monitor_that_does_not_answer_disturbs_no_lock() {
    let world = World::new();
    let ((one, peer), (two, _)) = (mounted_without_monitor(&world), mounted(&world));
    let (first, second) = (open(&world, &one), open(&world, &two));
    world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
    let locked = count(&peer, Proc::LOCK);
    let mut lost = 0;
    peer.judge_calls(move |call| match call {
        (nsm::PROGRAM, _) => Fate::Hold,
        // Each call is repeated.
        (nlm::PROGRAM, _) => {
            lost += 1;
            if lost % 2 == 1 { Fate::LoseReply } else { Fate::Serve }
        }
        _ => Fate::Serve,
    });
    // A question takes 31 s until it fails.
    world.pass(Duration::from_mins(2));
    let started = world.now();
    world.run(first.lock(ONE, range(20, 10), Exclusive)).unwrap();
    assert!(world.now() - started < Duration::from_secs(5), "it does not wait for the monitor");
    world.pass(Duration::from_mins(1));
    assert_eq!(count(&peer, Proc::LOCK), locked + 2, "one that was repeated");
    assert!(world.run(first.read_at(0, 1)).unwrap().is_empty(), "no lock is lost");
    assert!(!is_free(&world, &second, ONE, range(0, 1)) && !is_free(&world, &second, ONE, range(20, 1)));
}

#[test]
fn a_grace_period_shows_a_restart_where_the_monitor_does_not() {
    let world = World::new();
    let ((one, peer), (two, _)) = (mounted_without_monitor(&world), mounted(&world));
    let (first, second) = (open(&world, &one), open(&world, &two));
    world.run(first.lock(ONE, range(0, 10), Exclusive)).unwrap();
    peer.drop_callbacks(true);
    world.restart();
    world.run(first.lock(ONE, range(20, 10), Exclusive)).unwrap();
    assert!(world.run(first.read_at(0, 1)).unwrap().is_empty(), "no lock is lost");
    let held = [0, 9, 10, 20, 29].map(|at| !is_free(&world, &second, ONE, range(at, 1)));
    assert_eq!(held, [true, true, false, true, true]);
}

#[test]
fn reclaims_locks_when_the_server_says_that_it_restarted() {
    reclaims_after_a_restart(|_| {}, Duration::from_secs(1));
}

#[test]
fn reclaims_locks_after_a_restart_that_only_the_monitor_shows() {
    reclaims_after_a_restart(|peer| peer.drop_callbacks(true), PULSE);
}

fn reclaims_after_a_restart(before: impl FnOnce(&Peer), within: Duration) {
    let world = World::new();
    let ((one, peer), (two, _)) = (mounted(&world), mounted(&world));
    let (first, second) = (open(&world, &one), open(&world, &two));
    world.run(first.lock(ONE, range(0, 100), Exclusive)).unwrap();
    world.run(first.unlock(ONE, range(40, 20))).unwrap();
    before(&peer);
    world.restart();
    let asked = count(&peer, Proc::LOCK);
    world.pass(within);
    assert_eq!(count(&peer, Proc::LOCK) - asked, 2, "two ranges");
    assert!(!is_free(&world, &second, ONE, range(0, 1)), "it waits for the end of the grace period");
    let held = [0, 39, 40, 59, 60, 99].map(|at| !is_free(&world, &second, ONE, range(at, 1)));
    assert_eq!(held, [true, true, false, false, true, true]);
    assert!(world.run(first.read_at(0, 1)).unwrap().is_empty(), "it is not lost");
}

#[test]
fn a_lock_that_is_taken_after_an_unnoticed_restart_is_kept() {
    let world = World::new();
    let (fs, peer) = mounted(&world);
    let file = open(&world, &fs);
    peer.drop_callbacks(true);
    world.run(file.lock(ONE, range(0, 10), Exclusive)).unwrap();
    world.run(file.unlock(ONE, range(0, 10))).unwrap();
    world.pass(Duration::from_secs(5));
    world.restart();
    world.run(file.lock(ONE, range(0, 10), Exclusive)).unwrap();
    world.pass(PULSE * 3);
    assert!(world.run(file.read_at(0, 1)).unwrap().is_empty(), "it is not lost");
    assert_eq!(world.server().counts().locks, 1);
}

/// Returns the call by which a server says that it has restarted.
fn restarted(state: i32) -> Bytes {
    let mut record = Writer::new();
    let header = CallHeader::new(9, nsm::PROGRAM, nsm::VERSION, nsm::Proc::NOTIFY.0);
    encode_call(&mut record, &header, &StateChange { mon_name: Opaque::from_static(b"server"), state });
    record.into_bytes()
}

#[test]
fn a_lock_whose_replies_may_all_be_an_earlier_servers_is_unlocked() {
    let world = World::new();
    let ((one, peer), (two, _)) = (mounted(&world), mounted(&world));
    let (first, second) = (open(&world, &one), open(&world, &two));
    world.run(first.lock(ONE, range(5, 10), Shared)).unwrap();
    let (client, mut state) = (one.client().clone(), 1);
    let asked = count(&peer, Proc::LOCK);
    peer.judge_calls(move |call| {
        if call == (nlm::PROGRAM, Proc::LOCK.0) {
            // While LOCK is under way.
            state += 2;
            client.answer_host_call(restarted(state)).expect("an answer");
        }
        Fate::Serve
    });
    let refused = world.run(first.try_lock(ONE, range(0, 10), Exclusive)).unwrap_err();
    assert_eq!((refused.errno(), count(&peer, Proc::LOCK) >= asked + 8), (Errno::EPROTO, true));
    peer.judge_calls(|_| Fate::Serve);
    // Longer than the pause between two reclaims.
    world.pass(PULSE);
    let conflict = |at| world.run(second.test_lock(ONE, range(at, 1), Exclusive)).unwrap();
    let kinds = [0, 4, 5, 14, 15].map(|at| conflict(at).map(|conflict| conflict.kind));
    assert_eq!(kinds, [None, None, Some(Shared), Some(Shared), None], "what it had before");
    world.run(first.close()).unwrap();
    assert_eq!(world.server().counts().locks, 0);
}

#[test]
fn a_lock_whose_replies_are_all_lost_is_unlocked() {
    for over_udp in [true, false] {
        let world = World::new();
        let (fs, peer) = world.mounted_with(crate::VERSION, |config| {
            if over_udp {
                udp(config);
            }
            config.retry.retries = Some(2);
        });
        let file = open(&world, &fs);
        // Over TCP the connection is lost with the reply.
        peer.judge_calls(|call| match call == (nlm::PROGRAM, Proc::LOCK.0) {
            true => Fate::LoseReply,
            false => Fate::Serve,
        });
        let failed = world.run(file.try_lock(ONE, range(0, 10), Exclusive)).unwrap_err();
        let errno = if over_udp { Errno::ETIMEDOUT } else { Errno::EHOSTUNREACH };
        assert_eq!((failed.errno(), world.server().counts().locks), (errno, 1));
        // The first UNLOCK fails too.
        peer.cut(&world, true);
        world.pass(Duration::from_secs(1));
        peer.cut(&world, false);
        world.pass(Duration::from_secs(120));
        assert_eq!(world.server().counts().locks, 0, "over UDP: {over_udp}");
    }
}

/// The server has no lease for locks, so nobody else would ever get this one.
#[test]
fn an_unlock_that_failed_is_repeated_also_when_the_client_ends() {
    for ends in [false, true] {
        let world = World::new();
        let (fs, peer) = world.mounted_with(crate::VERSION, |config| {
            udp(config);
            config.retry.retries = Some(2);
        });
        let file = open(&world, &fs);
        world.run(file.try_lock(ONE, range(0, 10), Exclusive)).unwrap();
        peer.cut(&world, true);
        let failed = world.run(file.unlock(ONE, range(0, 10))).unwrap_err();
        assert_eq!((failed.errno(), world.server().counts().locks), (Errno::ETIMEDOUT, 1));
        // The next attempt fails too.
        world.pass(Duration::from_secs(20));
        peer.cut(&world, false);
        if ends {
            world.run(file.close()).unwrap();
            world.run(fs.client().close()).unwrap();
        } else {
            world.pass(Duration::from_secs(300));
        }
        assert_eq!(world.server().counts().locks, 0, "ends: {ends}");
    }
}

#[test]
fn a_waiter_is_woken_by_granted() {
    let world = World::new();
    let ((one, _), (two, peer)) = (mounted(&world), mounted(&world));
    let (first, second) = (open(&world, &one), open(&world, &two));
    world.run(first.lock(ONE, LockRange::WHOLE, Exclusive)).unwrap();
    let mut waiting = pin!(second.lock(ONE, range(0, 1), Shared));
    assert!(world.run_for(Duration::from_secs(24), waiting.as_mut()).is_none());
    let asked = count(&peer, Proc::LOCK);
    world.run(first.unlock(ONE, LockRange::WHOLE)).unwrap();
    world.run(waiting).unwrap();
    assert_eq!(count(&peer, Proc::LOCK), asked + 1);
    assert_eq!(peer.host_calls_of(nlm::PROGRAM, Proc::GRANTED.0), 1);
}
