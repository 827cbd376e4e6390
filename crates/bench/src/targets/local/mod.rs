//! Servers that the bench starts: `local:enfys`, `local:enfys-async`, `local:enfys-memory`, `local:enfys-disk-1994`,
//! `local:enfys-disks-1994`, both also with `-gathering`, `-journal` or `-gathering-journal` after it, `local:ganesha`, `local:knfsd`.

mod enfys;
pub mod ganesha;
mod knfsd;
mod launch;

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

pub use self::knfsd::NETWORK as GUEST_NETWORK;
pub use self::launch::{Address, EXPORT, Launch};
use crate::link::system::die_with_this_thread;

/// Time limit for its start, of other programs than this one.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for its end after SIGTERM; then it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Time that a failed run waits to check whether the server ended.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two checks of a server that starts or ends.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Ports of a server at its end of a link: NFS, and MOUNT if it has one of its own.
const LINK_PORTS: (u16, u16) = (2049, 20048);
/// The counter of a modelled disk's syncs, in a result.
pub const DISK_SYNCS: &str = "modelled_disk_syncs_total";
/// The counter of the bytes that they made stable.
pub const DISK_SYNCED_BYTES: &str = "modelled_disk_synced_bytes_total";
/// Port of counters at its end of a link.
const LINK_METRICS_PORT: u16 = 9100;

/// The options of started servers.
#[derive(Clone, Debug)]
pub struct Starting {
    /// This program, which is also the server.
    pub program: PathBuf,
    /// The parent of exported directories.
    pub scratch: PathBuf,
    /// Whether Enfys tells its counters, for which it measures each call.
    pub tells_counters: bool,
}

/// A server that the bench has started. It ends with this value, and with this thread.
#[derive(Debug)]
pub struct LocalServer {
    name: String,
    starting: Starting,
    place: TempDir,
    child: Child,
    address: Address,
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

    /// Returns whether its files are gone after a restart.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.name == "enfys-memory" || is_modelled(&self.name)
    }

    /// Returns its address as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.address.url(EXPORT)
    }

    /// Returns the directory that it exports.
    #[must_use]
    pub fn export(&self) -> PathBuf {
        self.place.path().join("export")
    }

    /// Returns where its counters are, if it tells them.
    #[must_use]
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.address.metrics
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
    let said = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Some(text.lines().next().unwrap_or_default().rsplit(' ').next().unwrap_or_default().to_owned())
    };
    let version = match name {
        "ganesha" => said("ganesha.nfsd", "-v"),
        "knfsd" => said("linux.uml", "--version"),
        _ => Some(env!("CARGO_PKG_VERSION").to_owned()),
    };
    format!("{name} {}", version.unwrap_or_default()).trim_end().to_owned()
}

/// Returns whether a server runs at the other end of a link only, even without delay: it is a machine of its own.
#[must_use]
pub fn needs_link(name: &str) -> bool {
    name == "knfsd"
}

/// Returns whether the files of a server are in a directory of this machine, where they can be made before it starts.
#[must_use]
pub fn has_directory(name: &str) -> bool {
    !matches!(name, "enfys-memory" | "knfsd") && !is_modelled(name)
}

/// Returns whether a server's disk is a model, whose counters are always told.
fn is_modelled(name: &str) -> bool {
    name.starts_with("enfys-disk-") || name.starts_with("enfys-disks-")
}

/// Returns whether `address` accepts connections.
#[must_use]
pub fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, LOOK_EVERY.max(Duration::from_millis(500))).is_ok()
}

/// A server at one end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtLink {
    /// How it is started.
    pub launch: Launch,
    /// Where the other end finds it.
    pub address: Address,
    /// The URL of its export.
    pub url: String,
}

impl AtLink {
    /// Prepares a server in `place` that listens at `end`, the server's end of a link.
    ///
    /// # Errors
    /// Those of its files, or a missing program.
    pub fn prepare(
        name: &str,
        starting: &Starting,
        place: &Path,
        end: Ipv4Addr,
        is_version_4: bool,
    ) -> Result<Self, String> {
        if name == "knfsd" {
            let (address, path) = knfsd::address(is_version_4);
            return Ok(Self { launch: knfsd::launch(place)?, address, url: address.url(path) });
        }
        let (port, mount_port) = LINK_PORTS;
        let mount_port = if name == "ganesha" { mount_port } else { port };
        let metrics = tells_counters(name, starting).then(|| SocketAddr::from((end, LINK_METRICS_PORT)));
        let address = Address { server: SocketAddr::from((end, port)), mount_port, metrics };
        Ok(Self { launch: launch(name, starting, place, address)?, address, url: address.url(EXPORT) })
    }
}

