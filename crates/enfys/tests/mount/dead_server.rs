//! Programs on a mount whose server is dead: they can be killed, their data stay, and nothing else is disturbed.

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
