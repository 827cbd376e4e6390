//! The server under test: how each kind is started, killed and known to be ready.

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

use super::matrix::{Backend, Combination, Export};
use crate::report::target_dir;

/// Where the guest finds the server.
pub(super) const ADDRESS: &str = "10.99.0.1";
/// The guest's own address.
pub(super) const GUEST_ADDRESS: &str = "10.99.0.2";
/// The NFS port.
pub(super) const PORT: u16 = 2049;
/// What enfys serves from directories.
const ENFYS_EXPORTS: &str = "{dir}:/export {space}:/space {quota}:/quota";
/// Size of the file system that is soon full.
pub(super) const SPACE_MIB: u32 = 48;
/// What the quota of `/quota` lets a user have.
pub(super) const QUOTA_MIB: u32 = 32;
/// How long a server may take until it listens.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Port of the MOUNT program of servers that have one for it.
const OWN_MOUNT_PORT: u16 = 20048;

/// Servers that the tests know how to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    #[default]
    Enfys,
    Ganesha,
    /// The kernel's own, inside the guest, with its files in the guest's memory: it shows what a test makes of the
    /// server that most people know. Only for `--backend memory`.
    Knfsd,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Enfys => "enfys",
            Kind::Ganesha => "ganesha",
            Kind::Knfsd => "knfsd",
        }
    }

    /// Port of its MOUNT program.
    pub(super) fn mount_port(self) -> u16 {
        match self {
            Kind::Enfys => PORT,
            Kind::Ganesha | Kind::Knfsd => OWN_MOUNT_PORT,
        }
    }

    /// The shell command that becomes the server.
    pub(super) fn command(self, combination: &Combination, places: &Places) -> Result<String, String> {
        match self {
            Kind::Enfys => enfys_command(combination, places),
            Kind::Ganesha => ganesha_command(places),
            Kind::Knfsd => Ok("exec sleep infinity".into()),
        }
    }

    /// The address that the guest mounts from, and where the guest keeps the exports if it serves them itself.
    pub(super) fn place(self) -> (&'static str, &'static str) {
        match self {
            Kind::Enfys | Kind::Ganesha => (ADDRESS, ""),
            Kind::Knfsd => (GUEST_ADDRESS, "/run/knfsd"),
        }
    }
}

/// The directories of one combination.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Everything of this combination is below here.
    pub(super) work: PathBuf,
    /// Served as /export.
    pub(super) export: PathBuf,
    /// Served as /space: a file system that is soon full.
    pub(super) space: PathBuf,
    /// Served as /quota: one with a quota that is soon used up.
    pub(super) quota: PathBuf,
    /// The server's own state.
    pub(super) state: PathBuf,
}

impl Places {
    pub(super) fn below(work: &Path) -> Places {
        let at = |name: &str| work.join(name);
        Places {
            work: work.to_path_buf(),
            export: at("export"),
            space: at("space"),
            quota: at("quota"),
            state: at("state"),
        }
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
        for (name, place) in names {
            command = command.replace(name, &place.display().to_string());
        }
        command
    }
}

fn enfys_command(combination: &Combination, places: &Places) -> Result<String, String> {
    let enfys = enfys_binary();
    let enfys =
        format!("exec {} serve --listen {ADDRESS}:{PORT} --portmap --state-dir {{state}}", enfys.display());
    Ok(match (combination.backend, combination.export) {
        (Backend::Local, Export::Sync) => format!("{enfys} --squash none {ENFYS_EXPORTS}"),
        (Backend::Local, Export::Async) => format!("{enfys} --squash none --async {ENFYS_EXPORTS}"),
        (Backend::Memory, _) => {
            let file = places.work.join("enfys.toml");
            write(&file, &enfys_memory_config())?;
            format!("{enfys} --config {}", file.display())
        }
    })
}

/// Several file systems in memory, of which one is small, are more than the command line can say.
fn enfys_memory_config() -> String {
    let export = |pseudo: &str, more: &str| {
        format!("[[export]]\nmemory = true\npseudo = \"{pseudo}\"\nsquash = \"none\"\n{more}\n")
    };
    let small = format!("memory-bytes = {}", u64::from(SPACE_MIB) << 20);
    let quota = format!("quota-bytes = {}", u64::from(QUOTA_MIB) << 20);
    [export("/export", ""), export("/space", &small), export("/quota", &quota)].concat()
}

