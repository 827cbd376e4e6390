//! Version 4.0: seqids, client IDs without sessions, and their statuses (RFC 7530 §9).

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use client::attributes::{SetAttributes, SetTime, Timestamp};
use client::config::Version;
use client::errno::Errno;
use client::error::OpError;
use client::fs::inode::OpenFlags;
use client::fs::{File, FileSystem, OpenOptions};
use client::many::{NewFile, ReadFile};
use client::results::{Creation, FileHandle, NewObject, OpenMode, Stability};
use protocol::nfs4::types::{OpNum, Status};

use crate::world::{Fate, LEASE, World, root};

const BOTH: OpenOptions = OpenOptions {
    mode: OpenMode::BOTH,
    create: true,
    exclusive: None,
    truncate: false,
    permissions: 0o640,
    stability: Stability::Unstable,
};

fn open(world: &World, fs: &FileSystem, name: &[u8]) -> File {
    world.run(fs.open(name, &BOTH)).unwrap()
}

fn write(world: &World, file: &File, text: &'static [u8]) {
    world.run(file.write_at(0, Bytes::from_static(text))).unwrap();
    world.run(file.sync()).unwrap();
}

fn read(world: &World, file: &File) -> Vec<u8> {
    world.run(file.read_at(0, 100)).unwrap().concat()
}

#[test]
fn the_first_open_of_an_owner_is_confirmed_and_later_ones_are_not() {
    let world = World::new();
    let (fs, peer) = world.mounted_undelegated(Version::V40);
    for name in [&b"one"[..], b"two", b"three"] {
        let file = open(&world, &fs, name);
        write(&world, &file, b"text");
        assert_eq!(read(&world, &file), b"text");
        world.run(file.close()).unwrap();
    }
    let count = |op| peer.count(op);
    assert_eq!((count(OpNum::OPEN), count(OpNum::OPEN_CONFIRM), count(OpNum::CLOSE)), (3, 1, 3));
    assert_eq!(world.server().counts().opens, 0);
    // Two files at a time have two owners.
    let (first, second) = (open(&world, &fs, b"one"), open(&world, &fs, b"one"));
    assert_eq!((count(OpNum::OPEN_CONFIRM), world.server().counts().opens), (2, 2));
    world.run(first.close()).unwrap();
    assert_eq!(read(&world, &second), b"text", "the other open of the file stays");
    assert_eq!(count(OpNum::SEQUENCE) + count(OpNum::EXCHANGE_ID), 0);
}

#[test]
fn an_exclusive_creation_sets_its_attributes_afterwards() {
    let world = World::new();
    let (client, peer) = world.client(Version::V40);
    let caller = root();
    world.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let set = SetAttributes { uid: Some(7), ..SetAttributes::with_mode(0o640) };
        let open = |verifier| {
            client.open(&caller, top, b"file", OpenMode::WRITE, Creation::Exclusive(verifier), &set)
        };
        let opened = open([1; 8]).await.unwrap();
        let attributes = opened.object.attributes;
        assert_eq!((attributes.mode, attributes.uid, attributes.size), (0o640, 7, 0));
        assert!(attributes.mtime.seconds >= 1_000_000, "not the verifier");
        assert_eq!(open([2; 8]).await.unwrap_err(), OpError::Status(Status::EXIST));
    });
    assert_eq!(peer.count(OpNum::SETATTR), 1);
}

#[test]
fn replies_that_are_lost_are_repeated_with_the_same_seqid() {
    for lost in [OpNum::OPEN, OpNum::OPEN_CONFIRM, OpNum::CLOSE, OpNum::WRITE, OpNum::SETCLIENTID_CONFIRM] {
        let world = World::new();
        let (fs, peer) = world.mounted(Version::V40);
        let times = Cell::new(0);
        peer.judge(move |ops| {
            let is_first = ops.contains(&lost) && times.replace(times.get() + 1) == 0;
            if is_first { Fate::LoseReply } else { Fate::Serve }
        });
        for text in [&b"text"[..], b"more"] {
            let file = open(&world, &fs, b"file");
            write(&world, &file, text);
            assert_eq!(read(&world, &file), text, "{lost:?}");
            world.run(file.close()).unwrap();
        }
        assert_eq!(peer.count(OpNum::OPEN_CONFIRM), 1 + usize::from(lost == OpNum::OPEN_CONFIRM));
        assert_eq!(world.server().counts().opens, 0, "{lost:?}");
    }
}

