//! Waiting for locks, and CB_NOTIFY_LOCK when a lock is free (RFC 8881 §9.6, §20.11).

use protocol::nfs4::callback::{CbOp, CbOpResult};
use protocol::nfs4::types::Outcome;

use std::sync::atomic::Ordering::Relaxed;

use super::callbacks::reachable;
use super::*;
use crate::state::tables::gauges::adjust;
use crate::state::tables::locks::LockQueue;
use crate::state::tables::shard::LockNotify;
use crate::testing::drain;

const EXCLUSIVE: LockType = LockType::WriteWait;
const SHARED: LockType = LockType::ReadWait;
const ALL: (u64, u64) = (0, u64::MAX);
/// Linux polls every 30 s if it can be notified (NFS4_LOCK_MAXTIMEOUT).
const POLL: Duration = Duration::from_secs(30);

/// A client with a callback path, with the file open.
struct Process {
    peer: Peer,
    outbox: Arc<Outbox>,
    open: (u64, Stateid),
}

fn process(world: &mut World, name: &str) -> Process {
    let peer = reachable(world, name);
    // Any seqid.
    let open = (1, Stateid { seqid: 0, ..world.open(&peer, 1, "o", BOTH) });
    Process { peer, outbox: Arc::clone(&world.outbox), open }
}

impl Process {
    fn asks(
        &self,
        world: &World,
        lock_type: LockType,
        (offset, length): (u64, u64),
    ) -> Result<Stateid, LockError> {
        world.lock(&self.peer, &self.open, "process", lock_type, range(offset, length))
    }

    #[track_caller]
    fn waits(&self, world: &World, lock_type: LockType, at: (u64, u64)) {
        assert!(matches!(self.asks(world, lock_type, at), Err(LockError::Denied(_))));
    }

    #[track_caller]
    fn locks(&self, world: &World, lock_type: LockType, at: (u64, u64)) -> Stateid {
        self.asks(world, lock_type, at).expect("nothing conflicts")
    }

    fn unlocks(&self, world: &World, lock: &Stateid) {
        world.state.unlock(world.now, &self.peer.client, file(1), lock, range(0, u64::MAX)).unwrap();
    }

    /// Returns the number of its notifications since the last call; answers the notifications.
    fn notified(&self, world: &World) -> usize {
        let calls = drain(&self.outbox);
        for call in &calls {
            let CbOp::NotifyLock(args) = call.operation() else { panic!("{:?}", call.operation()) };
            assert_eq!(&args.handle[..], &1u64.to_be_bytes());
            assert_eq!(args.lock_owner.client_id, self.peer.client.id());
            assert_eq!(&args.lock_owner.owner[..], b"process");
            let reply = call.results(CbOpResult::NotifyLock(Outcome::Ok(())));
            assert!(world.state.callback_replied(self.peer.connection, &self.outbox, reply));
        }
        calls.len()
    }
}

/// Returns a server, and processes with callback paths, each of its own client.
fn processes<const N: usize>() -> (World, [Process; N]) {
    let mut world = World::new();
    let made = std::array::from_fn(|n| process(&mut world, &format!("client {n}")));
    (world, made)
}

/// Returns the number of notifications of each process.
fn notified<const N: usize>(world: &World, processes: [&Process; N]) -> [usize; N] {
    processes.map(|process| process.notified(world))
}

fn waiting(world: &World) -> u64 {
    world.state.counts().locks_waiting
}

#[test]
fn waiting_writers_are_notified_in_order() {
    let (world, [a, b, c]) = processes();
    let held = a.locks(&world, EXCLUSIVE, ALL);
    c.waits(&world, EXCLUSIVE, ALL);
    b.waits(&world, EXCLUSIVE, (5, 1));
    assert_eq!((waiting(&world), notified(&world, [&a, &b, &c])), (2, [0, 0, 0]));
    a.unlocks(&world, &held);
    assert_eq!(notified(&world, [&a, &b, &c]), [0, 0, 1]);
    let held = c.locks(&world, EXCLUSIVE, ALL);
    assert_eq!(notified(&world, [&a, &b, &c]), [0, 0, 0]);
    c.unlocks(&world, &held);
    assert_eq!(notified(&world, [&a, &b, &c]), [0, 1, 0]);
    b.locks(&world, EXCLUSIVE, (5, 1));
    let counts = world.state.counts();
    assert_eq!((counts.locks_waiting, counts.locks_notified), (0, 2));
}