/// Returns how a server that is reached at `address` is started.
fn launch(name: &str, starting: &Starting, place: &Path, address: Address) -> Result<Launch, String> {
    match name {
        "ganesha" => ganesha::launch(place, address),
        "knfsd" => Err("knfsd runs at the other end of a link".to_owned()),
        _ => {
            let arguments = enfys::arguments(name, place, address);
            Ok(Launch { program: starting.program.clone(), arguments })
        }
    }
}

/// Creates the directory that a server exports; the server creates its state directory itself.
///
/// # Errors
/// Errors of the file system.
pub fn prepare_place(place: &Path) -> io::Result<()> {
    fs::create_dir_all(place.join("export"))
}

fn spawn(name: &str, starting: &Starting, place: &Path) -> Result<(Child, Address), String> {
    let is_own = name != "ganesha";
    // This program takes a free port itself, and tells it.
    let ports = if is_own { (0, 0) } else { (free_port()?, free_port()?) };
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, ports.0));
    let metrics_port = if tells_counters(name, starting) { Some(free_port()?) } else { None };
    let metrics = metrics_port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let mut address = Address { server, mount_port: ports.1, metrics };
    let Launch { program, arguments } = launch(name, starting, place, address)?;
    let failed = |error: io::Error| format!("{}: {error}", program.display());
    let mut command = Command::new(&program);
    command.args(arguments);
    let log = File::create(place.join("log")).map_err(failed)?;
    let output = if is_own { Stdio::piped() } else { log.try_clone().map_err(failed)?.into() };
    command.stdin(Stdio::null()).stdout(output).stderr(log);
    // A group of its own: an interrupt from the terminal is for the bench, which then stops the server.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    die_with_this_thread(&mut command);
    let mut child = command.spawn().map_err(failed)?;
    let is_ready = match child.stdout.take() {
        Some(output) => enfys::listening_address(BufReader::new(output))
            .map(|server| address = Address { server, mount_port: server.port(), metrics })
            .is_some(),
        None => becomes_ready(&mut child, address),
    };
    if is_ready {
        return Ok((child, address));
    }
    stop(&mut child);
    let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
    Err(ended(name, &status, place))
}

/// Waits until a server accepts connections at both its ports; `false` if it ends or takes too long.
fn becomes_ready(child: &mut Child, Address { server, mount_port, .. }: Address) -> bool {
    let deadline = Instant::now() + START_TIMEOUT;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        if accepts(server) && accepts((server.ip(), mount_port).into()) {
            return true;
        }
        thread::sleep(LOOK_EVERY);
    }
    false
}

/// Returns whether a server tells its counters.
fn tells_counters(name: &str, starting: &Starting) -> bool {
    is_modelled(name) || starting.tells_counters && name.starts_with("enfys")
}

/// Returns an unused port of this machine's loopback.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|error| format!("bind to 127.0.0.1: {error}"))
}

fn ended(name: &str, status: &str, place: &Path) -> String {
    format!("the server {name} ended: {status}{}", end_of_log(place))
}

/// Returns the last lines of a server's log for a message; nothing if it has written none.
pub fn end_of_log(place: &Path) -> String {
    /// Lines of the log that are shown.
    const LINES: usize = 5;
    let log = fs::read_to_string(place.join("log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("; ");
    if last.is_empty() { String::new() } else { format!("; its log ends: {last}") }
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
    fn servers_at_a_link_have_the_ports_of_their_kind() {
        let place = tempfile::tempdir().unwrap();
        let starting = Starting {
            program: PathBuf::from("/bin/enfys"),
            scratch: place.path().to_owned(),
            tells_counters: false,
        };
        let end = Ipv4Addr::new(10, 77, 0, 1);
        let url = |name| AtLink::prepare(name, &starting, place.path(), end, true).unwrap().url;
        assert_eq!(url("enfys"), "nfs://10.77.0.1/export?nfsport=2049&mountport=2049");
        assert_eq!(url("ganesha"), "nfs://10.77.0.1/export?nfsport=2049&mountport=20048");
        let written = fs::read_to_string(place.path().join("ganesha.conf")).unwrap();
        let path = format!("Path = \"{}\"", place.path().join("export").display());
        for part in ["Bind_addr = 10.77.0.1; NFS_Port = 2049; MNT_Port = 20048", path.as_str()] {
            assert!(written.contains(part), "{part}: {written}");
        }
    }

    #[test]
    fn a_server_that_ends_is_reported_with_its_log() {
        let scratch = tempfile::tempdir().unwrap();
        let program = scratch.path().join("program");
        fs::write(&program, "#!/bin/sh\necho no such luck >&2\nexit 3\n").unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let starting = Starting { program, scratch: scratch.path().to_owned(), tells_counters: false };
        let why = LocalServer::start("enfys", &starting).unwrap_err();
        assert_eq!(why, "the server enfys ended: exit status: 3; its log ends: no such luck");
    }
}
