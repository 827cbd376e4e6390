//! The server under test: command lines, start, readiness and end.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use super::guest::on_one_core;
use super::matrix::{Backend, Combination, Export};
use super::{knfsd, scripts_dir};
use crate::report::target_dir;

/// The server's address.
pub(super) const ADDRESS: &str = "10.99.0.1";
/// The NFS port.
pub(super) const PORT: u16 = 2049;
/// The exports of enfys with the local back end.
const ENFYS_EXPORTS: &str = "{dir}:/export {space}:/space {quota}:/quota";
/// Size of the small file system.
pub(super) const SPACE_MIB: u32 = 48;
/// A user's quota on `/quota`.
pub(super) const QUOTA_MIB: u32 = 32;
/// Maximum time until a server listens.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Port of the MOUNT program of servers with a separate one.
const OWN_MOUNT_PORT: u16 = 20048;

/// A server that the tests can start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ServerKind {
    #[default]
    Enfys,
    Ganesha,
    /// The kernel's server in a second guest, with files on an ext4 image, to compare with.
    Knfsd,
}

impl ServerKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            ServerKind::Enfys => "enfys",
            ServerKind::Ganesha => "ganesha",
            ServerKind::Knfsd => "knfsd",
        }
    }

    /// Returns the port of its MOUNT program.
    pub(super) fn mount_port(self) -> u16 {
        match self {
            ServerKind::Enfys => PORT,
            ServerKind::Ganesha | ServerKind::Knfsd => OWN_MOUNT_PORT,
        }
    }

    /// Returns the shell command that starts the server.
    pub(super) fn command(
        self,
        combination: &Combination,
        directories: &Directories,
    ) -> Result<String, String> {
        match self {
            ServerKind::Enfys => enfys_command(combination, directories),
            ServerKind::Ganesha => ganesha_command(directories),
            ServerKind::Knfsd => {
                Ok(knfsd::command(combination.export, directories, &scripts_dir(), OWN_MOUNT_PORT))
            }
        }
    }

    /// Returns the address that the guest mounts from.
    pub(super) fn address(self) -> &'static str {
        match self {
            ServerKind::Enfys | ServerKind::Ganesha => ADDRESS,
            ServerKind::Knfsd => knfsd::ADDRESS,
        }
    }

    /// Returns the directory above the exports, where the server shows it to clients of version 3.
    pub(super) fn export_root(self) -> &'static str {
        match self {
            ServerKind::Enfys | ServerKind::Ganesha => "",
            ServerKind::Knfsd => knfsd::ROOT,
        }
    }
}

/// The directories of one combination.
#[derive(Clone, Debug)]
pub(super) struct Directories {
    /// The programs under test.
    pub(super) programs: PathBuf,
    /// The parent of the following.
    pub(super) work: PathBuf,
    /// Served as /export.
    pub(super) export: PathBuf,
    /// Served as /space: a small file system.
    pub(super) space: PathBuf,
    /// Served as /quota: a file system with a small quota.
    pub(super) quota: PathBuf,
    /// The server's state directory.
    pub(super) state: PathBuf,
}

impl Directories {
    pub(super) fn new(programs: PathBuf, work: &Path) -> Directories {
        let at = |name: &str| work.join(name);
        Directories {
            programs,
            work: work.to_path_buf(),
            export: at("export"),
            space: at("space"),
            quota: at("quota"),
            state: at("state"),
        }
    }

    pub(super) fn enfys(&self) -> PathBuf {
        self.programs.join("enfys")
    }

    pub(super) fn server_log(&self) -> PathBuf {
        self.work.join("server.log")
    }

    fn fill_in(&self, template: &str) -> String {
        let mut command = template.to_owned();
        let names = [
            ("{dir}", &self.export),
            ("{space}", &self.space),
            ("{quota}", &self.quota),
            ("{state}", &self.state),
        ];
        for (name, directory) in names {
            command = command.replace(name, &directory.display().to_string());
        }
        command
    }
}

fn enfys_command(combination: &Combination, directories: &Directories) -> Result<String, String> {
    let enfys = directories.enfys();
    let enfys = format!(
        "exec {} serve --listen {ADDRESS}:{PORT} --portmap --versions 2,3,4 --state-dir {{state}}",
        enfys.display()
    );
    Ok(match (combination.backend, combination.export) {
        (Backend::Local, Export::Sync) => format!("{enfys} --squash none {ENFYS_EXPORTS}"),
        (Backend::Local, Export::Async) => format!("{enfys} --squash none --async {ENFYS_EXPORTS}"),
        (Backend::Memory | Backend::Guest, _) => {
            let file = directories.work.join("enfys.toml");
            write(&file, &enfys_memory_config())?;
            format!("{enfys} --config {}", file.display())
        }
    })
}

/// Returns a configuration for several file systems in memory, which the command line cannot express.
fn enfys_memory_config() -> String {
    let export = |pseudo: &str, more: &str| {
        format!("[[export]]\nmemory = true\npseudo = \"{pseudo}\"\nsquash = \"none\"\n{more}\n")
    };
    let small = format!("memory-bytes = {}", u64::from(SPACE_MIB) << 20);
    let quota = format!("quota-bytes = {}", u64::from(QUOTA_MIB) << 20);
    [export("/export", ""), export("/space", &small), export("/quota", &quota)].concat()
}

