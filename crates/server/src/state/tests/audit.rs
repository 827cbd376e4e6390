use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::state::tables::client_table::RecordEvent;
use crate::state::tables::locks::{HeldLock, LockKind, LockOwner, LockSet};
use crate::state::tables::shard::Deferred;
use crate::state::tables::shard::share::Modes;
use crate::state::tables::stateid::EntryId;

/// Returns two clients with one open each of the same file, and a lock of the first.
fn sound() -> (World, [Stateid; 2]) {
    let world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let opens = [world.open(&a, 1, "o", BOTH), world.open(&b, 1, "o", BOTH)];
    world.lock(&a, &(1, opens[0]), "l", LockType::Write, range(0, 10)).unwrap();
    assert_eq!(world.state.audit(), Ok(()));
    (world, opens)
}

fn entry_id(world: &World, stateid: &Stateid) -> EntryId {
    EntryId::parse(stateid, world.state.ids.boot()).ok().unwrap()
}

/// Returns the result of the audit after `change` has broken the state.
fn found(change: impl FnOnce(&World, [Stateid; 2])) -> String {
    let (world, opens) = sound();
    change(&world, opens);
    world.state.audit().expect_err("it is not sound any more")
}

#[test]
fn an_audit_finds_conflicting_opens() {
    let why = found(|world, [open, _]| {
        let entry_id = entry_id(world, &open);
        let mut shard = world.state.shards[entry_id.shard].lock();
        shard.set_modes(entry_id.index, Modes::new((3, 2)), &world.state.gauges, &mut Deferred::new());
    });
    assert!(why.contains("excludes"), "{why}");
}

#[test]
fn an_audit_finds_conflicting_ranges() {
    let why = found(|world, [open, _]| {
        let entry_id = entry_id(world, &open);
        let mut shard = world.state.shards[entry_id.shard].lock();
        let (owner, set) = (LockOwner(77), LockSet(entry_id.index));
        let lock = HeldLock { range: range(5, 10), kind: LockKind::Exclusive, owner, set };
        shard.file_mut(file(1)).ranges.lock(lock);
    });
    assert!(why.contains("LockOwner(77)"), "{why}");
}

#[test]
fn an_audit_finds_wrong_counters() {
    let why = found(|world, _| _ = world.state.gauges.opens.fetch_add(1, Relaxed));
    assert_eq!(why, "opens counted: 3, where the tables have 2");
    let why = found(|world, [open, _]| {
        let entry_id = entry_id(world, &open);
        let client = Arc::clone(&world.state.shards[entry_id.shard].lock().entry(entry_id.index).client);
        client.holdings.charged.fetch_add(1, Relaxed);
    });
    assert!(why.ends_with("charges: 4, where the tables have 3"), "an open, a lock stateid, a range: {why}");
}

#[test]
fn an_audit_finds_state_of_a_removed_client() {
    let why = found(|world, [open, _]| {
        let entry_id = entry_id(world, &open);
        let id = world.state.shards[entry_id.shard].lock().entry(entry_id.index).client.id();
        let record = world.state.clients.lock().remove(id, RecordEvent::Expire).expect("its record existed");
        drop(record);
    });
    assert!(why.contains("records name"), "its session has no client: {why}");
}
