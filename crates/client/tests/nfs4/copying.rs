//! Copies of trees between directories of a server, by two clients.

use std::rc::Rc;

use bytes::Bytes;
use client::attributes::FileKind;
use client::config::Version;
use client::copy::{Copied, CopyError, CopyOptions, Refusal, copy_tree};
use client::errno::Errno;
use client::fs::{FileSystem, NewPath, WholeFile};
use client::many::NewKind;
use client::results::NewObject;
use client::tree::ServerTree;

use crate::world::{Peer, World};

const VERSIONS: [Version; 4] = [Version::V3, Version::V40, Version::V41, Version::V42];
/// Directories below each other.
const DEPTH: usize = 4;

/// Creates `from` with directories below each other, each with this many files of 100 bytes, and an empty `to`.
async fn make(fs: &FileSystem, files: usize) {
    let directory = |path| NewPath { path, kind: NewKind::Object(NewObject::Directory), mode: 0o755 };
    for outcome in fs.create_many(&[directory(b"from"), directory(b"to")]).await {
        outcome.unwrap();
    }
    let mut path = b"from".to_vec();
    for _ in 0..DEPTH {
        let paths: Vec<Vec<u8>> =
            (0..files).map(|at| [&path[..], format!("/file{at}").as_bytes()].concat()).collect();
        let new = paths.iter().map(|path| WholeFile { path, mode: 0o644, data: content(path) });
        assert!(fs.write_many(&new.collect::<Vec<_>>()).await.iter().all(Result::is_ok));
        path.extend_from_slice(b"/dir");
        fs.mkdir(&path, 0o755).await.unwrap();
    }
}

/// Returns 100 bytes that differ between paths.
fn content(path: &[u8]) -> Bytes {
    path.iter().copied().cycle().take(100).collect()
}

fn requests(peers: &[Rc<Peer>]) -> usize {
    peers.iter().map(|peer| peer.compounds.borrow().len() + peer.calls.borrow().len()).sum()
}

/// Copies a tree with this many files in each directory. Returns the round trips and the requests.
fn copy(version: Version, files: usize) -> (usize, usize) {
    let world = World::new();
    let ((one, reading), (two, writing)) = (world.mounted(version), world.mounted(version));
    world.run(make(&one, files));
    let (from, to) = (world.run(ServerTree::open(&one, b"from")), world.run(ServerTree::open(&two, b"to")));
    let (from, to, peers) = (from.unwrap(), to.unwrap(), [reading, writing]);
    let before = requests(&peers);
    let copy = copy_tree(&from, &to, CopyOptions::default());
    let (copied, round_trips) = world.count_round_trips(&peers, copy);
    let sent = requests(&peers) - before;
    let failed: Vec<_> = copied.iter().filter_map(|copied| copied.outcome.as_ref().err()).collect();
    assert!(failed.is_empty(), "{version:?}: {failed:?}");
    assert_eq!(copied.len(), 1 + DEPTH * (files + 1), "an outcome for each object and the root");
    world.run(async {
        let mut path = b"to".to_vec();
        for _ in 0..DEPTH {
            let entries = two.read_dir(&path, false).await.unwrap();
            assert_eq!(entries.len(), files + 1);
            for entry in entries.iter().filter(|entry| entry.name != "dir") {
                let path = [&path[..], b"/", &entry.name].concat();
                let expected = content(&[b"from", &path[2..]].concat());
                assert_eq!(two.read_many(&[&path], 1000).await.remove(0).unwrap(), expected);
            }
            path.extend_from_slice(b"/dir");
        }
        assert!(two.read_dir(&path, false).await.unwrap().is_empty());
    });
    (round_trips, sent)
}

