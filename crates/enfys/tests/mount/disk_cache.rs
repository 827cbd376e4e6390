//! The disk cache of a mount.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::stats::{count, stats};
use crate::support::{Mounted, Server, VERSIONS, await_that, can_mount, foreground_with, run, sh};

/// A cache's directory, which the first mount creates.
struct Cache {
    top: TempDir,
    path: PathBuf,
}

impl Cache {
    fn new() -> Self {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = top.path().join("cache");
        Self { top, path }
    }

    /// Waits until a file of this length is stored: umount(8) returns before the process of the mount has written its last blocks.
    #[track_caller]
    fn await_stored(&self, bytes: usize) {
        let blocks = bytes.div_ceil(64 << 10).to_string();
        await_that("all blocks are stored", || {
            sh(&self.path, "find blocks -type f | wc -l").trim() == blocks
        });
    }

    /// Mounts, and reads the file `f`, until no block of it comes from the server: a mount does not store blocks while too many others
    /// wait for the disk.
    #[track_caller]
    fn await_mount_without_reads(&self, server: &Server, version: &str) -> Mounted {
        const MOUNTS_MAX: u32 = 20;
        for _ in 0..MOUNTS_MAX {
            let mounted = self.mount(server, version);
            compare(&mounted, server, "f");
            if reads(&mounted) == 0 {
                return mounted;
            }
            mounted.end();
        }
        panic!("{version}: blocks come from the server after {MOUNTS_MAX} mounts");
    }

    fn mount(&self, server: &Server, version: &str) -> Mounted {
        let path = self.path.to_str().expect("text");
        Mounted::new(server, version, &["--cache", path, "--cache-size", "64MiB"])
    }
}

/// Makes a file of the server.
fn make(server: &Server, name: &str, bytes: usize) {
    sh(&server.export(), &format!("head -c {bytes} /dev/urandom > {name}"));
}

/// Asserts that a file of the mount has the server's content.
#[track_caller]
fn compare(mounted: &Mounted, server: &Server, name: &str) {
    mounted.sh(&format!("cmp {name} {}", server.export().join(name).display()));
}

/// Returns a counter of the disk cache.
fn of_cache(directory: &Path, counter: &str) -> u64 {
    stats(directory)["disk_cache"][counter].as_u64().expect("a disk cache")
}

fn reads(mounted: &Mounted) -> u64 {
    count(&stats(&mounted.path), "READ", "requests")
}

#[test]
fn the_next_mount_reads_from_the_disk_until_the_file_changes() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let (server, cache) = (Server::start(), Cache::new());
        make(&server, "f", 3_000_000);
        let mounted = cache.mount(&server, version);
        compare(&mounted, &server, "f");
        assert!(reads(&mounted) > 0);
        mounted.end();

        let mounted = cache.await_mount_without_reads(&server, version);
        assert_eq!(of_cache(&mounted.path, "hit_bytes"), 3_000_000);
        let other = Mounted::new(&server, version, &[]);
        other.sh("head -c 3000000 /dev/urandom > f");
        compare(&mounted, &server, "f");
        assert!(reads(&mounted) > 0);
        mounted.end();

        let mounted = cache.await_mount_without_reads(&server, version);
        assert_eq!(of_cache(&mounted.path, "damaged"), 0, "{version}");
        mounted.end();
    }
}

#[test]
fn damaged_blocks_are_counted_and_read_from_the_server() {
    if !can_mount() {
        return;
    }
    let (server, cache) = (Server::start(), Cache::new());
    make(&server, "f", 1_000_000);
    let mounted = cache.mount(&server, "4.2");
    compare(&mounted, &server, "f");
    mounted.end();
    cache.await_stored(1_000_000);
    // A byte in the middle of each.
    sh(
        &cache.path,
        "find blocks -type f | while read f; do printf '\\377\\376' | dd of=$f bs=1 seek=8000 conv=notrunc status=none; done",
    );
    let mounted = cache.mount(&server, "4.2");
    compare(&mounted, &server, "f");
    assert_eq!(of_cache(&mounted.path, "damaged"), 16);
    assert!(reads(&mounted) > 0);
    let directory = mounted.path.to_str().unwrap();
    let text = String::from_utf8(run(&["stats", directory]).stdout).expect("text");
    assert!(text.contains("\ndisk cache   0 of ") && text.contains(", 16 damaged, "), "{text}");
    let metrics = String::from_utf8(run(&["stats", "--prometheus", directory]).stdout).expect("text");
    let sample = format!("enfys_mount_disk_cache_damaged_total{{mount=\"{directory}\"}} 16");
    assert!(metrics.lines().any(|line| line == sample), "{metrics}");
    crate::promtool::check(&metrics);
    mounted.end();
}