#[test]
fn waiting_readers_are_notified_together() {
    let (world, [a, b, c, d, e]) = processes();
    let held = a.locks(&world, EXCLUSIVE, ALL);
    b.waits(&world, SHARED, (0, 10));
    c.waits(&world, EXCLUSIVE, (9, 1));
    d.waits(&world, SHARED, (0, 10));
    e.waits(&world, EXCLUSIVE, (10, 10));
    a.unlocks(&world, &held);
    assert_eq!(notified(&world, [&b, &c, &d, &e]), [1, 0, 1, 1]);
}

/// A restarted client: the state of its last incarnation is gone.
fn comes_anew(world: &mut World, name: &str) {
    world.outbox = Arc::default();
    world.fresh_peer(name, 2);
}

fn evict(world: &World, process: &Process) {
    world.state.evict(process.peer.client.id()).unwrap();
}

/// Ways to free a lock that another process waits for.
type Frees = fn(&mut World, &mut Process, &Stateid);

#[test]
fn every_release_of_a_lock_notifies_waiters() {
    let frees: [(&str, LockType, Frees); 8] = [
        ("LOCKU", EXCLUSIVE, |world, a, lock| a.unlocks(world, lock)),
        ("LOCKU of a part", EXCLUSIVE, |world, a, lock| {
            world.state.unlock(world.now, &a.peer.client, file(1), lock, range(3, 4)).unwrap();
        }),
        ("a downgrade", SHARED, |world, a, _| {
            a.locks(world, LockType::Read, ALL);
        }),
        ("CLOSE", EXCLUSIVE, |world, a, _| world.close(&a.peer, 1, &a.open.1).unwrap()),
        ("the administrator", EXCLUSIVE, |world, a, lock| world.state.revoke(&a.peer.client, lock).unwrap()),
        ("eviction", EXCLUSIVE, |world, a, _| evict(world, a)),
        ("a new incarnation", EXCLUSIVE, |world, _, _| comes_anew(world, "client 0")),
        ("the end of the lease", EXCLUSIVE, |world, _, _| world.pass(LEASE)),
    ];
    for (what, lock_type, free) in frees {
        let (mut world, [mut a, mut b]) = processes();
        let held = a.locks(&world, EXCLUSIVE, ALL);
        world.pass(SECOND);
        b.waits(&world, lock_type, (5, 1));
        free(&mut world, &mut a, &held);
        b.peer.ping(&world);
        // Immediately, except for the lease, whose end is noticed by the sweep.
        if what == "the end of the lease" {
            assert_eq!(b.notified(&world), 0);
            world.state.expire(world.now - SECOND);
        }
        assert_eq!(b.notified(&world), 1, "{what}");
        b.locks(&world, lock_type, (5, 1));
        assert_eq!(waiting(&world), 0, "{what}");
    }
}

/// Ways in which the first waiter stops waiting.
type Leaves = fn(&mut World, &mut Process);

#[test]
fn a_waiter_that_has_stopped_waiting_is_not_notified() {
    let leaves: [(&str, Leaves); 5] = [
        // §9.6: "a nonblocking request for the same lock, which is also denied".
        ("asks without waiting", |world, b| b.waits(world, LockType::Write, ALL)),
        ("CLOSE", |world, b| world.close(&b.peer, 1, &b.open.1).unwrap()),
        ("eviction", |world, b| evict(world, b)),
        ("a new incarnation", |world, _| comes_anew(world, "client 1")),
        ("the administrator", |world, b| world.state.revoke(&b.peer.client, &b.open.1).unwrap()),
    ];
    for (what, leave) in leaves {
        let (mut world, [a, mut b, c]) = processes();
        let held = a.locks(&world, EXCLUSIVE, ALL);
        b.waits(&world, EXCLUSIVE, ALL);
        c.waits(&world, EXCLUSIVE, ALL);
        leave(&mut world, &mut b);
        assert_eq!(waiting(&world), 1, "{what}");
        drain(&b.outbox);
        a.unlocks(&world, &held);
        assert_eq!((b.notified(&world), c.notified(&world)), (0, 1), "{what}");
    }
}

/// Downgrades a process's open for both to this access.
fn downgrades(world: &World, process: &Process, left: ShareAccess) {
    let open = world.open(&process.peer, 1, "o", left);
    world.state.open_downgrade(&process.peer.client, file(1), &open, left, NONE).unwrap();
}

