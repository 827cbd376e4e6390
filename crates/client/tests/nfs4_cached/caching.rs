//! The data that caches keep and drop, and the time at which they send data.

use std::time::Duration;

use bytes::Bytes;
use client::attributes::SetAttributes;
use client::config::Version;
use client::fs::{File, FileSystem, OpenOptions};
use client::locks::{LockKind, LockOwner, LockRange};
use client::results::OpenMode;
use protocol::nfs4::types::OpNum;

use crate::world::{Fate, World, root};

const BOTH: OpenOptions = OpenOptions { mode: OpenMode::BOTH, truncate: false, ..OpenOptions::CREATE };
const ME: LockOwner = LockOwner::Process(1);

fn open(world: &World, fs: &FileSystem) -> File {
    world.run(fs.open(b"file", &BOTH)).unwrap()
}

fn write(world: &World, file: &File, at: u64, text: &'static [u8]) {
    world.run(file.write_at(at, Bytes::from_static(text))).unwrap();
}

fn read(world: &World, file: &File) -> Vec<u8> {
    world.run(file.read_at(0, 1 << 20)).unwrap().concat()
}

#[test]
fn a_change_of_attributes_keeps_the_data() {
    for version in [Version::V40, Version::V42] {
        let world = World::new();
        let (fs, peer) = world.mounted(version);
        let file = open(&world, &fs);
        write(&world, &file, 0, b"0123456789");
        world.run(file.sync()).unwrap();
        world.run(fs.set_attributes(b"file", &SetAttributes::with_mode(0o600), true)).unwrap();
        assert_eq!(read(&world, &file), b"0123456789");
        let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
        world.run(file.set_attributes(&size(4))).unwrap();
        assert_eq!(read(&world, &file), b"0123");
        assert_eq!(peer.count(OpNum::READ), 0);
        // Truncated data do not reappear.
        world.run(file.set_attributes(&size(6))).unwrap();
        assert_eq!(read(&world, &file), b"0123\0\0");
        world.run(file.close()).unwrap();
    }
}

#[test]
fn a_rename_shows_in_the_times_of_its_object_and_a_creation_in_those_of_the_directory() {
    for version in [Version::V40, Version::V42] {
        let world = World::new();
        let (fs, peer) = world.mounted(version);
        let (file, directory) = (open(&world, &fs), fs.mounted().root());
        let before = world.run(file.stat()).unwrap().ctime;
        world.pass(Duration::from_secs(1));
        world.run(fs.rename(b"file", b"renamed")).unwrap();
        assert!(world.run(file.stat()).unwrap().ctime > before, "{version}");
        world.run(file.close()).unwrap();
        // The directory's attributes come with the reply to the OPEN.
        let before = world.run(directory.attributes(&root())).unwrap().mtime;
        world.pass(Duration::from_secs(1));
        let asked = peer.compounds.borrow().len();
        let file = open(&world, &fs);
        assert!(world.run(directory.attributes(&root())).unwrap().mtime > before, "{version}");
        let sent = peer.compounds.borrow()[asked..].to_vec();
        let opens = sent.iter().filter(|ops| ops.contains(&OpNum::OPEN)).count();
        let confirms = sent.iter().filter(|ops| ops.contains(&OpNum::OPEN_CONFIRM)).count();
        assert_eq!((opens, sent.len()), (1, 1 + confirms), "{version}: {sent:?}");
        world.run(file.close()).unwrap();
    }
}

