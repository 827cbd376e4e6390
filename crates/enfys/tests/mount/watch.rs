//! `enfys watch`: changes of a tree on a server.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{ENFYS, Mounted, Server, await_that, can_mount, run, sh};

/// Versions: in the last two the server tells of changes.
const VERSIONS: [&str; 5] = ["2", "3", "4.0", "4.1", "4.2"];
/// Longest wait for a line; far above the usual time.
const LINE_MAX: Duration = Duration::from_secs(60);

/// A watch whose lines can be awaited.
struct Watching {
    child: Child,
    lines: Receiver<String>,
    messages: Receiver<String>,
}

impl Watching {
    #[track_caller]
    fn start(place: &str, options: &[&str]) -> Self {
        let mut command = Command::new(ENFYS);
        command.arg("watch").args(options).arg(place).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary");
        let lines = receiver(child.stdout.take().expect("a pipe"));
        let messages = receiver(child.stderr.take().expect("a pipe"));
        let watching = Self { child, lines, messages };
        watching.await_message("watching ");
        watching
    }

    #[track_caller]
    fn await_message(&self, text: &str) -> String {
        loop {
            let message = self.messages.recv_timeout(LINE_MAX).unwrap_or_else(|_| panic!("no `{text}`"));
            if message.contains(text) {
                return message;
            }
        }
    }

    /// Returns lines until all of `expected` have come, each as a line that begins so.
    #[track_caller]
    fn expect(&self, expected: &[&str]) -> Vec<String> {
        let mut missing: Vec<&str> = expected.to_vec();
        let mut lines = Vec::new();
        while !missing.is_empty() {
            match self.lines.recv_timeout(LINE_MAX) {
                Ok(line) => {
                    missing.retain(|text| *text != line);
                    lines.push(line);
                }
                Err(error) => panic!("{error}: no {missing:?} in {lines:#?}"),
            }
        }
        lines
    }

    fn has_no_line(&self) -> bool {
        self.lines.recv_timeout(Duration::from_millis(300)) == Err(RecvTimeoutError::Timeout)
    }

    fn stop(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).expect("a child");
        self.child.wait().expect("a child").code()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn receiver(pipe: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        BufReader::new(pipe).lines().map_while(Result::ok).all(|line| sender.send(line).is_ok())
    });
    receiver
}

const TREE: &str = "mkdir -p a/b c; echo one > a/one; echo two > a/b/two; echo three > c/three";

/// Changes in the server's directory, and the lines about them.
const STEPS: [(&str, &[&str]); 7] = [
    ("echo new > c/new", &["created    c/new"]),
    ("echo longer text > a/b/two", &["changed    a/b/two"]),
    ("mv a/one c/moved", &["renamed    a/one -> c/moved"]),
    ("chmod 600 c/three", &["attributes c/three"]),
    ("mv a/b d; echo x > d/x", &["renamed    a/b -> d", "created    d/x"]),
    ("rm -r c", &["removed    c/new", "removed    c/three", "removed    c/moved", "removed    c"]),
    ("mkdir -p e/f; echo y > e/f/y", &["created    e", "created    e/f", "created    e/f/y"]),
];

#[test]
fn changes_on_the_server_are_reported_in_every_version() {
    for version in VERSIONS {
        let server = Server::start();
        sh(&server.export(), TREE);
        let watching = Watching::start(&server.url("/export", version), &["--interval", "100ms"]);
        for (script, expected) in STEPS {
            sh(&server.export(), script);
            watching.expect(expected);
        }
        assert!(watching.has_no_line(), "{version}");
        assert_eq!(watching.stop(Signal::TERM), Some(0), "{version}");
    }
}

#[test]
fn changes_of_other_clients_are_told_by_the_server() {
    for version in ["4.1", "4.2"] {
        let server = Server::start();
        sh(&server.export(), TREE);
        let url = server.url("/export", version);
        // Nothing is compared within the test.
        let watching = Watching::start(&url, &["--interval", "10h"]);
        let at = |path: &str| server.url(&format!("/export/{path}"), "3");
        let client = |arguments: &[&str]| {
            let output = run(arguments);
            assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        };
        client(&["touch", &at("a/new")]);
        watching.expect(&["created    a/new"]);
        client(&["mv", &at("a/new"), &at("a/old")]);
        watching.expect(&["renamed    a/new -> a/old"]);
        client(&["mv", &at("a/old"), &at("c/old")]);
        watching.expect(&["renamed    a/old -> c/old"]);
        // A new directory is watched too.
        client(&["mkdir", &at("c/dir")]);
        watching.expect(&["created    c/dir"]);
        client(&["touch", &at("c/dir/file")]);
        watching.expect(&["created    c/dir/file"]);
        client(&["rm", "-r", &at("c/dir"), &at("c/old")]);
        watching.expect(&["removed    c/dir/file", "removed    c/dir", "removed    c/old"]);
        assert_eq!(watching.stop(Signal::INT), Some(0), "{version}");
    }
}

