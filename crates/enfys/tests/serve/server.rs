//! A server process for a test, on free ports.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longest wait for an expected event; far above the usual time.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The binary under test.
pub const ENFYS: &str = env!("CARGO_BIN_EXE_enfys");

/// A temporary directory for one test.
pub struct TestDir(TempDir);

impl TestDir {
    /// Creates one on the disk of the build, since file systems in memory differ.
    pub fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("temporary directory"))
    }

    /// Creates one in memory, where a sync takes no time.
    pub fn in_memory() -> Self {
        Self(tempfile::tempdir_in("/dev/shm").expect("temporary directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Creates a directory that every user may change. It is not sticky: without root, all files in it belong to the server's user,
    /// and no caller could rename them.
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir(&path).expect("directory");
        std::fs::set_permissions(&path, mode(0o777)).expect("permissions");
        path
    }

    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("file");
        path
    }

    /// Returns the first arguments of a server whose state directory is here.
    pub fn arguments(&self) -> Vec<String> {
        let state = self.path("state").display().to_string();
        ["serve", "--listen", "127.0.0.1:0", "--state-dir", &state].map(String::from).to_vec()
    }
}

/// Returns whether this test can become other users; prints a skip if not.
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped: only root can become other users");
    }
    is_root
}

/// Permission bits.
pub fn mode(mode: u32) -> std::fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(mode)
}

/// A running server; killed when dropped.
pub struct Server {
    child: Child,
    /// The address of NFS.
    pub address: SocketAddr,
    /// Its startup message.
    pub startup_message: String,
    log: PathBuf,
    /// Its state directory, if it has one.
    state: PathBuf,
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    /// Starts the binary with these arguments, and waits for its startup message.
    pub fn start(dir: &TestDir, arguments: &[impl AsRef<OsStr>]) -> Self {
        let mut command = Command::new(ENFYS);
        command.args(arguments);
        Self::spawn(dir, command)
    }

    /// Starts a command that becomes the server.
    pub fn spawn(dir: &TestDir, mut command: Command) -> Self {
        let log = dir.path("log");
        let stderr = File::options().append(true).create(true).open(&log).expect("log");
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().expect("the binary starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut startup_message = String::new();
        // The URL is the last line of an address.
        while !startup_message.contains("nfs://") {
            let read = stdout.read_line(&mut startup_message).expect("text");
            assert_ne!(read, 0, "ended early: {startup_message}{}", std::fs::read_to_string(&log).unwrap());
        }
        let address = parse_address(&startup_message);
        Self { child, address, startup_message, log, state: dir.path("state"), _stdout: stdout }
    }

    /// Returns the address of the metrics, from the rest of the startup message.
    pub fn metrics_address(&mut self) -> SocketAddr {
        let mut line = String::new();
        while !line.starts_with("metrics: ") {
            line.clear();
            assert_ne!(self._stdout.read_line(&mut line).expect("text"), 0, "no metrics");
        }
        let address =
            line.trim().strip_prefix("metrics: http://").and_then(|rest| rest.strip_suffix("/metrics"));
        address.expect("a URL").parse().expect("an address")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the server runs");
    }

    /// Waits until SIGSTOP has stopped every thread of the process (proc(5), state `T`).
    #[track_caller]
    pub fn await_stopped(&self) {
        let deadline = Instant::now() + TIMEOUT;
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat =
                std::fs::read_to_string(task.expect("a thread").path().join("stat")).expect("its state");
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        };
        let tasks = || std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("the server runs");
        while !tasks().all(is_stopped) {
            assert!(Instant::now() < deadline, "still runs");
            sleep(POLL_INTERVAL);
        }
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("log")
    }

    /// Waits until the log has `text` after its first `from` bytes.
    #[track_caller]
    pub fn await_log(&self, from: usize, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.log()[from..].contains(text) {
            assert!(Instant::now() < deadline, "`{text}` is missing in: {}", self.log());
            sleep(POLL_INTERVAL);
        }
    }

    /// Reloads the exports of a server with a state directory; returns the log lines about it.
    #[track_caller]
    pub fn reload(&self) -> String {
        let from = self.log().len();
        self.signal(Signal::HUP);
        let deadline = Instant::now() + TIMEOUT;
        while !["reloaded: ", "reload failed"].iter().any(|end| self.log()[from..].contains(end)) {
            assert!(Instant::now() < deadline, "no reload in: {}", self.log());
            sleep(POLL_INTERVAL);
        }
        // There may be a line for each export. The thread that writes them answers `status` after the last one.
        let answered = run(&["status".as_ref(), "--state-dir".as_ref(), self.state.as_path()]);
        assert!(answered.status.success(), "{}", String::from_utf8_lossy(&answered.stderr));
        self.log()[from..].to_owned()
    }

    /// Waits until it has ended.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status;
            }
            assert!(Instant::now() < deadline, "still runs: {}", self.log());
            sleep(POLL_INTERVAL);
        }
    }

    /// Stops it in order.
    #[track_caller]
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        assert!(self.wait().success(), "{}", self.log());
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("a child");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parses the address in a line `nfs://HOST/PATH?…nfsport=PORT…`.
fn parse_address(text: &str) -> SocketAddr {
    let url = text.split("nfs://").nth(1).expect("a URL");
    let host = url.split('/').next().expect("a host");
    let port = url.split("nfsport=").nth(1).and_then(|rest| rest.split('&').next()).expect("a port");
    format!("{host}:{port}").parse().expect("an address")
}

/// Returns the error of a failed command: one line on standard error, and exit status 1.
#[track_caller]
pub fn refusal(output: &Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let lines: Vec<_> = stderr.lines().filter(|line| !line.contains(" INFO ")).collect();
    assert_eq!(lines.len(), 1, "one line says why: {stderr}");
    lines[0].strip_prefix("enfys: ").expect("the program's name comes first").to_owned()
}

/// Runs the binary until it exits.
pub fn run(arguments: &[impl AsRef<OsStr>]) -> Output {
    Command::new(ENFYS).args(arguments).output().expect("the binary starts")
}

/// Returns [`TestDir::arguments`] and additional ones.
pub fn with(dir: &TestDir, more: &[&Path]) -> Vec<String> {
    let more = more.iter().map(|argument| argument.display().to_string());
    dir.arguments().into_iter().chain(more).collect()
}
