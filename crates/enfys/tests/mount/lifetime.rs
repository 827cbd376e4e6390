//! Servers and mounts that end, in order or not.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{
    Mounted, Server, VERSIONS, await_that, can_mount, foreground, is_mounted, run, sh, shell, waits,
};

#[test]
fn a_program_continues_after_the_server_was_killed_and_restarted() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let mut server = Server::start();
        let mounted = Mounted::new(&server, version, &[]);
        // Data that a killed server had only in memory are rewritten. `big` has been written for some time, also without the
        // cache, when it is killed, and is stable at the end.
        let script = "python3 -c \"import os, time
for name, flags in (('big', 0), ('direct', os.O_DIRECT)):
    if os.fork() == 0:
        file = os.open(name, os.O_WRONLY | os.O_CREAT | flags)
        data = __import__('mmap').mmap(-1, 4096)
        for n in range(2000):
            data[:] = n.to_bytes(2, 'big') * 2048
            os.write(file, data)
            time.sleep(0.001)
        os.fsync(file)
        os._exit(0)
for _ in range(2): assert os.wait()[1] == 0\" & python=$!
             for f in $(seq 200); do seq $f > f$f; done
             wait $python";
        let mut writer = shell(&mounted.path, script).spawn().expect("a shell");
        await_that("the program has begun", || server.export().join("f20").exists());
        server.kill();
        std::thread::sleep(Duration::from_millis(300));
        assert!(writer.try_wait().expect("a child").is_none(), "it waits for the server");
        server.start_again();
        assert!(writer.wait().expect("a child").success(), "{version}");
        let check = "for f in $(seq 200); do seq $f | cmp - f$f; done
             python3 -c \"
data = b''.join(n.to_bytes(2, 'big') * 2048 for n in range(2000))
assert all(open(name, 'rb').read() == data for name in ('big', 'direct'))\"";
        mounted.sh(check);
        mounted.send_all();
        sh(&server.export(), check);
        mounted.end();
    }
}

#[test]
fn a_mount_whose_server_is_dead_can_be_unmounted() {
    if !can_mount() {
        return;
    }
    let mut server = Server::start();
    let mounted = Mounted::new(&server, "4.2", &["-o", "noac"]);
    mounted.sh("ls");
    server.kill();
    mounted.end();
}

#[test]
fn programs_of_a_forced_unmount_get_an_error() {
    if !can_mount() {
        return;
    }
    let mut server = Server::start();
    let mounted = Mounted::new(&server, "4.2", &["-o", "noac"]);
    mounted.sh("echo text > f");
    server.kill();
    let mut reader = Command::new("cat").arg(mounted.path("f")).stderr(Stdio::null()).spawn().expect("cat");
    await_that("it waits for the server", || waits(&reader));
    let directory = mounted.path.to_str().unwrap();
    let output = run(&["umount", "--force", directory]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(reader.wait().expect("a child").code(), Some(1));
    assert!(!is_mounted(&mounted.path));
}

#[test]
fn a_soft_mount_gives_up() {
    if !can_mount() {
        return;
    }
    let mut server = Server::start();
    let mounted = Mounted::new(&server, "4.2", &["-o", "noac,soft,timeo=5,retrans=1"]);
    mounted.sh("echo text > f");
    server.kill();
    let output = Command::new("cat").arg(mounted.path("f")).output().expect("cat");
    assert_eq!(output.status.code(), Some(1));
    server.start_again();
    await_that("the mount works again", || {
        std::fs::read(mounted.path("f")).is_ok_and(|data| data == b"text\n")
    });
    mounted.end();
}

#[test]
fn sigterm_unmounts() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let top = tempfile::tempdir().expect("a temporary directory");
    let mut child = foreground(&server, "4.2", top.path());
    sh(top.path(), "echo text > f");
    kill_process(Pid::from_child(&child), Signal::TERM).expect("a living child");
    assert!(child.wait().expect("a child").success());
    assert!(!is_mounted(top.path()));
    assert_eq!(sh(&server.export(), "cat f"), "text\n");
}

#[test]
fn a_mount_whose_process_was_killed_is_unmounted_like_any_other() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let top = tempfile::tempdir().expect("a temporary directory");
    let mut child = foreground(&server, "4.2", top.path());
    child.kill().expect("a living child");
    child.wait().expect("a child");
    let directory = top.path().to_str().unwrap();
    let again = run(&["mount", &server.url("/export", "4.2"), directory]);
    let text = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(text.contains("a FUSE mount whose process is gone; run `umount "), "{text}");
    assert!(run(&["umount", directory]).status.success());
    assert!(!is_mounted(top.path()));
}

#[test]
fn the_server_has_all_data_when_enfys_umount_returns() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        let mounted = Mounted::new(&server, version, &[]);
        // Under a delegation, closing sends nothing.
        let sums =
            mounted.sh("for f in $(seq 20); do head -c 1000000 /dev/urandom > f$f; done; sha256sum f*");
        mounted.end();
        assert_eq!(sh(&server.export(), "sha256sum f*"), sums, "{version}");
    }
}
