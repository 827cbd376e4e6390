//! Hosts that wait for locks, and GRANTED.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::*;

#[test]
fn waiting_hosts_get_the_lock_in_their_order_and_are_called() {
    let (lab, file, mut one, mut two) = two_hosts();
    let mut three = host(&lab.server, 3, "three");
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    assert_eq!(two.wait(whole(file)), Stats::BLOCKED);
    assert_eq!(three.wait(whole(file)), Stats::BLOCKED);
    assert_eq!(two.wait(whole(file)), Stats::BLOCKED, "a client that repeats its request keeps its place");
    assert!(next_call(&lab).is_none());
    assert_eq!(one.unlock(whole(file)), Stats::GRANTED);

    let call = next_call(&lab).expect("the first waiter is called");
    assert!(next_call(&lab).is_none());
    assert_eq!(call.path().address, two.connection.peer.ip());
    let (procedure, args) = called::<TestArgs>(&call);
    assert_eq!(procedure, Proc::GRANTED.0);
    assert_eq!(args.alock, two.lock_of(whole(file)), "as it was requested");
    assert_eq!(one.lock(whole(file)), Stats::DENIED, "it is held already");
    answer(&lab, &call, Stats::GRANTED);
    assert_eq!(two.unlock(whole(file)), Stats::GRANTED);
    let call = next_call(&lab).expect("then the second");
    assert_eq!(call.path().address, three.connection.peer.ip());
    answer(&lab, &call, Stats::GRANTED);
    lab.server.audit().unwrap();
    assert_eq!(lab.server.host_calls(), 0);
}

#[test]
fn a_host_waits_for_a_client_of_nfsv4_and_such_a_client_for_a_host() {
    let (mut lab, file, mut one, _) = two_hosts();
    let (_, open) = lab.open(&["export", "file"], b"owner");
    assert!(matches!(lock_v4(&mut lab, file, open, 0), lock4::LockOutcome::Ok(_)));
    assert_eq!(one.wait(bytes(file, 0, 10)), Stats::BLOCKED);
    let close = Op::Close(CloseArgs { seqid: 0, open_stateid: open });
    lab.ok(vec![putfh(file), close]);
    let call = next_call(&lab).expect("GRANTED");
    answer(&lab, &call, Stats::GRANTED);

    let mut other = lab.reachable(b"other", 12);
    let (_, open) = other.open(&["export", "file"], b"owner");
    let lock4::LockOutcome::Denied(_) = lock_v4(&mut other, file, open, 0) else { panic!() };
    assert_eq!(one.unlock(whole(file)), Stats::GRANTED);
    assert!(matches!(lock_v4(&mut other, file, open, 0), lock4::LockOutcome::Ok(_)));
    lab.server.audit().unwrap();
}

#[test]
fn a_lock_refused_by_its_host_passes_to_the_next() {
    let (lab, file, mut one, mut two) = two_hosts();
    let mut three = host(&lab.server, 3, "three");
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    assert_eq!((two.wait(whole(file)), three.wait(whole(file))), (Stats::BLOCKED, Stats::BLOCKED));
    one.unlock(whole(file));
    let call = next_call(&lab).unwrap();
    answer(&lab, &call, Stats::DENIED);
    let call = next_call(&lab).expect("the second waiter is called");
    assert_eq!(call.path().address, three.connection.peer.ip());
}

#[test]
fn a_host_that_cannot_be_reached_lets_others_go_first_and_keeps_waiting() {
    let (mut lab, file, mut one, mut two) = two_hosts();
    let mut three = host(&lab.server, 3, "three");
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    assert_eq!((two.wait(whole(file)), three.wait(whole(file))), (Stats::BLOCKED, Stats::BLOCKED));
    one.unlock(whole(file));
    let call = next_call(&lab).unwrap();
    lab.server.handle_host_answer(&call, HostAnswer::Unreachable, lab.now());
    let call = next_call(&lab).expect("the second waiter is called");
    assert_eq!(call.path().address, three.connection.peer.ip());
    answer(&lab, &call, Stats::GRANTED);
    assert_eq!(three.unlock(whole(file)), Stats::GRANTED);
    lab.server.audit().unwrap();
    lab.pass(5);
    let call = next_call(&lab).expect("it is retried");
    assert_eq!(call.path().address, two.connection.peer.ip());
    answer(&lab, &call, Stats::GRANTED);
    assert_eq!(one.lock(whole(file)), Stats::DENIED);
}

