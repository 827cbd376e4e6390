//! Many files by their paths, without caches.

use bytes::Bytes;
use client::attributes::FileKind;
use client::config::Version;
use client::errno::Errno;
use client::fs::{NewPath, WholeFile};
use client::many::NewKind;
use client::results::NewObject;
use protocol::nfs4::types::OpNum;

use crate::world::World;

const FILES: usize = 120;

#[test]
fn files_of_two_directories_resolve_each_directory_once() {
    for (version, compounds) in [
        (Version::V40, FILES.div_ceil(8)),
        (Version::V41, FILES.div_ceil(8)),
        (Version::V42, FILES.div_ceil(8)),
    ] {
        let world = World::new();
        let (fs, peer) = world.mounted(version);
        let paths: Vec<String> = (0..FILES).map(|at| format!("a/b{}/file{at}", at % 2)).collect();
        let paths: Vec<&[u8]> = paths.iter().map(String::as_bytes).collect();
        let sent = || peer.compounds.borrow().len();
        world.run(async {
            for directory in [&b"a"[..], b"a/b0", b"a/b1"] {
                fs.mkdir(directory, 0o755).await.unwrap();
            }
            fs.symlink(b"file0", b"a/b0/link").await.unwrap();
            let file = |path| WholeFile { path, mode: 0o644, data: Bytes::copy_from_slice(path) };
            let files: Vec<_> = paths.iter().map(|path| file(path)).collect();
            for outcome in fs.write_many(&files).await {
                outcome.unwrap();
            }
            // One chain of LOOKUPs for each directory.
            let before = sent();
            for (path, data) in paths.iter().zip(fs.read_many(&paths, 4096).await) {
                assert_eq!(data.unwrap(), path);
            }
            assert_eq!(sent() - before, 2 + compounds, "{version:?}");
            let (before, opens) = (sent(), peer.count(OpNum::OPEN));
            for (path, data) in paths.iter().zip(fs.read_many_unopened(&paths, 4096).await) {
                assert_eq!(data.unwrap(), path);
            }
            assert_eq!(peer.count(OpNum::OPEN), opens, "{version:?}");
            assert_eq!(sent() - before, 2 + compounds, "{version:?}");
            let before = sent();
            assert!(fs.stat_many(&paths).await.iter().all(Result::is_ok));
            assert!(sent() - before <= 2 + compounds, "{version:?}");

            let mixed: [&[u8]; 5] = [b"a/b0/link", b"missing/x", b"a/b0/missing", b"a/b0/file2", b"/"];
            let errno = |outcome: &Result<Bytes, client::error::Error>| {
                outcome.as_ref().map(Bytes::len).map_err(client::error::Error::errno)
            };
            let outcomes: Vec<_> = fs.read_many(&mixed, 10).await.iter().map(errno).collect();
            let missing = Err(Errno::ENOENT);
            assert_eq!(outcomes, [Ok(10), missing, missing, Ok(10), Err(Errno::EBUSY)], "{version:?}");
            let short: Vec<_> = fs.read_many(&mixed[..4], 9).await.iter().map(errno).collect();
            let long = Err(Errno::EFBIG);
            assert_eq!(short, [long, missing, missing, long], "{version:?}");
            fs.write_many(&[file(b"a/b0/link")]).await.remove(0).unwrap();
            assert_eq!(fs.read_many(&[b"a/b0/file0"], 100).await.remove(0).unwrap(), &b"a/b0/link"[..]);

            let before = sent();
            assert!(fs.remove_many(&paths, false).await.iter().all(Result::is_ok));
            assert_eq!(sent() - before, 2 + compounds, "{version:?}");
            assert_eq!(fs.read_dir(b"a/b1", false).await.unwrap().len(), 0);
        });
        assert_eq!((world.server().counts().opens, peer.count(OpNum::REMOVE)), (0, compounds));
    }
}

#[test]
fn objects_are_created_many_in_a_request() {
    for version in [Version::V3, Version::V40, Version::V41, Version::V42] {
        let world = World::new();
        let (fs, peer) = world.mounted(version);
        let (file, directory) = (NewKind::File, NewKind::Object(NewObject::Directory));
        let names: Vec<String> = (0..FILES).map(|at| format!("a/{at}")).collect();
        let new = |path, kind| NewPath { path, kind, mode: 0o750 };
        world.run(async {
            fs.mkdir(b"a", 0o755).await.unwrap();
            let kind = |at: usize| if at.is_multiple_of(2) { file.clone() } else { directory.clone() };
            let all: Vec<_> =
                names.iter().enumerate().map(|(at, name)| new(name.as_bytes(), kind(at))).collect();
            let before = peer.compounds.borrow().len();
            let created = fs.create_many(&all).await;
            let sent = peer.compounds.borrow().len() - before;
            if version >= Version::V41 {
                assert_eq!(sent, 1 + FILES.div_ceil(8), "{version:?}");
            }
            for ((new, created), name) in all.iter().zip(created).zip(&names) {
                let (object, found) = (created.unwrap(), fs.lstat(name.as_bytes()).await.unwrap());
                assert_eq!((object.attributes.fileid, object.attributes.kind), (found.fileid, found.kind));
                assert_eq!((found.mode, found.kind == FileKind::Regular), (0o750, new.kind == file));
            }
            // Names that exist are not changed, whatever has them.
            fs.write_many(&[WholeFile { path: b"a/0", mode: 0, data: Bytes::from_static(b"kept") }]).await;
            let link = NewKind::Object(NewObject::Symlink(Bytes::from_static(b"0")));
            let fifo = NewKind::Object(NewObject::Fifo);
            let mixed = [
                new(&b"a/0"[..], file.clone()),
                new(b"a/link", link),
                new(b"a/1", file.clone()),
                new(b"missing/x", file.clone()),
                new(b"a/fifo", fifo),
                new(b"a/0", directory.clone()),
                new(b"/", directory.clone()),
            ];
            let errno =
                |created: Result<_, client::error::Error>| created.map(|_| ()).map_err(|error| error.errno());
            let outcomes: Vec<_> = fs.create_many(&mixed).await.into_iter().map(errno).collect();
            let exists = Err(Errno::EEXIST);
            let expected = [exists, Ok(()), exists, Err(Errno::ENOENT), Ok(()), exists, Err(Errno::EBUSY)];
            assert_eq!(outcomes, expected, "{version:?}");
            assert_eq!(fs.read_many(&[b"a/link"], 10).await.remove(0).unwrap(), "kept");
            assert_eq!(fs.lstat(b"a/fifo").await.unwrap().kind, FileKind::Fifo);
        });
        assert_eq!(world.server().counts().opens, 0, "{version:?}");
    }
}