#[test]
fn an_idle_client_renews_its_lease_and_keeps_its_files() {
    let world = World::new();
    let (fs, peer) = world.mounted(Version::V40);
    let file = open(&world, &fs, b"file");
    world.pass(LEASE * 4);
    assert_eq!(peer.count(OpNum::RENEW), 12, "each third of the lease");
    write(&world, &file, b"text");
    world.run(file.close()).unwrap();
    assert_eq!((peer.count(OpNum::OPEN), peer.count(OpNum::SETCLIENTID)), (1, 1));
}

#[test]
fn open_files_are_reclaimed_after_a_restart() {
    let world = World::new();
    let (fs, peer) = world.mounted(Version::V40);
    let files: Vec<File> = (0..5).map(|number| open(&world, &fs, format!("{number}").as_bytes())).collect();
    write(&world, &files[0], b"before");
    // The grace period lasts a whole lease, because this client does not return.
    let (other, path) = world.mounted(Version::V42);
    let _lost = open(&world, &other, b"other");
    path.cut(&world, true);
    world.restart();
    for file in &files {
        write(&world, file, b"after");
    }
    assert_eq!((peer.count(OpNum::SETCLIENTID), peer.count(OpNum::OPEN)), (2, 10));
    assert_eq!(world.server().counts().opens, 5);
    // A new file waits for the end of the grace period, and its owner's seqid continues.
    assert!(world.now() < LEASE, "reclaims do not wait");
    let new = open(&world, &fs, b"new");
    assert!(world.now() >= LEASE);
    for file in files.into_iter().chain([new]) {
        world.run(file.close()).unwrap();
    }
    assert_eq!(world.server().counts().opens, 0);
}

#[test]
fn an_open_outlasts_many_restarts_of_the_server() {
    let world = World::new();
    let (fs, _) = world.mounted(Version::V40);
    // The grace period lasts a whole lease, because this client does not return.
    let (other, path) = world.mounted(Version::V42);
    let _lost = open(&world, &other, b"other");
    path.cut(&world, true);
    world.restart();
    let mut opening = pin!(fs.open(b"new", &BOTH));
    for _ in 0..40 {
        assert!(world.run_for(Duration::from_secs(2), opening.as_mut()).is_none());
        world.restart();
    }
    let file = world.run(opening).unwrap();
    world.run(file.close()).unwrap();
}

#[test]
fn a_write_outlasts_many_restarts_of_the_server() {
    let world = World::new();
    let (fs, peer) = world.mounted(Version::V40);
    let file = open(&world, &fs, b"file");
    // Each WRITE is lost, and refused when it is repeated: the next server does not know its stateid.
    let mut is_repeated = true;
    peer.judge(move |ops| {
        is_repeated ^= ops.contains(&OpNum::WRITE);
        if ops.contains(&OpNum::WRITE) && !is_repeated { Fate::Hold } else { Fate::Serve }
    });
    let mut writing = Box::pin(async {
        file.write_at(0, Bytes::from_static(b"text")).await?;
        file.sync().await
    });
    for _ in 0..10 {
        assert!(world.run_for(Duration::from_secs(2), writing.as_mut()).is_none());
        world.restart();
    }
    assert!(peer.count(OpNum::WRITE) >= 19, "{}", peer.count(OpNum::WRITE));
    peer.release(&world);
    world.run(writing).unwrap();
    assert_eq!(read(&world, &file), b"text");
    world.run(file.close()).unwrap();
}

#[test]
fn a_file_that_is_renamed_while_it_is_opened_again_is_found() {
    let world = World::new();
    let (fs, peer) = world.mounted(Version::V40);
    let file = open(&world, &fs, b"old");
    peer.cut(&world, true);
    world.restart();
    // The grace period ends without the client: the server refuses its reclaim, and it opens the file by its name.
    world.pass(LEASE * 3);
    let mut opens = 0;
    peer.judge(move |ops| {
        opens += u32::from(ops.contains(&OpNum::OPEN));
        if ops.contains(&OpNum::OPEN) && opens == 2 { Fate::Hold } else { Fate::Serve }
    });
    peer.cut(&world, false);
    let mut writing = Box::pin(async {
        file.write_at(0, Bytes::from_static(b"text")).await?;
        file.sync().await
    });
    assert!(world.run_for(Duration::from_secs(5), writing.as_mut()).is_none());
    let before = peer.count(OpNum::OPEN);
    world.run(fs.rename(b"old", b"new")).unwrap();
    peer.release(&world);
    world.run(writing).unwrap();
    assert_eq!(peer.count(OpNum::OPEN), before + 1, "by the new name");
    assert_eq!(read(&world, &file), b"text");
    world.run(file.close()).unwrap();
}