#[test]
fn a_full_disk_makes_the_cache_smaller_and_reads_work() {
    if !can_mount() {
        return;
    }
    let (server, cache) = (Server::start(), Cache::new());
    make(&server, "f", 8_000_000);
    make(&server, "g", 500_000);
    let top = cache.top.path();
    sh(top, "mount -t tmpfs -o size=2M,mode=700 tmpfs .");
    for _ in 0..2 {
        let mounted = cache.mount(&server, "4.2");
        compare(&mounted, &server, "f");
        compare(&mounted, &server, "g");
        mounted.end();
    }
    // The last blocks found room, for which older ones went.
    let mounted = cache.mount(&server, "4.2");
    let before = reads(&mounted);
    compare(&mounted, &server, "g");
    assert_eq!(reads(&mounted), before);
    let bytes = of_cache(&mounted.path, "bytes");
    assert!((500_000..=2 << 20).contains(&bytes), "{bytes}");
    compare(&mounted, &server, "f");
    mounted.end();
    // The mount's process has its lock there until it ends.
    await_that("the cache is unused", || {
        Command::new("umount").arg(top).output().expect("umount").status.success()
    });
}

#[test]
fn a_mount_that_is_killed_while_it_stores_blocks_leaves_a_good_cache() {
    if !can_mount() {
        return;
    }
    let (server, cache) = (Server::start(), Cache::new());
    for number in 0..4 {
        make(&server, &format!("f{number}"), 4_000_000);
    }
    for number in 0..4 {
        let top = tempfile::tempdir().expect("a temporary directory");
        let mut child =
            foreground_with(&["--cache", cache.path.to_str().unwrap()], &server, "4.1", top.path());
        let file = top.path().join(format!("f{number}"));
        let reading = std::thread::spawn(move || std::fs::read(file));
        await_that("blocks are stored", || of_cache(top.path(), "stored") > 0);
        child.kill().expect("a living child");
        child.wait().expect("a child");
        // It may have got an error.
        let _ = reading.join();
        assert!(run(&["umount", top.path().to_str().unwrap()]).status.success());
    }
    let mounted = cache.mount(&server, "4.1");
    (0..4).for_each(|number| compare(&mounted, &server, &format!("f{number}")));
    assert!(of_cache(&mounted.path, "hits") >= 4);
    assert_eq!(of_cache(&mounted.path, "damaged"), 0);
    mounted.end();
}

#[test]
fn a_new_process_of_the_mount_takes_the_cache() {
    if !can_mount() {
        return;
    }
    let (server, cache) = (Server::start(), Cache::new());
    make(&server, "f", 1_000_000);
    let mounted = cache.mount(&server, "4.2");
    compare(&mounted, &server, "f");
    let replaced = run(&["mount", "--replace", mounted.path.to_str().unwrap()]);
    assert!(replaced.status.success(), "{}", String::from_utf8_lossy(&replaced.stderr));
    let mut number = 0;
    await_that("the new process stores blocks", || {
        number += 1;
        let name = format!("f{number}");
        make(&server, &name, 1000);
        compare(&mounted, &server, &name);
        of_cache(&mounted.path, "stored") > 0
    });
    mounted.end();
    let mounted = cache.mount(&server, "4.2");
    compare(&mounted, &server, "f");
    assert_eq!(reads(&mounted), 0);
    mounted.end();
}

#[test]
fn a_cache_that_cannot_be_used_is_an_error() {
    if !can_mount() {
        return;
    }
    let (server, cache) = (Server::start(), Cache::new());
    let top = tempfile::tempdir().expect("a temporary directory");
    let url = server.url("/export", "4.2");
    let error = |options: &str| {
        let output = run(&["mount", &url, top.path().to_str().unwrap(), "-o", options]);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(error("cache_size=1GiB"), "enfys: `cache_size=` needs `cache=DIR`\n");
    assert_eq!(error("cache=x"), "enfys: `cache=x`: expected an absolute path\n");
    let inside = top.path().join("cache");
    let refused = format!("enfys: the disk cache {} is inside the mount\n", inside.display());
    assert_eq!(error(&format!("cache={}", inside.display())), refused);
    sh(cache.top.path(), "mkdir -m 700 cache; touch cache/thesis");
    let path = cache.path.display();
    let refused = format!(
        "enfys: the disk cache {path}: it has other files: name a directory that is empty or does not exist\n"
    );
    assert_eq!(error(&format!("cache={path}")), refused);
}
