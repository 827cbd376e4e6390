//! The sandbox of a running server, as the kernel shows it, and that the server works in it.

use std::path::Path;
use std::process::Command;

use protocol::nfs3::{NfsStat, StableHow};

use crate::client::Client;
use crate::server::{ENFYS, Server, TestDir, mode, with};

/// CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SETGID, SETUID, NET_BIND_SERVICE, MKNOD by their numbers in
/// linux/capability.h: the capabilities that acting as callers needs (SEMANTICS.md).
const TO_SERVE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 27;

/// Returns a field of a `status` file in /proc.
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}")).trim().to_owned()
}

fn set(status: &str, name: &str) -> u64 {
    u64::from_str_radix(&field(status, name), 16).expect("a set of capabilities")
}

/// Returns the `status` file of each thread of the server.
fn threads(server: &Server) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).expect("threads");
    tasks
        .map(|task| std::fs::read_to_string(task.expect("a thread").path().join("status")).unwrap())
        .collect()
}

/// Returns the capabilities that the server would inherit from this process.
fn own() -> u64 {
    set(&std::fs::read_to_string("/proc/self/status").expect("status"), "CapEff")
}

/// Creates, writes, renames and reads a file of `export` as a client.
#[track_caller]
fn works(server: &Server, export: &Path) {
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").expect("mount");
    let file = client.create(root, "file").expect("create");
    client.write(file, b"content", StableHow::FileSync).expect("write");
    assert_eq!(client.read(file).as_deref(), Ok(&b"content"[..]));
    assert_eq!(std::fs::read(export.join("file")).expect("there"), b"content");
}

#[test]
fn every_thread_has_dropped_unneeded_privileges() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let server = Server::start(&dir, &with(&dir, &[&export]));
    works(&server, &export);
    let threads = threads(&server);
    assert!(threads.len() > 2, "the main thread, cores, and those of exports");
    for status in &threads {
        assert_eq!(set(status, "CapEff") & !TO_SERVE, 0, "{status}");
        assert_eq!(set(status, "CapPrm"), own() & TO_SERVE, "{status}");
        assert_eq!((set(status, "CapInh"), set(status, "CapAmb")), (0, 0), "{status}");
        if rustix::process::geteuid().is_root() {
            assert_eq!(set(status, "CapBnd") & !TO_SERVE, 0, "{status}");
        }
        assert_eq!(field(status, "NoNewPrivs"), "1");
        assert_eq!(field(status, "Seccomp"), "2", "filtered");
    }
    let log = server.log();
    let output: Vec<_> = log.lines().filter(|line| line.contains("no_new_privs=")).collect();
    assert_eq!(output.len(), 1, "{log}");
    assert!(output[0].contains("no_new_privs=\"on\" seccomp=\"on\""), "{log}");
}

/// The content that is written repeatedly.
const BLOCK: &[u8] = &[b'x'; 64 << 10];

/// An ext4 file system with half of its blocks reserved for root.
struct Reserved<'p>(&'p TestDir);

impl<'p> Reserved<'p> {
    fn mount(dir: &'p TestDir) -> Option<Self> {
        let image = std::fs::File::create(dir.path("image")).expect("a file");
        image.set_len(16 << 20).expect("a sparse file");
        dir.directory("export");
        let run = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).arg(dir.path("image"));
            command
        };
        let made = run("mkfs.ext4", &["-q", "-m", "50", "-O", "^has_journal"]).status();
        let mounted = run("mount", &["-o", "loop"]).arg(dir.path("export")).status();
        if ![made, mounted].into_iter().all(|status| status.is_ok_and(|status| status.success())) {
            println!("skipped: cannot mount an ext4 here");
            return None;
        }
        std::fs::set_permissions(dir.path("export"), mode(0o777)).expect("permissions");
        Some(Self(dir))
    }

    /// Returns the free blocks, and those that users other than root may use.
    fn free(&self) -> (u64, u64) {
        let space = rustix::fs::statvfs(self.0.path("export")).expect("space");
        (space.f_bfree, space.f_bavail)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path("export")).status();
    }
}

// CAP_SYS_RESOURCE, which setfsuid(2) leaves to a thread, overrides reserves and quotas.
#[test]
fn callers_cannot_use_blocks_reserved_for_root() {
    let dir = TestDir::new();
    let Some(disk) = Reserved::mount(&dir) else { return };
    let export = dir.path("export");
    let server = Server::start(&dir, &with(&dir, &[&export]));
    let mut client = Client::connect(server.address);
    let root = client.mount("/export").expect("mount");
    let file = client.create(root, "file").expect("create");
    let (free, available) = disk.free();
    let reserved = free - available;
    let mut offset = 0;
    let refused = loop {
        match client.write_at(file, offset, BLOCK, StableHow::FileSync) {
            Ok(_) => offset += BLOCK.len() as u64,
            Err(status) => break status,
        }
        assert!(offset < 16 << 20, "more than fits");
    };
    assert_eq!(refused, NfsStat::NOSPC);
    assert!(disk.free().0 >= reserved, "of {reserved} blocks {:?} are left", disk.free());
    server.stop();
}

#[test]
fn without_a_sandbox_all_privileges_are_kept_and_logged() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let server = Server::start(&dir, &with(&dir, &[&export, Path::new("--no-sandbox")]));
    for status in threads(&server) {
        assert_eq!(set(&status, "CapPrm"), own());
        assert_eq!((field(&status, "NoNewPrivs"), field(&status, "Seccomp")), ("0".into(), "0".into()));
    }
    assert!(server.log().contains("no sandbox (--no-sandbox or `sandbox = false`)"), "{}", server.log());
}

// getent(1) runs in the sandbox.
#[test]
fn name_services_work_in_the_sandbox() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let config = dir.file(
        "enfys.toml",
        &format!("id-domain = 'example.org'\n[[export]]\npath = '{}'\n", export.display()),
    );
    let server = Server::start(&dir, &with(&dir, &["--config".as_ref(), &config]));
    let log = server.log();
    let (before, after) = log.split_once("no_new_privs=\"on\"").expect("a sandbox");
    assert!(!before.contains("users and") && after.contains("users and"), "{log}");
    assert!(after.contains("exports may be reloaded"), "{log}");
}

#[test]
fn a_server_that_opens_no_file_by_handle_uses_landlock() {
    let dir = TestDir::new();
    let export = dir.directory("export");
    let mut command = Command::new(ENFYS);
    if rustix::process::geteuid().is_root() {
        // As for root in a container.
        command = Command::new("setpriv");
        let lost = "-dac_read_search";
        command.args(["--bounding-set", lost, "--inh-caps", lost, ENFYS]);
    }
    let server = Server::spawn(&dir, {
        command.args(with(&dir, &[&export]));
        command
    });
    works(&server, &export);
    let log = server.log();
    if log.contains("landlock=\"off: ") && !log.contains("open_by_handle_at") {
        println!("skipped: this kernel has no Landlock: {log}");
        return;
    }
    assert!(log.contains("landlock=\"on\""), "{log}");
    assert!(server.reload().contains("reloaded: serving"));
    // The access rights belong to the directory of the start.
    std::fs::rename(&export, dir.path("moved")).unwrap();
    dir.directory("export");
    let from = server.log().len();
    server.signal(rustix::process::Signal::HUP);
    server.await_log(from, "reload failed");
    assert!(server.log()[from..].contains("Permission denied"), "{}", server.log());
    server.stop();
}
