//! Synced data of a program exist after the server, the client or both were killed.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::{Mounted, Server, await_that, can_mount, foreground, run, shell};

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

/// Returns the content with a number: 2 bytes to some 100 KB, different from all others.
fn content(number: u64) -> Vec<u8> {
    (number..=number + lines(number)).flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

fn lines(number: u64) -> u64 {
    number * 7919 % 20_000
}

/// Starts a program that replaces files until `stop` exists, and prints the number of each one and the status. It is a process of
/// its own: a server that this process starts would inherit the open files of a thread, and wait for itself when it closes them.
fn start_writer(directory: &Path, first: u64, stop: &Path) -> Child {
    let script = format!(
        "n={first}
         while [ ! -e '{}' ]; do
             f=file$((n % {NAMES}))
             if seq $n $((n + n * 7919 % 20000)) | dd of=$f.new conv=fsync status=none 2>/dev/null && mv $f.new $f 2>/dev/null
             then echo $n synced
             else echo $n failed; sleep 0.01
             fi
             n=$((n + 1))
         done",
        stop.display()
    );
    let mut command = shell(directory, &script);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a shell")
}

/// Reads the writer's output to its end. Returns its files and the next number.
fn follow(writer: &mut Child, synced: &AtomicUsize) -> (Manifest, u64) {
    let (mut manifest, mut next) = (Manifest::default(), 0);
    for line in BufReader::new(writer.stdout.take().expect("a pipe")).lines() {
        let line = line.expect("text");
        let (number, status) = line.split_once(' ').expect("two words");
        let number: u64 = number.parse().expect("a number");
        next = number + 1;
        let name = format!("file{}", number % NAMES);
        if status == "synced" {
            manifest.failed.remove(&name);
            manifest.synced.insert(name, number);
            synced.fetch_add(1, Ordering::Relaxed);
        } else {
            manifest.failed.entry(name).or_default().push(number);
        }
    }
    (manifest, next)
}

/// Lets a program write files over a new mount, and kills the victim. Returns its files and the next number.
fn crash(server: &mut Server, version: &str, victim: Victim, first: u64) -> (Manifest, u64) {
    let (top, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let stop = other.path().join("stop");
    let mut client = foreground(server, version, top.path());
    let mut writer = start_writer(top.path(), first, &stop);
    let synced = AtomicUsize::new(0);
    let reaches = |count| await_that("files are synced", || synced.load(Ordering::Relaxed) >= count);
    let written = thread::scope(|scope| {
        let follower = scope.spawn(|| follow(&mut writer, &synced));
        reaches(FILES);
        if victim != Victim::Client {
            server.kill();
        }
        if victim != Victim::Server {
            client.kill().expect("a living child");
        }
        if victim != Victim::Client {
            server.start_again();
        }
        if victim == Victim::Server {
            reaches(2 * FILES);
        }
        fs::write(&stop, "").expect("a file");
        follower.join().expect("the program ends")
    });
    assert!(writer.wait().expect("a child").success());
    let unmounted = run(&["umount", top.path().to_str().expect("text")]);
    assert!(unmounted.status.success(), "{}", String::from_utf8_lossy(&unmounted.stderr));
    let is_orderly = client.wait().expect("a child").success();
    assert_eq!(is_orderly, victim == Victim::Server);
    written
}

#[test]
fn synced_files_are_there_after_a_crash() {
    if !can_mount() {
        return;
    }
    for version in ["2", "3", "4.0", "4.1", "4.2"] {
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