#[test]
fn hosts_that_do_not_answer_delay_no_other() {
    // More than the driver calls at once.
    const SILENT: usize = 300;
    let (mut lab, file, mut one, mut two) = two_hosts();
    let other = lab.file(&["export", "other"], b"");
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    let silent = (0..SILENT).map(|n| host_at(&lab.server, [198, 51, (n >> 8) as u8, n as u8], 700, "silent"));
    for mut host in silent {
        let shared = host.args(whole(file), false, true);
        assert_eq!(host.status(Proc::LOCK, &shared), Stats::BLOCKED);
    }
    let shared = two.args(whole(file), false, true);
    assert_eq!(two.status(Proc::LOCK, &shared), Stats::BLOCKED);
    one.unlock(whole(file));
    let mut called = Vec::new();
    loop {
        let calls: Vec<_> = std::iter::from_fn(|| next_call(&lab)).collect();
        if calls.is_empty() {
            break;
        }
        for call in calls {
            called.push(call.path().address);
            match call.path().address == two.connection.peer.ip() {
                true => answer(&lab, &call, Stats::GRANTED),
                false => lab.server.handle_host_answer(&call, HostAnswer::Unanswered, lab.now()),
            }
        }
    }
    assert_eq!(called.len(), SILENT + 1, "each once");
    assert_eq!(called.last(), Some(&two.connection.peer.ip()), "in the order in which they waited");

    // All are called again, as many as may be at once.
    lab.pass(5);
    let again: Vec<_> = std::iter::from_fn(|| next_call(&lab)).collect();
    assert!((100..SILENT).contains(&again.len()), "{}", again.len());
    // Meanwhile no call of them ends.
    for _ in 0..20 {
        assert_eq!(one.lock(whole(other)), Stats::GRANTED);
        assert_eq!(two.wait(whole(other)), Stats::BLOCKED);
        one.unlock(whole(other));
        let call = next_call(&lab).expect("a host that answers is called at once");
        assert_eq!(call.path().address, two.connection.peer.ip());
        answer(&lab, &call, Stats::GRANTED);
        assert_eq!(two.unlock(whole(other)), Stats::GRANTED);
    }
    for call in &again {
        lab.server.handle_host_answer(call, HostAnswer::Unanswered, lab.now());
    }
    drop(again);
    let rest: Vec<_> = std::iter::from_fn(|| next_call(&lab)).collect();
    assert!(!rest.is_empty(), "those whose turn had not come");
    lab.server.audit().unwrap();
}

#[test]
fn an_unanswered_granted_is_repeated_and_the_lock_remains() {
    let (mut lab, file, mut one, mut two) = two_hosts();
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    assert_eq!(two.wait(whole(file)), Stats::BLOCKED);
    one.unlock(whole(file));
    let call = next_call(&lab).unwrap();
    lab.server.handle_host_answer(&call, HostAnswer::Unanswered, lab.now());
    assert_eq!(one.lock(whole(file)), Stats::DENIED, "the host may have taken it");
    lab.pass(5);
    let again = next_call(&lab).expect("it is repeated");
    assert_eq!(again.record(), call.record());
    lab.server.handle_host_answer(&again, HostAnswer::Unreachable, lab.now());
    assert_eq!(one.lock(whole(file)), Stats::DENIED, "it may have taken the first one");
    assert_eq!(two.lock(whole(file)), Stats::GRANTED, "the host requests the lock");
    lab.pass(60);
    assert!(next_call(&lab).is_none(), "so it need not be called");
}