#[test]
fn a_restart_during_an_operation_has_no_visible_effect() {
    for at in [OpNum::OPEN, OpNum::OPEN_CONFIRM, OpNum::CLOSE, OpNum::RENEW, OpNum::REMOVE] {
        let world = World::new();
        let (fs, peer) = world.mounted(Version::V40);
        let other = open(&world, &fs, b"other");
        peer.judge(move |ops| if ops.contains(&at) { Fate::Hold } else { Fate::Serve });
        let mut life = pin!(async {
            let file = fs.open(b"file", &BOTH).await.unwrap();
            file.write_at(0, Bytes::from_static(b"text")).await.unwrap();
            file.close().await.unwrap();
            fs.unlink(b"file").await.unwrap();
        });
        assert_eq!(world.run_for(Duration::from_secs(1), life.as_mut()).is_none(), at != OpNum::RENEW);
        if at == OpNum::RENEW {
            world.pass(LEASE / 2);
        }
        world.restart();
        peer.release(&world);
        if at != OpNum::RENEW {
            world.run(life);
        }
        write(&world, &other, b"still open");
        assert_eq!(world.server().counts().opens, 1, "{at:?}");
    }
}

#[test]
fn an_expired_lease_is_replaced_and_files_are_opened_again_by_name() {
    let world = World::new();
    let (fs, peer) = world.mounted(Version::V40);
    let (kept, renamed, removed) =
        (open(&world, &fs, b"kept"), open(&world, &fs, b"old"), open(&world, &fs, b"removed"));
    world.run(fs.rename(b"old", b"new")).unwrap();
    write(&world, &renamed, b"text");
    peer.cut(&world, true);
    world.restart();
    // The grace period ends without the client: it may reclaim nothing.
    world.pass(LEASE * 3);
    let (other, _) = world.mounted(Version::V42);
    world.run(other.rename(b"removed", b"elsewhere")).unwrap();
    world.run(other.open(b"removed", &BOTH)).unwrap();
    peer.cut(&world, false);
    write(&world, &kept, b"again");
    assert_eq!(read(&world, &renamed), b"text");
    let error = world
        .run(async {
            removed.write_at(0, Bytes::from_static(b"text")).await?;
            removed.sync().await
        })
        .unwrap_err();
    assert_eq!(error.errno(), Errno::ESTALE, "its name is another file's");
    for file in [kept, renamed, removed] {
        world.run(file.close()).unwrap();
    }
}

/// Number of files of the tests of many files, and the compounds that they are spread over: 8 files each.
const MANY: usize = 100;
const COMPOUNDS: usize = MANY.div_ceil(8);

fn names() -> Vec<Vec<u8>> {
    (0..MANY).map(|number| format!("file {number}").into_bytes()).collect()
}

fn new_files(directory: FileHandle, names: &[Vec<u8>]) -> Vec<NewFile<'_>> {
    let set = SetAttributes {
        mtime: SetTime::To(Timestamp { seconds: 5, nanoseconds: 0 }),
        ..SetAttributes::default()
    };
    let new = |name| NewFile { directory, name, mode: 0o400, data: Bytes::copy_from_slice(name), set };
    names.iter().map(|name| new(name)).collect()
}

/// Checks that each file contains its name.
async fn check(client: &Client, directory: FileHandle, names: &[Vec<u8>]) {
    let file = |name| ReadFile { directory, name, handle: None, without_open: false, count: 4096 };
    let wanted: Vec<_> = names.iter().map(|name| file(name)).collect();
    for (name, whole) in names.iter().zip(client.read_many(&root(), &wanted).await) {
        let whole = whole.unwrap();
        assert_eq!((&whole.data[..], whole.is_whole, whole.attributes.mtime.seconds), (&name[..], true, 5));
    }
}

#[test]
fn many_files_take_compounds_and_not_requests_of_their_own() {
    let world = World::new();
    let (client, peer) = world.client(Version::V40);
    let (caller, names) = (root(), names());
    world.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        for outcome in client.write_many(&caller, &new_files(top, &names)).await {
            outcome.unwrap();
        }
        // Owners are kept, and need no second OPEN_CONFIRM.
        assert!(client.write_many(&caller, &new_files(top, &names)).await.iter().all(Result::is_ok));
        check(&client, top, &names).await;
        let found: Vec<_> = names.iter().map(|name| (top, &name[..])).collect();
        assert!(client.stat_many(&caller, &found).await.into_iter().all(|object| object.is_ok()));
        assert!(client.remove_many(&caller, &found, false).await.into_iter().all(|removed| removed.is_ok()));
    });
    assert_eq!(world.server().counts().opens, 0);
    let count = |op| peer.count(op);
    for op in [OpNum::OPEN, OpNum::WRITE, OpNum::CLOSE] {
        assert_eq!(count(op), 2 * COMPOUNDS, "{op:?}");
    }
    assert_eq!((count(OpNum::READ), count(OpNum::REMOVE)), (COMPOUNDS, COMPOUNDS));
    assert!(count(OpNum::OPEN_CONFIRM) <= COMPOUNDS, "{} OPEN_CONFIRMs", count(OpNum::OPEN_CONFIRM));
}

