//! The guest: Debian's user-mode Linux, booted as a process.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::channel;
use super::matrix::Combination;
use super::programs_of_peers;
use super::script::Script;
use super::server::{self, Directories, ServerKind};
use crate::tools::TOOLS;

/// A TAP device, which connects the guest and the server.
pub(super) struct Tap {
    pub(super) name: &'static str,
    /// Address and prefix length on the server's side.
    pub(super) address: &'static str,
}

/// One device for the guest, and one for its second client.
pub(super) const TAPS: [Tap; 2] =
    [Tap { name: "tap0", address: "10.99.0.1/24" }, Tap { name: "tap1", address: "10.99.1.1/24" }];
/// The guest's memory: for files of the tests and for its page cache.
const MEMORY: &str = "1G";

/// A booted kernel.
pub(super) struct Guest {
    child: Child,
}

impl Guest {
    /// Boots a kernel that runs `scripts` in order.
    pub(super) fn boot(config: &GuestConfig<'_>, scripts: &[&Script]) -> Result<Guest, String> {
        fs::write(environment_file(config.directories), config.environment(scripts))
            .map_err(|error| format!("guest: {error}"))?;
        let init = config.scripts_dir.join("init.sh");
        let mut command = kernel_command(config.directories, &init, MEMORY, "console.log")?;
        command.arg("GUEST=1").args(
            TAPS.iter().enumerate().map(|(number, tap)| {
                format!("vec{number}:transport=tap,ifname={},depth=128,gro=1", tap.name)
            }),
        );
        Guest::start(command, config.worker)
    }

    /// Starts a kernel that stays on a core.
    pub(super) fn start(mut command: Command, core: usize) -> Result<Guest, String> {
        let started = on_one_core(core, || command.spawn());
        Ok(Guest { child: started.map_err(|error| format!("linux.uml: {error}"))? })
    }

    /// Returns whether the kernel has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills the kernel and all its processes.
    pub(super) fn kill(mut self) {
        if let Some(group) = Pid::from_raw(self.child.id() as i32) {
            // It may already have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Returns the command of a kernel without network devices, whose console is appended to a log in the working directory.
pub(super) fn kernel_command(
    directories: &Directories,
    init: &Path,
    memory: &str,
    console: &str,
) -> Result<Command, String> {
    let context = |error: std::io::Error| format!("guest: {error}");
    let work = &directories.work;
    let console = File::options().create(true).append(true).open(work.join(console)).map_err(context)?;
    let mut command = Command::new("linux.uml");
    command
        .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw", "quiet", "con=null"])
        .arg("con0=null,fd:1")
        .arg(format!("mem={memory}"))
        .arg(format!("uml_dir={}", work.join("uml").display()))
        .arg(format!("init={}", init.display()))
        // The kernel passes unknown words with `=` to init as environment variables.
        .arg(format!("GUEST_ENV={}", environment_file(directories).display()))
        // The guest's memory is a file, and /dev/shm of a container is small.
        .env("TMPDIR", work.join("memory"))
        .stdin(Stdio::null())
        .stdout(console.try_clone().map_err(context)?)
        .stderr(console)
        .process_group(0);
    Ok(command)
}

/// Returns the file of shell variables of the guests.
fn environment_file(directories: &Directories) -> PathBuf {
    directories.work.join("guest.env")
}

/// Runs `start` pinned to the core `number` (modulo the number of cores), so that started processes stay there.
///
/// The guest's kernel and its programs are host processes that switch at every system call and page fault, and only one of them
/// runs at a time. On two cores each switch would wake a sleeping core.
pub(super) fn on_one_core<T>(number: usize, start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let all = sched_getaffinity(None)?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core)).collect();
    let mut one = CpuSet::new();
    one.set(cores[number % cores.len()]);
    sched_setaffinity(None, &one)?;
    let started = start();
    sched_setaffinity(None, &all)?;
    started
}

/// Configuration of a guest.
pub(super) struct GuestConfig<'a> {
    pub(super) combination: &'a Combination,
    pub(super) directories: &'a Directories,
    pub(super) scripts_dir: PathBuf,
    /// `guest`, `selfcheck` or `foreign`.
    pub(super) scripts_kind: &'static str,
    /// Directory of the external suite.
    pub(super) suite: Option<&'a Path>,
    pub(super) server_kind: ServerKind,
    /// The enfys program, if enfys is the server under test, to ask for its status.
    pub(super) enfys: Option<PathBuf>,
    pub(super) mount_port: u16,
    /// The number of this guest among the concurrent ones.
    pub(super) worker: usize,
    /// Additional shell variables for the tests.
    pub(super) variables: &'a [(String, String)],
}

impl GuestConfig<'_> {
    /// Returns a file of shell variables.
    fn environment(&self, scripts: &[&Script]) -> String {
        let tests: Vec<String> =
            scripts.iter().map(|script| format!("{}:{}", script.name, script.limit_seconds)).collect();
        let variables = [
            ("VERSION", self.combination.version.name().to_owned()),
            ("EXPORT_MODE", self.combination.export.name().to_owned()),
            ("BACKEND", self.combination.backend.name().to_owned()),
            ("DRIVER", server::ADDRESS.to_owned()),
            ("SERVER", self.server_kind.address().to_owned()),
            ("ENFYS", self.enfys.as_deref().map(quoted).unwrap_or_default()),
            ("CLIENT", quoted(&self.directories.enfys())),
            ("OPERATIONS", quoted(&server::operations_binary())),
            ("PEERS", quoted(&programs_of_peers())),
            ("KNFSD_ROOT", self.server_kind.export_root().to_owned()),
            ("PORT", server::PORT.to_string()),
            ("MOUNT_PORT", self.mount_port.to_string()),
            ("CHANNEL_PORT", channel::PORT.to_string()),
            ("HOST_EXPORT", quoted(&self.directories.export)),
            ("SCRIPTS", quoted(&self.scripts_dir)),
            ("TESTS_DIR", quoted(&self.scripts_dir.join(self.scripts_kind))),
            ("HOST_PROBE", quoted(&self.directories.programs.join("kernel-probe"))),
            ("SUITE_DIR", quoted(self.suite.unwrap_or(Path::new("")))),
            ("TESTS", format!("'{}'", tests.join(" "))),
        ];
        let tools = TOOLS.iter().map(|tool| (tool.name.to_uppercase(), quoted(&tool.path())));
        variables
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .chain(tools)
            .chain(self.variables.iter().cloned())
            .map(|(name, value)| format!("export {name}={value}\n"))
            .collect()
    }
}

/// Quotes a path for the shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_paths_for_the_shell() {
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }

    #[test]
    fn processes_started_on_one_core_stay_there() {
        let allowed = || -> io::Result<Option<String>> {
            let output = Command::new("cat").arg("/proc/self/status").output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok(text.lines().find(|line| line.starts_with("Cpus_allowed_list:")).map(str::to_owned))
        };
        let before = allowed().expect("a list");
        for number in 0..5 {
            let inside = on_one_core(number, allowed).expect("a core").expect("a list");
            assert!(!inside.contains([',', '-']), "{inside}");
            assert_eq!(allowed().expect("a list"), before);
        }
    }
}
