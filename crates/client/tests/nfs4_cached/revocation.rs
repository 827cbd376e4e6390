//! State that the server's administrator revokes, and advice to return some of it.

use std::time::Duration;

use bytes::Bytes;
use client::config::Version;
use client::errno::Errno;
use client::fs::OpenOptions;
use client::locks::{LockKind, LockOwner, LockRange};
use client::results::OpenMode;
use protocol::nfs4::types::OpNum;

use crate::world::{Fate, LEASE, World};

const BOTH: OpenOptions = OpenOptions { mode: OpenMode::BOTH, ..OpenOptions::READ };

#[test]
fn files_go_on_after_a_revocation_and_only_a_lock_is_lost() {
    for version in [Version::V40, Version::V41, Version::V42] {
        for delegations in [false, true] {
            let world = World::new();
            let (fs, peer) = match delegations {
                true => world.mounted(version),
                false => world.mounted_undelegated(version),
            };
            world.pass(Duration::from_secs(2));
            let (plain, locked) = world.run(async {
                for name in [&b"plain"[..], b"locked"] {
                    let file = fs.open(name, &OpenOptions::CREATE).await.unwrap();
                    file.write_at(0, Bytes::from_static(b"text")).await.unwrap();
                    file.sync().await.unwrap();
                    file.close().await.unwrap();
                }
                let plain = fs.open(b"plain", &BOTH).await.unwrap();
                let locked = fs.open(b"locked", &BOTH).await.unwrap();
                locked.lock(LockOwner::Process(1), LockRange::WHOLE, LockKind::Exclusive).await.unwrap();
                (plain, locked)
            });
            let opens = peer.count(OpNum::OPEN);
            world.revoke_all();
            // In which the client learns of it: by a flag of SEQUENCE, in 4.0 by an error.
            world.pass(LEASE);
            let case = format!("{version:?}, delegations {delegations}");
            world.run(async {
                plain.write_at(4, Bytes::from_static(b" more")).await.unwrap();
                plain.sync().await.unwrap();
                assert_eq!(plain.read_at(0, 100).await.unwrap().concat(), b"text more", "{case}");
                // The lock may have been another client's meanwhile.
                let lost = match locked.write_at(0, Bytes::from_static(b"lost")).await {
                    Ok(_) => locked.sync().await.unwrap_err(),
                    Err(error) => error,
                };
                assert_eq!(lost.errno(), Errno::EIO, "{case}");
                let _ = locked.unlock(LockOwner::Process(1), LockRange::WHOLE).await;
                assert_eq!(locked.read_at(0, 100).await.unwrap().concat(), b"text", "{case}");
                plain.close().await.unwrap();
                locked.close().await.unwrap();
            });
            assert!(peer.count(OpNum::OPEN) > opens, "{case}: opened again");
            world.run(fs.client().close()).unwrap();
            assert_eq!((world.server().counts().opens, world.server().counts().locks), (0, 0), "{case}");
        }
    }
}

/// CB_RECALL_ANY (RFC 8881 §20.6): the server is near its bound, and the client chooses which delegations it returns.
#[test]
fn a_server_near_its_bound_gets_some_delegations_back() {
    const FILES: usize = 60;
    let world = World::with_few_delegations(64);
    let (fs, peer) = world.mounted(Version::V42);
    world.pass(Duration::from_secs(2));
    let name = |number: usize| format!("file{number}");
    for number in 0..FILES {
        world.run(async {
            fs.open(name(number).as_bytes(), &OpenOptions::CREATE).await.unwrap().close().await.unwrap();
            fs.open(name(number).as_bytes(), &OpenOptions::READ).await.unwrap().close().await.unwrap();
        });
    }
    world.pass(Duration::from_secs(10));
    let held = fs.client().delegation_counts().held;
    let returned = peer.count(OpNum::DELEGRETURN);
    assert!((20..=56).contains(&held) && returned > 0, "{held} held, {returned} returned");
    // The last ones used are kept.
    let before = peer.compounds.borrow().len();
    world.run(async {
        fs.open(name(FILES - 1).as_bytes(), &OpenOptions::READ).await.unwrap().close().await.unwrap();
    });
    assert_eq!(peer.compounds.borrow().len(), before);
}

/// The loss of one lock drops all data of its file that are not stable, also those that another lock protects.
#[test]
fn an_unlock_waits_for_writes_whose_data_were_dropped() {
    let world = World::new();
    let (one, peer) = world.mounted_undelegated(Version::V42);
    let (two, _) = world.mounted_undelegated(Version::V42);
    let (first, second) = (LockRange::new(0, 10).unwrap(), LockRange::new(100, 10).unwrap());
    let file =
        world.run(one.open(b"file", &OpenOptions { mode: OpenMode::BOTH, ..OpenOptions::CREATE })).unwrap();
    world.run(file.lock(LockOwner::Process(1), first, LockKind::Exclusive)).unwrap();
    world.run(file.lock(LockOwner::Process(2), second, LockKind::Exclusive)).unwrap();
    peer.judge(|ops| if ops.contains(&OpNum::WRITE) { Fate::Hold } else { Fate::Serve });
    world.run(file.write_at(100, Bytes::from_static(b"text"))).unwrap();
    let mut unlocking = std::pin::pin!(file.unlock(LockOwner::Process(2), second));
    assert!(world.run_for(Duration::from_secs(1), unlocking.as_mut()).is_none());
    peer.cut(&world, true);
    assert!(world.run_for(LEASE + Duration::from_secs(5), unlocking.as_mut()).is_none());
    let other = world.run(two.open(b"file", &BOTH)).unwrap();
    world.run(other.try_lock(LockOwner::Process(1), first, LockKind::Exclusive)).unwrap();
    peer.cut(&world, false);
    assert!(world.run_for(Duration::from_secs(10), unlocking.as_mut()).is_none());
    assert!(peer.count(OpNum::TEST_STATEID) > 0, "the first lock is lost");
    assert_eq!(peer.count(OpNum::LOCKU), 0, "the WRITE may be executed later");
    peer.release(&world);
    world.run(unlocking).unwrap();
    assert_eq!(peer.count(OpNum::LOCKU), 1);
}
