//! fcntl(2) locks of programs on mounts, and of programs beside the server, on one file.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::{Mounted, Server, await_that, can_mount, foreground, run, sh};

/// Locks the byte `argv[2]` of the file `argv[1]`, prints a line, and keeps the lock until its input ends. With a third argument it waits
/// for the lock, and prints another line before.
const LOCK: &str = r#"
import fcntl, sys
file = open(sys.argv[1], "r+b", buffering=0)
if len(sys.argv) > 3: print("opened", flush=True)
try:
    fcntl.lockf(file, fcntl.LOCK_EX | (0 if len(sys.argv) > 3 else fcntl.LOCK_NB), 1, int(sys.argv[2]))
    print("locked", flush=True)
    sys.stdin.read()
except (BlockingIOError, PermissionError):
    print("denied", flush=True)
"#;

/// Increments the number in the file `argv[1]` as often as `argv[3]` says, each time under a lock of the whole file: flock(2) if
/// `argv[4]` is `flock`, or else fcntl(2). While it has the lock, the file `argv[2]` exists, which nobody else may have created.
const INCREMENT: &str = r#"
import fcntl, os, sys
path, holder, count, kind = sys.argv[1:]
file = os.open(path, os.O_RDWR)
lock = fcntl.flock if kind == "flock" else fcntl.lockf
for _ in range(int(count)):
    lock(file, fcntl.LOCK_EX)
    os.close(os.open(holder, os.O_CREAT | os.O_EXCL))
    number = int(os.pread(file, 32, 0))
    os.pwrite(file, b"%d\n" % (number + 1), 0)
    os.unlink(holder)
    lock(file, fcntl.LOCK_UN)
"#;
/// Increments of each program.
const INCREMENTS: usize = 20;

/// A program with a lock, if it got it, and what it prints.
struct Locker(Child, BufReader<ChildStdout>);

impl Locker {
    fn start(file: &Path, byte: &str, waits: bool) -> Self {
        let mut program = Command::new("python3");
        program.args(["-c", LOCK]).arg(file).arg(byte).args(waits.then_some("wait"));
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = program.spawn().expect("python3 is installed");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        Self(child, lines)
    }

    /// Returns the next line that it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("it was started").success());
    }
}

/// Tries to lock a byte for a moment.
fn try_lock(file: &Path, byte: &str) -> String {
    let mut locker = Locker::start(file, byte, false);
    let line = locker.line();
    locker.end();
    line
}

#[test]
fn locks_of_a_mount_and_of_local_processes_exclude_each_other() {
    if !can_mount() {
        return;
    }
    for version in ["3", "4.0", "4.1", "4.2"] {
        let server = Server::start();
        sh(&server.export(), "echo content > f");
        let mount = Mounted::new(&server, version, &[]);
        let (remote, local) = (mount.path("f"), server.export().join("f"));

        let mut holder = Locker::start(&local, "5", false);
        assert_eq!(holder.line(), "locked");
        assert_eq!(try_lock(&remote, "5"), "denied", "{version}");
        assert_eq!(try_lock(&remote, "6"), "locked", "{version}");
        let mut waiter = Locker::start(&remote, "5", true);
        // A file in which a local process has a lock is not delegated; the mount's locks are the server's.
        assert_eq!(waiter.line(), "opened", "{version}");
        assert_eq!(try_lock(&remote, "7"), "locked", "{version}");
        holder.end();
        assert_eq!(waiter.line(), "locked", "{version}");

        assert_eq!(try_lock(&local, "5"), "denied", "{version}");
        assert_eq!(try_lock(&local, "6"), "locked", "{version}");
        waiter.end();
        assert_eq!(try_lock(&local, "5"), "locked", "{version}");
        mount.end();
    }
}

/// Lets a program on each of several mounts, and one beside the server, increment a number under a lock.
#[track_caller]
fn increment_by_mounts_and_a_local_process(kind: &str) {
    // A client with a delegation locks by itself, and a local process that has the file open does not see these locks.
    let server = Server::without_delegations();
    sh(&server.export(), "echo 0 > f");
    let holder = tempfile::tempdir().expect("a temporary directory");
    let holder = holder.path().join("holder");
    let mounts = ["3", "3", "4.1"].map(|version| Mounted::new(&server, version, &[]));
    let start = |file: &Path, kind: &str| {
        let mut program = Command::new("python3");
        program.args(["-c", INCREMENT]).arg(file).arg(&holder).args([&INCREMENTS.to_string(), kind]);
        program.spawn().expect("python3 is installed")
    };
    let mut programs: Vec<_> = mounts.iter().map(|mount| start(&mount.path("f"), kind)).collect();
    // The server's locks on the file system are those of fcntl(2), whatever the clients' programs use.
    programs.push(start(&server.export().join("f"), "fcntl"));
    for (number, program) in programs.iter_mut().enumerate() {
        assert!(program.wait().expect("it was started").success(), "{kind}: program {number}");
    }
    let number = std::fs::read_to_string(server.export().join("f")).expect("a number");
    assert_eq!(number.trim_end(), (programs.len() * INCREMENTS).to_string(), "{kind}");
    mounts.into_iter().for_each(Mounted::end);
}

#[test]
fn fcntl_locks_order_programs_of_versions_3_and_4_and_local_ones() {
    if can_mount() {
        increment_by_mounts_and_a_local_process("fcntl");
    }
}

#[test]
fn flock_orders_programs_of_versions_3_and_4_and_local_fcntl_locks() {
    if can_mount() {
        increment_by_mounts_and_a_local_process("flock");
    }
}

#[test]
fn locks_of_a_killed_mount_are_freed_by_the_next_one_and_no_others() {
    if !can_mount() {
        return;
    }
    for version in ["2", "3"] {
        let server = Server::start();
        sh(&server.export(), "echo content > f");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut killed = foreground(&server, version, directory.path());
        let mut of_killed = Locker::start(&directory.path().join("f"), "5", false);
        let lives = Mounted::new(&server, version, &[]);
        let mut of_living = Locker::start(&lives.path("f"), "6", false);
        assert_eq!([of_killed.line(), of_living.line()], ["locked", "locked"], "{version}");
        killed.kill().expect("a living child");
        killed.wait().expect("a child");
        assert_eq!(try_lock(&lives.path("f"), "5"), "denied", "{version}");
        drop(of_killed.0.stdin.take());
        of_killed.0.wait().expect("it was started");
        run(&["umount", "--force", directory.path().to_str().expect("text")]);

        let next = Mounted::new(&server, version, &[]);
        await_that("the lock is free", || try_lock(&next.path("f"), "5") == "locked");
        assert_eq!(try_lock(&next.path("f"), "6"), "denied", "{version}");
        of_living.end();
        lives.end();
        next.end();
    }
}