#[test]
fn many_files_are_written_although_replies_are_lost_or_the_server_restarts() {
    for at in [OpNum::OPEN, OpNum::OPEN_CONFIRM, OpNum::CLOSE] {
        for restarts in [false, true] {
            let world = World::new();
            let (client, peer) = world.client(Version::V40);
            let (caller, names) = (root(), names());
            let top = world.run(client.mount(&caller, &[b"export"])).unwrap().handle;
            let fate = if restarts { Fate::Hold } else { Fate::LoseReply };
            let is_first = Cell::new(true);
            peer.judge(move |ops| match ops.contains(&at) && is_first.replace(false) {
                true => fate,
                false => Fate::Serve,
            });
            let files = new_files(top, &names);
            let mut written = pin!(client.write_many(&caller, &files));
            if restarts {
                assert!(world.run_for(Duration::from_secs(1), written.as_mut()).is_none());
                world.restart();
                peer.release(&world);
            }
            assert!(world.run(written).into_iter().all(|outcome| outcome.is_ok()), "{at:?}");
            world.run(check(&client, top, &names));
            assert_eq!(world.server().counts().opens, 0, "{at:?}, {restarts}");
        }
    }
}

#[test]
fn among_many_files_a_failed_one_fails_alone() {
    let world = World::new();
    let (client, _) = world.client(Version::V40);
    let (caller, names) = (root(), names());
    world.run(async {
        let top = client.mount(&caller, &[b"export"]).await.unwrap().handle;
        let set = SetAttributes::with_mode(0o755);
        client.create_object(&caller, top, &names[10], &NewObject::Directory, &set).await.unwrap();
        let link = NewObject::Symlink(Bytes::from_static(b"elsewhere"));
        client.create_object(&caller, top, b"link", &link, &set).await.unwrap();
        for (at, outcome) in client.write_many(&caller, &new_files(top, &names)).await.into_iter().enumerate()
        {
            let expected = if at == 10 { Some(Errno::EISDIR) } else { None };
            assert_eq!(outcome.err().map(|error| error.errno()), expected, "{at}");
        }
        let file = |name| ReadFile { directory: top, name, handle: None, without_open: false, count: 9 };
        let outcomes = client.read_many(&caller, &[file(&names[10]), file(b"link"), file(&names[1])]).await;
        let errors: Vec<_> =
            outcomes.iter().map(|outcome| outcome.as_ref().err().map(OpError::errno)).collect();
        assert_eq!(errors, [Some(Errno::EISDIR), Some(Errno::ELOOP), None]);
    });
    assert_eq!(world.server().counts().opens, 0);
}

#[test]
fn files_that_a_dropped_call_has_opened_are_closed() {
    let world = World::new();
    let (client, peer) = world.client(Version::V40);
    let (caller, names) = (root(), names());
    let top = world.run(client.mount(&caller, &[b"export"])).unwrap().handle;
    peer.judge(|ops| if ops.contains(&OpNum::CLOSE) { Fate::Hold } else { Fate::Serve });
    {
        let files = new_files(top, &names);
        let written = pin!(client.write_many(&caller, &files));
        assert!(world.run_for(Duration::from_secs(1), written).is_none());
    }
    assert_eq!(world.server().counts().opens, MANY as u64);
    peer.release(&world);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.server().counts().opens, 0);
}

#[test]
fn a_file_is_opened_by_a_name_that_it_still_has() {
    let world = World::new();
    let (fs, _) = world.mounted(Version::V40);
    let file = open(&world, &fs, b"one");
    write(&world, &file, b"text");
    world.run(file.close()).unwrap();
    world.run(fs.link(b"one", b"two")).unwrap();
    world.run(fs.unlink(b"two")).unwrap();
    let root_directory = fs.mounted().root();
    let (inode, _) = world.run(root_directory.lookup(&root(), b"one")).unwrap();
    world.run(world.run(inode.open(&root(), OpenFlags::READ)).unwrap().release()).unwrap();
    if !crate::CACHES {
        // The kernel then looks up the new name first.
        return;
    }
    // As the kernel does after a rename: without another lookup.
    world.run(root_directory.rename(&root(), b"one", &root_directory, b"three")).unwrap();
    let file = world.run(inode.open(&root(), OpenFlags::READ)).unwrap();
    assert_eq!(world.run(file.read(0, 10)).unwrap().concat(), b"text");
    world.run(file.release()).unwrap();
}
