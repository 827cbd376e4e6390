//! Hosts: permitted callers, their maximum number, and the end of their locks.

use protocol::nsm::{self, StateChange};

use super::*;
use crate::testing::{export, export_for, lab_of};

/// Sends SM_NOTIFY.
fn notify(from: &mut Host, name: &'static str, state: i32) {
    let change = StateChange { mon_name: Opaque::from_static(name.as_bytes()), state };
    let record = from.record((nsm::PROGRAM, nsm::VERSION, nsm::Proc::NOTIFY.0), &change);
    parse_reply::<()>(from.send(record).expect("a reply")).unwrap();
}

#[test]
fn a_restarted_host_loses_its_locks_shares_and_waits() {
    let (lab, file, mut one, mut two) = two_hosts();
    let mut three = host(&lab.server, 3, "three");
    assert_eq!(one.lock(bytes(file, 0, 5)), Stats::GRANTED);
    assert_eq!(one.share(file, ShareAccess::RW, ShareMode::DRW), Stats::GRANTED);
    assert_eq!(two.lock(bytes(file, 10, 5)), Stats::GRANTED);
    assert_eq!(one.wait(bytes(file, 10, 5)), Stats::BLOCKED);
    assert_eq!(three.wait(bytes(file, 0, 5)), Stats::BLOCKED);
    notify(&mut one, "one", 5);
    let call = next_call(&lab).expect("the next waiter has the lock");
    assert_eq!(call.path().address, three.connection.peer.ip());
    answer(&lab, &call, Stats::GRANTED);
    assert_eq!(three.share(file, ShareAccess::RW, ShareMode::DRW), Stats::GRANTED);
    two.unlock(whole(file));
    assert!(next_call(&lab).is_none(), "the restarted host no longer waits");
    lab.server.audit().unwrap();
}

#[test]
fn hosts_are_shown_and_their_locks_are_freed_by_the_administrator() {
    let (lab, file, mut one, mut two) = two_hosts();
    assert_eq!(one.lock(bytes(file, 0, 5)), Stats::GRANTED);
    assert_eq!(one.lock(bytes(file, 20, 5)), Stats::GRANTED);
    assert_eq!(one.share(file, ShareAccess::RW, ShareMode::DRW), Stats::GRANTED);
    assert_eq!(two.lock(bytes(file, 10, 5)), Stats::GRANTED);
    assert_eq!(one.wait(bytes(file, 10, 5)), Stats::BLOCKED);
    assert_eq!(two.wait(bytes(file, 0, 5)), Stats::BLOCKED);
    let (now, mut shown) = (lab.now(), lab.server.snapshot(lab.now(), usize::MAX).hosts);
    let figures = |host: &crate::HostSnapshot| (host.name.clone(), host.address, host.locks, host.waiting);
    let expected = [(&one, "one", 2), (&two, "two", 1)].map(|(host, name, locks)| {
        (Bytes::from_static(name.as_bytes()), host.connection.peer.ip(), locks, 1)
    });
    assert_eq!(shown.iter().map(figures).collect::<Vec<_>>(), expected);
    assert!(shown.iter().all(|host| host.is_reachable));

    let (evicted, lost) = lab.server.evict(now, "192.0.2.1").unwrap();
    assert_eq!((&*evicted.name, evicted.is_host, lost.locks), (&b"one"[..], true, 2));
    let call = next_call(&lab).expect("the next waiter has the lock");
    assert_eq!(call.path().address, two.connection.peer.ip());
    answer(&lab, &call, Stats::GRANTED);
    assert_eq!(two.share(file, ShareAccess::RW, ShareMode::DRW), Stats::GRANTED);
    two.unlock(bytes(file, 10, 5));
    assert!(next_call(&lab).is_none(), "the evicted host no longer waits");
    lab.server.audit().unwrap();

    // By its ID and name; the name of several is refused.
    let mut other = host(&lab.server, 3, "two");
    assert_eq!(other.lock(bytes(file, 100, 1)), Stats::GRANTED);
    assert!(
        matches!(lab.server.evict(now, "two"), Err(crate::EvictError::Ambiguous(both)) if both.len() == 2)
    );
    shown = lab.server.snapshot(now, usize::MAX).hosts;
    let third = shown.last().expect("sorted by address").id;
    assert_eq!(lab.server.evict(now, &format!("{third:#x}")).unwrap().1.locks, 1);
    assert_eq!(two.lock(bytes(file, 100, 1)), Stats::GRANTED);
    lab.server.audit().unwrap();
}

#[test]
fn a_notification_is_accepted_only_from_the_hosts_address_and_with_a_new_state() {
    let (lab, file, mut one, mut two) = two_hosts();
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    notify(&mut two, "one", 5);
    assert_eq!(two.lock(whole(file)), Stats::DENIED, "it comes from another host");
    notify(&mut one, "one", 3);
    assert_eq!(two.lock(whole(file)), Stats::DENIED, "the lock was taken in that state");
    let mut neighbor = host(&lab.server, 1, "neighbor");
    assert_eq!(neighbor.lock(bytes(file, 1, 1)), Stats::DENIED);
    notify(&mut neighbor, "neighbor", 7);
    assert_eq!(two.lock(whole(file)), Stats::DENIED, "another machine behind the same address");
    notify(&mut one, "one.example.org", 7);
    assert_eq!(two.lock(whole(file)), Stats::GRANTED);
}

