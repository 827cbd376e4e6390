//! Servers and mounts for tests.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The binary under test.
pub(crate) const ENFYS: &str = env!("CARGO_BIN_EXE_enfys");
/// Longest wait for an event; far above the usual time.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Versions of which mounts are tested.
pub(crate) const VERSIONS: [&str; 5] = ["2", "3", "4.0", "4.1", "4.2"];

/// Returns whether this machine can mount, and prints why it cannot.
pub(crate) fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        println!("skipped: needs root and /dev/fuse");
    }
    can
}

/// Returns whether `ENFYS_LOAD=full` asks for loads and versions that take minutes.
pub(crate) fn is_full_load() -> bool {
    std::env::var_os("ENFYS_LOAD").is_some_and(|load| load == "full")
}

/// Waits until `holds`.
#[track_caller]
pub(crate) fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIME_LIMIT, "{what}");
        sleep(Duration::from_millis(10));
    }
}

/// Returns whether a thread waits in the kernel for an answer of FUSE.
pub(crate) fn waits(child: &Child) -> bool {
    let wchan = std::fs::read_to_string(format!("/proc/{}/wchan", child.id()));
    // A page fault waits for the page.
    let places = ["fuse", "request_wait", "folio_wait"];
    wchan.is_ok_and(|place| places.iter().any(|waiting| place.contains(waiting)))
}

/// A server of a directory, which can be killed and started again.
pub(crate) struct Server {
    dir: TempDir,
    port: u16,
    has_udp: bool,
    child: Option<Child>,
}

impl Server {
    /// Starts a server.
    pub(crate) fn start() -> Self {
        Self::with_lease(90)
    }

    /// Starts one with a lease time in seconds. Its grace period is as long.
    pub(crate) fn with_lease(seconds: u32) -> Self {
        Self::with_limit("lease-seconds", seconds)
    }

    /// Starts one that delegates nothing.
    pub(crate) fn without_delegations() -> Self {
        Self::with_limit("delegations", 0)
    }

    /// Starts one that serves over UDP too.
    pub(crate) fn with_udp() -> Self {
        let mut server = Self::created("lease-seconds", 90);
        server.has_udp = true;
        server.start_again();
        server
    }

    fn with_limit(name: &str, value: u32) -> Self {
        let mut server = Self::created(name, value);
        server.start_again();
        server
    }

    fn created(name: &str, value: u32) -> Self {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
        std::fs::create_dir(dir.path().join("export")).expect("a directory");
        let config = format!("[limits]\n{name} = {value}\n");
        std::fs::write(dir.path().join("enfys.toml"), config).expect("a file");
        // Free now; no other program requests it within the test.
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
        Self { dir, port: port.port(), has_udp: false, child: None }
    }

    /// Starts a server that was killed.
    pub(crate) fn start_again(&mut self) {
        let state = self.dir.path().join("state");
        let mut command = Command::new(ENFYS);
        command.args(["serve", "--squash", "none", "--versions", "2,3,4"]);
        command.args(["--listen", &format!("127.0.0.1:{}", self.port)]);
        if self.has_udp {
            // A call over UDP from this machine needs a port below 1024 otherwise.
            command.args(["--udp", "--insecure"]);
        }
        command.arg("--config").arg(self.dir.path().join("enfys.toml"));
        command.arg("--state-dir").arg(state).arg(self.export()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the binary");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let is_up = lines.by_ref().map_while(Result::ok).any(|line| line.contains("nfs://"));
        assert!(is_up, "the server does not start");
        // Later lines must not end it.
        std::thread::spawn(move || lines.count());
        self.child = Some(child);
    }

    /// Kills the server, like a crash.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("a server that runs");
        child.kill().expect("a living child");
        child.wait().expect("a child");
    }

    /// Kills the server and starts it again while a program runs, which waits for it and then succeeds.
    #[track_caller]
    pub(crate) fn restart_during(&mut self, mut program: Child, version: &str) {
        self.kill();
        std::thread::sleep(Duration::from_millis(300));
        assert!(
            program.try_wait().expect("a child").is_none(),
            "{version}: the program waits for the server"
        );
        self.start_again();
        assert!(program.wait().expect("a child").success(), "{version}");
    }

