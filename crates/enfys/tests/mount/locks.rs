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
