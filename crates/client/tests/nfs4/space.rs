//! Space, holes, copies and clones.

use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use client::config::Version;
use client::errno::Errno;
use client::fs::{File, FileSystem, OpenOptions};
use client::results::Content::{Data, Hole};
use client::results::OpenMode;
use protocol::nfs4::types::OpNum;

use crate::world::{Fate, Peer, World};

const BOTH: OpenOptions = OpenOptions { mode: OpenMode::BOTH, truncate: false, ..OpenOptions::CREATE };
const MIB: u64 = 1 << 20;

fn mounted() -> (Rc<World>, FileSystem, Rc<Peer>) {
    let world = World::new();
    let (fs, peer) = world.mounted(Version::V42);
    (world, fs, peer)
}

/// Opens a file to copy from, and one to copy to.
fn two_files(world: &World, fs: &FileSystem) -> (File, File) {
    (open(world, fs, b"source"), open(world, fs, b"target"))
}

fn open(world: &World, fs: &FileSystem, name: &[u8]) -> File {
    world.run(fs.open(name, &BOTH)).unwrap()
}

fn content(length: u64) -> Bytes {
    (0..length).map(|at| (at / 4096 + at % 251) as u8).collect::<Vec<_>>().into()
}

fn read(world: &World, file: &File) -> Vec<u8> {
    world.run(file.read_at(0, 1 << 30)).unwrap().concat()
}

#[test]
fn space_is_reserved_and_released() {
    let (world, fs, _) = mounted();
    let file = open(&world, &fs, b"file");
    world.run(file.allocate(0, 3 * MIB)).unwrap();
    let attributes = world.run(file.stat()).unwrap();
    assert_eq!((attributes.size, attributes.used), (3 * MIB, 3 * MIB));
    world.run(file.write_at(MIB, content(MIB))).unwrap();
    world.run(file.punch_hole(0, 2 * MIB)).unwrap();
    let attributes = world.run(file.stat()).unwrap();
    assert_eq!((attributes.size, attributes.used), (3 * MIB, MIB));
    assert!(read(&world, &file).iter().all(|byte| *byte == 0));
    assert_eq!(world.run(file.allocate(0, 0)).unwrap_err().errno(), Errno::EINVAL);
    assert_eq!(world.run(file.punch_hole(1, u64::MAX)).unwrap_err().errno(), Errno::EFBIG);
}

#[test]
fn data_and_holes_are_found() {
    let (world, fs, _) = mounted();
    let file = open(&world, &fs, b"file");
    world.run(file.write_at(MIB, content(MIB))).unwrap();
    world
        .run(
            file.set_attributes(&client::attributes::SetAttributes {
                size: Some(4 * MIB),
                ..Default::default()
            }),
        )
        .unwrap();
    let seek = |offset, what| world.run(file.seek(offset, what)).map_err(|error| error.errno());
    assert_eq!((seek(0, Data), seek(0, Hole)), (Ok(MIB), Ok(0)));
    assert_eq!((seek(MIB + 5, Data), seek(MIB + 5, Hole)), (Ok(MIB + 5), Ok(2 * MIB)));
    assert_eq!((seek(2 * MIB, Data), seek(2 * MIB, Hole)), (Err(Errno::ENXIO), Ok(2 * MIB)));
    assert_eq!((seek(4 * MIB, Data), seek(4 * MIB, Hole)), (Err(Errno::ENXIO), Err(Errno::ENXIO)));
}

#[test]
fn a_clone_has_the_content_of_its_source() {
    let (world, fs, _) = mounted();
    let (source, target) = two_files(&world, &fs);
    world.run(source.write_at(0, content(MIB + 5))).unwrap();
    world.run(target.clone_from(&source, 0, 0, 0)).unwrap();
    assert!(read(&world, &target) == content(MIB + 5));
    let odd = world.run(target.clone_from(&source, 1, 0, 10)).unwrap_err();
    assert_eq!(odd.errno(), Errno::EINVAL);
    let (other, _) = world.mounted(Version::V42);
    let elsewhere = open(&world, &other, b"elsewhere");
    assert_eq!(world.run(elsewhere.clone_from(&source, 0, 0, 0)).unwrap_err().errno(), Errno::EXDEV);
}