#[test]
fn a_lock_keeps_the_data_unless_another_client_has_changed_them() {
    let world = World::new();
    let ((one, peer), (two, _)) = (world.mounted(Version::V42), world.mounted(Version::V42));
    let (first, second) = (open(&world, &one), open(&world, &two));
    write(&world, &first, 0, b"first");
    world.run(first.sync()).unwrap();
    world.run(first.lock(ME, LockRange::WHOLE, LockKind::Exclusive)).unwrap();
    assert_eq!((read(&world, &first), peer.count(OpNum::READ)), (b"first".to_vec(), 0));
    write(&world, &first, 0, b"FIRST");
    world.run(first.unlock(ME, LockRange::WHOLE)).unwrap();

    world.run(second.lock(ME, LockRange::WHOLE, LockKind::Exclusive)).unwrap();
    assert_eq!(read(&world, &second), b"FIRST", "it was written before the unlock");
    write(&world, &second, 0, b"other");
    world.run(second.unlock(ME, LockRange::WHOLE)).unwrap();

    world.run(first.lock(ME, LockRange::WHOLE, LockKind::Shared)).unwrap();
    assert_eq!((read(&world, &first), peer.count(OpNum::READ)), (b"other".to_vec(), 1));
}

#[test]
fn data_that_another_client_overwrote_before_the_commit_are_read_again() {
    let world = World::new();
    let ((one, peer), (two, _)) =
        (world.mounted_undelegated(Version::V42), world.mounted_undelegated(Version::V42));
    let (first, second) = (open(&world, &one), open(&world, &two));
    write(&world, &first, 0, b"first");
    world.run(first.stat()).unwrap();
    assert_eq!((peer.count(OpNum::WRITE), peer.count(OpNum::COMMIT)), (1, 0));
    write(&world, &second, 0, b"other");
    world.run(second.close()).unwrap();
    // The open shows that the file has changed while the data of this client are not stable.
    world.run(open(&world, &one).close()).unwrap();
    world.run(first.sync()).unwrap();
    assert_eq!(peer.count(OpNum::WRITE), 1);
    assert_eq!(read(&world, &first), b"other");
}

#[test]
fn an_open_or_a_lock_drops_the_data_if_an_own_change_is_in_flight_and_the_file_has_changed() {
    for locks in [false, true] {
        changes_behind_an_own_change_are_read(locks);
    }
}

fn changes_behind_an_own_change_are_read(locks: bool) {
    let world = World::new();
    let ((one, peer), (two, _)) =
        (world.mounted_undelegated(Version::V42), world.mounted_undelegated(Version::V42));
    let (first, second) = (open(&world, &one), open(&world, &two));
    write(&world, &first, 0, b"first");
    world.run(first.sync()).unwrap();
    // A program changes the size without a lock.
    peer.judge(|ops| if ops.contains(&OpNum::SETATTR) { Fate::Hold } else { Fate::Serve });
    let size = SetAttributes { size: Some(5), ..SetAttributes::default() };
    let mut change = std::pin::pin!(first.set_attributes(&size));
    assert!(world.run_for(std::time::Duration::from_secs(1), change.as_mut()).is_none());
    write(&world, &second, 0, b"other");
    world.run(second.close()).unwrap();

    match locks {
        true => world.run(first.lock(ME, LockRange::WHOLE, LockKind::Exclusive)).unwrap(),
        false => world.run(open(&world, &one).close()).unwrap(),
    }
    assert_eq!(read(&world, &first), b"other", "it was closed before");
    peer.release(&world);
    world.run(change).unwrap();
    assert_eq!(read(&world, &first), b"other");
}

#[test]
fn stat_shows_the_size_and_the_time_of_data_that_were_written_behind() {
    let world = World::new();
    let (fs, peer) = world.mounted_undelegated(Version::V42);
    let file = open(&world, &fs);
    let before = file.opened_attributes().mtime;
    world.pass(std::time::Duration::from_secs(100));
    for at in 0..10 {
        write(&world, &file, at * 4, b"data");
    }
    assert_eq!(peer.count(OpNum::WRITE), 0);
    let by_file = world.run(file.stat()).unwrap();
    assert_eq!((by_file.size, by_file.mtime.seconds), (40, before.seconds + 100));
    assert_eq!((peer.count(OpNum::WRITE), peer.count(OpNum::COMMIT)), (1, 0));
    write(&world, &file, 40, b"more");
    let listed = world.run(fs.read_dir(b"", true)).unwrap();
    assert_eq!(listed[0].object.map(|object| object.attributes.size), Some(44));
    assert_eq!(world.run(fs.stat(b"file")).unwrap().size, 44);
    assert_eq!(peer.count(OpNum::WRITE), 2);
    world.run(file.stat()).unwrap();
    assert_eq!(peer.count(OpNum::WRITE), 2, "nothing was written since");
    world.run(file.close()).unwrap();
}

