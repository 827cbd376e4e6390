//! Times of files under delegations for writing (RFC 9754 §5).

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::attributes::{Attributes, SetAttributes, SetTime, Timestamp};
use client::config::Version;
use client::fs::{FileSystem, OpenOptions};
use client::results::OpenMode;
use protocol::nfs4::types::OpNum;

use crate::world::{Peer, World};

const BOTH: OpenOptions = OpenOptions { mode: OpenMode::BOTH, truncate: false, ..OpenOptions::CREATE };
const SECOND: Duration = Duration::from_secs(1);

/// Returns a client whose back channel the server has tried.
fn mounted(world: &Rc<World>, version: Version) -> (FileSystem, Rc<Peer>) {
    let mounted = world.mounted(version);
    world.pass(Duration::from_secs(2));
    mounted
}

/// Writes a file and closes it. Returns the seconds of the time of day at the write.
fn write(world: &World, fs: &FileSystem, name: &[u8], text: &'static [u8]) -> i64 {
    let file = world.run(fs.open(name, &BOTH)).unwrap();
    world.run(file.write_at(0, Bytes::from_static(text))).unwrap();
    let at = world.now();
    world.run(file.close()).unwrap();
    1_000_000 + at.as_secs().cast_signed()
}

fn stat(world: &World, fs: &FileSystem, name: &[u8]) -> Attributes {
    world.run(fs.stat(name)).unwrap()
}

/// Returns the attributes that another client gets, which has no caches of the file.
fn stat_elsewhere(world: &Rc<World>, name: &[u8]) -> Attributes {
    let (fs, _) = world.mounted_undelegated(Version::V42);
    let attributes = stat(world, &fs, name);
    world.run(fs.client().close()).unwrap();
    attributes
}

#[test]
fn files_have_the_times_of_their_writes_in_any_order_of_looks() {
    let world = World::new();
    let (fs, peer) = mounted(&world, Version::V42);
    let first = write(&world, &fs, b"first", b"text");
    world.pass(SECOND / 2);
    let second = write(&world, &fs, b"second", b"text");
    assert!(second >= first);
    let (later, earlier) = (stat(&world, &fs, b"second"), stat(&world, &fs, b"first"));
    assert!(earlier.mtime < later.mtime, "{earlier:?} {later:?}");
    assert_eq!((earlier.size, earlier.ctime, later.ctime), (4, earlier.mtime, later.mtime));
    assert_eq!(peer.count(OpNum::WRITE), 0);
    // The server gets the data later, and at last the times.
    world.pass(SECOND * 10);
    assert_eq!(peer.count(OpNum::WRITE), 2);
    assert_eq!(stat(&world, &fs, b"first").mtime, earlier.mtime);
    world.run(fs.client().close()).unwrap();
    assert_eq!(stat_elsewhere(&world, b"first").mtime, earlier.mtime);
    assert_eq!(stat_elsewhere(&world, b"second").mtime, later.mtime);
}

#[test]
fn others_see_the_time_of_the_write_before_and_after_the_return() {
    let world = World::new();
    let (fs, peer) = mounted(&world, Version::V42);
    let at = write(&world, &fs, b"file", b"text");
    world.pass(SECOND * 10);
    assert_eq!((peer.count(OpNum::WRITE), stat_elsewhere(&world, b"file").mtime.seconds), (1, at));
    assert_eq!(fs.client().delegation_counts().held, 1, "the holder was only asked");
    let (other, _) = world.mounted_undelegated(Version::V42);
    let opened = world.run(other.open(b"file", &BOTH)).unwrap();
    assert_eq!((opened.opened_attributes().mtime.seconds, peer.count(OpNum::SETATTR)), (at, 1));
    world.run(opened.close()).unwrap();
    assert_eq!(fs.client().delegation_counts().held, 0);
}

