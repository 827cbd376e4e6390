//! Calls of many programs at the same time: how many are under way together, and how many share a compound.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use client::config::Version;
use client::error::OpError;
use client::fs::{File, FileSystem, OpenOptions};
use futures_util::future::join_all;
use protocol::nfs4::types::{OpNum, Status};

use crate::world::{Fate, Peer, World, root};

const VERSIONS: [Version; 3] = [Version::V40, Version::V41, Version::V42];
/// Calls that are made at the same time.
const CALLS: usize = 40;
/// Compounds that may be in flight.
const SLOTS: usize = 2;

/// Makes files, and returns a mount with few slots.
fn mounted(world: &Rc<World>, version: Version) -> (FileSystem, Rc<Peer>) {
    let (fs, peer) = world.mounted_with(version, |config| {
        config.slots = SLOTS as u32;
        config.v3_calls = SLOTS as u32;
    });
    for number in 0..CALLS {
        let name = format!("file{number}");
        world.run(async {
            fs.open(name.as_bytes(), &OpenOptions::CREATE).await.unwrap().close().await.unwrap()
        });
    }
    (fs, peer)
}

/// Runs calls that are made together, with a number each. Returns for each its output and the round trip in which it was answered, from 1, and
/// the number of round trips.
fn answered_in<T>(
    world: &World,
    peer: &Peer,
    calls: Vec<impl Future<Output = T>>,
) -> (Vec<(T, usize)>, usize) {
    let round_trip = Cell::new(0);
    let noted = calls.into_iter().map(|call| async { (call.await, round_trip.get()) });
    let mut all = Box::pin(join_all(noted));
    loop {
        peer.judge(|_| Fate::Hold);
        let answered = world.run_for(Duration::ZERO, all.as_mut());
        round_trip.set(round_trip.get() + 1);
        peer.release(world);
        if let Some(answered) = answered {
            return (answered, round_trip.get() - 1);
        }
    }
}

/// The paper's clients send one compound for each call. Here those that find no free slot share one, and each is answered in the
/// round trip in which it would have been answered by itself, or before.
#[test]
fn calls_without_a_slot_share_a_compound_and_none_is_answered_later() {
    for version in VERSIONS {
        let world = World::new();
        let (fs, peer) = mounted(&world, version);
        let name = |number: usize| format!("file{number}");
        let files: Vec<File> = (0..CALLS)
            .map(|number| world.run(fs.open(name(number).as_bytes(), &OpenOptions::READ)).unwrap())
            .collect();
        let before = peer.compounds.borrow().len();
        let (answered, round_trips) = answered_in(&world, &peer, files.iter().map(File::stat).collect());
        for (number, (attributes, answered_in)) in answered.into_iter().enumerate() {
            assert_eq!(attributes.unwrap().size, 0);
            assert!(answered_in <= number / SLOTS + 1, "{version:?}: call {number} in {answered_in}");
        }
        assert_eq!(round_trips, 3, "{version:?}: without sharing 20");
        let compounds = peer.compounds.borrow()[before..].to_vec();
        let getattrs: Vec<usize> =
            compounds.iter().map(|ops| ops.iter().filter(|op| **op == OpNum::GETATTR).count()).collect();
        assert_eq!(getattrs, [1, 1, 16, 16, 5, 1], "{version:?}: the first ones found free slots");
    }
}

/// Whichever calls fail, each is answered as early as without sharing, and by itself.
#[test]
fn failures_among_shared_calls_delay_no_call() {
    for version in VERSIONS {
        for every in [1, 2, 3, 7] {
            let world = World::new();
            let (fs, peer) = mounted(&world, version);
            let (client, caller) = (fs.client().clone(), root());
            let name = |number: usize| format!("file{number}");
            let handles: Vec<_> = (0..CALLS)
                .map(|number| {
                    let top = fs.root().handle;
                    world.run(client.lookup(&caller, top, name(number).as_bytes())).unwrap().handle
                })
                .collect();
            let is_removed = |number: usize| number.is_multiple_of(every);
            for number in (0..CALLS).filter(|number| is_removed(*number)) {
                world.run(fs.unlink(name(number).as_bytes())).unwrap();
            }
            // GETATTR of a handle, and LOOKUP of a name, by turns.
            let top = fs.root().handle;
            let names: Vec<String> = (0..CALLS).map(name).collect();
            let calls = (0..CALLS).map(|number| {
                let (client, caller, handle, name) = (&client, &caller, handles[number], &names[number]);
                async move {
                    match number / 2 % 2 {
                        0 => client.get_attributes(caller, handle).await.map(|found| found.size),
                        _ => client
                            .lookup(caller, top, name.as_bytes())
                            .await
                            .map(|found| found.attributes.size),
                    }
                }
            });
            let (answered, _) = answered_in(&world, &peer, calls.collect());
            for (number, (size, answered_in)) in answered.into_iter().enumerate() {
                let case = format!("{version:?}, every {every}th: call {number} in {answered_in}");
                match is_removed(number) {
                    true => {
                        assert!(matches!(size, Err(OpError::Status(Status::STALE | Status::NOENT))), "{case}")
                    }
                    false => assert_eq!(size, Ok(0), "{case}"),
                }
                assert!(answered_in <= number / SLOTS + 1, "{case}");
            }
        }
    }
}

