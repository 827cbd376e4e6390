//! Memory of a mount's process whose programs read, write and list more than its budget.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use client::fs::{NewPath, WholeFile};
use client::many::NewKind;
use client::results::NewObject;
use net::blocking::{Connection, FileSystem};

use crate::support::{ENFYS, can_mount, is_full_load, is_mounted, run};

const MIB: u64 = 1 << 20;
/// Files of a directory.
const FILES_OF_DIRECTORY: usize = 1000;
/// Objects that are created together.
const CREATED: usize = 1000;

/// The work of the programs on a mount.
struct Load {
    /// The budget in MiB.
    budget_mib: u64,
    /// Programs that each read a file of a MiB.
    readers: usize,
    /// Files that are listed with their attributes.
    files: usize,
    /// Programs that each write and fsync a file.
    writers: usize,
    /// The size of each such file in bytes.
    written: u64,
}

/// A server of a file system in memory.
struct MemoryServer {
    child: Child,
    port: u16,
}

impl MemoryServer {
    fn start(binary: &str) -> Self {
        let mut child = Command::new(binary)
            .args(["serve", "--memory=8GiB", "--squash", "none", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let line =
            lines.by_ref().map_while(Result::ok).find(|line| line.contains(",port=")).expect("it starts");
        let port = line.split(",port=").nth(1).expect("a port");
        let port = port.split(|byte: char| !byte.is_ascii_digit()).next().expect("digits");
        let port = port.parse().expect("a port");
        std::thread::spawn(move || lines.count());
        Self { child, port }
    }

    fn url(&self) -> String {
        format!("nfs://127.0.0.1:{}/export?version=4.2", self.port)
    }
}

impl Drop for MemoryServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates the files that the programs read and list.
fn make(fs: &FileSystem, load: &Load) {
    let directories = ["read".to_owned(), "written".to_owned(), "listed".to_owned()];
    let listed = (0..load.files.div_ceil(FILES_OF_DIRECTORY)).map(|number| format!("listed/{number}"));
    create(fs, &directories, &NewKind::Object(NewObject::Directory));
    create(fs, &listed.collect::<Vec<_>>(), &NewKind::Object(NewObject::Directory));
    for first in (0..load.files).step_by(CREATED) {
        let last = load.files.min(first + CREATED);
        let names = (first..last).map(|number| format!("listed/{}/{number}", number / FILES_OF_DIRECTORY));
        create(fs, &names.collect::<Vec<_>>(), &NewKind::File);
    }
    let names: Vec<String> = (0..load.readers).map(|number| format!("read/{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let data = Bytes::from(vec![number as u8; MIB as usize]);
        let file = WholeFile { path: name.as_bytes(), mode: 0o644, data };
        fs.write_many(&[file]).remove(0).expect("a file");
    }
}

fn create(fs: &FileSystem, names: &[String], kind: &NewKind) {
    let new = names.iter().map(|name| NewPath { path: name.as_bytes(), kind: kind.clone(), mode: 0o755 });
    for created in fs.create_many(&new.collect::<Vec<_>>()) {
        created.expect("a new object");
    }
}

/// Runs all programs at the same time.
fn run_programs(mount: &Path, load: &Load) {
    std::thread::scope(|scope| {
        for number in 0..load.readers {
            scope.spawn(move || {
                let mut file = File::open(mount.join(format!("read/{number}"))).expect("a file");
                let (mut buffer, mut size) = (vec![0; 128 << 10], 0);
                loop {
                    match file.read(&mut buffer).expect("data") {
                        0 => break,
                        count => size += count as u64,
                    }
                    assert!(buffer.iter().all(|byte| *byte == number as u8));
                }
                assert_eq!(size, MIB);
            });
        }
        for number in 0..load.writers {
            scope.spawn(move || {
                let mut file = File::create(mount.join(format!("written/{number}"))).expect("a file");
                let part = vec![number as u8; 64 << 10];
                for _ in 0..load.written / part.len() as u64 {
                    file.write_all(&part).expect("room");
                }
                file.sync_all().expect("stable data");
            });
        }
        scope.spawn(|| {
            let mut found = 0;
            for directory in std::fs::read_dir(mount.join("listed")).expect("a directory") {
                for entry in std::fs::read_dir(directory.expect("an entry").path()).expect("a directory") {
                    found += usize::from(entry.expect("an entry").metadata().expect("attributes").is_file());
                }
            }
            assert_eq!(found, load.files);
        });
    });
}

/// Returns a value of /proc/PID/status in bytes.
fn status(pid: u32, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the mount runs");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim_matches([':', '\t', ' ', 'k', 'B']).parse::<u64>().expect("a number") * 1024
}

/// Checks that resident memory never exceeds 1.25 × budget + 64 MiB.
fn check(binary: &str, load: &Load) {
    if !can_mount() {
        return;
    }
    let server = MemoryServer::start(binary);
    let (connection, fs) = Connection::to(&server.url().parse().expect("a URL")).expect("the server");
    make(&fs, load);
    connection.close().expect("the server");
    let top = tempfile::tempdir().expect("a directory");
    let budget = format!("memory={}", load.budget_mib);
    let mut mount = Command::new(binary)
        .args(["mount", "--foreground", "-o", &budget, &server.url()])
        .arg(top.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary");
    let mut line = String::new();
    BufReader::new(mount.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    assert!(line.starts_with("mounted "), "{line}");
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run_programs(top.path(), load)));
    let (peak, anonymous) = (status(mount.id(), "VmHWM"), status(mount.id(), "RssAnon"));
    if is_mounted(top.path()) {
        run(&["umount", "--force", top.path().to_str().expect("text")]);
    }
    mount.wait().expect("a child");
    assert!(done.is_ok(), "a program failed");
    let most = (load.budget_mib * MIB) / 4 * 5 + 64 * MIB;
    println!("at most {} MiB resident, {} MiB anonymous at the end", peak / MIB, anonymous / MIB);
    assert!(peak <= most, "{} MiB resident, at most {} MiB are promised", peak / MIB, most / MIB);
}

/// The load of one run: the full one with `ENFYS_LOAD=full`, which takes some minutes and some GiB for the server.
///
/// Each file that the kernel remembers takes more than a KiB of the mount's process: all files of a run need more than its bound.
fn load() -> Load {
    if is_full_load() {
        return Load { budget_mib: 256, readers: 1000, files: 1_000_000, writers: 64, written: 16 * MIB };
    }
    Load { budget_mib: 16, readers: 100, files: 80_000, writers: 8, written: 8 * MIB }
}

/// `ENFYS_BINARY` names another build, as a full load asks for a release build.
#[test]
fn a_mount_keeps_its_memory_budget_under_load() {
    let binary = std::env::var("ENFYS_BINARY").unwrap_or_else(|_| ENFYS.to_owned());
    check(&binary, &load());
}