#[test]
fn free_all_frees_the_locks_of_a_host_that_is_not_monitored() {
    let (_lab, file, mut one, mut two) = two_hosts();
    let args = one.args(whole(file), true, false);
    assert_eq!(one.status(Proc::NM_LOCK, &args), Stats::GRANTED);
    let free = |name: &'static str| Notify { name: Opaque::from_static(name.as_bytes()), state: 0 };
    two.ask::<()>(VERSION, Proc::FREE_ALL, &free("one")).unwrap();
    assert_eq!(two.lock(whole(file)), Stats::DENIED, "only of its own address");
    // Another client of the same machine, which had no lock.
    one.ask::<()>(VERSION, Proc::FREE_ALL, &free("one.example.org")).unwrap();
    assert_eq!(two.lock(whole(file)), Stats::DENIED, "only of its own name");
    one.ask::<()>(VERSION, Proc::FREE_ALL, &free("one")).unwrap();
    assert_eq!(two.lock(whole(file)), Stats::GRANTED);
}

#[test]
fn a_call_from_an_unprivileged_port_is_refused_like_one_of_nfsv3() {
    let (lab, file, mut one, _) = two_hosts();
    let mut unprivileged = host_at(&lab.server, [192, 0, 2, 9], 5000, "nine");
    assert_eq!(unprivileged.lock(whole(file)), Stats::FAILED);
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
}

#[test]
fn a_host_outside_the_clients_of_an_export_locks_nothing() {
    let mut exported = export_for(1, "/export", "192.0.2.0/28");
    exported.options.clients.push(crate::ClientPattern::Network("127.0.0.0/8".parse().unwrap()));
    let mut lab = lab_of(vec![exported]);
    let file = lab.file(&["export", "file"], b"");
    assert_eq!(host(&lab.server, 1, "near").lock(whole(file)), Stats::GRANTED);
    assert_eq!(host(&lab.server, 99, "far").lock(whole(file)), Stats::FAILED);
    assert_eq!(host(&lab.server, 99, "far").unlock(whole(file)), Stats::FAILED);
}

#[test]
fn hosts_of_one_address_are_bounded_and_leave_room_for_others() {
    let (lab, file, mut one, mut two) = two_hosts();
    let mut lock = |name: String, start| {
        let mut args = one.args(bytes(file, start, 1), true, false);
        args.alock.caller_name = Name::new(name.into_bytes()).unwrap();
        one.status(Proc::LOCK, &args)
    };
    for number in 0..64 {
        assert_eq!(lock(format!("host{number}"), number), Stats::GRANTED);
    }
    assert_eq!(lock("one more".into(), 100), Stats::DENIED_NOLOCKS);
    assert_eq!(two.lock(bytes(file, 200, 1)), Stats::GRANTED, "another address is not affected");
    lab.server.audit().unwrap();
}

#[test]
fn locks_of_removed_exports_are_freed() {
    let (lab, file, mut one, _) = two_hosts();
    assert_eq!(one.lock(whole(file)), Stats::GRANTED);
    assert_eq!(one.share(file, ShareAccess::R, ShareMode::DW), Stats::GRANTED);
    lab.server.replace_exports(crate::ExportTable::new(vec![export(2, "/other")]).unwrap());
    assert_eq!(lab.server.counts().locks, 0);
    assert_eq!(one.lock(whole(file)), Stats::STALE_FH);
    lab.server.audit().unwrap();
}

#[test]
fn the_status_monitor_monitors_only_for_this_server() {
    let (lab, _, mut one, _) = two_hosts();
    let state = lab.server.shared.state.monitor_state();
    assert_eq!(state % 2, 1);
    let mut ask = |procedure: nsm::Proc, args: &dyn Fn(&mut Writer)| {
        struct Written<'a>(&'a dyn Fn(&mut Writer));
        impl Encode for Written<'_> {
            fn encode(&self, writer: &mut Writer) {
                (self.0)(writer);
            }
        }
        let record = one.record((nsm::PROGRAM, nsm::VERSION, procedure.0), &Written(args));
        one.send(record).expect("a reply")
    };
    let name = nsm::Name::from_static(b"elsewhere");
    let refused = nsm::StatRes { res_stat: nsm::Outcome::FAIL, state };
    let stat = ask(nsm::Proc::STAT, &|writer| name.encode(writer));
    assert_eq!(parse_reply::<nsm::StatRes>(stat), Ok(refused));
    let my_id = nsm::MyId { my_name: name.clone(), my_prog: 1, my_vers: 1, my_proc: 1 };
    let mon = nsm::Mon { mon_id: nsm::MonId { mon_name: name.clone(), my_id }, priv_: [0; 16] };
    assert_eq!(parse_reply::<nsm::StatRes>(ask(nsm::Proc::MON, &|writer| mon.encode(writer))), Ok(refused));
    parse_reply::<()>(ask(nsm::Proc::SIMU_CRASH, &|_| {})).unwrap();
    assert_eq!(lab.server.shared.state.monitor_state(), state);
    let garbage = parse_reply::<()>(ask(nsm::Proc::NOTIFY, &|writer| writer.u32(9)));
    assert_eq!(garbage, Err(RpcError::NotExecuted(AcceptStatus::GarbageArguments)));
}