/// Returns the path of the program that calls every operation of the library.
pub(super) fn operations_binary() -> PathBuf {
    target_dir().join("debug/examples/operations")
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

fn ganesha_command(directories: &Directories) -> Result<String, String> {
    let mut config = format!(
        "NFS_CORE_PARAM {{ NFS_Port = {PORT}; MNT_Port = {OWN_MOUNT_PORT}; NLM_Port = 20049; Protocols = 3, 4; Mount_Path_Pseudo = true; }}\n\
         NFSv4 {{ Graceless = true; Minor_Versions = 0, 1, 2; }}\n"
    );
    for (id, (pseudo, directory)) in
        [("/export", &directories.export), ("/space", &directories.space), ("/quota", &directories.quota)]
            .iter()
            .enumerate()
    {
        config.push_str(&format!(
            "EXPORT {{ Export_Id = {}; Path = {}; Pseudo = {pseudo}; Access_Type = RW; \
             Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; FSAL {{ Name = VFS; }} }}\n",
            id + 1,
            directory.display()
        ));
    }
    let file = directories.work.join("ganesha.conf");
    write(&file, &config)?;
    let (file, log) = (file.display(), directories.work.join("ganesha.log"));
    // Locks of version 3 need a status monitor beside the server.
    Ok(format!(
        "pgrep -x rpcbind >/dev/null || rpcbind -w; \
         pgrep -x rpc.statd >/dev/null || {{ (cd /var/lib/nfs && mkdir -p sm sm.bak && chown statd . sm sm.bak); rpc.statd --no-notify; }}; mkdir -p /run/ganesha; exec ganesha.nfsd -F -f {file} -L {} -p /run/ganesha/pid",
        log.display()
    ))
}

/// A server process that can be killed and started again.
pub(super) struct Server {
    command: String,
    /// The address on which it listens.
    address: &'static str,
    /// The core that the server stays on, if it is a guest.
    core: Option<usize>,
    log: PathBuf,
    child: Option<Child>,
}

impl Server {
    /// Creates a server without starting it. `template` is a command with placeholders for directories.
    pub(super) fn new(
        template: &str,
        directories: &Directories,
        address: &'static str,
        core: Option<usize>,
    ) -> Server {
        let (command, log) = (directories.fill_in(template), directories.server_log());
        Server { address, core, command, log, child: None }
    }

    /// Starts the server and waits until it listens.
    pub(super) fn start(&mut self) -> Result<(), String> {
        if self.child.is_some() {
            return Err("the server already runs".into());
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(|error| format!("log: {error}"))?;
        let errors = log.try_clone().map_err(|error| format!("log: {error}"))?;
        let mut shell = Command::new("bash");
        shell.args(["-c", &self.command]).stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        let started = match self.core {
            Some(number) => on_one_core(number, || shell.spawn()),
            None => shell.spawn(),
        };
        self.child = Some(started.map_err(|error| format!("server: {error}"))?);
        self.wait_ready()
    }

    fn wait_ready(&mut self) -> Result<(), String> {
        let ip = self.address.parse().map_err(|error| format!("{}: {error}", self.address))?;
        let address = SocketAddr::new(ip, PORT);
        let deadline = Instant::now() + READY_LIMIT;
        while Instant::now() < deadline {
            if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.ended() {
                return Err(format!("the server ended before it listened ({status}): {}", self.command));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(format!("the server does not listen on {address} after {} s", READY_LIMIT.as_secs()))
    }

    /// Kills the server like a crash: no signal handler runs.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.signal(Signal::KILL)
    }

    /// Asks the server to end, and waits for its end.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        self.signal(Signal::TERM)
    }

    fn signal(&mut self, signal: Signal) -> Result<(), String> {
        let mut child = self.child.take().ok_or("the server does not run")?;
        let group = Pid::from_raw(child.id() as i32).ok_or("no process id")?;
        // It may already have ended; then only its status is left to read.
        match kill_process_group(group, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(format!("kill: {error}")),
        }
        child.wait().map_err(|error| format!("wait: {error}"))?;
        Ok(())
    }

    /// Returns the exit status if the server ended by itself.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        Some(status.to_string())
    }

    /// Returns the process ID while the server runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::matrix::Version;
    use super::*;

    fn command(export: Export, backend: Backend, directories: &Directories) -> String {
        let combination = Combination { version: Version::V3, export, backend };
        let template = ServerKind::Enfys.command(&combination, directories).expect("a command");
        directories.fill_in(&template)
    }

    #[test]
    fn command_has_the_directories_of_its_combination() {
        let directories = Directories::new(PathBuf::from("/programs"), Path::new("/w"));
        let sync = command(Export::Sync, Backend::Local, &directories);
        assert!(sync.ends_with(
            "--state-dir /w/state --squash none /w/export:/export /w/space:/space /w/quota:/quota"
        ));
        let fast = command(Export::Async, Backend::Local, &directories);
        assert!(fast.contains(" --async ") && !sync.contains(" --async "), "{sync}\n{fast}");
    }

    #[test]
    fn memory_back_end_uses_a_configuration_file() {
        let work = tempfile::tempdir().expect("a directory");
        let command = command(Export::Sync, Backend::Memory, &Directories::new(PathBuf::new(), work.path()));
        assert!(command.ends_with("enfys.toml") && !command.contains("/export"), "{command}");
        let config: toml::Table =
            fs::read_to_string(work.path().join("enfys.toml")).expect("the file").parse().expect("TOML");
        let exports = config["export"].as_array().expect("exports");
        assert_eq!(exports.len(), 3);
        assert_eq!(exports[1]["memory-bytes"].as_integer(), Some(i64::from(SPACE_MIB) << 20));
        assert_eq!(exports[2]["quota-bytes"].as_integer(), Some(i64::from(QUOTA_MIB) << 20));
    }
}
