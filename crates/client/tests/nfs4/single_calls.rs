//! Calls of many programs at the same time: how many are under way together, and how many share a compound.

use std::cell::Cell;

use client::config::Version;
use client::errno::Errno;
use client::fs::{File, OpenOptions};
use futures_util::future::join_all;
use protocol::nfs4::types::OpNum;

use crate::world::{Fate, World};

const VERSIONS: [Version; 3] = [Version::V40, Version::V41, Version::V42];
/// Calls that are made at the same time.
const CALLS: usize = 40;
/// Compounds that may be in flight.
const SLOTS: usize = 2;

/// Makes files, and returns a mount with few slots.
fn mounted(
    world: &std::rc::Rc<World>,
    version: Version,
) -> (client::fs::FileSystem, std::rc::Rc<crate::world::Peer>) {
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
        let round_trip = Cell::new(0);
        let calls = files.iter().enumerate().map(|(number, file)| {
            let round_trip = &round_trip;
            async move {
                let size = file.stat().await.unwrap().size;
                (number, size, round_trip.get())
            }
        });
        // Counts the round trips that have begun.
        let mut all = Box::pin(join_all(calls));
        let answered = loop {
            peer.judge(|_| Fate::Hold);
            if let Some(answered) = world.run_for(std::time::Duration::ZERO, all.as_mut()) {
                peer.release(&world);
                break answered;
            }
            round_trip.set(round_trip.get() + 1);
            peer.release(&world);
        };
        for (number, size, answered_in) in answered {
            let alone = number / SLOTS + 1;
            assert!(
                size == 0 && answered_in <= alone,
                "{version:?}: call {number} in round trip {answered_in}"
            );
        }
        assert_eq!(round_trip.get(), 3, "{version:?}: without sharing 20");
        let compounds = peer.compounds.borrow()[before..].to_vec();
        let getattrs: Vec<usize> =
            compounds.iter().map(|ops| ops.iter().filter(|op| **op == OpNum::GETATTR).count()).collect();
        assert_eq!(getattrs, [1, 1, 16, 16, 6], "{version:?}: the first ones found free slots");
    }
}

#[test]
fn missing_names_among_shared_calls_fail_alone() {
    for version in VERSIONS {
        let world = World::new();
        let (fs, _) = mounted(&world, version);
        let paths: Vec<String> = (0..CALLS)
            .map(|number| if number % 4 == 1 { format!("missing{number}") } else { format!("file{number}") })
            .collect();
        let outcomes = world.run(join_all(paths.iter().map(|path| fs.stat(path.as_bytes()))));
        for (number, outcome) in outcomes.into_iter().enumerate() {
            match number % 4 {
                1 => assert_eq!(outcome.unwrap_err().errno(), Errno::ENOENT, "{version:?}: {number}"),
                _ => assert_eq!(outcome.unwrap().size, 0, "{version:?}: {number}"),
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
        assert!(world.run_for(std::time::Duration::ZERO, all.as_mut()).is_none());
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
        let zero = std::time::Duration::ZERO;
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
