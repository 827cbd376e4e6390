//! The block store: blocks that a later client gets without a READ, and those that it must not get.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::attributes::SetAttributes;
use client::block_store::{BLOCK, BlockStore, MemoryBlocks};
use client::config::Version;
use client::fs::{FileSystem, OpenOptions};
use client::results::OpenMode;
use protocol::nfs3::{PROGRAM, Proc};
use protocol::nfs4::types::OpNum;

use crate::world::{Fate, Peer, World};

const VERSIONS: [Version; 4] = [Version::V3, Version::V40, Version::V41, Version::V42];
const BOTH: OpenOptions = OpenOptions { mode: OpenMode::BOTH, truncate: false, ..OpenOptions::CREATE };
/// Four blocks and a part.
const SIZE: usize = 4 * BLOCK as usize + 1000;

fn content(seed: u8) -> Vec<u8> {
    (0..SIZE).map(|at| (at % 251) as u8 ^ seed).collect()
}

/// Writes the file with a client that has no store. Later changes have later times.
fn write(world: &Rc<World>, at: u64, data: Vec<u8>) {
    world.pass(Duration::from_secs(1));
    let (fs, _) = world.mounted_undelegated(Version::V42);
    let file = world.run(fs.open(b"file", &BOTH)).unwrap();
    world.run(file.write_at(at, Bytes::from(data))).unwrap();
    world.run(file.close()).unwrap();
    world.run(fs.client().close()).unwrap();
}

/// Sets the size of the file likewise.
fn truncate(world: &Rc<World>, size: u64) {
    world.pass(Duration::from_secs(1));
    let (fs, _) = world.mounted_undelegated(Version::V42);
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    world.run(fs.set_attributes(b"file", &set, true)).unwrap();
    world.run(fs.client().close()).unwrap();
}

fn store() -> Arc<MemoryBlocks> {
    MemoryBlocks::new(1 << 30)
}

fn mounted(world: &Rc<World>, version: Version, store: &Arc<MemoryBlocks>) -> (FileSystem, Rc<Peer>) {
    world.mounted_with(version, |config| config.caches.blocks = Some(Arc::clone(store) as _))
}

/// Reads a range of the file with a new client, which has nothing in memory. Returns its number of READs too.
fn read_range(
    world: &Rc<World>,
    version: Version,
    store: &Arc<MemoryBlocks>,
    (at, count): (u64, usize),
) -> (Vec<u8>, usize) {
    let (fs, peer) = mounted(world, version, store);
    let file = world.run(fs.open(b"file", &OpenOptions::READ)).unwrap();
    let data = world.run(file.read_at(at, count)).unwrap().concat();
    world.run(file.close()).unwrap();
    world.run(fs.client().close()).unwrap();
    let reads = match version {
        Version::V3 => peer.calls_of(PROGRAM, Proc::READ.0),
        _ => peer.count(OpNum::READ),
    };
    (data, reads)
}

fn read(world: &Rc<World>, version: Version, store: &Arc<MemoryBlocks>) -> (Vec<u8>, usize) {
    read_range(world, version, store, (0, 2 * SIZE))
}

#[test]
fn the_next_client_reads_without_a_request() {
    for version in VERSIONS {
        let (world, store) = (World::new(), store());
        write(&world, 0, content(0));
        let (first, reads) = read(&world, version, &store);
        assert!(first == content(0) && reads > 0);
        assert_eq!((store.counts().stored, store.counts().misses, store.counts().hits), (5, 5, 0));
        let (second, reads) = read(&world, version, &store);
        assert!(second == content(0));
        assert_eq!(reads, 0, "{version}");
        let counts = store.counts();
        assert_eq!((counts.stored, counts.misses, counts.hits, counts.hit_bytes), (5, 5, 5, SIZE as u64));
    }
}

#[test]
fn a_file_that_has_changed_is_read_from_the_server() {
    for version in VERSIONS {
        let (world, store) = (World::new(), store());
        write(&world, 0, content(0));
        read(&world, version, &store);
        write(&world, 0, content(7));
        let (found, reads) = read(&world, version, &store);
        assert!(found == content(7) && reads > 0, "{version}");
        assert_eq!(store.counts().hits, 0);
        let (found, reads) = read(&world, version, &store);
        assert!(found == content(7) && reads == 0, "{version}");
    }
}

#[test]
fn truncated_data_do_not_reappear() {
    for version in VERSIONS {
        let (world, store) = (World::new(), store());
        write(&world, 0, content(0));
        read(&world, version, &store);
        truncate(&world, 100);
        assert!(read(&world, version, &store).0 == content(0)[..100], "{version}");
        truncate(&world, SIZE as u64);
        let mut expected = content(0);
        expected[100..].fill(0);
        for _ in 0..2 {
            assert!(read(&world, version, &store).0 == expected, "{version}");
        }
    }
}

