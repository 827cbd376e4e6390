//! `enfys mount --replace`: another process continues a mount.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{ENFYS, Mounted, Server, await_that, can_mount, foreground, is_mounted, run, sh, shell};

/// Versions whose mounts are replaced.
const VERSIONS: [&str; 5] = ["2", "3", "4.0", "4.1", "4.2"];

/// A program with files in all states, which continues when its directory gets a file `go`, and ends with `ok`.
///
/// - `dirty` has data that were written and not flushed, `direct` without the cache.
/// - `gone` is open and has no name.
/// - `locked` has a lock of fcntl, `flocked` one of flock, which a second program must not get.
/// - The directory `many` is half listed.
pub(crate) const PROGRAM: &str = "
import fcntl, mmap, os, time
for n in range(500): open(f'many/{n}', 'w').close()
listing = os.scandir('many')
names = [next(listing).name for _ in range(100)]
dirty = os.open('dirty', os.O_RDWR | os.O_CREAT)
os.write(dirty, b'x' * 3000000)
direct = os.open('direct', os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
page = mmap.mmap(-1, 4096); page[:] = b'd' * 4096
os.write(direct, page)
gone = os.open('gone', os.O_RDWR | os.O_CREAT)
os.write(gone, b'without a name')
os.unlink('gone')
locked = os.open('locked', os.O_RDWR | os.O_CREAT)
fcntl.lockf(locked, fcntl.LOCK_EX, 100, 50)
flocked = os.open('flocked', os.O_RDWR | os.O_CREAT)
fcntl.flock(flocked, fcntl.LOCK_EX)
mapped_file = os.open('dirty', os.O_RDONLY)
mapped = mmap.mmap(mapped_file, 3000000, prot=mmap.PROT_READ)
open('ready', 'w').close()
while not os.path.exists('go'): time.sleep(0.01)
os.write(dirty, b'y' * 1000000)
os.write(direct, page)
os.fsync(dirty); os.fsync(direct)
assert os.pread(dirty, 4000001, 0) == b'x' * 3000000 + b'y' * 1000000
assert mapped[2999999:] == b'x'
assert os.pread(gone, 100, 0) == b'without a name'
os.pwrite(gone, b'W', 0); os.fsync(gone)
names += [entry.name for entry in listing]
assert sorted(names) == sorted(str(n) for n in range(500)), len(names)
fcntl.lockf(locked, fcntl.LOCK_UN, 100, 50)
fcntl.flock(flocked, fcntl.LOCK_UN)
open('unlocked', 'w').close()
while not os.path.exists('end'): time.sleep(0.01)
for file in dirty, direct, gone, locked, flocked: os.close(file)
print('ok')";

/// Prints which locks of the program another process gets.
pub(crate) const OTHER_LOCKS: &str = "
import fcntl, os
def try_lock(name, lock):
    file = os.open(name, os.O_RDWR)
    try: lock(file)
    except (BlockingIOError, PermissionError): return 'held'
    return 'free'
print(try_lock('locked', lambda f: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 149)),
      try_lock('locked', lambda f: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 50, 200)),
      try_lock('flocked', lambda f: fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)))";

pub(crate) fn python(directory: &Path, program: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", program]).current_dir(directory).stdin(Stdio::null());
    command
}

/// Returns the process that serves a mount.
#[track_caller]
fn process(directory: &Path) -> u64 {
    let output = run(&["stats", "--json", directory.to_str().expect("text")]);
    let response: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    response["stats"]["pid"].as_u64().unwrap_or_else(|| panic!("{response}"))
}