#[test]
fn a_waiter_that_lost_its_open_is_removed() {
    let rows = [(READ, EXCLUSIVE, SHARED), (WRITE, SHARED, EXCLUSIVE)];
    for (left, no_more, still) in rows {
        let (world, [a, b, c]) = processes();
        let held = a.locks(&world, EXCLUSIVE, ALL);
        b.waits(&world, no_more, (0, 10));
        c.waits(&world, EXCLUSIVE, (0, 10));
        b.waits(&world, still, (10, 10));
        downgrades(&world, &b, left);
        assert_eq!(waiting(&world), 2, "{left:?}");
        world.state.audit().unwrap();
        a.unlocks(&world, &held);
        assert_eq!(
            notified(&world, [&b, &c]),
            [1, 1],
            "{left:?}: only the one that may still lock is notified"
        );
        assert_eq!(b.asks(&world, no_more, (0, 10)), Err(LockError::Status(Status::OPENMODE)));
        b.locks(&world, still, (10, 10));
    }
}

/// Returns three processes: it is the second one's turn, and the third waits after it.
fn whose_turn_has_come() -> (World, [Process; 3]) {
    let (world, [a, b, c]) = processes();
    let held = a.locks(&world, EXCLUSIVE, ALL);
    b.waits(&world, EXCLUSIVE, ALL);
    c.waits(&world, EXCLUSIVE, ALL);
    a.unlocks(&world, &held);
    assert_eq!(notified(&world, [&b, &c]), [1, 0]);
    (world, [a, b, c])
}

/// A waiter that drops its right passes the turn on at once, before its time is over.
#[test]
fn closing_the_open_passes_the_turn_on() {
    let (world, [_, b, c]) = whose_turn_has_come();
    downgrades(&world, &b, READ);
    assert_eq!(notified(&world, [&b, &c]), [0, 1]);
}

#[test]
fn downgrading_ends_the_wait_of_an_upgrade() {
    let (world, [a, b]) = processes();
    a.locks(&world, EXCLUSIVE, ALL);
    downgrades(&world, &b, READ);
    let upgraded = world.try_open(&b.peer, 1, "o", WRITE, NONE).unwrap();
    b.waits(&world, EXCLUSIVE, ALL);
    assert_eq!(waiting(&world), 1);
    world.state.withdraw_open(&b.peer.client, upgraded);
    assert_eq!(waiting(&world), 0);
    world.state.audit().unwrap();
}

#[test]
fn an_absent_waiter_passes_the_turn_on() {
    let (mut world, [a, b, c, d]) = processes();
    let held = a.locks(&world, EXCLUSIVE, ALL);
    [&b, &c, &d].iter().for_each(|process| process.waits(&world, EXCLUSIVE, ALL));
    a.unlocks(&world, &held);
    assert_eq!(notified(&world, [&b, &c, &d]), [1, 0, 0]);
    world.close(&b.peer, 1, &b.open.1).unwrap();
    assert_eq!(notified(&world, [&b, &c, &d]), [0, 1, 0]);
    world.pass(SECOND * 4);
    world.state.expire(world.now);
    assert_eq!(notified(&world, [&b, &c, &d]), [0, 0, 0], "it has its turn");
    world.pass(SECOND);
    world.state.expire(world.now);
    assert_eq!(notified(&world, [&b, &c, &d]), [0, 0, 1]);
    assert_eq!(waiting(&world), 1);
}

#[test]
fn a_notified_waiter_that_is_late_keeps_its_place() {
    let (world, [a, b, c]) = whose_turn_has_come();
    // The notification is a hint: the first request gets the lock.
    let held = a.locks(&world, EXCLUSIVE, ALL);
    b.waits(&world, EXCLUSIVE, ALL);
    assert_eq!(waiting(&world), 2);
    a.unlocks(&world, &held);
    assert_eq!(notified(&world, [&b, &c]), [1, 0]);
}

#[test]
fn a_waiter_is_remembered_while_it_polls() {
    let (mut world, [mut a, b, c]) = processes();
    let held = a.locks(&world, EXCLUSIVE, ALL);
    b.waits(&world, EXCLUSIVE, ALL);
    c.waits(&world, EXCLUSIVE, ALL);
    for _ in 0..3 {
        world.pass(POLL);
        a.peer.ping(&world);
        c.waits(&world, EXCLUSIVE, ALL);
        world.state.expire(world.now);
    }
    assert_eq!(waiting(&world), 1, "one has not asked for 90 s");
    a.unlocks(&world, &held);
    assert_eq!(notified(&world, [&b, &c]), [0, 1]);
}

