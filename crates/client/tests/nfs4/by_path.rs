//! Many files by their paths, without caches.

use bytes::Bytes;
use client::config::Version;
use client::errno::Errno;
use client::fs::WholeFile;
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