    /// Returns the directory that it serves.
    pub(crate) fn export(&self) -> PathBuf {
        self.dir.path().join("export")
    }

    /// Returns the address at which it listens.
    pub(crate) fn address(&self) -> (&'static str, u16) {
        ("127.0.0.1", self.port)
    }

    /// Returns the number of connections to it.
    pub(crate) fn connections(&self) -> usize {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("connections");
        let remote = format!("0100007F:{:04X}", self.port);
        // ESTABLISHED.
        let is_one = |fields: &[&str]| fields.get(2) == Some(&&*remote) && fields.get(3) == Some(&"01");
        table.lines().filter(|line| is_one(&line.split_whitespace().collect::<Vec<_>>())).count()
    }

    /// Returns the URL of a path of the server.
    pub(crate) fn url(&self, path: &str, version: &str) -> String {
        let port = self.port;
        format!("nfs://127.0.0.1:{port}{path}?version={version}&mountport={port}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A mount in the background; ended when dropped.
pub(crate) struct Mounted {
    _top: TempDir,
    pub(crate) path: PathBuf,
}

impl Mounted {
    /// Mounts the server's export.
    #[track_caller]
    pub(crate) fn new(server: &Server, version: &str, options: &[&str]) -> Self {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = top.path().join("mount");
        std::fs::create_dir(&path).expect("a directory");
        let url = server.url("/export", version);
        let mut arguments = vec!["mount", &url, path.to_str().expect("text")];
        arguments.extend(options);
        let output = run(&arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && text.is_empty(), "{text}");
        Self { _top: top, path }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Runs a shell script in the mount and returns its output.
    #[track_caller]
    pub(crate) fn sh(&self, script: &str) -> String {
        sh(&self.path, script)
    }

    /// Syncs each file. Under a delegation, the mount sends data some time after a file is closed.
    #[track_caller]
    pub(crate) fn send_all(&self) {
        self.sh("find . -type f -exec sync {} +");
    }

    /// Unmounts, and asserts that no program uses the mount any more.
    #[track_caller]
    pub(crate) fn end(self) {
        let output = run(&["umount", self.path.to_str().expect("text")]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!is_mounted(&self.path));
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if is_mounted(&self.path) {
            run(&["umount", "--force", self.path.to_str().expect("text")]);
        }
    }
}

/// Starts a mount in the foreground, whose process is the child.
pub(crate) fn foreground(server: &Server, version: &str, directory: &Path) -> Child {
    foreground_with(&[], server, version, directory)
}

/// [`foreground`] with more arguments.
pub(crate) fn foreground_with(args: &[&str], server: &Server, version: &str, directory: &Path) -> Child {
    let mut child = Command::new(ENFYS)
        .args(["mount", "--foreground"])
        .args(args)
        .arg(server.url("/export", version))
        .arg(directory)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    assert!(line.starts_with("mounted nfs://127.0.0.1"), "{line}");
    child
}

pub(crate) fn is_mounted(path: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    mounts.lines().any(|line| line.split(' ').nth(1) == path.to_str())
}

/// Runs a shell script in a directory and returns its output.
#[track_caller]
pub(crate) fn sh(directory: &Path, script: &str) -> String {
    let output = shell(directory, script).output().expect("a shell");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    let _ = write!(text, "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}: {text}");
    text
}

/// Returns a command that runs a shell script in a directory.
pub(crate) fn shell(directory: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-euc", script]).current_dir(directory).stdin(Stdio::null());
    // No configuration of the user, no questions.
    command.env("HOME", "/nonexistent").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    for name in ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"] {
        command.env(name, "test");
    }
    command
}

/// Runs the binary until it exits.
pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(ENFYS).args(arguments).stdin(Stdio::null()).output().expect("the binary")
}
