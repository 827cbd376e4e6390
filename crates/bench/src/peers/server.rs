//! The servers that are compared: how each is started, and why one is left out.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::operation::{Operation, Version};
use crate::plan::GANESHA;
use crate::process;
use crate::runner::ThisMachine;
use crate::targets::local::ganesha::configuration;
use crate::targets::local::{Address, EXPORT};

/// The time that a server may take until it accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Lines of a server's log that are shown when it does not start.
const LOG_TAIL_LINES: usize = 8;
/// Set if this process has its own network and mount namespaces, so that rpcbind affects no other program.
pub const NAMESPACE_VARIABLE: &str = "ENFYS_PEERS_NAMESPACE";
/// One of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Peer {
    /// The floor, large READs by `pread`.
    Floor,
    /// The floor, large READs by `sendfile`.
    FloorSendfile,
    /// The floor whose CREATE and REMOVE are on disk before they are answered.
    FloorSync,
    /// This project's server.
    Enfys,
    /// The same with `--async`: like the floor and the other servers, it answers CREATE and REMOVE before they are on disk.
    EnfysAsync,
    /// The same over a file system in memory: this shows the protocol's part of the cost. Measured only on request.
    EnfysMemory,
    /// NFS-Ganesha with its VFS back end.
    Ganesha,
    /// The crate `nfs3_server` over a directory.
    Nfs3Server,
}

impl Peer {
    /// All of them, in the order of the report.
    pub const ALL: &[Self] = &[
        Self::Floor,
        Self::FloorSendfile,
        Self::FloorSync,
        Self::Enfys,
        Self::EnfysAsync,
        Self::EnfysMemory,
        Self::Nfs3Server,
        Self::Ganesha,
    ];

    /// Returns the name in the report and, apart from the other floors and the async export, of `--only`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::FloorSendfile => "floor (sendfile)",
            Self::FloorSync => "floor (sync)",
            Self::Enfys => "enfys",
            Self::EnfysAsync => "enfys_async",
            Self::EnfysMemory => "enfys_memory",
            Self::Ganesha => "ganesha",
            Self::Nfs3Server => "nfs3_server",
        }
    }

    /// Returns whether the server supports `operation`, and whether its figures are meaningful.
    #[must_use]
    pub fn serves(self, operation: Operation) -> bool {
        match self {
            // Only its own call opens files.
            Self::Floor => operation.version() == Version::V3 && operation != Operation::OpenRead,
            Self::FloorSendfile => operation == Operation::Read1m,
            Self::FloorSync => operation == Operation::CreateRemove,
            // UNSTABLE writes and reads do not depend on it.
            Self::EnfysAsync => matches!(
                operation,
                Operation::CreateRemove | Operation::CreateRemove41 | Operation::CreateRemove42
            ),
            Self::Nfs3Server => {
                operation.version() == Version::V3
                    && !operation.is_of_floor()
                    && operation != Operation::Readdirplus
            }
            Self::Enfys | Self::EnfysMemory => !operation.is_of_floor(),
            Self::Ganesha => !operation.is_of_floor() && operation.version() != Version::V2,
        }
    }
}

/// The common configuration of all servers.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// The directory to export.
    pub export: PathBuf,
    /// Directory for configuration and logs.
    pub scratch: PathBuf,
    /// Directory of this project's own release programs.
    pub programs: PathBuf,
    /// The program around `nfs3_server`.
    pub nfs3_server: PathBuf,
    /// Core that servers run on.
    pub core: usize,
}

/// A server that accepts connections; it is killed when this is dropped.
#[derive(Debug)]
pub struct RunningPeer {
    /// The server.
    pub peer: Peer,
    /// Address of its NFS programs.
    pub server: SocketAddr,
    /// Address of its MOUNT program.
    pub mount: SocketAddr,
    child: Child,
    /// Helper programs.
    helpers: Vec<Child>,
}

