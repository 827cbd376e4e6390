//! `enfys stats`.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::promtool;
use crate::support::{
    ENFYS, Mounted, Server, VERSIONS, await_that, can_mount, foreground, is_mounted, run, sh,
};

/// Returns the statistics of a mount.
#[track_caller]
pub(crate) fn stats(directory: &Path) -> Value {
    let output = run(&["stats", "--json", directory.to_str().expect("text")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let mut response: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    response["stats"].take()
}

/// Returns a counter of an operation; 0 if it was not used.
pub(crate) fn count(stats: &Value, operation: &str, counter: &str) -> u64 {
    stats["operations"][operation][counter].as_u64().unwrap_or(0)
}

/// Returns the control socket of a mount of root.
fn socket(directory: &Path) -> PathBuf {
    let device = std::fs::metadata(directory).expect("a mount").dev();
    format!("/run/enfys/mount-{}.sock", rustix::fs::minor(device)).into()
}

#[test]
fn statistics_count_requests_bytes_errors_and_hits() {
    if !can_mount() {
        return;
    }
    for version in VERSIONS {
        let server = Server::start();
        let mounted = Mounted::new(&server, version, &["-o", "actimeo=600"]);
        let before = stats(&mounted.path);
        assert_eq!(before["protocol"], version);
        mounted.sh("head -c 3000000 /dev/urandom > f; sync f; ! cat missing 2> /dev/null");
        let written = stats(&mounted.path);
        assert!(count(&written, "WRITE", "requests") >= 3, "{written}");
        // The data with some headers.
        let sent = count(&written, "WRITE", "bytes_sent");
        assert!((3_000_000..3_100_000).contains(&sent), "{sent}");
        let errors = |stats: &Value| count(stats, "LOOKUP", "errors") + count(stats, "OPEN", "errors");
        assert!(errors(&written) > errors(&before), "{written}");
        let times = |counter| count(&written, "WRITE", counter);
        assert!(times("round_trip_us") > 0 && times("execute_us") >= times("round_trip_us"));

        // What was written is in the cache, until the server has it anew.
        let (data, reads) = (&written["caches"]["data_bytes"], count(&written, "READ", "requests"));
        mounted.sh("cmp f f; cat f > /dev/null");
        let read = stats(&mounted.path);
        let again = &read["caches"]["data_bytes"];
        let grown = |kind: &str| again[kind].as_u64().unwrap() - data[kind].as_u64().unwrap();
        assert!(grown("hits") >= 3_000_000, "{read}");
        assert_eq!((grown("misses"), count(&read, "READ", "requests")), (0, reads), "{read}");
        assert!(read["memory"]["clean"].as_u64().unwrap() >= 3_000_000, "{read}");

        // Another writer: pages and READs, which the server sends.
        sh(&server.export(), "head -c 2000000 /dev/urandom > g");
        mounted.sh("sync; cat g > /dev/null");
        let other = stats(&mounted.path);
        assert!(count(&other, "READ", "bytes_received") >= 2_000_000, "{other}");
        mounted.end();
    }
}

#[test]
fn statistics_are_shown_as_text_and_for_prometheus() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let mounted = Mounted::new(&server, "4.2", &[]);
    mounted.sh("echo text > f; sync f");
    let directory = mounted.path.to_str().unwrap();
    let shown = run(&["stats", directory]);
    let text = String::from_utf8(shown.stdout).expect("text");
    let first = text.lines().next().expect("a line");
    assert!(
        first.starts_with("nfs://127.0.0.1") && first.contains(&format!(" on {directory} (NFS 4.2), ")),
        "{text}"
    );
    let heading = text.lines().find(|line| line.starts_with("operation")).expect("a table");
    let write = text.lines().find(|line| line.starts_with("WRITE")).expect("a WRITE");
    let cells = |line: &str| line.split("  ").filter(|cell| !cell.is_empty()).count();
    assert_eq!(cells(write), cells(heading), "{text}");
    let metrics = run(&["stats", "--prometheus", directory]);
    let metrics = String::from_utf8(metrics.stdout).expect("text");
    let sample = format!("enfys_mount_requests_total{{mount=\"{directory}\",operation=\"WRITE\"}} 1");
    assert!(metrics.lines().any(|line| line == sample), "{metrics}");
    // The format: each metric has a type before its samples.
    for line in metrics.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split('{').next().unwrap();
        assert!(metrics.contains(&format!("# TYPE {name} ")), "{line}");
        assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
    }
    promtool::check(&metrics);
    mounted.end();
}