#[test]
fn a_copy_and_a_hole_are_seen_in_cached_data() {
    let world = World::new();
    let (fs, _) = world.mounted(Version::V42);
    let (file, source) = (open(&world, &fs), world.run(fs.open(b"source", &BOTH)).unwrap());
    write(&world, &file, 0, b"0123456789");
    assert_eq!(read(&world, &file), b"0123456789");
    write(&world, &source, 0, b"01234");
    assert_eq!(world.run(file.copy_from(&source, 0, 10, 5)), Ok(5));
    assert_eq!(read(&world, &file), b"012345678901234");
    write(&world, &file, 2, b"xx");
    world.run(file.punch_hole(0, 2)).unwrap();
    assert_eq!(read(&world, &file), b"\0\0xx45678901234");
    world.run(file.allocate(15, 1)).unwrap();
    assert_eq!(read(&world, &file), b"\0\0xx45678901234\0");
}

#[test]
fn a_hole_and_a_copy_drop_only_their_range_of_cached_data() {
    const PART: u64 = 256 << 10;
    let world = World::new();
    let (fs, peer) = world.mounted(Version::V42);
    let (file, source) = (open(&world, &fs), world.run(fs.open(b"source", &BOTH)).unwrap());
    let mut expected = Vec::new();
    for part in 0..8_u8 {
        let data = vec![part + 1; PART as usize];
        expected.extend_from_slice(&data);
        world.run(file.write_at(u64::from(part) * PART, data.into())).unwrap();
    }
    world.run(source.write_at(0, vec![99; PART as usize].into())).unwrap();
    world.run(file.sync()).unwrap();
    let mut changed = |at: u64, value: u8| {
        expected[(at * PART) as usize..((at + 1) * PART) as usize].fill(value);
        let before = peer.count(OpNum::READ);
        assert!(world.run(file.read_at(0, 8 * PART as usize)).unwrap().concat() == expected, "part {at}");
        peer.count(OpNum::READ) - before
    };
    world.run(file.allocate(0, PART)).unwrap();
    assert_eq!(changed(0, 1), 0, "the content is the same");
    world.run(file.punch_hole(PART, PART)).unwrap();
    assert_eq!(changed(1, 0), 1);
    assert_eq!(world.run(file.copy_from(&source, 0, 4 * PART, PART)), Ok(PART));
    assert_eq!(changed(4, 99), 1);
    assert_eq!(changed(4, 99), 0);
}

#[test]
fn files_that_are_opened_under_a_delegation_have_the_data_written_before() {
    for version in [Version::V40, Version::V41, Version::V42] {
        let world = World::new();
        let ((fs, _), (other, _)) = (world.mounted(version), world.mounted(version));
        for round in 0..4 {
            for length in [100_000_usize, 10, 0] {
                let content: Vec<u8> = (0..length).map(|at| (at + round) as u8).collect();
                // With fresh attributes of the directory, a name may be used without a request.
                world.run(fs.stat(b"")).unwrap();
                let file = world.run(fs.open(b"file", &OpenOptions::CREATE)).unwrap();
                world.run(file.write_at(0, content.clone().into())).unwrap();
                world.run(file.close()).unwrap();
                world.run(fs.stat(b"")).unwrap();
                for (who, fs) in [("own", &fs), ("other", &other)] {
                    let file = world.run(fs.open(b"file", &OpenOptions::READ)).unwrap();
                    let size = file.opened_attributes().size;
                    assert_eq!(size, length as u64, "{version}, round {round}, {who}");
                    assert!(read(&world, &file) == content, "{version}, {length} bytes, {who}");
                    world.run(file.close()).unwrap();
                }
            }
        }
    }
}