#[test]
fn what_changed_while_the_server_was_down_is_reported() {
    for version in ["3", "4.0", "4.1", "4.2"] {
        let mut server = Server::with_lease(5);
        sh(&server.export(), TREE);
        let watching = Watching::start(&server.url("/export", version), &["--interval", "200ms"]);
        server.kill();
        sh(&server.export(), "rm a/one; mv c/three a/four; echo more >> a/b/two");
        server.start_again();
        watching.expect(&["removed    a/one", "renamed    c/three -> a/four", "changed    a/b/two"]);
        if version.starts_with("4.") && version != "4.0" {
            watching.await_message("the server has forgotten the watch");
        }
        // It goes on.
        sh(&server.export(), "echo last > last");
        watching.expect(&["created    last"]);
        assert_eq!(watching.stop(Signal::TERM), Some(0), "{version}");
    }
}

#[test]
fn a_directory_of_a_mount_is_watched_and_another_is_not() {
    let local = tempfile::tempdir().expect("a temporary directory");
    let refused = run(&["watch", local.path().to_str().expect("text")]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("not in a mount of enfys; for local directories use inotifywait"), "{text}");
    if !can_mount() {
        return;
    }
    let server = Server::start();
    sh(&server.export(), TREE);
    let mounted = Mounted::new(&server, "4.2", &[]);
    let watching =
        Watching::start(mounted.path("a").to_str().expect("text"), &["--json", "--interval", "100ms"]);
    mounted.sh("echo text > a/b/made; sync");
    let line = watching.lines.recv_timeout(LINE_MAX).expect("a line");
    let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(
        (event["event"].as_str(), event["path"].as_str()),
        (Some("created"), Some("b/made")),
        "{line}"
    );
    assert_eq!(watching.stop(Signal::TERM), Some(0));
    mounted.end();
}

#[test]
fn depth_and_size_of_a_tree_have_bounds() {
    let server = Server::start();
    sh(&server.export(), TREE);
    let url = server.url("/export", "4.2");
    let refused = run(&["watch", "--max-entries", "3", &url]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text.contains("more than 3 entries; use --depth"), "{text}");
    let watching = Watching::start(&url, &["--depth", "1", "--interval", "100ms"]);
    sh(&server.export(), "echo deep > a/b/deep; echo near > a/near");
    watching.expect(&["created    a/near"]);
    assert!(watching.has_no_line(), "a/b is 2 levels below");
    drop(watching);
    let missing = run(&["watch", &server.url("/export/none", "4.2")]);
    assert_eq!(missing.status.code(), Some(2));
    sh(&server.export(), "rm -r a");
}

#[test]
fn a_closed_pipe_ends_it_and_any_name_is_one_record() {
    let server = Server::start();
    let url = server.url("/export", "4.2");
    let mut watching = Watching::start(&url, &["--interval", "100ms"]);
    sh(&server.export(), "touch \"$(printf 'a\\nb')\"");
    watching.expect(&["created    'a'$'\\n''b'"]);
    drop(std::mem::replace(&mut watching.lines, channel().1));
    // The reader ends with the next line.
    let mut number = 0;
    await_that("it ends with its reader", || {
        number += 1;
        sh(&server.export(), &format!("touch f{number}"));
        watching.child.try_wait().expect("a child").is_some()
    });
    assert_eq!(watching.child.wait().expect("a child").code(), Some(141));
    let mut child = Command::new(ENFYS);
    let child = child.args(["watch", "-0", "--interval", "100ms", &url]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary");
    let mut line = String::new();
    BufReader::new(child.stderr.take().expect("a pipe")).read_line(&mut line).expect("text");
    let made = Path::new(std::ffi::OsStr::new("n\n")).to_path_buf();
    std::fs::write(server.export().join(made), "").expect("a file");
    let mut record = [0; 11];
    child.stdout.take().expect("a pipe").read_exact(&mut record).expect("a record");
    assert_eq!(&record, b"created\tn\n\0");
    child.kill().expect("a child");
    child.wait().expect("a child");
}