#[test]
fn statistics_are_repeated_until_the_mount_ends() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let mounted = Mounted::new(&server, "4.2", &[]);
    let mut watch = Command::new(ENFYS);
    watch.args(["stats", "--watch=1", "--json"]).arg(&mounted.path).stdout(Stdio::piped());
    let mut child = watch.spawn().expect("the binary");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut writes = || {
        let line = lines.next()?.expect("text");
        let response: Value = serde_json::from_str(&line).expect("JSON");
        (response["stats"] != Value::Null).then(|| count(&response["stats"], "WRITE", "requests"))
    };
    assert_eq!(writes(), Some(0));
    mounted.sh("echo text > f; sync f");
    let next = std::iter::from_fn(&mut writes).find(|writes| *writes > 0);
    assert_eq!(next, Some(1));
    mounted.end();
    while writes().is_some() {}
    assert!(!child.wait().expect("a child").success(), "the directory is no mount any more");
}

#[test]
fn requests_under_way_have_the_bound_of_the_options() {
    if !can_mount() {
        return;
    }
    for version in ["3", "4.0", "4.2"] {
        let server = Server::start();
        for (options, waits) in [("slots=1,v3_calls=1", true), ("slots=1024,v3_calls=128", false)] {
            let mounted = Mounted::new(&server, version, &["-o", options]);
            mounted.sh("for n in $(seq 8); do (head -c 2000000 /dev/zero > f$n; sync f$n) & done; wait");
            let stats = stats(&mounted.path);
            assert_eq!(stats["slots"]["waits"].as_u64().unwrap() > 0, waits, "{version} {options}: {stats}");
            mounted.end();
        }
    }
}

#[test]
fn only_the_user_of_a_mount_and_root_see_its_statistics() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let mounted = Mounted::new(&server, "4.1", &[]);
    let socket = socket(&mounted.path);
    assert_eq!(std::fs::metadata(&socket).expect("a socket").mode() & 0o7777, 0o600);
    let ask = "import os, socket, sys
os.setgroups([]); os.setgid(1234); os.setuid(1234)
s = socket.socket(socket.AF_UNIX)
try: s.connect(sys.argv[1])
except PermissionError: print('refused')";
    let output = Command::new("python3").args(["-c", ask]).arg(&socket).output().expect("python3");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "refused\n");
    let own = std::fs::metadata(&socket).expect("a socket").ino();
    mounted.end();
    // The mount's process notices the end after umount(2) has returned. Then another mount may have its device number.
    await_that("the socket is removed", || {
        std::fs::metadata(&socket).map_or(true, |found| found.ino() != own)
    });
}

#[test]
fn a_mount_waits_for_the_control_socket_of_an_earlier_one_with_its_device_number() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    // Other tests mount too, and may get the number of the first mount.
    assert!((0..20).any(|_| has_socket_after_a_stopped_mount(&server)), "never the same number");
}

/// Mounts while the process of an earlier mount has not noticed its end. Returns whether both had the same device number.
fn has_socket_after_a_stopped_mount(server: &Server) -> bool {
    let tops = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let mut first = foreground(server, "4.2", tops[0].path());
    let number = socket(tops[0].path());
    kill_process(Pid::from_child(&first), Signal::STOP).expect("a child");
    rustix::mount::unmount(tops[0].path(), rustix::mount::UnmountFlags::DETACH).expect("a mount");
    let is_same = std::thread::scope(|scope| {
        let second = scope.spawn(|| foreground(server, "4.2", tops[1].path()));
        await_that("it is mounted", || is_mounted(tops[1].path()));
        let is_same = socket(tops[1].path()) == number;
        kill_process(Pid::from_child(&first), Signal::CONT).expect("a child");
        let mut second = second.join().expect("no panic");
        assert_eq!(stats(tops[1].path())["protocol"], "4.2");
        assert!(run(&["umount", tops[1].path().to_str().expect("text")]).status.success());
        assert!(second.wait().expect("a child").success());
        is_same
    });
    assert!(first.wait().expect("a child").success());
    is_same
}

#[test]
fn statistics_of_what_is_no_mount_are_an_error() {
    if !can_mount() {
        return;
    }
    let server = Server::start();
    let top = tempfile::tempdir().expect("a temporary directory");
    let directory = top.path().to_str().unwrap();
    let error = |directory: &str| {
        let output = Command::new(ENFYS).args(["stats", directory]).output().expect("the binary");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(error(directory), format!("enfys: {directory}: not mounted\n"));
    assert_eq!(error("/proc"), "enfys: /proc: not a mount of enfys (type proc)\n");
    let mut child = foreground(&server, "4.2", top.path());
    child.kill().expect("a living child");
    child.wait().expect("a child");
    assert_eq!(error(directory), format!("enfys: {directory}: the mount's process is gone\n"));
    assert!(run(&["umount", directory]).status.success());
}
