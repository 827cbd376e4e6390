//! A state directory on a disk that becomes full.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use protocol::nfs4::types::{Handle, Status};

use crate::client::{Client, Client4};
use crate::server::{Server, TestDir, with};
use crate::status::status;

/// Space of the state directory: enough for the reply log and the state log's files, and little more.
const DISK_BYTES: u64 = (16 << 20) + (1400 << 10);
/// More clients than can find room, each with a name of 1 KB.
const CLIENTS_MAX: usize = 2000;

/// A file system in memory, mounted at the state directory; unmounted when dropped.
struct Disk {
    top: PathBuf,
}

impl Disk {
    /// `None`, and the reason on standard output, if that is impossible here.
    fn new(dir: &TestDir) -> Option<Self> {
        let top = dir.path("state");
        std::fs::create_dir(&top).expect("directory");
        let options = format!("size={DISK_BYTES},mode=700");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "enfys-test"]).arg(&top).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            println!("skipped: needs root and mount");
            return None;
        }
        Some(Self { top })
    }

    fn filler(&self) -> PathBuf {
        self.top.join("filler")
    }

    /// Uses up all space.
    fn fill(&self) {
        let mut file = File::options().append(true).create(true).open(self.filler()).expect("a file");
        while file.write(&[7; 4096]).is_ok_and(|written| written > 0) {}
    }

    /// Frees it again.
    fn make_space(&self) {
        std::fs::remove_file(self.filler()).expect("it was full");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.top).output();
    }
}

fn name(number: usize) -> String {
    format!("{number:01000}")
}

/// Creates a client that has `file` open.
fn holder(server: &Server, name: &str) -> Result<Handle, Status> {
    let mut client = Client4::named(server.address, name);
    client.complete();
    client.open_often("export", "file", 1)
}

fn start(dir: &TestDir, export: &Path) -> Server {
    Server::start(dir, &with(dir, &[export]))
}

#[track_caller]
fn reclaims(server: &Server, name: &str, file: Handle) {
    let mut client = Client4::named(server.address, name);
    assert_eq!(client.reclaim(file, 1), Ok(()), "{name}");
    client.complete();
}

#[test]
fn on_a_full_disk_records_survive_kills_and_new_clients_get_delay_when_the_reserve_is_used_up() {
    let dir = TestDir::new();
    let Some(disk) = Disk::new(&dir) else { return };
    let export = dir.directory("export");
    dir.file("export/file", "content");
    std::fs::set_permissions(export.join("file"), crate::server::mode(0o666)).unwrap();
    let server = start(&dir, &export);
    let file = holder(&server, "before").unwrap();
    disk.fill();
    // A client that arrives while the disk is full uses the reserve.
    holder(&server, "behind").unwrap();
    server.kill();

    let server = start(&dir, &export);
    assert_eq!(status(&dir)["grace"]["clients_waited_for"], 2);
    reclaims(&server, "before", file);
    reclaims(&server, "behind", file);
    let put_off = (0..CLIENTS_MAX).find_map(|number| Some((number, holder(&server, &name(number)).err()?)));
    let (known, reported) = put_off.expect("the reserve has an end");
    assert_eq!(reported, Status::DELAY);
    assert!(known > 10, "{known} clients found room");
    server.await_log(0, "the reserve is used up");
    assert_eq!(status(&dir)["records"]["room"], false);
    assert_eq!(status(&dir)["records"]["written"], true);
    // Clients with a record continue, and version 3 is not affected.
    let mut client = Client4::named(server.address, &name(0));
    client.open("export", "file").unwrap();
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").unwrap();
    client.create(root, "by version 3").unwrap();
    server.kill();

    let server = start(&dir, &export);
    assert_eq!(status(&dir)["grace"]["clients_waited_for"], known + 2);
    reclaims(&server, "before", file);
    (1..known).for_each(|number| reclaims(&server, &name(number), file));
    assert!(crate::status::ask(&dir, &["grace", "end"]).status.success());
    // The two that did not return have made room for others, but not for more.
    assert!((known..CLIENTS_MAX).any(|number| holder(&server, &name(number)) == Err(Status::DELAY)));
    let from = server.log().len();
    disk.make_space();
    server.await_log(from, "there is space again");
    holder(&server, "at last").unwrap();
    server.kill();

    let server = start(&dir, &export);
    reclaims(&server, "at last", file);
    server.stop();
}
