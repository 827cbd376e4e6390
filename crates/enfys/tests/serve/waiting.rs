//! A request that waits for the disk does not block other connections of the same core.

use std::os::unix::fs::FileExt;
use std::path::Path;

use protocol::nfs3::{FileHandle, NfsStat, StableHow};

use crate::client::Client;
use crate::disk::Disk;
use crate::server::{Server, TestDir, mode, with};

/// Content of a block, which the disk has once.
const MARKED: &[u8] = b"the block that cannot be read for a while, or never";
/// Longer than the read-ahead of a small READ, and a READ that is large enough to be spliced.
const LARGE_BYTES: u64 = 4 << 20;
const LARGE_READ: u32 = 256 << 10;

fn fill(top: &Path) {
    let make = |name: &str| {
        std::fs::create_dir(top.join(name)).expect("directory");
        std::fs::set_permissions(top.join(name), mode(0o777)).expect("permissions");
    };
    std::fs::write(top.join("warm"), "warm").expect("file");
    make("cold");
    std::fs::write(top.join("cold/file"), "cold").expect("file");
    let large = std::fs::File::create(top.join("large")).expect("file");
    std::fs::set_permissions(top.join("large"), mode(0o666)).expect("permissions");
    large.write_all_at(&vec![b'.'; LARGE_BYTES as usize], 0).expect("content");
    large.write_all_at(MARKED, LARGE_BYTES / 2).expect("content");
}

/// A server with one core on a disk without cached data, and its client.
struct Scene {
    root: FileHandle,
    client: Client,
    server: Server,
    disk: Disk,
    _dir: TestDir,
}

impl Scene {
    fn new() -> Option<Self> {
        let dir = TestDir::new();
        let disk = Disk::new(&dir, fill)?;
        let mut arguments = with(&dir, &[disk.top()]);
        arguments.extend(["--cores", "1"].map(String::from));
        let server = Server::start(&dir, &arguments);
        let mut client = Client::connect(server.address);
        let root = client.mount("/export").expect("mount");
        let warm = client.lookup(root, "warm").expect("there");
        assert_eq!(client.read(warm).as_deref(), Ok(&b"warm"[..]));
        Some(Self { root, client, server, disk, _dir: dir })
    }

    /// Runs `slow` over another connection while the disk is stopped, and checks that this client continues.
    fn others_continue<T: Send>(&mut self, slow: impl FnOnce(&mut Client) -> T + Send) -> T {
        let mut client = Client::connect(self.server.address);
        std::thread::scope(|scope| {
            let held = self.disk.hold();
            let waiting = scope.spawn(move || slow(&mut client));
            self.disk.await_read();
            for _ in 0..10 {
                let warm = self.client.lookup(self.root, "warm").expect("there");
                assert_eq!(self.client.read(warm).as_deref(), Ok(&b"warm"[..]));
            }
            assert!(self.disk.has_held() && !waiting.is_finished(), "the disk has not answered");
            drop(held);
            waiting.join().expect("an answer")
        })
    }
}

#[test]
fn a_lookup_that_waits_for_the_disk_blocks_no_other_connection() {
    let Some(mut scene) = Scene::new() else { return };
    let root = scene.root;
    let found = scene.others_continue(|client| {
        let cold = client.lookup(root, "cold")?;
        client.lookup(cold, "file")
    });
    assert_eq!(scene.client.read(found.expect("found")).as_deref(), Ok(&b"cold"[..]));
}

#[test]
fn a_create_in_an_uncached_directory_blocks_no_other_connection() {
    let Some(mut scene) = Scene::new() else { return };
    let cold = scene.client.lookup(scene.root, "cold").expect("there");
    let made = scene.others_continue(|client| client.create(cold, "new"));
    scene.client.write(made.expect("made"), b"new", StableHow::FileSync).expect("written");
    assert_eq!(std::fs::read(scene.disk.top().join("cold/new")).expect("there"), b"new");
}

#[test]
fn a_write_to_part_of_an_uncached_page_blocks_no_other_connection() {
    let Some(mut scene) = Scene::new() else { return };
    let large = scene.client.lookup(scene.root, "large").expect("there");
    let at = LARGE_BYTES / 2 + 4;
    let file = large;
    let written = scene.others_continue(|client| client.write_at(file, at, b"BLOCK", StableHow::Unstable));
    written.expect("written");
    let content = scene.client.read_at(large, LARGE_BYTES / 2, 20).expect("read");
    assert_eq!(content, b"the BLOCK that canno");
}

#[test]
fn a_read_that_waits_for_the_disk_blocks_no_other_connection_and_a_bad_sector_is_an_error() {
    let Some(mut scene) = Scene::new() else { return };
    let large = scene.client.lookup(scene.root, "large").expect("there");
    let file = large;
    let read = scene.others_continue(|client| client.read_at(file, 0, LARGE_READ));
    assert!(read.is_ok_and(|data| !data.is_empty() && data.iter().all(|byte| *byte == b'.')));

    scene.disk.spoil(MARKED);
    // RFC 1813 §2.6: "NFS3ERR_IO: A hard error (for example, a disk error) occurred while processing the requested operation."
    // All other blocks can be read over the same connection, by sequential READs.
    let (mut offset, mut failures) = (0, 0);
    while offset < LARGE_BYTES {
        match scene.client.read_at(large, offset, LARGE_READ) {
            Ok(data) => offset += data.len() as u64,
            Err(NfsStat::IO) => (offset, failures) = (offset + 4096, failures + 1),
            Err(other) => panic!("{other:?}"),
        }
        assert!(failures < 64, "only the bad sector");
    }
    assert!(failures > 0);
    // The same after the other blocks are cached.
    assert_eq!(scene.client.read_at(large, LARGE_BYTES / 2, LARGE_READ), Err(NfsStat::IO));
    assert!(scene.client.read_at(large, LARGE_BYTES / 2 + 65_536, LARGE_READ).is_ok());
}