/// This project's server.
pub(super) fn enfys_binary() -> PathBuf {
    release_dir().join("enfys")
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Where cargo puts what it builds with --release.
pub(super) fn release_dir() -> PathBuf {
    target_dir().join("release")
}

fn ganesha_command(places: &Places) -> Result<String, String> {
    let mut config = format!(
        "NFS_CORE_PARAM {{ NFS_Port = {PORT}; MNT_Port = {OWN_MOUNT_PORT}; NLM_Port = 20049; Protocols = 3, 4; Mount_Path_Pseudo = true; }}\n\
         NFSv4 {{ Graceless = true; Minor_Versions = 0, 1, 2; }}\n"
    );
    for (id, (pseudo, place)) in
        [("/export", &places.export), ("/space", &places.space), ("/quota", &places.quota)].iter().enumerate()
    {
        config.push_str(&format!(
            "EXPORT {{ Export_Id = {}; Path = {}; Pseudo = {pseudo}; Access_Type = RW; \
             Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; FSAL {{ Name = VFS; }} }}\n",
            id + 1,
            place.display()
        ));
    }
    let file = places.work.join("ganesha.conf");
    write(&file, &config)?;
    let (file, log) = (file.display(), places.work.join("ganesha.log"));
    Ok(format!(
        "pgrep -x rpcbind >/dev/null || rpcbind -w; mkdir -p /run/ganesha; exec ganesha.nfsd -F -f {file} -L {} -p /run/ganesha/pid",
        log.display()
    ))
}

/// A server that can be killed and started again.
pub(super) struct Server {
    command: String,
    /// Whether it is to listen on this side of the TAP device.
    listens: bool,
    log: PathBuf,
    child: Option<Child>,
}

impl Server {
    /// A server that is not started yet; `template` may name the places.
    pub(super) fn new(template: &str, places: &Places, listens: bool) -> Server {
        Server { listens, command: places.fill_in(template), log: places.server_log(), child: None }
    }

    /// Starts it and waits until it listens.
    pub(super) fn start(&mut self) -> Result<(), String> {
        if self.child.is_some() {
            return Err("the server runs already".into());
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(|error| format!("log: {error}"))?;
        let errors = log.try_clone().map_err(|error| format!("log: {error}"))?;
        let mut shell = Command::new("bash");
        shell.args(["-c", &self.command]).stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
        self.child = Some(shell.spawn().map_err(|error| format!("server: {error}"))?);
        if self.listens { self.wait_ready() } else { Ok(()) }
    }

    fn wait_ready(&mut self) -> Result<(), String> {
        let address = SocketAddr::new(ADDRESS.parse().map_err(|error| format!("{ADDRESS}: {error}"))?, PORT);
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

    /// Kills it, as a crash would: no signal handler runs.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.signal(Signal::KILL)
    }

    /// Asks it to end, and waits until it has.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        self.signal(Signal::TERM)
    }

    fn signal(&mut self, signal: Signal) -> Result<(), String> {
        let mut child = self.child.take().ok_or("the server does not run")?;
        let group = Pid::from_raw(child.id() as i32).ok_or("no process id")?;
        // It may have ended by itself; then there is only its status to take.
        match kill_process_group(group, signal) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => return Err(format!("kill: {error}")),
        }
        child.wait().map_err(|error| format!("wait: {error}"))?;
        Ok(())
    }

    /// How it ended, where it has ended by itself.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        Some(status.to_string())
    }

    /// Its process id, where it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }
}

#[cfg(test)]
mod tests {
    use super::super::matrix::Version;
    use super::*;

    fn command(export: Export, backend: Backend, places: &Places) -> String {
        let combination = Combination { version: Version::V3, export, backend };
        let template = Kind::Enfys.command(&combination, places).expect("a command");
        places.fill_in(&template)
    }

    #[test]
    fn a_command_names_the_directories_of_its_combination() {
        let places = Places::below(Path::new("/w"));
        let sync = command(Export::Sync, Backend::Local, &places);
        assert!(sync.ends_with(
            "--state-dir /w/state --squash none /w/export:/export /w/space:/space /w/quota:/quota"
        ));
        let fast = command(Export::Async, Backend::Local, &places);
        assert!(fast.contains(" --async ") && !sync.contains(" --async "), "{sync}\n{fast}");
    }

    #[test]
    fn memory_is_served_by_a_configuration() {
        let work = tempfile::tempdir().expect("a directory");
        let command = command(Export::Sync, Backend::Memory, &Places::below(work.path()));
        assert!(command.ends_with("enfys.toml") && !command.contains("/export"), "{command}");
        let config: toml::Table =
            fs::read_to_string(work.path().join("enfys.toml")).expect("the file").parse().expect("TOML");
        let exports = config["export"].as_array().expect("exports");
        assert_eq!(exports.len(), 3);
        assert_eq!(exports[1]["memory-bytes"].as_integer(), Some(i64::from(SPACE_MIB) << 20));
        assert_eq!(exports[2]["quota-bytes"].as_integer(), Some(i64::from(QUOTA_MIB) << 20));
    }
}
