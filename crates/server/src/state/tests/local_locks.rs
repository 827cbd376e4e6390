//! Byte-range locks of clients and of local processes on one file.

use core::net::IpAddr;

use vfs::LocalLock;

use super::callbacks::reachable;
use super::*;
use crate::state::tables::host_calls::CallKind;
use crate::state::{DelegationKind, HostPath, NlmHolder, NlmLockRequest, NlmOwner, NlmRefusal, NotDelegated};
use crate::testing::drain;
use crate::testing::local_locks::LockedFile;

/// Returns a server, and a file in which a local process can lock.
fn world() -> (World, Arc<LockedFile>) {
    let local = LockedFilePin::default();
    let file = Arc::clone(&local.file);
    let world = World { pin: Arc::new(TestPin { local: Some(local) }), ..World::new() };
    (world, file)
}

fn denied(result: Result<Stateid, LockError>) -> (u64, u64, LockType, Bytes) {
    let Err(LockError::Denied(denied)) = result else { panic!("{result:?}") };
    (denied.offset, denied.length, denied.lock_type, denied.owner.owner.bytes().clone())
}

/// Returns an NLM host's request for an exclusive lock, for which it waits.
fn asked(world: &World, last: u8, start: u64) -> NlmLockRequest {
    let address = IpAddr::from([192, 0, 2, last]);
    let path = HostPath { address, local: IpAddr::from([127, 0, 0, 1]), transport: crate::Transport::Tcp };
    let host = world.state.nlm_host(world.now, b"host", path).expect("there is room");
    let owner = NlmOwner { host, file: file(1), owner: Arc::from(&b"process"[..]) };
    NlmLockRequest {
        owner,
        range: range(start, 10),
        is_exclusive: true,
        reclaim: false,
        is_monitored: false,
        pin: world.pin.clone(),
        granted: Some((4, Bytes::new())),
    }
}

#[test]
fn a_local_process_excludes_clients() {
    let (world, local) = world();
    local.lock(10, 10, true);
    let peer = world.peer("a");
    let open = (1, world.open(&peer, 1, "o", BOTH));
    let local_process = Bytes::from_static(b"local process");
    let holder = (10, 1, LockType::Write, local_process.clone());
    assert_eq!(denied(world.lock(&peer, &open, "l", LockType::Read, range(0, 20))), holder);
    let in_the_way = |at| world.in_the_way(&peer, 1, "l", LockType::Write, at);
    assert_eq!(in_the_way(range(0, 20)), Some((local_process, 10, 1)));
    assert_eq!(in_the_way(range(0, 10)), None);
    assert_eq!(world.state.counts().locks, 0);
    world.lock(&peer, &open, "l", LockType::Write, range(0, 10)).unwrap();
    local.unlock_all();
    world.lock(&peer, &open, "l", LockType::Write, range(0, 20)).unwrap();
    assert_eq!(world.state.audit(), Ok(()));
}

#[test]
fn clients_exclude_local_processes_until_the_last_unlocks() {
    let (world, local) = world();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let of_a = (1, world.open(&a, 1, "o", BOTH));
    let of_b = (1, world.open(&b, 1, "o", BOTH));
    let one = world.lock(&a, &of_a, "l", LockType::Read, range(0, 20)).unwrap();
    world.lock(&b, &of_b, "l", LockType::Read, range(10, 20)).unwrap();
    assert!(local.is_free(0, 29, false) && !local.is_free(0, 0, true) && local.is_free(30, 63, true));
    world.state.unlock(world.now, &a.client, file(1), &one, range(0, u64::MAX)).unwrap();
    assert!(local.is_free(0, 9, true) && !local.is_free(10, 10, true));
    // An upgrade, and the end of all locks with the open.
    world.lock(&b, &of_b, "l", LockType::Write, range(10, 5)).unwrap();
    assert!(!local.is_free(14, 14, false) && local.is_free(15, 29, false));
    world.close(&b, 1, &of_b.1).unwrap();
    assert!(local.is_free(0, 63, true));
    world.close(&a, 1, &of_a.1).unwrap();
    assert_eq!(local.descriptions(), 0);
}

#[test]
fn what_an_expired_client_had_locked_is_free_for_another_and_then_for_local_processes() {
    let (mut world, local) = world();
    let silent = world.peer("silent");
    let open = (1, world.open(&silent, 1, "o", BOTH));
    world.lock(&silent, &open, "l", LockType::Write, range(0, 10)).unwrap();
    world.pass(LEASE * 2);
    let other = world.peer("other");
    let open = (1, world.open(&other, 1, "o", BOTH));
    let lock = world.lock(&other, &open, "l", LockType::Write, range(5, 1)).unwrap();
    assert!(local.is_free(0, 4, true) && !local.is_free(5, 5, false));
    world.state.unlock(world.now, &other.client, file(1), &lock, range(0, 10)).unwrap();
    assert!(local.is_free(0, 63, true));
}

#[test]
fn a_lock_that_a_local_process_has_taken_meanwhile_is_not_reclaimed() {
    let (_, local) = world();
    local.lock(0, 0, true);
    let pin = Arc::new(TestPin { local: Some(LockedFilePin { file: local, ..LockedFilePin::default() }) });
    let world = World { pin, ..World::with(&settings(), &["a"]) };
    let peer = world.fresh_peer("a", 1);
    let request = OpenRequest {
        file: file(1),
        owner: Arc::from(&b"o"[..]),
        opener: 0,
        access: BOTH,
        deny: NONE,
        truncates: false,
        reclaim: true,
        pin: world.pin.clone(),
    };
    let open = world.state.open(world.now, &peer.client, request).unwrap().stateid;
    let owner = Arc::from(&b"l"[..]);
    let reclaims = |at| {
        let locker = Locker::New { open_stateid: open, owner: &owner };
        let lock_type = LockType::Write;
        let request =
            LockRequest { file: file(1), lock_type, range: at, reclaim: true, locker, notice: None };
        world.state.lock(world.now, &peer.client, &request)
    };
    assert_eq!(reclaims(range(0, 10)), Err(Status::RECLAIM_CONFLICT.into()));
    assert!(reclaims(range(1, 10)).is_ok());
}

