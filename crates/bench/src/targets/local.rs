//! Servers that the bench starts: `local:enfys`, `local:enfys-async`, `local:enfys-memory`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::link::system::die_with_this_thread;

/// The path that every server exports.
pub const EXPORT: &str = "/export";
/// Time limit for its end after SIGTERM; then it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Time that a failed run waits to check whether the server ended.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two checks of a server that starts or ends.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Size of a file system in memory.
const MEMORY: &str = "16GiB";

/// The options of started servers.
#[derive(Clone, Debug)]
pub struct Starting {
    /// This program, which is also the server.
    pub program: PathBuf,
    /// The parent of exported directories.
    pub scratch: PathBuf,
}

/// A server that the bench has started. It ends with this value, and with this thread.
#[derive(Debug)]
pub struct LocalServer {
    name: String,
    starting: Starting,
    place: TempDir,
    child: Child,
    /// Its address.
    address: SocketAddr,
}

impl LocalServer {
    /// Starts a server on a free port of this machine, with an empty directory.
    ///
    /// # Errors
    /// The missing program, or the end of the server's log.
    pub fn start(name: &str, starting: &Starting) -> Result<Self, String> {
        let place = tempfile::Builder::new().prefix("enfys-bench-").tempdir_in(&starting.scratch);
        let place = place.map_err(|error| format!("{}: {error}", starting.scratch.display()))?;
        prepare_place(place.path()).map_err(|error| format!("{}: {error}", place.path().display()))?;
        let (child, address) = spawn(name, starting, place.path())?;
        Ok(Self { name: name.to_owned(), starting: starting.clone(), place, child, address })
    }

    /// Restarts the server with the same directory: its caches are empty then. Data in memory only are lost.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn restart(&mut self) -> Result<(), String> {
        stop(&mut self.child);
        (self.child, self.address) = spawn(&self.name, &self.starting, self.place.path())?;
        Ok(())
    }

    /// Whether its files are gone after a restart.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.name == "enfys-memory"
    }

    /// Returns its address as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        url(self.address)
    }

    /// Returns the directory that it exports.
    #[must_use]
    pub fn export(&self) -> PathBuf {
        self.place.path().join("export")
    }

    /// Returns its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its name and version.
    #[must_use]
    pub fn version(&self) -> String {
        version(&self.name)
    }

    /// Checks that it still runs; otherwise returns its exit status and the end of its log.
    ///
    /// # Errors
    /// How it ended.
    pub fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(ended(&self.name, &status.to_string(), self.place.path())),
            _ => Ok(()),
        }
    }

    /// Returns its exit status, if it ends now: a process that is killed closes its connections some time before its end is seen.
    pub fn await_end(&mut self) -> Option<String> {
        let deadline = Instant::now() + END_TIMEOUT;
        loop {
            match self.check() {
                Err(ended) => return Some(ended),
                Ok(()) if Instant::now() >= deadline => return None,
                Ok(()) => thread::sleep(LOOK_EVERY),
            }
        }
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// Returns the name and version of a local server.
#[must_use]
pub fn version(name: &str) -> String {
    format!("{name} {}", env!("CARGO_PKG_VERSION"))
}

/// Returns the URL of a local server.
#[must_use]
pub fn url(address: SocketAddr) -> String {
    let port = address.port();
    format!("nfs://{}{EXPORT}?nfsport={port}&mountport={port}", address.ip())
}

/// Creates the directory that a server exports; the server creates its state directory itself.
///
/// # Errors
/// Errors of the file system.
pub fn prepare_place(place: &Path) -> io::Result<()> {
    fs::create_dir_all(place.join("export"))
}

/// Returns the arguments of Enfys as a server at `listen`, whose files are in `place`.
#[must_use]
pub fn enfys_arguments(name: &str, place: &Path, listen: SocketAddr) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["serve".into()];
    match name {
        "enfys-memory" => arguments.push(format!("--memory={MEMORY}").into()),
        _ => {
            let mut export = place.join("export").into_os_string();
            export.push(format!(":{EXPORT}"));
            arguments.push(export);
        }
    }
    if name == "enfys-async" {
        arguments.push("--async".into());
    }
    arguments.extend(["--listen".into(), listen.to_string().into(), "--insecure".into()]);
    arguments.extend(["--squash", "none", "--log", "warn", "--state-dir"].map(OsString::from));
    arguments.push(place.join("state").into_os_string());
    arguments
}

fn spawn(name: &str, starting: &Starting, place: &Path) -> Result<(Child, SocketAddr), String> {
    let failed = |error: io::Error| format!("{}: {error}", starting.program.display());
    let mut command = Command::new(&starting.program);
    command.args(enfys_arguments(name, place, (Ipv4Addr::LOCALHOST, 0).into()));
    let log = File::create(place.join("log")).map_err(failed)?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    // A group of its own: an interrupt from the terminal is for the bench, which then stops the server.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    die_with_this_thread(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    let Some(stdout) = child.stdout.take() else { return Err(format!("{name}: no standard output")) };
    match listening_address(BufReader::new(stdout)) {
        Some(address) => Ok((child, address)),
        None => {
            stop(&mut child);
            let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            Err(ended(name, &status, place))
        }
    }
}

/// Reads the start message until it names the port; `None` if the server ends before.
fn listening_address(mut output: BufReader<impl io::Read>) -> Option<SocketAddr> {
    let mut line = String::new();
    loop {
        line.clear();
        if output.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let port = line.split("nfsport=").nth(1).and_then(|rest| rest.split('&').next());
        if let Some(port) = port {
            return Some((Ipv4Addr::LOCALHOST, port.parse().ok()?).into());
        }
    }
}

fn ended(name: &str, status: &str, place: &Path) -> String {
    /// Lines of the log that are shown.
    const LINES: usize = 5;
    let log = fs::read_to_string(place.join("log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("; ");
    let log = if last.is_empty() { String::new() } else { format!("; its log ends: {last}") };
    format!("the server {name} ended: {status}{log}")
}

fn stop(child: &mut Child) {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let deadline = Instant::now() + STOP_TIMEOUT;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() >= deadline {
            let _ = child.kill();
        }
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_message_names_the_port() {
        let message = "serving /tmp/x as /export\n  mount -t nfs -o vers=4.1,port=41 127.0.0.1:/export /mnt\n  \
                       'nfs://127.0.0.1/export?version=3&nfsport=4049&mountport=4049'\n";
        let address = listening_address(BufReader::new(message.as_bytes()));
        assert_eq!(address, Some(([127, 0, 0, 1], 4049).into()));
        assert_eq!(listening_address(BufReader::new(&b"error\n"[..])), None);
    }
}
