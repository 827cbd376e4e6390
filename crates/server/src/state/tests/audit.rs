use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::state::tables::client_table::RecordEvent;
use crate::state::tables::locks::{HeldLock, LockKind, LockOwner, LockSet};
use crate::state::tables::shard::Deferred;
use crate::state::tables::shard::share::Modes;
use crate::state::tables::stateid::Place;

/// Two clients with an open each of one file, and a lock of the first.
fn sound() -> (World, [Stateid; 2]) {
    let world = World::new();
    let (a, b) = (world.peer("a"), world.peer("b"));
    let opens = [world.open(&a, 1, "o", BOTH), world.open(&b, 1, "o", BOTH)];
    world.lock(&a, &(1, opens[0]), "l", LockType::Write, range(0, 10)).unwrap();
    assert_eq!(world.state.audit(), Ok(()));
    (world, opens)
}

fn place(world: &World, stateid: &Stateid) -> Place {
    Place::parse(stateid, world.state.ids.boot()).ok().unwrap()
}

/// What the audit says once `change` was done to the state behind everybody's back.
fn found(change: impl FnOnce(&World, [Stateid; 2])) -> String {
    let (world, opens) = sound();
    change(&world, opens);
    world.state.audit().expect_err("it is not sound any more")
}

#[test]
fn an_audit_finds_opens_that_exclude_each_other() {
    let why = found(|world, [open, _]| {
        let place = place(world, &open);
        let mut shard = world.state.shards[place.shard].lock();
        shard.set_modes(place.index, Modes::new((3, 2)), &world.state.gauges, &mut Deferred::new());
    });
    assert!(why.contains("excludes"), "{why}");
}

#[test]
fn an_audit_finds_ranges_that_exclude_each_other() {
    let why = found(|world, [open, _]| {
        let place = place(world, &open);
        let mut shard = world.state.shards[place.shard].lock();
        let (owner, set) = (LockOwner(77), LockSet(place.index));
        let lock = HeldLock { range: range(5, 10), kind: LockKind::Exclusive, owner, set };
        shard.file_mut(file(1)).ranges.lock(lock);
    });
    assert!(why.contains("LockOwner(77)"), "{why}");
}

#[test]
fn an_audit_finds_what_is_counted_and_not_there() {
    let why = found(|world, _| _ = world.state.gauges.opens.fetch_add(1, Relaxed));
    assert_eq!(why, "opens counted: 3, where the tables have 2");
    let why = found(|world, [open, _]| {
        let place = place(world, &open);
        let client = Arc::clone(&world.state.shards[place.shard].lock().entry(place.index).client);
        client.holdings.charged.fetch_add(1, Relaxed);
    });
    assert!(why.ends_with("charges: 4, where the tables have 3"), "an open, a lock stateid, a range: {why}");
}

#[test]
fn an_audit_finds_what_a_client_that_is_gone_left_behind() {
    let why = found(|world, [open, _]| {
        let place = place(world, &open);
        let id = world.state.shards[place.shard].lock().entry(place.index).client.id();
        let record =
            world.state.clients.lock().remove(id, RecordEvent::Expire).expect("its record was there");
        drop(record);
    });
    assert!(why.contains("records name"), "its session is nobody's: {why}");
}
