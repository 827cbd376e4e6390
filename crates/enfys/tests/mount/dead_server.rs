//! Programs on a mount whose server is dead: they can be killed, their data stay, and nothing else is disturbed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Mounted, Server, VERSIONS, await_that, can_mount, sh, waits};

/// Programs that need the server, in the ways in which programs wait: `@` is the mount.
const PROGRAMS: [&str; 9] = [
    "exec cat @/f",
    "exec ls @/d",
    "echo more >> @/f",
    "exec mkdir @/e",
    "exec rm @/f",
    "exec dd if=/dev/zero of=@/synced bs=4k count=1 conv=fsync",
    "exec dd if=@/f of=/dev/null iflag=direct bs=4k",
    "exec dd if=/dev/zero of=@/direct oflag=direct bs=4k count=1",
    "exec flock @/f true",
];

/// Starts a program on a mount.
fn start(mounted: &Mounted, script: &str) -> Child {
    let mut program = Command::new("sh");
    program.args(["-c", &script.replace('@', mounted.path.to_str().expect("text"))]);
    program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    program.spawn().expect("a shell")
}

/// Kills a program that waits for the server. Returns the time until it has ended.
#[track_caller]
fn kill(child: &mut Child, what: &str) -> Duration {
    await_that(&format!("{what}: it waits for the server"), || waits(child));
    // A harmless signal first: the kernel sends only one INTERRUPT.
    kill_process(Pid::from_child(child), Signal::CHILD).expect("a living child");
    std::thread::sleep(Duration::from_millis(50));
    let killed = Instant::now();
    child.kill().expect("a living child");
    await_that(&format!("{what}: a killed program ends"), || child.try_wait().expect("a child").is_some());
    assert_eq!(child.wait().expect("a child").signal(), Some(9), "{what}");
    killed.elapsed()
}

#[test]
fn programs_can_be_killed_and_the_mount_continues() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let (mut server, other) = (Server::with_lease(10), Server::start());
        let mounted = Mounted::new(&server, version, &["-o", "noac,nodelegations"]);
        let unharmed = Mounted::new(&other, version, &[]);
        mounted.sh("echo text > f; mkdir d");
        server.kill();
        let longest =
            PROGRAMS.map(|script| kill(&mut start(&mounted, script), &format!("{version}: {script}")));
        println!("version {version}: killed programs ended within {:?}", longest.iter().max());
        // A mount of another server does not notice.
        unharmed.sh("echo text > f; sync f; mkdir d; mv f d; test \"$(cat d/f)\" = text; flock -n d/f true");
        unharmed.end();
        server.start_again();
        mounted.sh(
            "test -e f || echo text > f; mkdir -p e; echo more >> f; tail -1 f | grep -qx more; flock f true",
        );
        mounted.end();
        assert_eq!(sh(&server.export(), "tail -1 f; ls -d e"), "more\ne\n", "{version}");
    }
}

/// A program that opens a file, waits for a line on its standard input, and then does one operation. It handles SIGCHLD, so that the kernel
/// sends its only INTERRUPT for that signal. `exit` ends while the mount has data of it that were not sent.
const WAITER: &str = r#"
import fcntl, mmap, os, signal, sys
signal.signal(signal.SIGCHLD, lambda *_: None)
work = sys.argv[1]
file = os.open(work, os.O_RDONLY if work == 'list' else os.O_RDWR)
memory = mmap.mmap(file, 8192) if work == 'map' else None
print('open', flush=True)
sys.stdin.readline()
if work == 'read':
    os.pread(file, 100, 0)
elif work == 'sync':
    os.pwrite(file, b'changed', 0)
    os.fsync(file)
elif work == 'fill':
    for number in range(64):
        os.pwrite(file, bytes(1 << 20), number << 20)
elif work == 'map':
    memory[4096]
elif work == 'list':
    os.listdir(file)
elif work == 'lock':
    fcntl.lockf(file, fcntl.LOCK_EX)
elif work == 'truncate':
    os.ftruncate(file, 10)
elif work == 'exit':
    os.pwrite(file, b'changed', 0)
os._exit(0)
"#;

/// What a [`WAITER`] does that waits for the server: `fill` for memory.
const WORKS: [&str; 7] = ["read", "sync", "fill", "map", "list", "lock", "truncate"];

/// Starts a [`WAITER`], and returns when it has its file open.
fn start_waiter(mounted: &Mounted, work: &str) -> Child {
    let mut waiter = Command::new("python3");
    waiter.args(["-c", WAITER, work]).current_dir(&mounted.path);
    waiter.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = waiter.spawn().expect("python3");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    assert_eq!(line, "open\n", "{work}");
    child
}

#[test]
fn programs_with_open_files_can_be_killed_in_each_wait() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let mut server = Server::with_lease(10);
        let mounted = Mounted::new(&server, version, &["-o", "nodelegations,memory=16"]);
        sh(
            &server.export(),
            "mkdir list; touch list/a list/b; for work in read sync fill map lock truncate exit; do
             head -c 8192 /dev/zero > $work; done",
        );
        let mut exits = start_waiter(&mounted, "exit");
        let mut waiters = WORKS.map(|work| (work, start_waiter(&mounted, work)));
        server.kill();
        let go =
            |waiter: &mut Child| waiter.stdin.take().expect("a pipe").write_all(b"go\n").expect("a pipe");
        go(&mut exits);
        // It ends although nobody has its data: they reach the server later.
        await_that("the end of a program with unsent data", || exits.try_wait().expect("a child").is_some());
        assert!(exits.wait().expect("a child").success(), "{version}");
        waiters.iter_mut().for_each(|(_, waiter)| go(waiter));
        let longest = waiters.map(|(work, mut waiter)| kill(&mut waiter, &format!("{version}: {work}")));
        let longest = longest.iter().max();
        println!("version {version}: killed programs ended within {longest:?}");
        server.start_again();
        mounted.sh("cat read map > /dev/null; ls list; flock lock true; sync exit; head -c 7 exit | grep -qx changed");
        await_that("the data arrive", || sh(&server.export(), "head -c 7 exit") == "changed");
        mounted.end();
    }
}

#[test]
fn data_of_a_killed_program_reach_the_server() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let mut server = Server::with_lease(10);
        let mounted = Mounted::new(&server, version, &["-o", "nodelegations"]);
        mounted.sh("echo before > f; sync f");
        let top = mounted.path.parent().expect("a directory");
        sh(top, "mkfifo go");
        let mut child = start(&mounted, "exec 3>> @/f; read line < @/../go; echo written >&3; exec 3>&-");
        // It has the file open.
        await_that("the file is open", || {
            std::fs::read_link(format!("/proc/{}/fd/3", child.id()))
                .is_ok_and(|file| file == mounted.path("f"))
        });
        server.kill();
        std::fs::write(top.join("go"), "go\n").expect("a pipe");
        // Closing waits for the server to have the data.
        kill(&mut child, version);
        server.start_again();
        mounted.sh("sync f; cat f | tail -1 | grep -qx written");
        await_that("the data arrive", || sh(&server.export(), "cat f") == "before\nwritten\n");
        mounted.end();
    }
}