/// Replaces the process of a mount, and checks that the old one ends.
#[track_caller]
fn replace(directory: &Path) {
    let old = process(directory);
    let output = run(&["mount", "--replace", directory.to_str().expect("text")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_ne!(process(directory), old);
    await_that("the old process ends", || !Path::new(&format!("/proc/{old}")).exists());
}

#[test]
fn open_files_locks_and_unwritten_data_survive_a_new_process() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        let (mounted, other) = (Mounted::new(&server, version, &[]), Mounted::new(&server, version, &[]));
        mounted.sh("mkdir many");
        let mut child = python(&mounted.path, PROGRAM).stdout(Stdio::piped()).spawn().expect("python3");
        let exists = |name: &str| server.export().join(name).exists();
        await_that("the program is ready", || exists("ready"));
        let held = || {
            let output = python(&other.path, OTHER_LOCKS).output().expect("python3");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        assert_eq!(held(), "held free held\n", "{version}");
        replace(&mounted.path);
        replace(&mounted.path);
        assert_eq!(held(), "held free held\n", "{version}");
        // Through the mount, which remembers missing names.
        std::fs::write(mounted.path("go"), "").expect("a file");
        await_that("the program has unlocked", || {
            exists("unlocked") || child.try_wait().expect("a child").is_some()
        });
        assert_eq!(held(), "free free free\n", "{version}");
        std::fs::write(mounted.path("end"), "").expect("a file");
        let output = child.wait_with_output().expect("a child");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{version}");
        mounted.send_all();
        sh(
            &server.export(),
            "test $(stat -c %s dirty) = 4000000; test $(stat -c %s direct) = 8192; ! ls -A | grep nfs",
        );
        mounted.end();
        other.end();
    }
}

#[test]
fn programs_under_load_notice_nothing() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        let mounted = Mounted::new(&server, version, &[]);
        let script = "for f in $(seq 150); do
                seq $f > f$f; mv f$f g$f; ln -s g$f l$f; mkdir d$f; cp g$f d$f/copy; cmp l$f d$f/copy
                test $f -le 20 || { rm l$((f - 20)) d$((f - 20))/copy; rmdir d$((f - 20)); }
            done
            ls | wc -l";
        let mut load: Vec<Child> = Vec::new();
        for number in 0..3 {
            mounted.sh(&format!("mkdir w{number}"));
            let directory = mounted.path(&format!("w{number}"));
            load.push(shell(&directory, script).stdout(Stdio::piped()).spawn().expect("a shell"));
        }
        let mut count = 0;
        while load.iter_mut().any(|child| child.try_wait().expect("a child").is_none()) {
            replace(&mounted.path);
            count += 1;
        }
        assert!(count >= 2, "{count}");
        for child in load {
            let output = child.wait_with_output().expect("a child");
            assert!(output.status.success(), "{version}: after {count} processes");
            // 150 files, and 20 links and directories.
            assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "190", "{version}");
        }
        mounted.send_all();
        sh(
            &server.export(),
            "for w in w0 w1 w2; do for f in $(seq 150); do seq $f | cmp - $w/g$f; done; done",
        );
        mounted.end();
    }
}

#[test]
fn a_program_that_waits_for_a_lock_still_gets_it() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        let (mounted, other) = (Mounted::new(&server, version, &[]), Mounted::new(&server, version, &[]));
        mounted.sh("touch f");
        let hold = "
import fcntl, os, sys
file = os.open('f', os.O_RDWR)
fcntl.lockf(file, fcntl.LOCK_EX)
print('locked', flush=True)
sys.stdin.read()";
        let mut holder = python(&other.path, hold);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
        let mut line = [0; 7];
        std::io::Read::read_exact(holder.stdout.as_mut().expect("a pipe"), &mut line).expect("a line");
        let wait = "
import fcntl, os
file = os.open('f', os.O_RDWR)
open('waits', 'w').close()
fcntl.lockf(file, fcntl.LOCK_EX)
print('got it')";
        let mut waiter = python(&mounted.path, wait).stdout(Stdio::piped()).spawn().expect("python3");
        await_that("it waits", || server.export().join("waits").exists());
        std::thread::sleep(std::time::Duration::from_millis(200));
        replace(&mounted.path);
        assert!(waiter.try_wait().expect("a child").is_none(), "{version}: the other still has the lock");
        drop(holder.stdin.take());
        assert!(holder.wait().expect("a child").success());
        let output = waiter.wait_with_output().expect("a child");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "got it\n", "{version}");
        mounted.end();
        other.end();
    }
}