#[test]
fn clients_without_callbacks_are_not_queued() {
    let (mut world, [a]) = processes();
    a.locks(&world, EXCLUSIVE, ALL);
    // Its path was never probed.
    let untried = world.peer("untried");
    let open = (1, world.open(&untried, 1, "o", BOTH));
    assert!(world.lock(&untried, &open, "process", EXCLUSIVE, range(0, 1)).is_err());
    let b = process(&mut world, "b");
    // A back channel may be too narrow for such an owner.
    let owner = "o".repeat(33);
    assert!(world.lock(&b.peer, &b.open, &owner, EXCLUSIVE, range(0, 1)).is_err());
    b.waits(&world, LockType::Write, ALL);
    assert_eq!(waiting(&world), 0);
    assert!(world.lock(&b.peer, &b.open, &owner[1..], EXCLUSIVE, range(0, 1)).is_err());
    assert_eq!(waiting(&world), 1);
}

#[test]
fn waiters_are_bounded_per_file_per_client_and_in_total() {
    let (mut world, [a]) = processes();
    // Over all files, for one client after the other.
    for fileid in 1..=6 {
        let open = (fileid, world.open(&a.peer, fileid, "o", BOTH));
        world.lock(&a.peer, &open, "process", EXCLUSIVE, range(0, u64::MAX)).unwrap();
    }
    let ask = |world: &World, peer: &Peer, fileid, count: u64| {
        let open = (fileid, world.open(peer, fileid, "o", BOTH));
        for n in 0..count {
            assert!(world.lock(peer, &open, "process", EXCLUSIVE, range(n, 1)).is_err());
        }
        waiting(world)
    };
    let [b, c, d, e, f] = std::array::from_fn(|n| reachable(&mut world, &format!("waiter {n}")));
    assert_eq!(ask(&world, &b, 1, 600), 600);
    assert_eq!(ask(&world, &c, 1, 600), 1024, "of one file");
    assert_eq!(ask(&world, &b, 2, 600), 1448, "of one client");
    assert_eq!(ask(&world, &d, 3, 1030), 2472);
    assert_eq!(ask(&world, &e, 4, 1030), 3496);
    assert_eq!(ask(&world, &f, 5, 1030), 4096, "of all");
    assert_eq!(ask(&world, &f, 5, 1), 4096, "a known waiter polls");
    for peer in [&a.peer, &b, &c, &d, &e, &f] {
        world.state.evict(peer.client.id()).unwrap();
    }
    assert_eq!(waiting(&world), 0);
    assert!(world.state.shards.iter().all(|shard| shard.lock().is_empty()));
}

#[test]
fn the_audit_checks_waiters_and_turns() {
    let (world, [a, b, c]) = processes();
    a.locks(&world, EXCLUSIVE, ALL);
    b.waits(&world, EXCLUSIVE, ALL);
    c.waits(&world, EXCLUSIVE, ALL);
    world.state.audit().unwrap();
    let found = |what: &str| assert!(world.state.audit().is_err_and(|why| why.contains(what)), "{what}");
    let own = &b.peer.client.holdings.lock_waiters;
    own.fetch_add(1, Relaxed);
    found("waiters for locks counted");
    own.fetch_sub(1, Relaxed);
    adjust(&world.state.gauges.lock_waiters, 1);
    found("waiters for locks counted");
    adjust(&world.state.gauges.lock_waiters, -1);
    let at = world.state.shard_of(file(1));
    let change = |change: fn(&mut LockQueue<LockNotify>)| {
        change(world.state.shards[at].lock().lock_queues.get_mut(&file(1)).unwrap());
    };
    change(LockQueue::give_all_turns);
    found("have their turn at once");
    world.close(&b.peer, 1, &b.open.1).unwrap();
    world.state.audit().unwrap();
    world.state.shards[at].lock().lock_queues.insert(file(2), LockQueue::default());
    found("an empty queue of waiters");
}

/// One thread frees locks that others wait for, others stop waiting. A callback sent under a shard's lock would deadlock.
#[test]
fn waiting_and_releasing_threads_do_not_deadlock() {
    let (world, made) = processes::<4>();
    std::thread::scope(|scope| {
        for process in &made {
            scope.spawn(|| {
                for _ in 0..300 {
                    if let Ok(lock) = process.asks(&world, EXCLUSIVE, ALL) {
                        process.unlocks(&world, &lock);
                    }
                    process.notified(&world);
                    world.state.expire(world.now);
                }
            });
        }
    });
    made.iter().for_each(|process| world.close(&process.peer, 1, &process.open.1).unwrap());
    assert_eq!(waiting(&world), 0);
}