#[test]
fn a_cancelled_wait_is_over_and_one_that_crossed_granted_frees_the_lock() {
    let (lab, file, mut one, mut two) = two_hosts();
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    assert_eq!(two.cancel(whole(file)), Stats::DENIED, "nobody waits");
    assert_eq!(two.wait(whole(file)), Stats::BLOCKED);
    assert_eq!(two.cancel(whole(file)), Stats::GRANTED);
    one.unlock(whole(file));
    assert!(next_call(&lab).is_none());

    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    assert_eq!(two.wait(whole(file)), Stats::BLOCKED);
    one.unlock(whole(file));
    let call = next_call(&lab).expect("GRANTED is under way");
    assert_eq!(two.cancel(whole(file)), Stats::GRANTED);
    assert_eq!(one.lock(whole(file)), Stats::GRANTED, "the lock is free");
    answer(&lab, &call, Stats::DENIED);
    assert_eq!(two.lock(whole(file)), Stats::DENIED, "the late answer frees nothing of others");
    lab.server.audit().unwrap();
}

#[test]
fn a_late_refusal_does_not_free_a_newer_lock_of_the_same_owner() {
    let (lab, file, mut one, mut two) = two_hosts();
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    assert_eq!(two.wait(whole(file)), Stats::BLOCKED);
    one.unlock(whole(file));
    let call = next_call(&lab).unwrap();
    assert_eq!(two.unlock(whole(file)), Stats::GRANTED);
    assert_eq!(two.lock(whole(file)), Stats::GRANTED);
    answer(&lab, &call, Stats::DENIED);
    assert_eq!(one.lock(whole(file)), Stats::DENIED);
}

/// Lets three hosts lock and unlock a file as often as `rounds` says, each on a thread, and refuse every GRANTED: it may come after the
/// reply to a LOCK that they repeated. Returns how often two had the lock.
fn contend(rounds: usize) -> usize {
    let (lab, file, one, two) = two_hosts();
    let three = host(&lab.server, 3, "three");
    let (is_held, violations) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    thread::scope(|scope| {
        let threads = [one, two, three].map(|mut host| {
            scope.spawn(move || {
                for _ in 0..rounds {
                    while host.wait(whole(file)) != Stats::GRANTED {
                        thread::yield_now();
                    }
                    let was_held = is_held.swap(true, Ordering::SeqCst);
                    violations.fetch_add(usize::from(was_held), Ordering::SeqCst);
                    thread::yield_now();
                    is_held.store(false, Ordering::SeqCst);
                    assert_eq!(host.unlock(whole(file)), Stats::GRANTED);
                }
            })
        });
        while threads.iter().any(|thread| !thread.is_finished()) {
            match next_call(&lab) {
                Some(call) => answer(&lab, &call, Stats::DENIED),
                None => thread::yield_now(),
            }
        }
    });
    lab.server.audit().unwrap();
    violations.load(Ordering::SeqCst)
}

#[test]
fn a_lock_that_is_granted_while_its_host_asks_again_is_not_taken_back() {
    assert_eq!(contend(2000), 0);
}

#[test]
fn forged_results_and_granted_calls_change_nothing() {
    let (lab, file, mut one, mut two) = two_hosts();
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    let forged = Res { cookie: Opaque::from_static(b"cookie"), stat: Stats::DENIED };
    for procedure in [Proc::GRANTED_RES, Proc::LOCK_RES, Proc::UNLOCK_RES, Proc::CANCEL_RES] {
        two.ask::<()>(VERSION, procedure, &forged).unwrap();
    }
    let LockArgs { cookie, exclusive, alock, .. } = one.args(whole(file), true, false);
    let granted = TestArgs { cookie, exclusive, alock };
    assert_eq!(two.status(Proc::GRANTED, &granted), Stats::DENIED);
    assert_eq!(two.lock(whole(file)), Stats::DENIED);
    assert_eq!(lab.server.counts().locks, 1);
}

#[test]
fn waiters_of_a_host_are_bounded() {
    let (lab, file, mut one, mut two) = two_hosts();
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    let mut wait = |svid| two.wait(Range { svid, ..whole(file) });
    let first: Vec<_> = (0..1024).map(&mut wait).collect();
    assert!(first.iter().all(|stat| *stat == Stats::BLOCKED));
    assert_eq!(wait(1024), Stats::DENIED_NOLOCKS);
    lab.server.audit().unwrap();
}