#[test]
fn a_short_copy_ends_with_its_reply_and_is_committed() {
    let (world, fs, peer) = mounted();
    let (source, target) = two_files(&world, &fs);
    world.run(source.write_at(0, content(MIB))).unwrap();
    peer.compounds.borrow_mut().clear();
    assert_eq!(world.run(target.copy_from(&source, 0, 7, 4 * MIB)), Ok(MIB));
    assert_eq!(world.run(target.copy_from(&source, MIB, MIB + 7, MIB)), Ok(0), "the source has ended");
    world.run(target.sync()).unwrap();
    let counts = (peer.count(OpNum::COPY), peer.count(OpNum::READ), peer.count(OpNum::OFFLOAD_STATUS));
    // RFC 7862 §15.2.3: a range that ends beyond the source is refused, and requested again.
    assert_eq!(counts, (3, 0, 0));
    assert!(read(&world, &target)[7..] == content(MIB));
}

#[test]
fn a_long_copy_continues_in_the_background_and_the_callback_ends_it() {
    let (world, fs, peer) = mounted();
    let (source, target) = two_files(&world, &fs);
    world.run(source.write_at(0, content(40 * MIB))).unwrap();
    assert_eq!(world.run(target.copy_from(&source, 0, 0, 40 * MIB)), Ok(40 * MIB));
    assert_eq!((peer.count(OpNum::COPY), peer.count(OpNum::OFFLOAD_CANCEL)), (1, 0));
    assert!(read(&world, &target) == content(40 * MIB));
    assert_eq!(world.server().offload_counts().begun.load(Ordering::Relaxed), 1);
}

#[test]
fn a_copy_whose_callback_is_lost_is_asked_for() {
    let (world, fs, peer) = mounted();
    let (source, target) = two_files(&world, &fs);
    world.run(source.write_at(0, content(40 * MIB))).unwrap();
    peer.drop_callbacks(true);
    assert_eq!(world.run(target.copy_from(&source, 0, 0, 40 * MIB)), Ok(40 * MIB));
    assert!(peer.count(OpNum::OFFLOAD_STATUS) > 0);
    assert!(read(&world, &target) == content(40 * MIB));
}

#[test]
fn a_copy_is_begun_again_after_a_restart_of_the_server() {
    let (world, fs, peer) = mounted();
    let (source, target) = two_files(&world, &fs);
    world.run(source.write_at(0, content(40 * MIB))).unwrap();
    world.hold_copies(true);
    let mut copy = pin!(target.copy_from(&source, 0, 0, 40 * MIB));
    assert!(world.run_for(Duration::from_secs(3), copy.as_mut()).is_none());
    world.hold_copies(false);
    world.restart();
    assert_eq!(world.run(copy), Ok(40 * MIB));
    assert_eq!(peer.count(OpNum::COPY), 2);
    assert!(read(&world, &target) == content(40 * MIB));
}

#[test]
fn a_copy_whose_caller_has_gone_is_cancelled() {
    let (world, fs, peer) = mounted();
    let (source, target) = two_files(&world, &fs);
    world.run(source.write_at(0, content(40 * MIB))).unwrap();
    world.hold_copies(true);
    {
        let mut copy = pin!(target.copy_from(&source, 0, 0, 40 * MIB));
        assert!(world.run_for(Duration::from_secs(1), copy.as_mut()).is_none());
    }
    world.pass(Duration::from_secs(1));
    world.hold_copies(false);
    world.pass(Duration::from_secs(1));
    assert_eq!(peer.count(OpNum::OFFLOAD_CANCEL), 1);
    assert_eq!(world.server().offload_counts().cancelled.load(Ordering::Relaxed), 1);
}

#[test]
fn an_open_whose_caller_has_gone_is_closed() {
    let (world, fs, peer) = mounted();
    peer.judge(|ops| if ops.contains(&OpNum::OPEN) { Fate::Hold } else { Fate::Serve });
    {
        let mut open = pin!(fs.open(b"file", &BOTH));
        assert!(world.run_for(Duration::from_secs(1), open.as_mut()).is_none());
    }
    peer.release(&world);
    world.pass(Duration::from_secs(1));
    if !crate::DELEGATIONS {
        assert_eq!((peer.count(OpNum::CLOSE), world.server().counts().opens), (1, 0));
    }
    world.run(fs.client().close()).unwrap();
    assert_eq!((peer.count(OpNum::CLOSE), world.server().counts().opens), (1, 0));
    assert_eq!(world.server().counts().clients, 0);
}