/// A level takes CREATE and READDIR, its files an OPEN with READ and an OPEN with WRITE. Version 4.0 writes files in three steps,
/// version 3 in two, and list pages end with a reply of their own.
#[test]
fn round_trips_depend_on_the_depth_and_not_on_the_files() {
    for version in VERSIONS {
        let (few, many) = (copy(version, 3), copy(version, 30));
        assert_eq!(few.0, many.0, "{version:?}");
        assert!(many.0 <= 4 + 3 * (DEPTH + 1), "{version:?}: {} round trips", many.0);
        let files = DEPTH * 30;
        let most = match version {
            // LOOKUPs are not needed: the listing has handles. READ, CREATE and WRITE of each file.
            Version::V3 => 3 * files,
            // A READ; OPEN, OPEN_CONFIRM and WRITE with CLOSE: eight or more share a compound.
            Version::V40 => 4 * files.div_ceil(8) + 4 * DEPTH,
            _ => 2 * files.div_ceil(8) + 2 * DEPTH,
        };
        let fixed = 6 + 5 * (DEPTH + 1);
        assert!(many.1 <= fixed + most, "{version:?}: {} requests", many.1);
    }
}

#[test]
fn the_failure_of_an_object_affects_no_other() {
    for version in VERSIONS {
        let world = World::new();
        let (fs, _) = world.mounted(version);
        world.run(make(&fs, 3));
        world.run(async {
            // A file in the place of a directory, and directories in the place of files.
            fs.mkdir(b"to/file1", 0o755).await.unwrap();
            fs.write_many(&[WholeFile { path: b"to/dir", mode: 0o644, data: Bytes::new() }])
                .await
                .remove(0)
                .unwrap();
            fs.symlink(b"../from/file0", b"to/file2").await.unwrap();
        });
        let (from, to) = (world.run(ServerTree::open(&fs, b"from")), world.run(ServerTree::open(&fs, b"to")));
        let mut copied = world.run(copy_tree(&from.unwrap(), &to.unwrap(), CopyOptions::default()));
        copied.sort_by(|one, other| one.target.cmp(&other.target));
        let outcome = |copied: &Copied<ServerTree, ServerTree>| match &copied.outcome {
            Ok(()) => Ok(()),
            Err(CopyError::Target(error)) => Err(error.errno()),
            Err(other) => panic!("{version:?}: {other}"),
        };
        let outcomes: Vec<_> =
            copied.iter().map(|copied| (copied.target.as_bytes(), outcome(copied))).collect();
        let expected: [(&[u8], _); 5] = [
            (b"", Ok(())),
            (b"dir", Err(Errno::EEXIST)),
            (b"file0", Ok(())),
            (b"file1", Err(Errno::EISDIR)),
            (b"file2", Ok(())),
        ];
        assert_eq!(outcomes, expected, "{version:?}");
        world.run(async {
            assert_eq!(fs.lstat(b"to/file2").await.unwrap().kind, FileKind::Regular, "the link was replaced");
            assert_eq!(fs.read_many(&[b"from/file0"], 1000).await.remove(0).unwrap(), content(b"from/file0"));
        });
    }
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let world = World::new();
    let (fs, _) = world.mounted(Version::V42);
    world.run(make(&fs, 3));
    let (from, to) =
        (world.run(ServerTree::open(&fs, b"from")), world.run(ServerTree::open(&fs, b"from/dir")));
    let copied = world.run(copy_tree(&from.unwrap(), &to.unwrap(), CopyOptions::default()));
    let refused: Vec<_> = copied
        .iter()
        .filter_map(|copied| Some((copied.source.as_ref()?.as_bytes(), copied.outcome.as_ref().err()?)))
        .collect();
    assert_eq!(refused, [(&b"dir"[..], &CopyError::Refused(Refusal::IntoItself))]);
    // The files of the directory were replaced, and nothing below it was copied.
    let replaced = world.run(fs.read_many(&[b"from/dir/file0"], 1000)).remove(0).unwrap();
    assert_eq!(replaced, content(b"from/file0"));
    assert_eq!(world.run(fs.read_dir(b"from/dir", false)).unwrap().len(), 4);
}
