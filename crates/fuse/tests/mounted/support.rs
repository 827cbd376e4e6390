//! Mounts for tests.

use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fuse::mount::{Options, mount, unmount};
use fuse::{Config, Filesystem, Serving, Session};

/// Longest wait for an event; far above the usual time.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Returns whether this machine can mount, and prints why it cannot.
pub(crate) fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("skipped: needs root and /dev/fuse");
    }
    can
}

/// Waits until `holds` returns true.
pub(crate) fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIME_LIMIT, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A directory on which a file system can be mounted. A remaining mount is detached, so that a failed test leaves no mount.
pub(crate) struct Place {
    _top: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = top.path().join("mount");
        std::fs::create_dir(&path).expect("a directory");
        Self { _top: top, path }
    }

    pub(crate) fn mount(&self) -> std::os::fd::OwnedFd {
        let options = Options {
            source: "enfys-test".to_owned(),
            subtype: "enfys".to_owned(),
            allow_other: true,
            default_permissions: true,
            ..Options::default()
        };
        mount(&self.path, &options).expect("a mount")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = unmount(&self.path, true);
    }
}

/// A mount that this process serves.
pub(crate) struct Mounted {
    pub(crate) serving: Option<Serving>,
    pub(crate) place: Place,
}

pub(crate) fn config() -> Config {
    Config { workers: 3.try_into().expect("not zero"), ..Config::default() }
}

impl Mounted {
    pub(crate) fn new(files: impl Filesystem) -> Self {
        let place = Place::new();
        let session = Session::new(place.mount(), &config()).expect("a session");
        let serving = session.serve(Arc::new(files)).expect("threads");
        Self { serving: Some(serving), place }
    }

    pub(crate) fn serving(&self) -> &Serving {
        self.serving.as_ref().expect("not stopped")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path.join(name)
    }

    /// Unmounts, and waits until the session has ended.
    pub(crate) fn end(mut self) {
        unmount(&self.place.path, false).expect("an unused mount");
        self.serving.take().expect("not stopped").wait().expect("no error of the device");
    }

    /// Runs a shell script in the mount and returns its output.
    pub(crate) fn sh(&self, script: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-euc", script]).current_dir(&self.place.path);
        // No configuration of the user, no questions.
        command.env("HOME", &self.place.path).env("GIT_CONFIG_NOSYSTEM", "1").stdin(Stdio::null());
        let output = command.output().expect("a shell");
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        let _ = write!(text, "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}: {text}");
        text
    }
}

/// Starts a Perl program with `argument`; its `$SIG` handlers have no SA_RESTART.
pub(crate) fn perl(program: &str, argument: &Path) -> Child {
    let mut command = Command::new("perl");
    command.arg("-e").arg(program).arg(argument).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().expect("perl")
}

pub(crate) fn kill(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).expect("a running child");
}

/// Waits for the end of a child and returns its output.
pub(crate) fn output(mut child: Child) -> (std::process::ExitStatus, String) {
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        await_that("the program does not end", || child.try_wait().expect("a child").is_some());
        stdout.read_to_string(&mut text).expect("text");
    }
    (child.wait().expect("a child"), text)
}
