//! Synced data of a program exist after the server, the client or both were killed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Mounted, Server, await_that, can_mount, foreground, run};

/// Different file names. Each is replaced many times.
const NAMES: u64 = 12;
/// Files that are synced before a crash, and again after it.
const FILES: usize = 40;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Server,
    Client,
    Both,
}

/// A program's knowledge of the files that it wrote.
#[derive(Default)]
struct Manifest {
    /// By name, the number of the content that was last synced.
    synced: HashMap<String, u64>,
    /// By name, the numbers of the contents that were begun and failed since: one of them may be there in its place.
    failed: HashMap<String, Vec<u64>>,
}

/// Returns the content with a number: 8 bytes to some 300 KB, different from all others.
fn content(number: u64) -> Vec<u8> {
    let words = 1 + number.wrapping_mul(7919) % 40_000;
    (0..words).flat_map(|word| (number << 32 | word).to_be_bytes()).collect()
}

/// Writes a file under another name, syncs it, and gives it its name.
fn replace(directory: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let new = directory.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&new, directory.join(name))
}

/// Replaces files until `stop` is set. Failures are not in the manifest.
fn write_files(directory: &Path, first: u64, synced: &AtomicUsize, stops: &AtomicBool) -> (Manifest, u64) {
    let (mut manifest, mut number) = (Manifest::default(), first);
    while !stops.load(Ordering::Relaxed) {
        let name = format!("file{}", number % NAMES);
        match replace(directory, &name, &content(number)) {
            Ok(()) => {
                manifest.failed.remove(&name);
                manifest.synced.insert(name, number);
                synced.fetch_add(1, Ordering::Relaxed);
            }
            // Without a client, every call fails at once.
            Err(_) => {
                manifest.failed.entry(name).or_default().push(number);
                thread::sleep(Duration::from_millis(5));
            }
        }
        number += 1;
    }
    (manifest, number)
}

/// Lets a program write files over a new mount, and kills the victim. Returns what the program knows at the end.
fn crash(server: &mut Server, version: &str, victim: Victim, first: u64) -> (Manifest, u64) {
    let top = tempfile::tempdir().expect("a temporary directory");
    let mut client = foreground(server, version, top.path());
    let (synced, stops) = (AtomicUsize::new(0), AtomicBool::new(false));
    let reaches = |count| await_that("files are synced", || synced.load(Ordering::Relaxed) >= count);
    let known = thread::scope(|scope| {
        let writer = scope.spawn(|| write_files(top.path(), first, &synced, &stops));
        reaches(FILES);
        if victim != Victim::Client {
            server.kill();
        }
        if victim != Victim::Server {
            client.kill().expect("a running child");
            client.wait().expect("a child");
        }
        if victim != Victim::Client {
            server.start_again();
        }
        if victim == Victim::Server {
            reaches(2 * FILES);
        }
        stops.store(true, Ordering::Relaxed);
        writer.join().expect("the program ends")
    });
    let unmounted = run(&["umount", top.path().to_str().expect("text")]);
    assert!(unmounted.status.success(), "{}", String::from_utf8_lossy(&unmounted.stderr));
    let is_orderly = client.wait().expect("a child").success();
    assert_eq!(is_orderly, victim == Victim::Server);
    known
}

#[test]
fn synced_files_are_there_after_a_crash() {
    if !can_mount() {
        return;
    }
    for version in ["3", "4.0", "4.1", "4.2"] {
        // A client that was killed reclaims nothing: others wait for the end of the grace period.
        let mut server = Server::with_lease(2);
        let mut next = 0;
        for victim in [Victim::Server, Victim::Client, Victim::Both] {
            let (manifest, after) = crash(&mut server, version, victim, next);
            next = after;
            // Another client has nothing in its caches.
            let other = Mounted::new(&server, version, &[]);
            assert_eq!(manifest.synced.len(), NAMES as usize, "{version} {victim:?}");
            for (name, synced) in &manifest.synced {
                let data = fs::read(other.path(name)).expect("a synced file");
                let failed = manifest.failed.get(name).into_iter().flatten();
                let is_expected = failed.chain([synced]).any(|number| data == content(*number));
                assert!(is_expected, "{version} {victim:?}: {name} has {} bytes", data.len());
            }
            other.end();
        }
    }
}