#[test]
fn a_waiting_client_is_notified_when_a_local_process_has_unlocked() {
    let (mut world, local) = world();
    local.lock(0, 0, true);
    let peer = reachable(&mut world, "a");
    let open = (1, world.open(&peer, 1, "o", BOTH));
    let asks = || world.lock(&peer, &open, "l", LockType::WriteWait, range(0, 10));
    assert_eq!(denied(asks()).0, 0);
    world.state.expire(world.now);
    assert_eq!(drain(&world.outbox).len(), 0);
    local.unlock_all();
    world.state.expire(world.now);
    assert_eq!(drain(&world.outbox).len(), 1);
    assert!(asks().is_ok());
}

#[test]
fn an_nlm_host_waits_for_a_local_process_and_excludes_it_then() {
    let (world, local) = world();
    local.lock(5, 5, false);
    let request = asked(&world, 1, 0);
    assert_eq!(world.state.nlm_lock(world.now, &request), Err(NlmRefusal::Blocked));
    let test = |at| {
        let asker = (Some(&*request.owner.host), file(1), &request.owner.owner);
        world.state.nlm_test(world.now, asker, &request.pin, (at, true)).unwrap()
    };
    let holder = NlmHolder { is_exclusive: false, range: range(5, 1), owner: None };
    assert_eq!((test(range(0, 10)), test(range(6, 10))), (Some(holder), None));
    world.state.expire(world.now);
    assert!(world.state.next_host_call().is_none());
    local.unlock_all();
    world.state.expire(world.now);
    let call = world.state.next_host_call().expect("the lock is granted");
    assert!(matches!(call.kind, CallKind::Granted(_)));
    drop(call);
    assert!(!local.is_free(0, 0, false) && local.is_free(10, 63, true));
    world.state.nlm_unlock(world.now, &request.owner, range(0, 10)).unwrap();
    assert!(local.is_free(0, 63, true));
    assert_eq!((local.descriptions(), world.state.audit()), (0, Ok(())));
}

/// A delegation's holder locks bytes by itself, and the waiting host gets its lock without another request.
#[test]
fn nothing_is_delegated_while_an_nlm_host_waits() {
    let (mut world, local) = world();
    let holder = reachable(&mut world, "holder");
    let open = world.open(&holder, 1, "o", BOTH);
    local.lock(0, 0, true);
    let request = asked(&world, 1, 0);
    let can_grant = |world: &World| {
        let kinds = [DelegationKind::Read, DelegationKind::Write];
        kinds.map(|kind| world.state.can_grant_delegation(world.now, &holder.client, file(1), kind, false))
    };
    assert_eq!(can_grant(&world), [Ok(()), Ok(())]);
    assert_eq!(world.state.nlm_lock(world.now, &request), Err(NlmRefusal::Blocked));
    assert_eq!(can_grant(&world), [Err(NotDelegated::Contention), Err(NotDelegated::Contention)]);
    assert!(world.state.nlm_cancel(&request.owner, range(0, 10)));
    assert_eq!(can_grant(&world), [Ok(()), Ok(())]);
    world.close(&holder, 1, &open).unwrap();
}

#[test]
fn a_delegation_is_in_conflict_with_locks_of_local_processes() {
    let (world, local) = world();
    let peer = world.peer("a");
    let open = world.open(&peer, 1, "o", BOTH);
    let is_locked = || {
        let kinds = [DelegationKind::Read, DelegationKind::Write];
        kinds.map(|kind| world.state.is_locked_locally(file(1), kind))
    };
    assert_eq!(is_locked(), [false, false]);
    local.lock(5, 5, false);
    assert_eq!(is_locked(), [false, true]);
    local.unlock_all();
    local.lock(60, 60, true);
    assert_eq!(is_locked(), [true, true]);
    world.close(&peer, 1, &open).unwrap();
    assert_eq!((is_locked(), local.descriptions()), ([false, false], 0), "nobody has it open");
}

#[test]
fn a_host_that_gets_its_lock_from_another_excludes_local_processes_too() {
    let (world, local) = world();
    let (first, second) = (asked(&world, 1, 0), asked(&world, 2, 5));
    assert_eq!(world.state.nlm_lock(world.now, &first), Ok(None));
    assert_eq!(world.state.nlm_lock(world.now, &second), Err(NlmRefusal::Blocked));
    world.state.nlm_unlock(world.now, &first.owner, range(0, 10)).unwrap();
    assert!(local.is_free(0, 4, true) && !local.is_free(5, 14, false) && local.is_free(15, 63, true));
    world.state.nlm_unlock(world.now, &second.owner, range(0, u64::MAX)).unwrap();
    assert_eq!(local.of_server(), [None; 64]);
}

#[test]
fn a_lock_of_all_bytes_ends_with_the_last_byte_for_local_processes_too() {
    let at = LockRange::new(7, u64::MAX).expect("a range");
    let lock = LocalLock { first: 7, last: u64::MAX, is_exclusive: true };
    assert_eq!(at.local(crate::state::tables::locks::LockKind::Exclusive), lock);
    assert_eq!(LockRange::of_local(lock), at);
}