#[test]
fn a_call_that_finds_a_free_slot_is_sent_at_once_and_alone() {
    for version in VERSIONS {
        let world = World::new();
        let (fs, peer) = world.mounted(version);
        world.run(fs.mkdir(b"dir", 0o755)).unwrap();
        let before = peer.compounds.borrow().len();
        peer.judge(|_| Fate::Hold);
        let mut all = Box::pin(join_all((0..10).map(|_| fs.stat(b"dir"))));
        assert!(world.run_for(Duration::ZERO, all.as_mut()).is_none());
        assert_eq!(peer.compounds.borrow().len() - before, 10, "{version:?}");
        peer.release(&world);
        assert!(world.run(all).iter().all(Result::is_ok));
    }
}

/// A dropped call, as of a program that was killed, takes no other one with it.
#[test]
fn calls_that_share_a_compound_with_a_dropped_one_are_answered() {
    for version in VERSIONS {
        let world = World::new();
        let (fs, peer) = mounted(&world, version);
        let files: Vec<File> = (0..6)
            .map(|number| world.run(fs.open(format!("file{number}").as_bytes(), &OpenOptions::READ)).unwrap())
            .collect();
        peer.judge(|_| Fate::Hold);
        let mut calls: Vec<_> = files.iter().map(|file| Box::pin(file.stat())).collect();
        let zero = Duration::ZERO;
        assert!(
            world
                .run_for(zero, Box::pin(join_all(calls.iter_mut().map(|call| call.as_mut()))).as_mut())
                .is_none()
        );
        // The first two are answered; the third sends the others with its own, and is dropped.
        peer.release(&world);
        peer.judge(|_| Fate::Hold);
        let mut third = calls.remove(2);
        assert!(world.run_for(zero, third.as_mut()).is_none());
        drop(third);
        peer.release(&world);
        let outcomes = world.run(join_all(calls));
        assert!(outcomes.iter().all(Result::is_ok), "{version:?}");
    }
}

/// Nothing is serialised on the owner of the opens (RFC 8881 ignores its seqid), nor on the directory.
#[test]
fn opens_creations_closes_and_removals_of_one_directory_are_in_flight_together() {
    for version in [Version::V41, Version::V42] {
        let world = World::new();
        let (fs, peer) = world.mounted_with(version, |config| config.slots = 64);
        world.run(fs.mkdir(b"dir", 0o755)).unwrap();
        let life = async |number: usize| {
            let name = format!("dir/file{number}");
            fs.open(name.as_bytes(), &OpenOptions::CREATE).await.unwrap().close().await.unwrap();
            fs.open(name.as_bytes(), &OpenOptions::READ).await.unwrap().close().await.unwrap();
            fs.unlink(name.as_bytes()).await.unwrap();
        };
        let (_, one) = world.count_round_trips(std::slice::from_ref(&peer), life(0));
        let (_, many) = world.count_round_trips(std::slice::from_ref(&peer), join_all((1..50).map(life)));
        assert_eq!(one, many, "{version:?}");
    }
}

/// `nconnect`: requests of one session leave over all of its connections, and are executed once although one of these is lost.
#[test]
fn requests_of_a_session_use_all_of_its_connections() {
    for version in VERSIONS {
        let world = World::new();
        let (fs, peer) = world.mounted_with(version, |config| config.connections = 3);
        let names: Vec<String> = (0..12).map(|number| format!("dir{number}")).collect();
        peer.forget_connections();
        world.run(join_all(names.iter().map(|name| fs.mkdir(name.as_bytes(), 0o755))));
        assert_eq!(peer.connections_used(), 3, "{version:?}");
        // Each connection loses a reply. A second execution of RMDIR would fail.
        let lost = Cell::new(0);
        peer.judge(move |ops| match ops.contains(&OpNum::REMOVE) && lost.replace(lost.get() + 1) < 3 {
            true => Fate::LoseReply,
            false => Fate::Serve,
        });
        let removed = world.run(join_all(names.iter().map(|name| fs.rmdir(name.as_bytes()))));
        assert!(removed.iter().all(Result::is_ok), "{version:?}: {removed:?}");
    }
}