#[test]
fn a_mount_stays_with_its_process_if_the_new_one_fails() {
    if !can_mount() {
        return;
    }
    // The server's grace period is as long as the lease.
    let mut server = Server::with_lease(5);
    let top = tempfile::tempdir().expect("a temporary directory");
    let mut child = foreground(&server, "4.2", top.path());
    let directory = top.path().to_str().unwrap();
    sh(top.path(), "echo text > f");
    let mut taken = 0;
    // A new process that is killed at any moment.
    for delay_ms in (0..60).step_by(3) {
        let mut new = Command::new(ENFYS);
        let mut new = new.args(["mount", "--foreground", "--replace", directory]);
        new = new.stdout(Stdio::null()).stderr(Stdio::null());
        let mut new = new.spawn().expect("the binary");
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        new.kill().expect("a child");
        new.wait().expect("a child");
        // Either the old process serves it, or the new one has taken it: then the old one has ended.
        let serves = |child: &Child| process_of_any(top.path()) == Some(u64::from(child.id()));
        await_that("one of them has it", || serves(&child) || child.try_wait().expect("a child").is_some());
        if child.try_wait().expect("a child").is_some() {
            assert!(run(&["umount", directory]).status.success());
            child = foreground(&server, "4.2", top.path());
            taken += 1;
        }
        assert_eq!(sh(top.path(), "echo more > g; cat f"), "text\n");
    }
    assert!((1..20).contains(&taken), "{taken}: processes were killed before and after they had the mount");
    // Without the server neither process can.
    server.kill();
    let mut new = Command::new(ENFYS);
    let new = new.args(["mount", "--replace", directory]).output().expect("the binary");
    assert!(!new.status.success());
    server.start_again();
    assert_eq!(sh(top.path(), "cat f"), "text\n");
    assert!(run(&["umount", directory]).status.success());
    assert!(child.wait().expect("a child").success());
    assert!(!is_mounted(top.path()));
}

#[test]
fn a_new_process_leaves_reclaiming_to_the_old_one() {
    if !can_mount() {
        return;
    }
    let lock = "
import fcntl, os, sys
file = os.open('locked', os.O_RDWR | os.O_CREAT)
fcntl.lockf(file, fcntl.LOCK_EX)
print('locked', flush=True)
sys.stdin.read()
os.write(file, b'still locked')
os.fsync(file)";
    let ask = "
import fcntl, os
file = os.open('locked', os.O_RDWR)
try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except (BlockingIOError, PermissionError): print('held')";
    for version in ["4.0", "4.1"] {
        // An idle client finds out within a third of the lease that the server has restarted.
        let mut server = Server::with_lease(6);
        let (mounted, other) = (Mounted::new(&server, version, &[]), Mounted::new(&server, version, &[]));
        let mut holder = python(&mounted.path, lock);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
        let mut line = [0; 7];
        std::io::Read::read_exact(holder.stdout.as_mut().expect("a pipe"), &mut line).expect("a line");
        server.kill();
        server.start_again();
        let directory = mounted.path.to_str().expect("text");
        let early = run(&["mount", "--replace", directory]);
        let why = String::from_utf8_lossy(&early.stderr);
        assert!(early.status.success() || why.contains("try again"), "{version}: {why}");
        await_that("it is replaced", || run(&["mount", "--replace", directory]).status.success());
        let output = python(&other.path, ask).output().expect("python3");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "held\n", "{version}");
        drop(holder.stdin.take());
        assert!(holder.wait().expect("a child").success(), "{version}");
        assert_eq!(sh(&server.export(), "cat locked"), "still locked", "{version}");
        mounted.end();
        other.end();
    }
}

/// As [`process`], while a mount may be between two processes.
fn process_of_any(directory: &Path) -> Option<u64> {
    let output = run(&["stats", "--json", directory.to_str().expect("text")]);
    let response: Value = serde_json::from_slice(&output.stdout).ok()?;
    response["stats"]["pid"].as_u64()
}