impl Drop for RunningPeer {
    fn drop(&mut self) {
        for child in std::iter::once(&mut self.child).chain(&mut self.helpers) {
            // Fails only when it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl RunningPeer {
    /// Starts `peer` at `place` and waits until it accepts connections.
    ///
    /// # Errors
    /// One line: the missing program and how to install it, or the server's last message.
    pub fn start(peer: Peer, place: &PeerConfig) -> Result<Self, String> {
        let server = free_address()?;
        let mount = if peer == Peer::Ganesha { free_address()? } else { server };
        let (command, helpers) = prepare(peer, place, server, mount)?;
        let log = place.scratch.join(format!("{}.log", peer.name()));
        let child = spawn(command, &log, place.core).map_err(|error| format!("{}: {error}", peer.name()))?;
        let mut running = Self { peer, server, mount, child, helpers };
        running.await_listening(&log)?;
        Ok(running)
    }

    /// Returns the ID of the server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn await_listening(&mut self, log: &Path) -> Result<(), String> {
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(self.mount).is_err() || TcpStream::connect(self.server).is_err() {
            let ended = self.child.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || Instant::now() > deadline {
                let state = ended.map_or("does not listen".to_owned(), |status| format!("ended: {status}"));
                return Err(format!("{} {state}; its log ends:\n{}", self.peer.name(), tail(log)));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// Returns an unused address.
fn free_address() -> Result<SocketAddr, String> {
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| format!("bind to 127.0.0.1: {error}"))?;
    listener.local_addr().map_err(|error| error.to_string())
}

fn spawn(mut command: Command, log: &Path, core: usize) -> io::Result<Child> {
    let log = File::create(log)?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    process::pinned(core, || command.spawn())
}

/// Returns the last lines of a log, indented.
fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].iter().fold(String::new(), |mut all, line| {
        let _ = writeln!(all, "    {line}");
        all
    })
}

fn prepare(
    peer: Peer,
    place: &PeerConfig,
    server: SocketAddr,
    mount: SocketAddr,
) -> Result<(Command, Vec<Child>), String> {
    let listen = server.to_string();
    let mut helpers = Vec::new();
    let command = match peer {
        Peer::Floor | Peer::FloorSendfile | Peer::FloorSync => {
            let mut command =
                own_program(&place.programs.join("enfys-floor"), "cargo xtask peers builds it")?;
            command.arg(&place.export).args(["--listen", &listen]);
            match peer {
                Peer::FloorSendfile => _ = command.arg("--sendfile"),
                Peer::FloorSync => _ = command.arg("--sync"),
                _ => {}
            }
            command
        }
        Peer::Enfys | Peer::EnfysAsync | Peer::EnfysMemory => {
            let mut command = own_program(&place.programs.join("enfys"), "cargo build --release -p enfys")?;
            let export = format!("{}:{EXPORT}", place.export.display());
            let what = if peer == Peer::EnfysMemory { "--memory" } else { &export };
            command.args(["serve", what, "--listen", &listen, "--squash", "none", "--versions", "2,3,4"]);
            if peer == Peer::EnfysAsync {
                command.arg("--async");
            }
            command.arg("--state-dir").arg(place.scratch.join(format!("{}-state", peer.name())));
            command
        }
        Peer::Nfs3Server => {
            let mut command = own_program(&place.nfs3_server, "cargo xtask peers builds it")?;
            command.arg(&place.export).arg(&listen);
            command
        }
        Peer::Ganesha => {
            helpers.push(start_rpcbind(place)?);
            ganesha(place, server, mount)?
        }
    };
    Ok((command, helpers))
}

fn own_program(path: &Path, how: &str) -> Result<Command, String> {
    if path.exists() { Ok(Command::new(path)) } else { Err(format!("{} is missing: {how}", path.display())) }
}

fn start_rpcbind(place: &PeerConfig) -> Result<Child, String> {
    if std::env::var_os(NAMESPACE_VARIABLE).is_none() {
        return Err("ganesha needs rpcbind, which needs a network namespace of its own: run \
                    `cargo xtask peers` as root"
            .into());
    }
    let mut command = Command::new("rpcbind");
    command.arg("-f");
    spawn(command, &place.scratch.join("rpcbind.log"), place.core)
        .map_err(|error| format!("rpcbind: {error}: apt-get install rpcbind"))
}

fn ganesha(place: &PeerConfig, server: SocketAddr, mount: SocketAddr) -> Result<Command, String> {
    if let Some(missing) = GANESHA.iter().find(|need| !need.is_met(&ThisMachine)) {
        return Err(format!("{} is missing: {}", missing.name, missing.remedy()));
    }
    let file = place.scratch.join("ganesha.conf");
    let text = configuration(&place.export, Address { server, mount_port: mount.port(), metrics: None });
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut command = Command::new("ganesha.nfsd");
    command.arg("-F").arg("-f").arg(file);
    command.args(["-L", "/dev/stderr", "-p"]).arg(place.scratch.join("ganesha.pid"));
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_is_named_with_its_remedy() {
        let nowhere = tempfile::tempdir().unwrap();
        let place = PeerConfig {
            export: nowhere.path().into(),
            scratch: nowhere.path().into(),
            programs: nowhere.path().into(),
            nfs3_server: nowhere.path().join("nfs3-server-peer"),
            core: 0,
        };
        let error = RunningPeer::start(Peer::Enfys, &place).unwrap_err();
        assert!(error.contains("enfys is missing: cargo build"), "{error}");
    }

    #[test]
    fn a_program_that_ends_at_once_is_reported_with_its_output() {
        let scratch = tempfile::tempdir().unwrap();
        let program = scratch.path().join("enfys");
        fs::write(&program, "#!/bin/sh\necho no such luck\nexit 3\n").unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let place = PeerConfig {
            export: scratch.path().into(),
            scratch: scratch.path().into(),
            programs: scratch.path().into(),
            nfs3_server: PathBuf::new(),
            core: 0,
        };
        let error = RunningPeer::start(Peer::Enfys, &place).unwrap_err();
        assert!(error.contains("exit status: 3") && error.contains("no such luck"), "{error}");
    }
}