#[test]
fn the_return_does_not_make_cached_data_obsolete() {
    let world = World::new();
    let (fs, peer) = mounted(&world, Version::V42);
    write(&world, &fs, b"file", b"text");
    world.pass(SECOND * 10);
    let (other, _) = world.mounted_undelegated(Version::V42);
    let opened = world.run(other.open(b"file", &OpenOptions::READ)).unwrap();
    world.run(opened.close()).unwrap();
    world.pass(SECOND);
    assert_eq!((fs.client().delegation_counts().held, peer.count(OpNum::SETATTR)), (0, 1));
    let file = world.run(fs.open(b"file", &OpenOptions::READ)).unwrap();
    assert_eq!(world.run(file.read_at(0, 10)).unwrap().concat(), b"text");
    assert_eq!(peer.count(OpNum::READ), 0, "nobody else has changed it");
}

#[test]
fn a_time_that_a_program_sets_stays() {
    let world = World::new();
    let (fs, peer) = mounted(&world, Version::V42);
    let past = Timestamp { seconds: 5, nanoseconds: 6 };
    write(&world, &fs, b"file", b"text");
    let set = SetAttributes { mtime: SetTime::To(past), ..SetAttributes::default() };
    assert_eq!(world.run(fs.set_attributes(b"file", &set, true)).unwrap().mtime, past);
    world.pass(SECOND * 10);
    assert_eq!((stat(&world, &fs, b"file").mtime, stat_elsewhere(&world, b"file").mtime), (past, past));
    assert_eq!(
        fs.client().delegation_counts().held,
        0,
        "servers set a time when a delegation with changes is returned"
    );
    world.run(fs.client().close()).unwrap();
    assert_eq!((stat_elsewhere(&world, b"file").mtime, peer.count(OpNum::SETATTR)), (past, 2));
}

#[test]
fn a_write_after_the_setting_of_a_time_gives_a_new_one() {
    let world = World::new();
    let (fs, _) = mounted(&world, Version::V42);
    write(&world, &fs, b"file", b"text");
    // The server would ignore a time before this one (RFC 9754 §5).
    let future = Timestamp { seconds: 9_000_000, nanoseconds: 0 };
    let set = SetAttributes { mtime: SetTime::To(future), ..SetAttributes::default() };
    world.run(fs.set_attributes(b"file", &set, true)).unwrap();
    world.pass(SECOND * 10);
    let at = write(&world, &fs, b"file", b"TEXT");
    assert_eq!(stat(&world, &fs, b"file").mtime.seconds, at);
    world.run(fs.client().close()).unwrap();
    assert_eq!(stat_elsewhere(&world, b"file").mtime.seconds, at);
}

#[test]
fn a_truncation_changes_the_time() {
    let world = World::new();
    let (fs, _) = mounted(&world, Version::V42);
    write(&world, &fs, b"file", b"a long text");
    world.pass(SECOND * 10);
    let at = 1_000_000 + world.now().as_secs().cast_signed();
    let cut = SetAttributes { size: Some(3), ..SetAttributes::default() };
    world.run(fs.set_attributes(b"file", &cut, true)).unwrap();
    assert_eq!((stat(&world, &fs, b"file").mtime.seconds, stat(&world, &fs, b"file").size), (at, 3));
    world.pass(SECOND * 10);
    world.run(fs.client().close()).unwrap();
    assert_eq!(stat_elsewhere(&world, b"file").mtime.seconds, at);
}

#[test]
fn without_delegated_times_the_data_of_a_closed_file_are_sent_at_once() {
    let world = World::new();
    let (fs, peer) = mounted(&world, Version::V41);
    write(&world, &fs, b"first", b"text");
    world.pass(Duration::from_millis(1));
    assert_eq!((peer.count(OpNum::WRITE), peer.count(OpNum::COMMIT)), (1, 0), "nobody waits for them");
    world.pass(SECOND / 2);
    write(&world, &fs, b"second", b"text");
    let (later, earlier) = (stat(&world, &fs, b"second"), stat(&world, &fs, b"first"));
    assert!(earlier.mtime < later.mtime, "{earlier:?} {later:?}");
    assert_eq!(fs.client().delegation_counts().held, 2);
    world.run(fs.client().close()).unwrap();
    assert_eq!(stat_elsewhere(&world, b"first").mtime, earlier.mtime);
    assert_eq!(peer.count(OpNum::SETATTR), 0);
}