#[test]
fn a_hole_is_stored_as_zeros() {
    for version in VERSIONS {
        let (world, store) = (World::new(), store());
        write(&world, SIZE as u64 - 1, vec![9]);
        let mut expected = vec![0; SIZE];
        expected[SIZE - 1] = 9;
        assert!(read(&world, version, &store).0 == expected);
        let (found, reads) = read(&world, version, &store);
        assert!(found == expected && reads == 0, "{version}");
    }
}

#[test]
fn a_damaged_block_is_read_from_the_server_and_stored_again() {
    for version in VERSIONS {
        let (world, store) = (World::new(), store());
        write(&world, 0, content(0));
        read(&world, version, &store);
        let mut number = 0;
        store.damage(|record| {
            number += 1;
            match number {
                2 => record.truncate(record.len() / 2),
                4 => *record.last_mut().unwrap() ^= 1,
                _ => {}
            }
        });
        let (found, reads) = read(&world, version, &store);
        assert!(found == content(0));
        assert_eq!((reads, store.counts().damaged, store.counts().hits), (2, 2, 3), "{version}");
        let (found, reads) = read(&world, version, &store);
        assert!(found == content(0));
        assert_eq!((reads, store.counts().damaged), (0, 2), "{version}");
    }
}

#[test]
fn a_full_store_keeps_its_size_and_serves_what_it_has() {
    let world = World::new();
    let store = MemoryBlocks::new(3 * BLOCK);
    write(&world, 0, content(0));
    for _ in 0..3 {
        assert!(read(&world, Version::V42, &store).0 == content(0));
        assert!(store.counts().bytes <= 3 * BLOCK);
    }
    assert!(store.counts().hits > 0);
}

#[test]
fn a_small_read_fetches_and_stores_one_block() {
    for version in VERSIONS {
        let (world, store) = (World::new(), store());
        write(&world, 0, content(0));
        let wanted = (2 * BLOCK + 5000, 100);
        let expected = &content(0)[wanted.0 as usize..wanted.0 as usize + 100];
        let (found, reads) = read_range(&world, version, &store, wanted);
        assert!(found == expected);
        assert_eq!((reads, store.counts().stored), (1, 1), "{version}");
        let (found, reads) = read_range(&world, version, &store, (2 * BLOCK + 5000, 100));
        assert!(found == expected && reads == 0);
        // The other blocks are missing.
        let (found, _) = read(&world, version, &store);
        assert!(found == content(0));
        assert_eq!(store.counts().stored, 5);
    }
}

#[test]
fn requests_smaller_than_a_block_fill_it() {
    let (world, store) = (World::new(), store());
    write(&world, 0, content(0));
    let (fs, peer) = world.mounted_with(Version::V42, |config| {
        config.caches.blocks = Some(Arc::clone(&store) as _);
        config.read_size = 8192;
    });
    let file = world.run(fs.open(b"file", &OpenOptions::READ)).unwrap();
    let found = world.run(file.read_at(0, 100)).unwrap().concat();
    assert!(found == content(0)[..100]);
    world.pass(Duration::from_secs(1));
    assert!(peer.count(OpNum::READ) >= BLOCK as usize / 8192);
    assert!(read(&world, Version::V42, &store).0 == content(0));
    assert_eq!((store.counts().stored, store.counts().hits), (5, 5), "the file was read ahead");
}

#[test]
fn written_data_are_not_stored_before_the_server_returns_them() {
    for version in VERSIONS {
        let (world, store) = (World::new(), store());
        write(&world, 0, content(0));
        let (fs, _) = mounted(&world, version, &store);
        let file = world.run(fs.open(b"file", &BOTH)).unwrap();
        world.run(file.write_at(10, Bytes::from_static(b"dirty"))).unwrap();
        let mut expected = content(0);
        expected[10..15].copy_from_slice(b"dirty");
        assert!(world.run(file.read_at(0, SIZE)).unwrap().concat() == expected);
        if version == Version::V3 {
            // Not delegated: another client finds the version that the server has, whose blocks are stored.
            assert!(read(&world, version, &store).0 == content(0));
        }
        world.pass(Duration::from_secs(10));
        world.run(file.sync()).unwrap();
        world.run(file.close()).unwrap();
        for _ in 0..2 {
            assert!(read(&world, version, &store).0 == expected, "{version}");
        }
    }
}

#[test]
fn data_that_changed_during_the_read_are_not_stored() {
    for version in [Version::V40, Version::V42] {
        let (world, store) = (World::new(), store());
        write(&world, 0, content(0));
        let (fs, peer) = world.mounted_with(version, |config| {
            config.caches.blocks = Some(Arc::clone(&store) as _);
            config.caches.delegations = false;
        });
        let file = world.run(fs.open(b"file", &OpenOptions::READ)).unwrap();
        peer.judge(|ops| if ops.contains(&OpNum::READ) { Fate::Hold } else { Fate::Serve });
        let mut reading = Box::pin(file.read_at(0, SIZE));
        assert!(world.run_for(Duration::from_secs(1), reading.as_mut()).is_none());
        write(&world, 0, content(3));
        peer.release(&world);
        assert!(world.run(reading).unwrap().concat() == content(3));
        assert_eq!(store.counts().stored, 0, "{version}");
    }
}
